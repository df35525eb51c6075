"""Quotas: how many jobs of a queue may wait, how large they may be, how fast they are added."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from ..errors import QueueFull
from .transaction import Operation, Transaction, read_counts

STILL_TO_RUN = ("waiting", "prioritized", "delayed", "waiting_children")
"""The states that `max_waiting` counts."""


class AddCandidate(Protocol):
    """A job that is checked against the quotas."""

    @property
    def name(self) -> str: ...
    @property
    def data(self) -> str: ...


class Quotas(NamedTuple):
    """The quotas of a queue, None for no limit, and the window that counts its adds."""

    name: str
    max_waiting: int | None
    max_payload_bytes: int | None
    max_rate: int | None
    max_rate_duration: int | None
    until: int
    used: int


class QuotaCheck:
    """Checks jobs against the quotas of one queue, within one transaction."""

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
        """Admit all jobs, or return the error. `uncounted` jobs do not count towards numbers."""
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
        """Store the number of admitted jobs."""
        if self._counted and self._quotas.max_rate is not None:
            yield "count_adds", {"queue": queue, "until": self._until, "used": self._used}


def load_quotas(tx: Transaction, queue: int) -> Operation[QuotaCheck]:
    """Return the quota check of a queue; lock it against other adds until the transaction ends."""
    yield from tx.lock_limits(queue)
    found = yield "quotas", {"queue": queue}
    counts = yield from read_counts(queue)
    waiting = sum(counts[kind] + tx.counted(queue, kind) for kind in STILL_TO_RUN)
    return QuotaCheck(Quotas(*found.rows[0]), waiting, tx.now)
