"""Finding queues, and making them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .request import ALONE_BESIDE_OTHERS, Request
from .transaction import Operation, Transaction

DEFAULT_PRIORITY_ORDER = "low"


class OpenQueue(Request):
    """Find or make a queue. Answers an OpenedQueue."""

    name: str
    priority_order: str | None
    apart = ALONE_BESIDE_OTHERS


class OpenedQueue(NamedTuple):
    """What a producer must know of a queue."""

    id: int
    priority_order: str
    version: int
    """Of its settings; raised when they change."""
    default_job_options: str | None


def open_queue(tx: Transaction, requests: Sequence[OpenQueue]) -> Operation[list[OpenedQueue]]:
    answers: list[OpenedQueue] = []
    for request in requests:
        found = yield "queue_named", {"name": request.name}
        if found.rows:
            answers.append(OpenedQueue(*found.rows[0]))
        else:
            order = request.priority_order or DEFAULT_PRIORITY_ORDER
            id = yield from _make(tx, request.name, order)
            answers.append(OpenedQueue(id, order, 1, None))
    return answers


def find_or_make(tx: Transaction, name: str) -> Operation[int]:
    """The number of a queue."""
    found = yield "queue_named", {"name": name}
    if found.rows:
        id: int = found.rows[0][0]
        return id
    return (yield from _make(tx, name, DEFAULT_PRIORITY_ORDER))


def _make(tx: Transaction, name: str, order: str) -> Operation[int]:
    made = yield "insert_queue", {"name": name, "priority_order": order, "now": tx.now}
    id: int = made.rows[0][0]
    return id
