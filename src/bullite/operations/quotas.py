"""Quotas: how many jobs of a queue may wait, how large they may be, and how fast they may come."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from ..errors import QueueFull
from .transaction import Operation, Transaction, read_counts

STILL_TO_RUN = ("waiting", "prioritized", "delayed", "waiting_children")
"""What `max_waiting` counts."""


class AddCandidate(Protocol):
    """What must be known of a job that wants in."""

    @property
    def name(self) -> str: ...
    @property
    def data(self) -> str: ...


class Quotas(NamedTuple):
    """What a queue lets in, and the window in which jobs were added; None for no limit."""

    name: str
    max_waiting: int | None
    max_payload_bytes: int | None
    max_rate: int | None
    max_rate_duration: int | None
    until: int
    used: int


class QuotaCheck:
    """Lets jobs into one queue, for the length of a transaction."""

    def __init__(self, quotas: Quotas, waiting: int, now: int) -> None:
        self._quotas = quotas
        self._waiting = waiting
        self._now = now
        is_over = quotas.until <= now
        self._until = now + (quotas.max_rate_duration or 0) if is_over else quotas.until
        self._used = 0 if is_over else quotas.used
        self._counted = False
        self._where = f"queue {quotas.name!r} takes no more: "

    def admit(
        self, jobs: Collection[AddCandidate], uncounted: Collection[AddCandidate] = ()
    ) -> QueueFull | None:
        """Let all of them in, or say why not; of the `uncounted` there may be any number."""
        refusal = self._too_large([*jobs, *uncounted]) or self._error(jobs)
        if refusal is None and jobs:
            self._waiting += len(jobs)
            self._used += len(jobs)
            self._counted = True
        return refusal

    def _too_large(self, jobs: Collection[AddCandidate]) -> QueueFull | None:
        most = self._quotas.max_payload_bytes
        for job in jobs if most is not None else ():
            size = len(job.data.encode())
            if most is not None and size > most:
                return QueueFull(
                    f"{self._where}max_payload_bytes is {most} and the data of job {job.name!r} "
                    f"takes {size} as JSON; store it elsewhere and pass where"
                )
        return None

    def _error(self, jobs: Collection[AddCandidate]) -> QueueFull | None:
        quotas, number, where = self._quotas, len(jobs), self._where
        if not number:
            return None
        if quotas.max_waiting is not None and self._waiting + number > quotas.max_waiting:
            return QueueFull(
                f"{where}max_waiting is {quotas.max_waiting} and {self._waiting} jobs are still to "
                f"be run, so {number} more were not added; add them when some have ended"
            )
        if quotas.max_rate is not None and self._used + number > quotas.max_rate:
            return QueueFull(
                f"{where}max_rate is {quotas.max_rate} in {quotas.max_rate_duration} ms and "
                f"{self._used} were added, so {number} more were not; the time begins anew in "
                f"{self._until - self._now} ms"
            )
        return None

    def save(self, queue: int) -> Operation[None]:
        """Write down what was let in."""
        if self._counted and self._quotas.max_rate is not None:
            yield "count_adds", {"queue": queue, "until": self._until, "used": self._used}


def load_quotas(tx: Transaction, queue: int) -> Operation[QuotaCheck]:
    """The door of a queue; nobody else lets jobs in until this transaction has ended."""
    yield from tx.lock_limits(queue)
    found = yield "quotas", {"queue": queue}
    counts = yield from read_counts(queue)
    waiting = sum(counts[kind] + tx.counted(queue, kind) for kind in STILL_TO_RUN)
    return QuotaCheck(Quotas(*found.rows[0]), waiting, tx.now)
