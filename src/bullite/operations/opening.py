"""Finding queues, and making them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.plan import Request
from .transaction import Operation, Transaction

DEFAULT_PRIORITY_ORDER = "low"


@dataclass(slots=True)
class OpenQueue(Request):
    """Find or make a queue. Answers its id and its priority order."""

    name: str
    priority_order: str | None


def open_queue(tx: Transaction, requests: Sequence[OpenQueue]) -> Operation[list[tuple[int, str]]]:
    answers: list[tuple[int, str]] = []
    for request in requests:
        found = yield "queue_named", {"name": request.name}
        if found.rows:
            answers.append((found.rows[0][0], found.rows[0][1]))
            continue
        order = request.priority_order or DEFAULT_PRIORITY_ORDER
        made = yield "insert_queue", {"name": request.name, "priority_order": order, "now": tx.now}
        answers.append((made.rows[0][0], order))
    return answers
