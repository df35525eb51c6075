"""Hearing everything a queue's event log tells."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from bullite import EventEmitter, Queue, QueueEvents, QueueEventsProducer

from .helpers import until

EVENTS = (
    *("added", "waiting", "active", "progress", "completed", "failed", "attempt_failed"),
    *("delayed", "stalled", "removed", "promoted", "retry_scheduled", "retries-exhausted"),
    *("duplicated", "cleaned", "paused", "resumed", "drained", "log_added", "dead_lettered"),
    *("restored", "gap", "deduplicated"),
)
_ends = (f"end {number}" for number in itertools.count())


class Heard(NamedTuple):
    """One event, as a listener of queue events got it."""

    name: str
    payload: dict[str, Any]
    id: str


def listen(events: EventEmitter, *more: str) -> list[Heard]:
    """A list that grows with every event, of the usual names and of these."""
    heard: list[Heard] = []

    def hear(name: str, payload: dict[str, Any], id: str) -> None:
        heard.append(Heard(name, payload, id))

    for name in (*EVENTS, *more):
        events.on(name, partial(hear, name))
    return heard


def gather(emitter: EventEmitter, *names: str) -> list[tuple[Any, ...]]:
    """A list that grows with (name, *arguments) of these events."""
    heard: list[tuple[Any, ...]] = []

    def listener(name: str) -> Callable[..., None]:
        return lambda *arguments: heard.append((name, *arguments))

    for name in names:
        emitter.on(name, listener(name))
    return heard


async def told(queue: Queue, *more: str, after: str = "0-0", name: str | None = "") -> list[Heard]:
    """What the log tells after an event, up to now; of another queue, or with None of all."""
    reader = queue.name if name == "" else name
    producer = QueueEventsProducer(queue.name if name in ("", None) else str(name), queue.store)
    end = next(_ends)
    await producer.publish_event(end)
    events = QueueEvents(reader, queue.store, last_event_id=after)
    heard = listen(events, *more, end)
    async with events:
        await until(lambda: heard and heard[-1].name == end)
    return heard[:-1]


def payloads(heard: list[Heard], name: str) -> list[dict[str, Any]]:
    return [event.payload for event in heard if event.name == name]


def names_of(heard: list[Heard], job_id: str) -> list[str]:
    """What one job went through."""
    return [event.name for event in heard if event.payload.get("job_id") == job_id]


def place(event: Heard) -> tuple[int, int]:
    row, index = event.id.split("-")
    return int(row), int(index)
