"""Queues and all that belongs to them, for users without an event loop.

Made by `python -m tools.make_sync` from the asynchronous classes: change those, and run it again.
"""

from __future__ import annotations

import random as _random
from functools import partial
from typing import TYPE_CHECKING, overload

from ..client.flow import FlowProducer as AsyncFlowProducer
from ..client.queue.queue import Queue as AsyncQueue
from ..client.runtime.blocking import iterate_blocking, run_blocking
from .background import RunningEvents, RunningWorker
from .base import Blocking, asynchronous, refuse_in_loop
from .callbacks import Listening, plain, plain_processors, plain_strategy, taking_job
from .job import Job
from .results import as_dependencies, as_found, as_job, as_jobs, as_tree, as_tree_if_any, as_trees

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, Self, Unpack

    from ..client.flow import QueueDefaults
    from ..client.queue.add import BulkJob
    from ..client.queue.flow_builder import FlowNode
    from ..client.queue.job_schedulers import JobScheduler
    from ..client.queue.metrics import Metrics
    from ..client.queue.queue import _StoredSettings
    from ..client.queue.scheduler_spec import JobTemplate
    from ..client.queue.settings import QueueSettings
    from ..client.queue.workers import WorkerInfo
    from ..client.queue_events import QueueEventsProducer as AsyncQueueEventsProducer
    from ..client.runtime.store import Store
    from ..core.checks import Duration, Moment
    from ..core.job_options import JobOptions, KeepJobs, RateLimit
    from ..scheduler import Scheduler as AsyncScheduler
    from ..worker.retry_strategies import RetryStrategy
    from ..worker.worker import CallableBool, F
    from .callbacks import BackoffStrategy, Processor
    from .results import FlowJob, Found


class Queue(Listening[AsyncQueue]):
    """A named queue in a store.

    `store` is a path, a `sqlite:///` URL, a Store, or None for the default database. Nothing is
    opened until the queue is first used. `default_job_options` hold for jobs added through this
    object; the other settings are stored for every process, as by `configure`.
    """

    def __init__(
        self,
        name: str,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        priority_order: str | None = None,
        default_job_options: JobOptions | None = None,
        random: Callable[[], float] = _random.random,
        **settings: Unpack[_StoredSettings],
    ) -> None:
        super().__init__(
            AsyncQueue(
                name,
                store,
                priority_order=priority_order,
                default_job_options=default_job_options,
                random=random,
                **settings,
            )
        )

    def __repr__(self) -> str:
        return repr(self._async)

    def wait_until_ready(self) -> None:
        """Open the store, and find or create the queue in it."""
        run_blocking(self._blocking.wait_until_ready())

    def close(self) -> None:
        """Close the queue, and its store if it opened it. Accepted requests are written first."""
        run_blocking(self._blocking.close())

    def configure(self, **settings: Unpack[QueueSettings]) -> dict[str, Any]:
        """Store settings for every producer and worker of the queue. Return all that are stored.

        Changing `priority_order` sorts the waiting jobs anew.
        """
        return run_blocking(self._blocking.configure(**settings))

    def pause(self) -> None:
        """Let no worker, in any process, claim jobs until `resume`; running jobs go on."""
        run_blocking(self._blocking.pause())

    def resume(self) -> None:
        """Let workers claim jobs of the queue again."""
        run_blocking(self._blocking.resume())

    def obliterate(self, force: bool = False, count: int = 1_000) -> None:
        """Erase the queue's jobs, schedulers, event log and settings, `count` jobs at a time.

        The queue is paused first. If it has active jobs, raise QueueHasActiveJobs and leave it
        paused; with `force` they are erased, too, and their workers lose them. Afterwards the
        queue is as new.
        """
        run_blocking(self._blocking.obliterate(force, count))

    def trim_events(self, max_length: int) -> int:
        """Keep about `max_length` of the newest events. Return the number of deleted log rows."""
        return run_blocking(self._blocking.trim_events(max_length))

    def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """Return the id of the job that holds a key; None if none does.

        With a `ttl`, the job may be gone while its id still holds the key.
        """
        return run_blocking(self._blocking.get_deduplication_job_id(deduplication_id))

    def remove_deduplication_key(self, deduplication_id: str) -> bool:
        """Free a deduplication key, whatever job holds it. Return True if it was held.

        The next job with the key is added. A job that was kept until the holder had finished is
        added now, and holds the key.
        """
        return run_blocking(self._blocking.remove_deduplication_key(deduplication_id))

    def cancel(self, job_id: str, reason: str | None = None) -> bool:
        """Cancel a job: it fails with the outcome `cancelled`, and is not retried.

        A waiting job fails immediately: return True. A job that runs, in any process, is requested
        to stop: return False. Its coroutine is cancelled, or its function gets the abort signal;
        if it completes all the same, it is completed. Raise JobNotFound if there is no such job,
        IllegalMove if it is finished.
        """
        return run_blocking(self._blocking.cancel(job_id, reason))

    def remove(self, job_id: str, remove_children: bool = True) -> bool:
        """Remove a job, and its descendants. Return False if there is none, or if one is active.

        `restore` brings it back. Raise SchedulerOwnsJob if it is the pending job of a job
        scheduler.
        """
        return run_blocking(self._blocking.remove(job_id, remove_children))

    remove_job = remove

    def restore(self, job_id: str) -> Job:
        """Restore a job that was removed within the queue's `trash_age`, with its descendants.

        Raise JobNotFound if there is none, JobIdTaken if another job has its id now.
        """
        return Job(run_blocking(self._blocking.restore(job_id)))

    def retry_job(self, job_id: str, *, delay: Duration = 0, reset_attempts: bool = False) -> Job:
        """Let a failed or completed job run again, after `delay`.

        It keeps the attempts it made, so it gets one run, unless `reset_attempts`. A job of a
        dead-letter queue returns to the queue in which it failed. Raise JobNotFound if there is
        none.
        """
        return Job(
            run_blocking(
                self._blocking.retry_job(job_id, delay=delay, reset_attempts=reset_attempts)
            )
        )

    def update_job_progress(self, job_id: str, progress: Any) -> None:
        """Store the progress of a job, from outside its run. Raise JobNotFound if there is none."""
        run_blocking(self._blocking.update_job_progress(job_id, progress))

    def add_job_log(
        self, job_id: str, message: str, level: str = "info", keep_logs: int | None = None
    ) -> int:
        """Append a line to a job's log, from outside its run. Return the number of lines it has.

        Raise JobNotFound if there is no such job.
        """
        return run_blocking(self._blocking.add_job_log(job_id, message, level, keep_logs))

    def send_event(self, job_id: str, name: str, payload: Any = None) -> bool:
        """Send a job an event. Return True if the job was waiting for it.

        Otherwise the event is stored for the next `wait_event` of that name. Raise JobNotFound if
        there is no such job, IllegalMove if it is finished.
        """
        return run_blocking(self._blocking.send_event(job_id, name, payload))

    @property
    def name(self) -> str:
        return self._async.name

    @property
    def store(self) -> Store:
        return self._async.store

    @property
    def random(self) -> Callable[[], float]:
        return self._async.random

    def upsert_job_scheduler(
        self,
        id: str,
        *,
        pattern: str | None = None,
        every: Duration | None = None,
        limit: int | None = None,
        start_date: Moment | None = None,
        end_date: Moment | None = None,
        tz: str | None = None,
        immediately: bool = False,
        offset: Duration | None = None,
        missed: str = "once",
        most_missed: int | None = None,
        template: JobTemplate | None = None,
    ) -> Job:
        """Create a job scheduler, or change it and replace its pending job. Return the pending job.

        It adds jobs by a cron `pattern`, in UTC or in `tz`, or `every` interval, the first one
        immediately. If the pattern or interval does not change, neither does the next tick. There
        is one pending job; a worker that claims it adds the next. For ticks that no worker claimed
        in time, `missed` is "skip", "once" (one job for all of them) or "all" (one job each, at
        most `most_missed`).
        """
        return Job(
            run_blocking(
                self._blocking.upsert_job_scheduler(
                    id,
                    pattern=pattern,
                    every=every,
                    limit=limit,
                    start_date=start_date,
                    end_date=end_date,
                    tz=tz,
                    immediately=immediately,
                    offset=offset,
                    missed=missed,
                    most_missed=most_missed,
                    template=template,
                )
            )
        )

    def remove_job_scheduler(self, id: str) -> bool:
        """Remove a job scheduler, and its pending job unless that was promoted. Return False if
        there is no such scheduler.
        """
        return run_blocking(self._blocking.remove_job_scheduler(id))

    def pause_job_scheduler(self, id: str) -> bool:
        """Pause a job scheduler and remove its pending job, until it is resumed or upserted.

        Return False if it was paused or has ended. Raise SchedulerNotFound if there is none.
        """
        return run_blocking(self._blocking.pause_job_scheduler(id))

    def resume_job_scheduler(self, id: str) -> bool:
        """Resume a paused job scheduler; its rule for missed ticks holds for those of the pause.

        Return False if it was not paused or has ended. Raise SchedulerNotFound if there is none.
        """
        return run_blocking(self._blocking.resume_job_scheduler(id))

    def run_job_scheduler(self, id: str) -> Job:
        """Add one job of a job scheduler now, even if it is paused; its ticks do not change.

        Raise SchedulerNotFound if there is none.
        """
        return Job(run_blocking(self._blocking.run_job_scheduler(id)))

    def get_job_scheduler(self, id: str) -> JobScheduler | None:
        """Return the job scheduler with this id as it is now; None if there is none."""
        return run_blocking(self._blocking.get_job_scheduler(id))

    def get_job_schedulers(
        self, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[JobScheduler]:
        """Return the job schedulers from `start` to `end`, inclusive; negative indexes count from
        the end.

        That with the latest next tick comes first, with `asc` that with the earliest; those that
        are not enabled come last.
        """
        return run_blocking(self._blocking.get_job_schedulers(start, end, asc))

    def get_job_schedulers_count(self) -> int:
        """Return the number of job schedulers of the queue."""
        return run_blocking(self._blocking.get_job_schedulers_count())

    def add(self, name: str, data: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job. When this returns, the job is synced to disk.

        If a job has the `job_id` that is given, or holds the `deduplication` key, that job is
        returned and none is added. With `repeat`, a job scheduler is made or changed, and its
        pending job is returned.
        """
        return Job(run_blocking(self._blocking.add(name, data, **options)))

    def add_bulk(
        self,
        jobs: Iterable[BulkJob],
        *,
        chunk: int | None = None,
        on_chunk: Callable[[int], object] | None = None,
    ) -> list[Job]:
        """Add many jobs in one transaction; each is a mapping with `name`, `data` and `opts`.

        More than 100,000 need `chunk`: then each `chunk` jobs are added in a transaction of their
        own, and after each `on_chunk` is called with the number of jobs that are stored so far.
        """
        return as_jobs(run_blocking(self._blocking.add_bulk(jobs, chunk=chunk, on_chunk=on_chunk)))

    def set_global_concurrency(self, concurrency: int) -> None:
        """Limit the active jobs of the queue over all workers; running jobs are not stopped."""
        run_blocking(self._blocking.set_global_concurrency(concurrency))

    def get_global_concurrency(self) -> int | None:
        """Return the maximum number of active jobs over all workers; None if there is none."""
        return run_blocking(self._blocking.get_global_concurrency())

    def remove_global_concurrency(self) -> bool:
        """Remove the global concurrency. Return False if there was none."""
        return run_blocking(self._blocking.remove_global_concurrency())

    def is_maxed(self) -> bool:
        """Return True if as many jobs are active as the global concurrency allows."""
        return run_blocking(self._blocking.is_maxed())

    def set_global_rate_limit(self, max: int, duration: Duration) -> None:
        """Let at most `max` jobs start in `duration`, over all workers.

        If a worker has a limiter of its own, its `duration` and this `max` hold for it.
        """
        run_blocking(self._blocking.set_global_rate_limit(max, duration))

    def get_global_rate_limit(self) -> RateLimit | None:
        """Return the rate limit as {"max", "duration"}, in ms; None if there is none."""
        return run_blocking(self._blocking.get_global_rate_limit())

    def remove_global_rate_limit(self) -> bool:
        """Remove the global rate limit. Return False if there was none."""
        return run_blocking(self._blocking.remove_global_rate_limit())

    def rate_limit(self, duration: Duration) -> None:
        """Let no job of the queue start for `duration`, in any process. In a processor, raise
        RateLimitError next: its job returns to its position.
        """
        run_blocking(self._blocking.rate_limit(duration))

    def get_rate_limit_ttl(self, max_jobs: int | None = None, *, key: str | None = None) -> int:
        """Return the ms until a job, or a job of a key, may start; 0 if one may start now.

        `max_jobs` is used instead of the limit of the queue or the key, such as that of a worker.
        Without any limit, return the ms until the current window ends.
        """
        return run_blocking(self._blocking.get_rate_limit_ttl(max_jobs, key=key))

    def remove_rate_limit_key(self) -> bool:
        """End the current window of the queue, also one set by `rate_limit`.

        Return False if there is none.
        """
        return run_blocking(self._blocking.remove_rate_limit_key())

    def set_rate_limit(self, key: str | None, max: int, duration: Duration) -> None:
        """Let at most `max` jobs that were added with this `limit_key` start in `duration`.

        None sets the limit of each key that has none of its own. Jobs of other keys, and jobs
        without one, start all the same.
        """
        run_blocking(self._blocking.set_rate_limit(key, max, duration))

    def get_rate_limit(self, key: str | None) -> RateLimit | None:
        """Return the limit set for this key, or with None for every key; None if there is none."""
        return run_blocking(self._blocking.get_rate_limit(key))

    def remove_rate_limit(self, key: str | None) -> bool:
        """Remove the limit of a key, or with None of every key. Return False if there was none."""
        return run_blocking(self._blocking.remove_rate_limit(key))

    def get_meta(self) -> dict[str, Any]:
        """Return the settings and state of the queue; ages in ms, None is no limit."""
        return run_blocking(self._blocking.get_meta())

    def clean(self, grace: Duration, limit: int = 0, state: str = "completed") -> list[str]:
        """Remove the jobs of a state that are older than `grace`. Return their ids.

        The oldest first, at most `limit`, 0 for all. Active jobs are never removed. `restore`
        brings a job back.
        """
        return run_blocking(self._blocking.clean(grace, limit, state))

    def purge(
        self,
        older_than: Duration,
        state: str = "completed",
        limit: int = 0,
        *,
        fits: Callable[[Job], bool] | None = None,
        on_piece: Callable[[int], object] | None = None,
    ) -> int:
        """Erase completed, or failed, jobs that finished longer ago than `older_than`. Return their
        number.

        The oldest first, at most `limit`, 0 for all; with `fits` only those for which it returns
        True. `state` may also be an outcome, such as `cancelled`. Jobs that other jobs wait for
        stay. After each transaction `on_piece` is called with the number of jobs erased so far.
        """
        return run_blocking(
            self._blocking.purge(older_than, state, limit, fits=taking_job(fits), on_piece=on_piece)
        )

    def retry_jobs(
        self,
        count: int = 1_000,
        state: str = "failed",
        timestamp: Moment | None = None,
        *,
        delay: Duration = 0,
        reset_attempts: bool = False,
        fits: Callable[[Job], bool] | None = None,
        on_piece: Callable[[int], object] | None = None,
    ) -> list[str]:
        """Let all failed, or completed, jobs that finished by `timestamp` run again. Return
        their ids.

        They run after `delay`; with `fits` only those for which it returns True. Each runs once,
        even if it finishes again meanwhile. Jobs of a dead-letter queue return to their queues,
        unless their ids are taken there. `count` jobs are moved in one transaction; after each,
        `on_piece` is called with the number of jobs moved so far.
        """
        return run_blocking(
            self._blocking.retry_jobs(
                count,
                state,
                timestamp,
                delay=delay,
                reset_attempts=reset_attempts,
                fits=taking_job(fits),
                on_piece=on_piece,
            )
        )

    def promote_jobs(self, count: int = 1_000) -> list[str]:
        """Move all delayed jobs to waiting, so that they run now. Return their ids.

        `count` jobs are moved in one transaction.
        """
        return run_blocking(self._blocking.promote_jobs(count))

    def drain(self, delayed: bool = False) -> None:
        """Remove all waiting jobs, and with `delayed` all delayed ones."""
        run_blocking(self._blocking.drain(delayed))

    empty = drain

    def get_job(self, job_id: str) -> Job | None:
        """Return the job with this id as it is now; None if there is none."""
        return as_job(run_blocking(self._blocking.get_job(job_id)))

    def get_job_state(self, job_id: str) -> str:
        """Return the state of a job; `unknown` if it does not exist."""
        return run_blocking(self._blocking.get_job_state(job_id))

    def find(
        self,
        *,
        name: str | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        text: str | None = None,
        state: str | Iterable[str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Found:
        """Return the jobs that fit all criteria, newest first, and a cursor if there may be more.

        Tag, name, state and date are searched along one index, in this order of preference; with
        a state, jobs come in the reverse order of its list, finished ones by the time at which
        they finished. `text` is searched, ignoring case, in ids, names, tags, data, results and
        reasons. One call reads at most 20,000 jobs: it may return fewer than `limit`, or none, and
        a cursor. `state` may also be an outcome: `cancelled`, `expired`, `stalled`, `timed-out`.
        """
        return as_found(
            run_blocking(
                self._blocking.find(
                    name=name,
                    tag=tag,
                    since=since,
                    text=text,
                    state=state,
                    limit=limit,
                    cursor=cursor,
                )
            )
        )

    def metrics(self, last: Duration = 3_600_000) -> Metrics:
        """Return numbers per minute: jobs that finished, their run and wait times.

        Seven days are kept. Processes write every 2 s, so the last seconds may be missing.
        """
        return run_blocking(self._blocking.metrics(last))

    def why(self, job_id: str) -> str:
        """Explain the state of a job in one sentence: what it waits for, and what delays that."""
        return run_blocking(self._blocking.why(job_id))

    def doctor(self) -> list[str]:
        """Return the problems of the queue that need an operator, one sentence each.

        They are: jobs that wait for jobs which failed or are gone, without a rule for that; and,
        while workers serve the queue, jobs whose name or task version no worker accepts.
        """
        return run_blocking(self._blocking.doctor())

    def get_dependencies(
        self, parent_id: str, type: str = "pending", start: int = 0, end: int = -1
    ) -> dict[str, Any]:
        """Return the children of a job that are `pending`, or that were `processed`: their keys as
        `items`, the `jobs` that still exist, and the number of all as `total`.
        """
        return as_dependencies(
            run_blocking(self._blocking.get_dependencies(parent_id, type, start, end))
        )

    def get_jobs(
        self,
        states: str | Iterable[str] | None = None,
        start: int = 0,
        end: int = -1,
        asc: bool = False,
    ) -> list[Job]:
        """Return the jobs in these states, or in any, grouped by state.

        From each state the jobs `start` to `end`, inclusive; negative indexes count from its end.
        With `asc`, the next or oldest job of a state comes first, else last.
        """
        return as_jobs(run_blocking(self._blocking.get_jobs(states, start, end, asc)))

    def iter_jobs(
        self, states: str | Iterable[str] | None = None, *, batch: int = 500
    ) -> Iterator[Job]:
        """Yield the jobs in these states, or in any, oldest first in each state.

        Reads `batch` jobs at a time. A job that changes its state meanwhile may be yielded again,
        or missed.
        """
        return map(Job, iterate_blocking(self._blocking.iter_jobs(states, batch=batch)))

    def get_waiting(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the waiting jobs without a priority, next first."""
        return as_jobs(run_blocking(self._blocking.get_waiting(start, end)))

    def get_prioritized(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the waiting jobs with a priority, next first."""
        return as_jobs(run_blocking(self._blocking.get_prioritized(start, end)))

    def get_delayed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the delayed jobs, next first."""
        return as_jobs(run_blocking(self._blocking.get_delayed(start, end)))

    def get_active(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the active jobs, those that run longest first."""
        return as_jobs(run_blocking(self._blocking.get_active(start, end)))

    def get_waiting_children(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the jobs that wait for other jobs, oldest first."""
        return as_jobs(run_blocking(self._blocking.get_waiting_children(start, end)))

    def get_completed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the completed jobs, the last to finish first."""
        return as_jobs(run_blocking(self._blocking.get_completed(start, end)))

    def get_failed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the failed jobs, the last to finish first."""
        return as_jobs(run_blocking(self._blocking.get_failed(start, end)))

    def is_paused(self) -> bool:
        """Return True if the queue is paused: no worker claims its jobs."""
        return run_blocking(self._blocking.is_paused())

    def get_job_counts(self, *states: str) -> dict[str, int]:
        """Return the number of jobs in each state, or in these; it is stored, not counted."""
        return run_blocking(self._blocking.get_job_counts(*states))

    def get_job_count_by_types(self, *states: str) -> int:
        """Return the number of jobs in these states together, or in all."""
        return run_blocking(self._blocking.get_job_count_by_types(*states))

    def count(self) -> int:
        """Return the number of jobs that wait: waiting, prioritized, delayed, waiting-children."""
        return run_blocking(self._blocking.count())

    def get_waiting_count(self) -> int:
        """Return the number of waiting jobs without a priority."""
        return run_blocking(self._blocking.get_waiting_count())

    def get_prioritized_count(self) -> int:
        """Return the number of waiting jobs with a priority."""
        return run_blocking(self._blocking.get_prioritized_count())

    def get_delayed_count(self) -> int:
        """Return the number of delayed jobs."""
        return run_blocking(self._blocking.get_delayed_count())

    def get_active_count(self) -> int:
        """Return the number of active jobs."""
        return run_blocking(self._blocking.get_active_count())

    def get_waiting_children_count(self) -> int:
        """Return the number of jobs that wait for other jobs."""
        return run_blocking(self._blocking.get_waiting_children_count())

    def get_completed_count(self) -> int:
        """Return the number of completed jobs."""
        return run_blocking(self._blocking.get_completed_count())

    def get_failed_count(self) -> int:
        """Return the number of failed jobs."""
        return run_blocking(self._blocking.get_failed_count())

    def get_counts_per_priority(self, priorities: Iterable[int] | None = None) -> dict[int, int]:
        """Return the number of waiting jobs by priority, 0 for none; of all, or of these."""
        return run_blocking(self._blocking.get_counts_per_priority(priorities))

    def get_job_logs(
        self, job_id: str, start: int = 0, end: int = -1, asc: bool = True
    ) -> dict[str, Any]:
        """Return lines of a job's log and their number: {"logs": [...], "count": n}.

        Each line is {"timestamp", "message", "level"}.
        """
        return run_blocking(self._blocking.get_job_logs(job_id, start, end, asc))

    def get_workers(self) -> list[WorkerInfo]:
        """Return the workers of this queue in all processes. A lost worker is listed until its
        jobs are recovered.
        """
        return run_blocking(self._blocking.get_workers())

    def get_workers_count(self) -> int:
        """Return the number of workers of this queue in all processes."""
        return run_blocking(self._blocking.get_workers_count())

    def get_version(self) -> str:
        """Return the name and version of the library, such as `bullite:1.0.0`."""
        return run_blocking(self._blocking.get_version())

    @property
    def priority_order(self) -> str:
        """ "low" if lower priorities run first, "high" if higher ones do.

        Raise RuntimeError before the queue is ready.
        """
        return self._async.priority_order

    def disconnect(self) -> None:
        """The same as `close`."""
        run_blocking(self._blocking.disconnect())

    def __enter__(self) -> Self:
        run_blocking(self._blocking.__aenter__())
        return self

    def __exit__(self, *exc_info: object) -> None:
        run_blocking(self._blocking.__aexit__(*exc_info))


class FlowProducer(Blocking[AsyncFlowProducer]):
    """Adds and reads flows.

    `store` is what `Queue` takes. A node is `{"name", "queue_name", "data", "opts", "children"}`.
    """

    def __init__(self, store: Store | str | os.PathLike[str] | None = None) -> None:
        super().__init__(AsyncFlowProducer(store))

    def add(
        self, flow: FlowNode, *, queues_options: Mapping[str, QueueDefaults] | None = None
    ) -> FlowJob:
        """Add a tree of jobs in one transaction; each waits until its children have completed.

        `queues_options` holds `default_job_options` for the jobs of each queue.
        """
        return as_tree(run_blocking(self._blocking.add(flow, queues_options=queues_options)))

    def add_bulk(
        self,
        flows: Iterable[FlowNode],
        *,
        queues_options: Mapping[str, QueueDefaults] | None = None,
        chunk: int | None = None,
        on_chunk: Callable[[int], object] | None = None,
    ) -> list[FlowJob]:
        """Add many trees in one transaction; with `chunk`, each `chunk` trees in a transaction of
        their own, and after each `on_chunk` is called with the number of trees stored so far.
        """
        return as_trees(
            run_blocking(
                self._blocking.add_bulk(
                    flows, queues_options=queues_options, chunk=chunk, on_chunk=on_chunk
                )
            )
        )

    def get_flow(
        self, queue_name: str, id: str, *, depth: int = 10, max_children: int = 20
    ) -> FlowJob | None:
        """Return the tree of a job: at most `depth` levels, and `max_children` of a kind per job.

        Return None if there is no such job. Deleted children are left out.
        """
        return as_tree_if_any(
            run_blocking(
                self._blocking.get_flow(queue_name, id, depth=depth, max_children=max_children)
            )
        )

    def wait_until_ready(self) -> None:
        """Open the store."""
        run_blocking(self._blocking.wait_until_ready())

    def close(self) -> None:
        """Close the store if this object opened it. Accepted requests are written first."""
        run_blocking(self._blocking.close())

    disconnect = close

    def __enter__(self) -> Self:
        run_blocking(self._blocking.__aenter__())
        return self

    def __exit__(self, *exc_info: object) -> None:
        run_blocking(self._blocking.__aexit__(*exc_info))

    @property
    def store(self) -> Store:
        return self._async.store


class QueueEventsProducer(Listening["AsyncQueueEventsProducer"]):
    """Publishes custom events in the event log of a queue."""

    _async: AsyncQueueEventsProducer

    def __init__(self, name: str, store: Store | str | os.PathLike[str] | None = None) -> None:
        from ..client.queue_events import QueueEventsProducer as Asynchronous

        super().__init__(Asynchronous(name, store))

    def publish_event(
        self, event: str, payload: dict[str, Any] | None = None, max_events: int | None = None
    ) -> None:
        """Append an event to the queue's event log, for every reader. Keep about `max_events`."""
        run_blocking(self._blocking.publish_event(event, payload, max_events))

    @property
    def name(self) -> str:
        return self._async.name

    @property
    def store(self) -> Store:
        return self._async.store

    @property
    def random(self) -> Callable[[], float]:
        return self._async.random

    def wait_until_ready(self) -> None:
        """Open the store, and find or create the queue in it."""
        run_blocking(self._blocking.wait_until_ready())

    @property
    def priority_order(self) -> str:
        """ "low" if lower priorities run first, "high" if higher ones do.

        Raise RuntimeError before the queue is ready.
        """
        return self._async.priority_order

    def close(self) -> None:
        """Close the queue, and its store if it opened it. Accepted requests are written first."""
        run_blocking(self._blocking.close())

    def disconnect(self) -> None:
        """The same as `close`."""
        run_blocking(self._blocking.disconnect())

    def __enter__(self) -> Self:
        run_blocking(self._blocking.__aenter__())
        return self

    def __exit__(self, *exc_info: object) -> None:
        run_blocking(self._blocking.__aexit__(*exc_info))


class Scheduler(Blocking["AsyncScheduler"]):
    """Runs the maintenance of a database from `start()` to `close()`, or as a context manager.

    It promotes delayed jobs, fails expired ones, recovers stalled ones, applies retention and
    checkpoints the WAL.
    """

    _async: AsyncScheduler

    def __init__(self, store: Store | str | os.PathLike[str] | None = None) -> None:
        from ..scheduler import Scheduler as Asynchronous

        super().__init__(Asynchronous(store))

    def start(self) -> None:
        """Start maintenance, if it is not started. Raise the error of opening the database."""
        run_blocking(self._blocking.start())

    def close(self) -> None:
        """Stop maintenance, and close the store if the scheduler has opened it."""
        run_blocking(self._blocking.close())

    def __enter__(self) -> Self:
        run_blocking(self._blocking.__aenter__())
        return self

    def __exit__(self, *exc_info: object) -> None:
        run_blocking(self._blocking.__aexit__(*exc_info))

    @property
    def store(self) -> Store:
        return self._async.store


class QueueEvents(RunningEvents):
    """Emit all events of a queue, or of every queue if `name` is None, from all processes.

    Listeners get `(payload, event_id)`, on the thread that reads. With `last_event_id`, reading
    continues after that event; "0-0" starts at the oldest event in the log. Start it with `with`,
    `start()` or `run()`; after the first two no event is missed. Listeners of `completed:7` get the
    event of that one job.
    """

    def __init__(
        self,
        name: str | None,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        last_event_id: str = "$",
    ) -> None:
        refuse_in_loop("QueueEvents")
        from ..client.queue_events import QueueEvents as Asynchronous

        super().__init__(Asynchronous(name, store, last_event_id=last_event_id))

    @property
    def running(self) -> bool:
        """True while the event log is read."""
        return self._async.running

    def wait_until_ready(self) -> None:
        """Wait until the position in the log is known: all later events will be emitted.

        While the database is busy, full or out of reach, opening it is tried again, after 1 s,
        then after up to 15 s. Raise any other error of opening, and StoreClosed after `close`.
        """
        self._wait(self._async.wait_until_ready())

    @property
    def name(self) -> str | None:
        return self._async.name

    @property
    def store(self) -> Store:
        return self._async.store

    @property
    def last_event_id(self) -> str | None:
        return self._async.last_event_id


class Worker(RunningWorker):
    """Runs `processor` for the jobs of `queue`, `concurrency` of them at a time.

    A processor takes `(job)`, `(job, token)` or `(job, token, signal)`. A `def` runs in a thread,
    with a job of this package; an `async def` on the worker's event loop, which has a thread of its
    own, with a `bullite.Job`. A mapping of names to processors takes only jobs of those names;
    `(processor, n)` gives one a concurrency of its own. Start it with `with`, `start()` or
    `run()`. Without a processor, claim jobs with `get_next_job`. Listeners are called in the
    loop's thread: plain ones must not block.
    """

    def __init__(
        self,
        queue: Queue | AsyncQueue | str,
        processor: Processor | Mapping[str, Processor | tuple[Processor, int]] | None = None,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        concurrency: int = 1,
        name: str | None = None,
        lock_duration: Duration = 30_000,
        lock_renew_time: Duration | None = None,
        stalled_interval: Duration = 30_000,
        max_stalled_count: int = 1,
        stalled_backoff: bool = False,
        max_started_attempts: int | None = None,
        poll_interval: Duration = 1_000,
        maintenance_interval: Duration = 1_000,
        drain_delay: Duration = 5_000,
        run_retry_delay: Duration | None = None,
        skip_stalled_check: bool = False,
        skip_lock_renewal: bool = False,
        remove_on_complete: bool | int | KeepJobs | None = None,
        remove_on_fail: bool | int | KeepJobs | None = None,
        retry_strategies: Mapping[str, RetryStrategy] | None = None,
        backoff_strategy: BackoffStrategy | None = None,
        limiter: RateLimit | None = None,
        maximum_rate_limit_delay: Duration = 30_000,
    ) -> None:
        refuse_in_loop("Worker")
        from ..worker.worker import Worker as Asynchronous

        super().__init__(
            Asynchronous(
                asynchronous(queue),
                plain_processors(processor),
                store=store,
                concurrency=concurrency,
                name=name,
                lock_duration=lock_duration,
                lock_renew_time=lock_renew_time,
                stalled_interval=stalled_interval,
                max_stalled_count=max_stalled_count,
                stalled_backoff=stalled_backoff,
                max_started_attempts=max_started_attempts,
                poll_interval=poll_interval,
                maintenance_interval=maintenance_interval,
                drain_delay=drain_delay,
                run_retry_delay=run_retry_delay,
                skip_stalled_check=skip_stalled_check,
                skip_lock_renewal=skip_lock_renewal,
                remove_on_complete=remove_on_complete,
                remove_on_fail=remove_on_fail,
                retry_strategies=retry_strategies,
                backoff_strategy=plain_strategy(backoff_strategy),
                limiter=limiter,
                maximum_rate_limit_delay=maximum_rate_limit_delay,
            )
        )

    @overload
    def process(self, name: str, processor: F, *, concurrency: int | None = None) -> F: ...

    @overload
    def process(self, name: str, *, concurrency: int | None = None) -> Callable[[F], F]: ...

    def process(self, name: str, processor: Any = None, *, concurrency: int | None = None) -> Any:
        """Run jobs called `name` with this function, too. Without `processor`, return a decorator.

        Raise InvalidOption if the worker has a processor for these jobs already.
        """
        if processor is None:
            return lambda function: self.process(name, function, concurrency=concurrency)
        ours = plain(processor, f"the processor of {name!r}")
        self._call(lambda: self._async.process(name, ours, concurrency=concurrency))
        return processor

    @property
    def concurrency(self) -> int:
        """The number of jobs that run at a time. It can be changed while the worker runs."""
        return self._async.concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self._call(partial(setattr, self._async, "concurrency", value))

    def __repr__(self) -> str:
        return repr(self._async)

    @property
    def is_running(self) -> CallableBool:
        """True from the start until the worker is closed, or is paused and runs no jobs."""
        return self._async.is_running

    @property
    def is_paused(self) -> CallableBool:
        """True between `pause()` and `resume()`."""
        return self._async.is_paused

    def wait_until_ready(self) -> None:
        """Start the worker, and wait until it is registered."""
        self._wait(self._async.wait_until_ready())

    def rate_limit(self, duration: Duration) -> None:
        """Start no jobs of the queue for `duration`, in any process, as `queue.rate_limit`."""
        self._wait(self._async.rate_limit(duration))

    def get_next_job(self, token: str | None = None, block: bool = True) -> Job | None:
        """Claim the next job, which the caller finishes. Return None if there is none.

        If `block`, wait for a job up to `drain_delay`. `token` is a text of the caller that is
        accepted in place of the job's token.
        """
        return as_job(self._wait(self._async.get_next_job(token, block)))

    def running_jobs(self) -> list[Job]:
        """Return the jobs that run now."""
        return as_jobs(self._call(lambda: self._async.running_jobs()))

    def cancel_job(self, job_id: str, reason: str | None = None) -> bool:
        """Cancel a job of this worker. Return True if it has the job.

        A coroutine is cancelled, the abort signal of a function is set. Unless the run completes
        even so, the job fails with the outcome `cancelled` and is not retried.
        """
        return self._call(lambda: self._async.cancel_job(job_id, reason))

    def cancel_all_jobs(self, reason: str | None = None) -> int:
        """Cancel all jobs of this worker, as `cancel_job` does. Return their number."""
        return self._call(lambda: self._async.cancel_all_jobs(reason))

    def pause(self, do_not_wait_active: bool = False) -> None:
        """Claim no more jobs until `resume`. Wait for running jobs, unless `do_not_wait_active`."""
        self._wait(self._async.pause(do_not_wait_active))

    def resume(self) -> None:
        """Claim jobs again."""
        self._wait(self._async.resume())

    @property
    def name(self) -> str:
        return self._async.name

    @property
    def queue(self) -> Queue:
        return Queue._around(self._async.queue)
