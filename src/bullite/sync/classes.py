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
    from ..client.queue.flow_builder import FlowNode
    from ..client.queue.job_schedulers import JobScheduler, JobTemplate
    from ..client.queue.metrics import Metrics
    from ..client.queue.queue import BulkJob, _StoredSettings
    from ..client.queue.reads import WorkerInfo
    from ..client.queue.settings import QueueSettings
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
    object; the other settings are stored for everybody, as `configure` does.
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
        """Open the store and find or make the queue in it."""
        run_blocking(self._blocking.wait_until_ready())

    def close(self) -> None:
        """Let go of the store; everything accepted is written first."""
        run_blocking(self._blocking.close())

    def add(self, name: str, data: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job; when this returns, the job is on the disk.

        With a `job_id` that is taken nothing is added and the existing job is returned; so with a
        `deduplication` key that another job holds. With `repeat` a job scheduler is made, or
        changed, and its pending job is returned.
        """
        return Job(run_blocking(self._blocking.add(name, data, **options)))

    def add_bulk(
        self,
        jobs: Iterable[BulkJob],
        *,
        chunk: int | None = None,
        on_chunk: Callable[[int], object] | None = None,
    ) -> list[Job]:
        """Add many jobs, all or none; each is a mapping with `name`, `data` and `opts`.

        More than 100,000 need `chunk`: then each chunk is a transaction of its own, and `on_chunk`
        is told how many jobs are stored so far.
        """
        return as_jobs(run_blocking(self._blocking.add_bulk(jobs, chunk=chunk, on_chunk=on_chunk)))

    def configure(self, **settings: Unpack[QueueSettings]) -> dict[str, Any]:
        """Store settings for every producer and worker of the queue; what is stored then.

        Changing `priority_order` ranks the jobs there are anew.
        """
        return run_blocking(self._blocking.configure(**settings))

    def pause(self) -> None:
        """Let the queue hand out no jobs, in any process, until `resume`; running jobs run on."""
        run_blocking(self._blocking.pause())

    def resume(self) -> None:
        """Let the queue hand out jobs again."""
        run_blocking(self._blocking.resume())

    def drain(self, delayed: bool = False) -> None:
        """Remove the jobs that wait, with `delayed` also those that wait for their time."""
        run_blocking(self._blocking.drain(delayed))

    empty = drain

    def obliterate(self, force: bool = False, count: int = 1_000) -> None:
        """Delete the queue's jobs, schedulers, log and settings for good, `count` jobs at a time.

        Refused while jobs run, unless by `force`: then their workers find that they lost them. The
        queue is paused first, stays so when it is refused, and is as new afterwards.
        """
        run_blocking(self._blocking.obliterate(force, count))

    def trim_events(self, max_length: int) -> int:
        """Keep about so many of the newest events; how many rows of the log went."""
        return run_blocking(self._blocking.trim_events(max_length))

    def cancel(self, job_id: str, reason: str | None = None) -> bool:
        """End a job before its time; it is failed, with the outcome `cancelled`, and not retried.

        One that waits ends at once: True. One that runs, in whatever process, is told to: False. A
        coroutine is cancelled, a function gets its signal; if it completes all the same, it is
        completed. JobNotFound if there is no such job, IllegalMove if it has ended.
        """
        return run_blocking(self._blocking.cancel(job_id, reason))

    def clean(self, grace: Duration, limit: int = 0, state: str = "completed") -> list[str]:
        """Remove the jobs of a state that are older than `grace`, the oldest first; their ids.

        At most `limit`, 0 for all. Running jobs are never removed. `restore` brings one back.
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
        """Delete completed, or failed, jobs that ended longer ago than that, for good; how many.

        The oldest first, at most `limit`, 0 for all; with `fits` only those it says yes to. `state`
        may also be an outcome, such as `cancelled`. What other jobs wait for stays. `on_piece` is
        told how many are gone so far, each time that some are.
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
        """Let all failed, or completed, jobs that ended by `timestamp` run again; their ids.

        After `delay`; with `fits` only those it says yes to. What ends again meanwhile had its run.
        Jobs of a dead-letter queue go home, and stay if their ids are taken there. `count` is how
        many are moved at a time; `on_piece` is told how many are so far, each time that some are.
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
        """Let all delayed jobs wait in line now; their ids. `count` are moved at a time."""
        return run_blocking(self._blocking.promote_jobs(count))

    def remove(self, job_id: str, remove_children: bool = True) -> bool:
        """Take a job out; False if there is none, or if it runs. `restore` brings it back.

        SchedulerOwnsJob if a job scheduler waits for it.
        """
        return run_blocking(self._blocking.remove(job_id, remove_children))

    remove_job = remove

    def restore(self, job_id: str) -> Job:
        """Bring back a job that was removed not longer ago than the queue's `trash_age`.

        JobNotFound if there is none, JobIdTaken if another job has its id by now.
        """
        return Job(run_blocking(self._blocking.restore(job_id)))

    def retry_job(self, job_id: str, *, delay: Duration = 0, reset_attempts: bool = False) -> Job:
        """Let a failed or completed job run once more; a job of a dead-letter queue goes home."""
        return Job(
            run_blocking(
                self._blocking.retry_job(job_id, delay=delay, reset_attempts=reset_attempts)
            )
        )

    def update_job_progress(self, job_id: str, progress: Any) -> None:
        """Say how far a job is, from outside its run."""
        run_blocking(self._blocking.update_job_progress(job_id, progress))

    def add_job_log(
        self, job_id: str, message: str, level: str = "info", keep_logs: int | None = None
    ) -> int:
        """Append a line to a job's log, from outside its run; how many lines it has now."""
        return run_blocking(self._blocking.add_job_log(job_id, message, level, keep_logs))

    def send_event(self, job_id: str, name: str, payload: Any = None) -> bool:
        """Send a job an event; whether it was waiting for it. If not, it is kept until it does.

        JobNotFound if there is no such job, IllegalMove if it is finished.
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

    def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """The id of the job that holds a key, which with a `ttl` may be gone; None if none does."""
        return run_blocking(self._blocking.get_deduplication_job_id(deduplication_id))

    def remove_deduplication_key(self, deduplication_id: str) -> bool:
        """Free a deduplication key, whatever job holds it. Return True if it was held.

        The next job with the key is added. A job that was kept until the holder had finished is
        added now, and holds the key.
        """
        return run_blocking(self._blocking.remove_deduplication_key(deduplication_id))

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
        """Make a job scheduler, or change it: its pending job gives way to one of the new kind.

        It makes jobs by a cron `pattern`, in UTC or in `tz`, or `every` so often, the first at
        once. One whose pattern, or interval, stays the same keeps the time of its next run. Answers
        the pending job, which is the only one; the next is made when a worker takes it. `missed`
        says what becomes of ticks that nobody took in time: "skip", "once" for all, or "all" up to
        `most_missed`.
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
        """Remove a job scheduler, with its pending job unless that was promoted; False if there is
        none.
        """
        return run_blocking(self._blocking.remove_job_scheduler(id))

    def pause_job_scheduler(self, id: str) -> bool:
        """Let a job scheduler make no jobs until it is resumed, or upserted; its pending job goes.

        False if it was paused, or had ended, already. SchedulerNotFound if there is none.
        """
        return run_blocking(self._blocking.pause_job_scheduler(id))

    def resume_job_scheduler(self, id: str) -> bool:
        """Let a paused job scheduler go on; what it missed is up to its rule for missed ticks.

        False if it was not paused, or has ended. SchedulerNotFound if there is none.
        """
        return run_blocking(self._blocking.resume_job_scheduler(id))

    def run_job_scheduler(self, id: str) -> Job:
        """Make one job of a job scheduler now, paused or not; its schedule goes on as it would."""
        return Job(run_blocking(self._blocking.run_job_scheduler(id)))

    def get_job_scheduler(self, id: str) -> JobScheduler | None:
        """The job scheduler with this id, as it is now; None if there is none."""
        return run_blocking(self._blocking.get_job_scheduler(id))

    def get_job_schedulers(
        self, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[JobScheduler]:
        """The job schedulers from `start` to `end`, inclusive; negative ones count from the end.

        The one that runs latest first, with `asc` the next; those that are not enabled come last.
        """
        return run_blocking(self._blocking.get_job_schedulers(start, end, asc))

    def get_job_schedulers_count(self) -> int:
        return run_blocking(self._blocking.get_job_schedulers_count())

    def set_global_concurrency(self, concurrency: int) -> None:
        """Let at most so many jobs run at a time, over all workers; what runs, runs on."""
        run_blocking(self._blocking.set_global_concurrency(concurrency))

    def get_global_concurrency(self) -> int | None:
        """How many jobs may run at a time over all workers; None if nothing limits that."""
        return run_blocking(self._blocking.get_global_concurrency())

    def remove_global_concurrency(self) -> bool:
        """Let workers run as many jobs as they want; False if nothing limited them."""
        return run_blocking(self._blocking.remove_global_concurrency())

    def is_maxed(self) -> bool:
        """Whether as many jobs run as the global concurrency allows."""
        return run_blocking(self._blocking.is_maxed())

    def set_global_rate_limit(self, max: int, duration: Duration) -> None:
        """Let at most `max` jobs begin in `duration`, over all workers.

        It beats the `max` of a worker's own limiter, whose `duration` beats this one.
        """
        run_blocking(self._blocking.set_global_rate_limit(max, duration))

    def get_global_rate_limit(self) -> RateLimit | None:
        """{"max", "duration"}, in ms; None if there is none."""
        return run_blocking(self._blocking.get_global_rate_limit())

    def remove_global_rate_limit(self) -> bool:
        """Let jobs begin as workers want; False if there was no limit."""
        return run_blocking(self._blocking.remove_global_rate_limit())

    def rate_limit(self, duration: Duration) -> None:
        """Let nothing begin for `duration`, in any process. In a processor, raise RateLimitError
        next: its job goes back to its place.
        """
        run_blocking(self._blocking.rate_limit(duration))

    def get_rate_limit_ttl(self, max_jobs: int | None = None, *, key: str | None = None) -> int:
        """Ms until jobs may begin again, or jobs of a key; 0 if some may now.

        `max_jobs` is the limit to judge by, such as that of a worker; else it is the queue's, or
        the key's. Without any, the time that the running window has left.
        """
        return run_blocking(self._blocking.get_rate_limit_ttl(max_jobs, key=key))

    def remove_rate_limit_key(self) -> bool:
        """End the running window, also one set by `rate_limit`; False if none ran."""
        return run_blocking(self._blocking.remove_rate_limit_key())

    def set_rate_limit(self, key: str | None, max: int, duration: Duration) -> None:
        """Let at most `max` jobs that were added with this `limit_key` begin in `duration`.

        None stands for every key that has no limit of its own. Jobs of other keys, and those
        without one, are not held up.
        """
        run_blocking(self._blocking.set_rate_limit(key, max, duration))

    def get_rate_limit(self, key: str | None) -> RateLimit | None:
        """What was set for this key, or with None for every key: {"max", "duration"}, or None."""
        return run_blocking(self._blocking.get_rate_limit(key))

    def remove_rate_limit(self, key: str | None) -> bool:
        """Remove the limit of a key, or with None that of every key; False if there was none."""
        return run_blocking(self._blocking.remove_rate_limit(key))

    def get_meta(self) -> dict[str, Any]:
        """What is stored about the queue beside its jobs; ages in ms, None is no limit."""
        return run_blocking(self._blocking.get_meta())

    def get_job(self, job_id: str) -> Job | None:
        """The job with this id, as it is now; None if there is none."""
        return as_job(run_blocking(self._blocking.get_job(job_id)))

    def get_job_state(self, job_id: str) -> str:
        """Where a job is; `unknown` if it does not exist."""
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
        """Jobs that fit, newest first, and a cursor to go on from when there may be more.

        Name, tag, date and state go along an index, the one that leaves out most; along that of a
        state, the last of its list come first, which of those that ended are the last to end. Text
        is looked for, in either case, in ids, names, tags, data, results and reasons: 20,000 jobs
        at a time, then the answer is what was found so far, perhaps nothing, and a cursor. `state`
        may also be an outcome: `cancelled`, `expired`, `stalled`, `timed-out`.
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
        """What the queue did of late: jobs that ended, how long they ran and waited, by the minute.

        Seven days are kept. Processes tell every other second: the last moments may be missing.
        """
        return run_blocking(self._blocking.metrics(last))

    def why(self, job_id: str) -> str:
        """Why a job is where it is: what it waits for, and what keeps that from happening."""
        return run_blocking(self._blocking.why(job_id))

    def doctor(self) -> list[str]:
        """What in this queue will not go on without help: jobs that wait for others which failed,
        or are gone, while nothing says what is to become of them; and jobs of names, or of versions
        of their tasks, that no worker takes, although some serve the queue.
        """
        return run_blocking(self._blocking.doctor())

    def get_dependencies(
        self, parent_id: str, type: str = "pending", start: int = 0, end: int = -1
    ) -> dict[str, Any]:
        """Children of a job that are `pending`, or were `processed`: their keys as `items`, the
        `jobs` that still exist, and how many there are in all as `total`.
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
        """Jobs in these states, or in any, those of each state together.

        From each state the jobs `start` to `end`, inclusive; negative ones count from its end.
        With `asc` those first that are next, or that are oldest; else the other way round.
        """
        return as_jobs(run_blocking(self._blocking.get_jobs(states, start, end, asc)))

    def iter_jobs(
        self, states: str | Iterable[str] | None = None, *, batch: int = 500
    ) -> Iterator[Job]:
        """The jobs in these states, or in any, one after the other, oldest first in each.

        Holds no more than `batch` of them at a time. A job that moves meanwhile may be met in the
        state it has come to, or missed.
        """
        return map(Job, iterate_blocking(self._blocking.iter_jobs(states, batch=batch)))

    def get_waiting(self, start: int = 0, end: int = -1) -> list[Job]:
        """Those without a priority, next first."""
        return as_jobs(run_blocking(self._blocking.get_waiting(start, end)))

    def get_prioritized(self, start: int = 0, end: int = -1) -> list[Job]:
        """Those that wait with a priority, next first."""
        return as_jobs(run_blocking(self._blocking.get_prioritized(start, end)))

    def get_delayed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Those that wait for their time, next first."""
        return as_jobs(run_blocking(self._blocking.get_delayed(start, end)))

    def get_active(self, start: int = 0, end: int = -1) -> list[Job]:
        """Those that run, the longest first."""
        return as_jobs(run_blocking(self._blocking.get_active(start, end)))

    def get_waiting_children(self, start: int = 0, end: int = -1) -> list[Job]:
        """Those that wait for other jobs, oldest first."""
        return as_jobs(run_blocking(self._blocking.get_waiting_children(start, end)))

    def get_completed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Newest first."""
        return as_jobs(run_blocking(self._blocking.get_completed(start, end)))

    def get_failed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Newest first."""
        return as_jobs(run_blocking(self._blocking.get_failed(start, end)))

    def is_paused(self) -> bool:
        """Whether the queue hands out no jobs."""
        return run_blocking(self._blocking.is_paused())

    def get_job_counts(self, *states: str) -> dict[str, int]:
        """How many jobs are in each state, or in those named; never counts, the counts are kept."""
        return run_blocking(self._blocking.get_job_counts(*states))

    def get_job_count_by_types(self, *states: str) -> int:
        """How many jobs are in these states together, or in all."""
        return run_blocking(self._blocking.get_job_count_by_types(*states))

    def count(self) -> int:
        """How many jobs are still to be run: waiting, prioritized, delayed, waiting-children."""
        return run_blocking(self._blocking.count())

    def get_waiting_count(self) -> int:
        return run_blocking(self._blocking.get_waiting_count())

    def get_prioritized_count(self) -> int:
        return run_blocking(self._blocking.get_prioritized_count())

    def get_delayed_count(self) -> int:
        return run_blocking(self._blocking.get_delayed_count())

    def get_active_count(self) -> int:
        return run_blocking(self._blocking.get_active_count())

    def get_waiting_children_count(self) -> int:
        return run_blocking(self._blocking.get_waiting_children_count())

    def get_completed_count(self) -> int:
        return run_blocking(self._blocking.get_completed_count())

    def get_failed_count(self) -> int:
        return run_blocking(self._blocking.get_failed_count())

    def get_counts_per_priority(self, priorities: Iterable[int] | None = None) -> dict[int, int]:
        """How many jobs wait with each priority, 0 for those without; with all, or with these."""
        return run_blocking(self._blocking.get_counts_per_priority(priorities))

    def get_job_logs(
        self, job_id: str, start: int = 0, end: int = -1, asc: bool = True
    ) -> dict[str, Any]:
        """Lines of a job's log, and how many there are: {"logs": [...], "count": n}.

        Each line is {"timestamp", "message", "level"}.
        """
        return run_blocking(self._blocking.get_job_logs(job_id, start, end, asc))

    def get_workers(self) -> list[WorkerInfo]:
        """The workers of this queue, in whatever process; those that are lost, too, as long as
        nobody has taken over what they held.
        """
        return run_blocking(self._blocking.get_workers())

    def get_workers_count(self) -> int:
        return run_blocking(self._blocking.get_workers_count())

    def get_version(self) -> str:
        """The library and its version."""
        return run_blocking(self._blocking.get_version())

    @property
    def priority_order(self) -> str:
        """ "low" if lower priorities run first, "high" if higher ones do; once it is ready."""
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
    """Adds flows, and shows them.

    `store` is what `Queue` takes. A node is `{"name", "queue_name", "data", "opts", "children"}`.
    """

    def __init__(self, store: Store | str | os.PathLike[str] | None = None) -> None:
        super().__init__(AsyncFlowProducer(store))

    def add(
        self, flow: FlowNode, *, queues_options: Mapping[str, QueueDefaults] | None = None
    ) -> FlowJob:
        """Add a tree of jobs, all or none: each waits until its children have ended well.

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
        """Add many trees, all or none; with `chunk`, so many of them at a time, each chunk in a
        transaction of its own, and `on_chunk` is told how many are stored so far.
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
        """The tree below a job, so many levels deep and with so many children of each kind.

        None if there is no such job. Children that are gone are left out.
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
        """Let go of the store; everything accepted is written first."""
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
    """Puts events of the user's own into the log of a queue."""

    _async: AsyncQueueEventsProducer

    def __init__(self, name: str, store: Store | str | os.PathLike[str] | None = None) -> None:
        from ..client.queue_events import QueueEventsProducer as Asynchronous

        super().__init__(Asynchronous(name, store))

    def publish_event(
        self, event: str, payload: dict[str, Any] | None = None, max_events: int | None = None
    ) -> None:
        """Let every reader of the queue's events hear of this; keep about `max_events` in all."""
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
        """Open the store and find or make the queue in it."""
        run_blocking(self._blocking.wait_until_ready())

    @property
    def priority_order(self) -> str:
        """ "low" if lower priorities run first, "high" if higher ones do; once it is ready."""
        return self._async.priority_order

    def close(self) -> None:
        """Let go of the store; everything accepted is written first."""
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
        return self._async.running

    def wait_until_ready(self) -> None:
        """Wait until everything that happens from now on will be told, once it is read.

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
    `(processor, n)` gives one a concurrency of its own. It begins with `with`, `start()` or
    `run()`. Without a processor, jobs are fetched by hand with `get_next_job`. Listeners are called
    on the loop's thread: plain ones must not wait for anything there.
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
        """Begin, and wait until the worker is known to its queue."""
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
        """Cancel a job that this worker runs; whether it does.

        A coroutine is cancelled, a function gets its signal. Unless it completes all the same, the
        job is failed, with the outcome `cancelled`, and not retried.
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
