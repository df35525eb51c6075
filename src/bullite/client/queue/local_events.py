"""Emit the events that this process causes in a queue: each once, in causal order."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.codec import decode, encode_plain
from ...core.event_log import DRAINED, Event, Failure, failure_of, unfold
from ...engine.engine import Engine
from ...errors import JobFailed, StoreError
from ...operations.transaction import LoggedEntries
from ..job.history import show_failure
from ..runtime import bridge
from ..runtime.blocking import running_loop
from ..runtime.emitter import EventEmitter

if TYPE_CHECKING:
    import asyncio

    from ..job.job import Job
    from .reads import QueueReads


log = logging.getLogger("bullite.events")


def follow(queue: QueueReads) -> LocalEventFeed:
    """Let the emitter of a queue emit what this process does to the queue.

    Several objects of one queue with the same emitter share a feed: it emits each event once.
    """
    key = (queue.store.open(), queue._pk)
    feed: LocalEventFeed | None = queue.events._feeds.get(key)
    if feed is None or not feed.is_alive():
        feed = queue.events._feeds[key] = LocalEventFeed(queue.events, *key)
    feed.objects.append(queue)
    return feed


class LocalEventFeed:
    """Emits the events of one queue that the engine of this process logs."""

    def __init__(self, emitter: EventEmitter, engine: Engine, key: int) -> None:
        self.objects: list[QueueReads] = []
        """The queue objects that share this feed; jobs are read through the first."""
        self._emitter = emitter
        self._engine = engine
        self._key = key
        self._batches: deque[Sequence[LoggedEntries]] = deque()
        self._emitting: asyncio.Task[None] | None = None
        self._target = bridge.reply_target()
        engine.followers.follow(key, self._receive, self._target)

    def is_alive(self) -> bool:
        """Return True if the event loop in which this was made still runs."""
        return self._target.alive()

    def stop(self, queue: QueueReads) -> None:
        """Emit no more for this object; stop following the engine after the last one."""
        self.objects.remove(queue)
        if not self.objects:
            self._engine.followers.unfollow(self._receive)
            key = (self._engine, self._key)
            if self._emitter._feeds.get(key) is self:
                del self._emitter._feeds[key]

    async def emitted(self) -> None:
        """Wait until everything received so far is emitted."""
        if self._emitting is not None:
            await self._emitting

    def _receive(self, logged: Sequence[LoggedEntries] | BaseException) -> None:
        if isinstance(logged, BaseException):
            return  # the engine has stopped: nothing more will be logged
        self._batches.append(logged)
        if self._emitting is None:
            running = running_loop()
            assert running is not None
            self._emitting = running.create_task(self._emit_all())

    async def _emit_all(self) -> None:
        try:
            while self._batches:
                for logged in self._batches.popleft():
                    for entry in decode(encode_plain(logged.events)):
                        for event in unfold(0, logged.queue, logged.kind, [entry]):
                            if event.name != DRAINED:  # a worker emits that itself, with its name
                                await self._emit(event, logged, entry)
        finally:
            self._emitting = None

    async def _emit(self, event: Event, logged: LoggedEntries, entry: Any) -> None:
        if not (self.objects and self._emitter.hears(event.name)):
            return
        queue = self.objects[0]
        try:
            arguments = await _arguments(queue, event, logged, entry)
        except StoreError as error:
            log.warning("an event is emitted without its job: %s", error)
            arguments = [event.payload.get("job_id")]
        self._emitter.emit(event.name, queue.name, *arguments)


_DETAILS = ("data", "log", "delay", "deduplication_id", "deduplicated_job_id")


async def _arguments(
    queue: QueueReads, event: Event, logged: LoggedEntries, entry: Any
) -> list[Any]:
    """Return the arguments of a listener after the name of the queue."""
    payload = dict(event.payload)
    id = payload.pop("job_id", None)
    if id is None or event.is_custom:
        return [event.payload] if event.payload else []
    match event.name:
        case "added" | "active":
            return [id, await queue.get_job(id)]
        case "completed":
            job = await queue.get_job(id)
            fetched = event.truncated and job is not None
            return [id, job.return_value if fetched and job else payload["return_value"], job]
        case "failed" | "attempt-failed":
            job = await _as_at_failure(queue, id, failure_of(logged.kind, entry), logged.at)
            return [id, JobFailed(payload["failed_reason"]), job]
        case _:
            details = [payload[key] for key in _DETAILS if key in payload]
            return [id, *details]


async def _as_at_failure(
    queue: QueueReads, id: str, failure: Failure | None, at: int
) -> Job | None:
    """Return the job as it was when a run of it failed, whatever happened since."""
    job = await queue.get_job(id)
    if job is not None and failure is not None:
        await show_failure(job, failure, at)
    return job
