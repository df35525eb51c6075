"""Queue: a queue as producers and operators use it."""

from __future__ import annotations

import os
import random as _random
import time
from collections.abc import Callable
from typing import Any, Self, TypedDict, Unpack, overload

from ...core.checks import MAX_TIME, Duration, check_bool, check_duration, check_int, encode_limited
from ...core.codec import as_json
from ...core.decide_outcome import storable
from ...core.deduplication import KeyHolder
from ...core.job_options import JobOptions, KeepJobs, RateLimit
from ...core.names import check_name
from ...core.states import (
    DELETE,
    DELETE_ACTIVE,
    RESTORE,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    SHOWN_STATES,
    State,
)
from ...errors import (
    BulliteError,
    InvalidOptionType,
    JobIdTaken,
    JobNotFound,
    QueueHasActiveJobs,
    SchedulerOwnsJob,
)
from ...operations.cancel_and_expire import Cancel
from ...operations.deduplicate_release import FreeKey
from ...operations.move import MoveJob, MoveJobs
from ...operations.queues import MAX_TRIMMED, Configure, ResetQueue, SetPaused, TrimEvents
from ...operations.schedulers import DeleteSchedulers
from ...operations.update import Progress
from ..directory import removed_job
from ..job.job import Job
from ..runtime import bridge
from ..runtime.emitter import Entry, EventEmitter, L, Listener, fitted, plain
from ..runtime.store import Store
from .add import MAX_AT_ONCE
from .bulk_moves import BulkMoves
from .job_schedulers import SchedulerMethods
from .limits import LimitMethods
from .local_events import LocalEventFeed, follow
from .settings import QueueSettings, check_settings

PAUSE_TIMEOUT = 2.0
"""Seconds that `pause` waits for workers to return what they prefetched."""


class _StoredSettings(TypedDict, total=False):
    """The settings that are also arguments of `Queue`."""

    dead_letter: str | None
    keep_completed: Duration | KeepJobs | None
    keep_failed: Duration | KeepJobs | None
    trash_age: Duration
    max_events: int
    max_waiting: int | None
    max_payload_bytes: int | None
    max_rate: RateLimit | None


class Queue(SchedulerMethods, LimitMethods, BulkMoves):
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
        events: EventEmitter | None = None,
        random: Callable[[], float] = _random.random,
        **settings: Unpack[_StoredSettings],
    ) -> None:
        super().__init__(name, store, priority_order, events, random, default_job_options)
        self._wants_feed = events is not None
        self._feed: LocalEventFeed | None = None
        self._unstored = check_settings(settings, self.name)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} in {self.store.location}>"

    async def wait_until_ready(self) -> None:
        """Open the store, and find or create the queue in it."""
        await super().wait_until_ready()
        if self._wants_feed:
            self._start_feed()

    async def close(self) -> None:
        """Close the queue, and its store if it opened it. Accepted requests are written first."""
        if self._feed is not None:
            await self._feed.emitted()
            self._feed.stop(self)
            self._feed = None
        await super().close()

    async def _open_row(self) -> None:
        await super()._open_row()
        if self._unstored:
            changes, self._unstored = self._unstored, {}
            await bridge.submit(self.store, Configure(self._pk, changes))
            await super()._open_row()

    # --- listeners -------------------------------------------------------------------------------

    @overload
    def on(self, event: str, listener: Listener) -> Self: ...
    @overload
    def on(self, event: str) -> Callable[[L], L]: ...
    def on(self, event: str, listener: Listener | None = None) -> Any:
        """Call `listener` at each such event; without a listener, return a decorator.

        A plain name is an event of this object. A dotted name such as `job.completed` is an event
        that this process causes in the queue: its arguments are `(job_id, ...)`.
        """
        return self._register(event, listener, once=False)

    def _register(self, event: Any, listener: Listener | None, once: bool) -> Any:
        if not (callable(listener) and isinstance(event, str) and "." in event):
            return super()._register(event, listener, once)
        entry = Entry(listener, fitted(listener), once, scope=self.name)
        self.events._add_entry(plain(event), entry)
        self._wants_feed = True
        if self._opened is not None and self.store.is_open:
            self._start_feed()
        return self

    def off(self, event: str, listener: Listener | None = None) -> Self:
        """Remove a listener, or all listeners of an event."""
        if "." in event:
            self.events._forget(plain(event), listener, scope=self.name)
            return self
        return super().off(event, listener)

    def _start_feed(self) -> None:
        if self._feed is None:
            self._feed = follow(self)

    # --- the queue as a whole --------------------------------------------------------------------

    async def configure(self, **settings: Unpack[QueueSettings]) -> dict[str, Any]:
        """Store settings for every producer and worker of the queue. Return all that are stored.

        Changing `priority_order` sorts the waiting jobs anew.
        """
        changes = check_settings(settings, self.name)
        self._factory.forbid_other_database("dead_letter", changes.get("dead_letter"))
        for options in (settings, settings.get("default_job_options") or {}):
            self._factory.forbid_other_databases(options, None)
        await self._ensure_open()
        if "priority_order" in changes and self._wanted_order is not None:
            self._wanted_order = changes["priority_order"]
        await bridge.submit(self.store, Configure(self._pk, changes))
        await self._open_row()
        return await self.get_meta()

    async def pause(self) -> None:
        """Let no worker, in any process, claim jobs until `resume`; running jobs go on."""
        await self._ensure_open()
        if await bridge.submit(self.store, SetPaused(self._pk, True)):
            self.emit("paused")
        deadline = time.monotonic() + PAUSE_TIMEOUT
        # No notification says that other processes have returned theirs: poll.
        while await self._holds_jobs_ahead() and time.monotonic() < deadline:
            await bridge.sleep(0.005)

    async def _holds_jobs_ahead(self) -> bool:
        [[prefetched]] = await bridge.query(self.store, "count_prefetched", {"queue": self._pk})
        return bool(prefetched)

    async def resume(self) -> None:
        """Let workers claim jobs of the queue again."""
        await self._ensure_open()
        if await bridge.submit(self.store, SetPaused(self._pk, False)):
            self.emit("resumed")

    async def obliterate(self, force: bool = False, count: int = 1_000) -> None:
        """Erase the queue's jobs, schedulers, event log and settings, `count` jobs at a time.

        The queue is paused first. If it has active jobs, raise QueueHasActiveJobs and leave it
        paused; with `force` they are erased, too, and their workers lose them. Afterwards the
        queue is as new.
        """
        check_bool("force", force)
        check_int("count", count, 1, MAX_AT_ONCE)
        await self.pause()
        if not force and await self.get_active_count():
            raise QueueHasActiveJobs(
                f"queue {self.name!r} has active jobs: wait for them, or obliterate(force=True)"
            )
        await bridge.submit(self.store, DeleteSchedulers(self._pk))
        while any([await self._delete_list(name, count) for name in SHOWN_STATES]):
            pass  # a deleted job may have released others into a list that was already empty
        params = {"queue": self._pk, "before": MAX_TIME, "most": count}
        while rows := await bridge.query(self.store, "trash_to_delete", params):
            await bridge.submit(self.store, MoveJobs(DELETE, [pk for [pk, *_] in rows]))
        await bridge.submit(self.store, ResetQueue(self._pk))
        await self._open_row()

    async def _delete_list(self, name: str, at_once: int) -> bool:
        """Delete the jobs of a list. Return True if that released jobs into other lists."""
        move = DELETE_ACTIVE if name == State.ACTIVE else DELETE
        frees = False
        async for moved in self._move_list(move, name, at_once=at_once):
            frees = frees or moved.frees
        return frees

    async def trim_events(self, max_length: int) -> int:
        """Keep about `max_length` of the newest events. Return the number of deleted log rows."""
        check_int("max_length", max_length, 0, 2**31 - 1)
        await self._ensure_open()
        trimmed = piece = await bridge.submit(self.store, TrimEvents(self._pk, max_length))
        while piece >= MAX_TRIMMED:
            piece = await bridge.submit(self.store, TrimEvents(self._pk, max_length, recount=False))
            trimmed += piece
        return int(trimmed)

    # --- deduplication keys ----------------------------------------------------------------------

    async def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """Return the id of the job that holds a key; None if none does.

        With a `ttl`, the job may be gone while its id still holds the key.
        """
        check_name("deduplication_id", deduplication_id)
        await self._ensure_open()
        params = {"queue": self._pk, "keys": as_json([deduplication_id])}
        now = self.store.open().clock.now()
        for _, *row in await bridge.query(self.store, "key_holders", params):
            holder = KeyHolder(*row)
            if holder.holds_at(now):
                return str(holder.public_id)
        return None

    async def remove_deduplication_key(self, deduplication_id: str) -> bool:
        """Free a deduplication key, whatever job holds it. Return True if it was held.

        The next job with the key is added. A job that was kept until the holder had finished is
        added now, and holds the key.
        """
        check_name("deduplication_id", deduplication_id)
        await self._ensure_open()
        held: bool = await bridge.submit(self.store, FreeKey(self._pk, deduplication_id))
        return held

    # --- one job ---------------------------------------------------------------------------------

    async def cancel(self, job_id: str, reason: str | None = None) -> bool:
        """Cancel a job: it fails with the outcome `cancelled`, and is not retried.

        A waiting job fails immediately: return True. A job that runs, in any process, is requested
        to stop: return False. Its coroutine is cancelled, or its function gets the abort signal;
        if it completes all the same, it is completed. Raise JobNotFound if there is no such job,
        IllegalMove if it is finished.
        """
        if reason is not None and not isinstance(reason, str):
            raise InvalidOptionType(f"reason must be text, not {reason!r}")
        number = await self._pk_of(job_id)
        job = None if number is None else await self._job_by_pk(number)
        if job is None:
            raise JobNotFound(f"job {job_id} does not exist")
        answer = await bridge.submit(
            self.store, Cancel(job.pk, job.id, storable(reason or "the job was cancelled"))
        )
        if isinstance(answer, BulliteError):
            raise answer
        return bool(answer)

    async def remove(self, job_id: str, remove_children: bool = True) -> bool:
        """Remove a job, and its descendants. Return False if there is none, or if one is active.

        `restore` brings it back. Raise SchedulerOwnsJob if it is the pending job of a job
        scheduler.
        """
        check_bool("remove_children", remove_children)
        job = await self.get_job(job_id)
        if job is None or job.state == State.ACTIVE:
            return False
        try:
            await job.remove(remove_children)
        except SchedulerOwnsJob:
            raise
        except BulliteError:
            return False
        return True

    remove_job = remove

    async def restore(self, job_id: str) -> Job:
        """Restore a job that was removed within the queue's `trash_age`, with its descendants.

        Raise JobNotFound if there is none, JobIdTaken if another job has its id now.
        """
        if not isinstance(job_id, str):
            raise InvalidOptionType(f"job_id must be text, not {job_id!r}")
        settings = await self._settings()
        removed = await removed_job(self.store, self._pk, job_id)
        oldest = self.store.open().clock.now() - settings.trash_age
        if removed is None or removed.removed_at < oldest:
            raise JobNotFound(f"no job {job_id} was removed from {self.name!r} of late")
        move = RESTORE[State(removed.removed_from)]
        await bridge.submit(self.store, MoveJob(move, removed.pk, job_id, with_descendants=True))
        job = await self._job_by_pk(removed.pk)
        if job is None:
            raise JobIdTaken(f"job {job_id} was removed again meanwhile")
        return job

    async def retry_job(
        self, job_id: str, *, delay: Duration = 0, reset_attempts: bool = False
    ) -> Job:
        """Let a failed or completed job run again, after `delay`.

        It keeps the attempts it made, so it gets one run, unless `reset_attempts`. A job of a
        dead-letter queue returns to the queue in which it failed. Raise JobNotFound if there is
        none.
        """
        wait = check_duration("delay", delay)
        check_bool("reset_attempts", reset_attempts)
        job = await self._existing(job_id)
        move = RETRY_FINISHED_DELAYED if wait else RETRY_FINISHED
        await bridge.submit(self.store, MoveJob(move, job.pk, job.id, wait, reset_attempts))
        home: Queue = self
        if job.original_queue is not None:
            home = Queue(job.original_queue, self.store)
            await home.wait_until_ready()
        job._apply_retry(wait, reset_attempts)
        return job._in_queue(home)

    async def _existing(self, job_id: str) -> Job:
        job = await self.get_job(job_id)
        if job is None:
            raise JobNotFound(f"job {job_id} does not exist in {self.name!r}")
        return job

    async def update_job_progress(self, job_id: str, progress: Any) -> None:
        """Store the progress of a job, from outside its run. Raise JobNotFound if there is none."""
        text = encode_limited(progress, "the progress")
        job = await self._existing(job_id)
        if not await bridge.submit(self.store, Progress(self._pk, job.pk, None, text)):
            raise JobNotFound(f"job {job_id} does not exist in {self.name!r}")
        self.emit("progress", job.id, progress)

    async def add_job_log(
        self, job_id: str, message: str, level: str = "info", keep_logs: int | None = None
    ) -> int:
        """Append a line to a job's log, from outside its run. Return the number of lines it has.

        Raise JobNotFound if there is no such job.
        """
        job = await self._existing(job_id)
        return await job._append_log(message, level, None, keep_logs)

    async def send_event(self, job_id: str, name: str, payload: Any = None) -> bool:
        """Send a job an event. Return True if the job was waiting for it.

        Otherwise the event is stored for the next `wait_event` of that name. Raise JobNotFound if
        there is no such job, IllegalMove if it is finished.
        """
        job = await self._existing(job_id)
        return await job.send_event(name, payload)
