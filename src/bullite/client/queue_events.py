"""The durable event log, read from any process: every event of a queue, once, in order.

A reader remembers its position. If the log was trimmed beyond that position, the reader reports the
number of missed events.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from typing import Any, Self

from ..core.checks import check_bool, check_int, encode_limited
from ..core.codec import decode, encode_plain
from ..core.event_log import Event, unfold
from ..core.names import check_name, job_number
from ..engine.subscription import MAX_BACKOFF, MIN_BACKOFF
from ..errors import (
    ENDING,
    EventsAlreadyRunning,
    InvalidOption,
    InvalidOptionType,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StoreUnavailable,
)
from ..operations.queues import OpenQueue, PublishEvent
from .queue.base import QueueBase
from .runtime import bridge
from .runtime.emitter import OwnEmitter, plain
from .runtime.store import Store

log = logging.getLogger("bullite.events")

ROWS_AT_ONCE = 200
MIN_WAIT, MAX_WAIT = 0.005, 0.25
"""Seconds between looks for what other processes log; longer the longer nothing came."""

_PASSING = (StoreBusy, StoreFull, StoreUnavailable)
"""Errors after which opening is tried again; any other needs an operator."""

GAP = "gap"
"""The event that counts missed events: {"missed": n}, None if the number is unknown."""

_EVENT_ID = re.compile(r"(\d+)(?:-(\d+))?")
Position = tuple[int, int]
"""A row of the log, and the index of its last event that was read."""

_WHOLE = 2**62
OLDEST, TRIMMED = -1, -2
"""Instead of a number of events: reading starts at the oldest event; the number of events before
the position is unknown, because they were trimmed."""


class QueueEvents(OwnEmitter):
    """Emit all events of a queue, or of every queue if `name` is None, from all processes.

    Listeners get `(payload, event_id)`. With `last_event_id`, reading continues after that event;
    "0-0" starts at the oldest event in the log. After `wait_until_ready()` no event is missed.
    Listeners of `completed:7` get the event of that one job. Errors of reading are emitted as
    `error`.
    """

    def __init__(
        self,
        name: str | None,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        autorun: bool = True,
        last_event_id: str = "$",
    ) -> None:
        super().__init__()
        self.name = None if name is None else check_name("the queue's name", name)
        self._owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else Store(store)
        self._wanted = _check_event_id(last_event_id)
        self._position: Position | None = None
        """The last event that was read; None until it is known where reading starts."""
        self._queue: int | None = None
        self._names: dict[int, str] = {}
        self._notified = asyncio.Event()
        self._seen: dict[int, int] = {}
        """By queue: the number of events up to the row of `_position`, as far as it is known."""
        self._opening: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._autorun = check_bool("autorun", autorun)
        self.last_event_id: str | None = None if last_event_id == "$" else last_event_id
        """Id of the last emitted event; a later reader can continue after it."""
        if self._autorun:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                pass  # no loop yet: run() or async with will start it
            else:
                self._start()

    # --- reading ---

    @property
    def running(self) -> bool:
        """True while the event log is read."""
        return self._task is not None and not self._task.done()

    async def run(self) -> None:
        """Read and emit events until `close`.

        Raise EventsAlreadyRunning if this object reads already.
        """
        if self.running:
            raise EventsAlreadyRunning("these queue events are being read already")
        await asyncio.shield(self._start())

    async def wait_until_ready(self) -> None:
        """Wait until the position in the log is known: all later events will be emitted.

        While the database is busy, full or out of reach, opening it is tried again, after 1 s,
        then after up to 15 s. Raise any other error of opening, and StoreClosed after `close`.
        """
        if self._autorun:
            self._start()
        await self._open()

    def _start(self) -> asyncio.Task[None]:
        if self._task is None or (self._task.done() and self._position is None):
            self._task = asyncio.get_running_loop().create_task(self._read())
        return self._task

    async def _read(self) -> None:
        try:
            await self._open()
        except StoreClosed:
            if self._closed:
                return
            raise
        wait = MIN_WAIT
        while not self._closed:
            self._notified.clear()
            try:
                emitted = await self._emit_next()
            except Exception as error:
                self._report("could not read the event log", error)
                if isinstance(error, (StoreClosed, *ENDING)):
                    raise
                emitted, wait = 0, MAX_WAIT
            if emitted:
                wait = MIN_WAIT
                continue
            notified = await self._notified_within(wait)
            wait = MIN_WAIT if notified else min(1.5 * wait, MAX_WAIT)

    async def _notified_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._notified.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _report(self, what: str, error: Exception) -> None:
        log.warning("%s: %r", what, error)
        self.emit("error", error)

    async def _open(self) -> None:
        """Find the position where reading starts; concurrent callers share one attempt."""
        if self._position is not None:
            return
        if self._opening is None or self._opening.done():
            opening = self._find_position_patiently()
            self._opening = asyncio.get_running_loop().create_task(opening)
        await asyncio.shield(self._opening)

    async def _find_position_patiently(self) -> None:
        pause = MIN_BACKOFF
        while not self._closed:
            try:
                await self._find_position()
                return
            except Exception as error:
                self._report("could not open the event log", error)
                if not isinstance(error, _PASSING):
                    raise
            if not self._closed:
                self._notified.clear()
                await self._notified_within(pause / 1000)
            pause = min(2 * pause, MAX_BACKOFF)
        raise StoreClosed("these queue events were closed before they had been opened")

    async def _find_position(self) -> None:
        """Open the store and the queue, and find where reading starts."""
        if not self.store.is_open:
            await bridge.run_in_thread(self.store.open)
        if self.name is not None and self._queue is None:
            opened = await bridge.submit(self.store, OpenQueue(self.name, None))
            self._queue = opened.id
            self.store.open().followers.follow(self._queue, self._notify, bridge.reply_target())
        self._position = await self._end_of_log()

    async def _end_of_log(self) -> Position:
        """Return where reading starts, and note the number of events of each queue before it."""
        after = -1 if self._wanted is None else self._wanted[0]
        rows = await bridge.query(
            self.store, "log_position", {"after": after, "queue": self._queue}
        )
        newest = 0
        for queue, name, events, newest, total in rows:  # noqa: B007 - all rows have the same
            self._names[queue] = name
            if self._wanted is None:
                self._seen[queue] = events
            else:
                self._seen[queue] = (OLDEST if after == 0 else TRIMMED) if total is None else total
        return (newest, _WHOLE) if self._wanted is None else self._wanted

    def _notify(self, logged: object) -> None:
        """This process has appended to the log."""
        self._notified.set()

    async def _emit_next(self) -> int:
        """Emit the events after the position. Return the number of rows."""
        assert self._position is not None
        row, index = self._position
        after = row if index >= _WHOLE else row - 1
        params = {
            "queue": self._queue,
            "after": after,
            "most": ROWS_AT_ONCE,
            "counted": row,
            "seen": encode_plain(self._seen).decode(),
        }
        rows = await bridge.query(self.store, "events_after", params)
        for id, queue, kind, jobs, total, _ in rows:
            events = _unfolded(id, queue, kind, jobs)
            if self.name is None and queue not in self._names:
                await self._learn_names()
            self._emit_gap(id, queue, total, len(events))
            if id > row:
                self._position = (id, -1)  # what was seen counts this row from now on
            for index_in_row, event in enumerate(events):
                if (id, index_in_row) > (row, index):
                    await self._emit(event)
                    self._position = (id, index_in_row)
            self._position = (id, _WHOLE)
            if self._closed:
                break
        return len(rows)

    def _emit_gap(self, row: int, queue: int, total: int, events: int) -> None:
        """Emit a gap if rows were trimmed between the last one that was read and this one."""
        seen = self._seen.get(queue, 0)
        self._seen[queue] = max(total, seen)
        before = total - events
        if seen == OLDEST or before <= max(seen, 0):
            return
        missed = None if seen == TRIMMED else before - seen
        log.warning("%s events were trimmed before they were read", missed or "some")
        self.emit(GAP, {"missed": missed, **self._about(queue)}, f"{row - 1}-0")

    async def _emit(self, event: Event) -> None:
        payload = {**event.payload, **self._about(event.queue)}
        if event.truncated:
            payload["return_value"] = await self._fetch_value(event.queue, payload["job_id"])
        self.last_event_id = event.id
        self.emit(event.name, payload, event.id)
        if "job_id" in payload:
            self.emit(f"{event.name}:{payload['job_id']}", payload, event.id)

    def _about(self, queue: int) -> dict[str, str]:
        return {"queue": self._names.get(queue, "")} if self.name is None else {}

    async def _learn_names(self) -> None:
        rows = await bridge.query(self.store, "queue_names", {})
        self._names = dict(rows)

    async def _fetch_value(self, queue: int, job_id: str) -> Any:
        """Read a return value that was too long for the log; None if its job is gone."""
        number = job_number(job_id)
        if number is None:
            params: dict[str, Any] = {"queue": queue, "custom_id": job_id}
            found = await bridge.query(self.store, "job_with_custom_id", params)
            number = next((pk for [pk] in found), -1)
        rows: Sequence[Any] = await bridge.query(
            self.store, "finished_jobs", {"jobs": f"[{number}]"}
        )
        value = next((value for _, _, value, _ in rows), None)
        return None if value is None else decode(value)

    # --- ending ---

    async def close(self) -> None:
        """Stop reading, and close the store if this object opened it."""
        if self._closed:
            return
        self._closed = True
        self._notified.set()
        for task in (self._task, self._opening):
            if task is not None:
                await asyncio.wait({task})
                if not task.cancelled():
                    task.exception()  # reported already
        if self._queue is not None and self.store.is_open:
            self.store.open().followers.unfollow(self._notify)
        if self._owns_store:
            await bridge.run_in_thread(self.store.close)

    async def __aenter__(self) -> Self:
        self._start()
        await self.wait_until_ready()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


class QueueEventsProducer(QueueBase):
    """Publishes custom events in the event log of a queue."""

    def __init__(self, name: str, store: Store | str | os.PathLike[str] | None = None) -> None:
        super().__init__(name, store)

    async def publish_event(
        self, event: str, payload: dict[str, Any] | None = None, max_events: int | None = None
    ) -> None:
        """Append an event to the queue's event log, for every reader. Keep about `max_events`."""
        check_name("the event's name", event)
        given = {} if payload is None else payload
        if not isinstance(given, dict):
            raise InvalidOptionType(f"payload must be a dict, not {payload!r}")
        stored = decode(encode_limited(given, "the payload of event ", event))
        if max_events is not None:
            check_int("max_events", max_events, 1, 2**31 - 1)
        await self._ensure_open()
        await bridge.submit(self.store, PublishEvent(self._pk, plain(event), stored, max_events))


def _unfolded(row: int, queue: int, kind: str, jobs: str) -> list[Event]:
    """The events of a row; none, and so a gap, if another version of Bullite wrote it otherwise."""
    try:
        return list(unfold(row, queue, kind, decode(jobs)))
    except (ValueError, TypeError, IndexError) as error:
        log.warning("row %d of the event log cannot be read: %r", row, error)
        return []


def _check_event_id(value: Any) -> Position | None:
    if value == "$":
        return None
    match = _EVENT_ID.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidOption(f'last_event_id must be "$" or an id such as "17-0", not {value!r}')
    return int(match[1]), int(match[2] or 0) if int(match[1]) else _WHOLE
