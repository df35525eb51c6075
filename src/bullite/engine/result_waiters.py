"""Callers that wait for a job to finish, in `job.result()`.

If a read fails, they keep waiting and the next check reads again. Only an error after which the
store must be opened again (`ENDING`) is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from ..core.codec import as_json, decode
from ..core.log_throttle import ThrottledLog
from ..core.states import CANCEL, COMPLETE, EXPIRE, FAIL, State
from ..database.driver import Driver, InvalidData, Params, TransactionAborted
from ..errors import ENDING, JobNotFound, StoreClosed, StoreError
from ..operations.cancel_and_expire import Cancel
from ..operations.children import AwaitChildren
from ..operations.finish import FinishResult, FinishRuns
from ..operations.move import MoveJob, MoveJobs
from ..operations.steps import Suspend
from .replies import PendingRequest, Reply

log = logging.getLogger("bullite.engine")


_MOVING = AwaitChildren | Cancel | MoveJobs | MoveJob | Suspend
"""Requests that may end a job, and do not tell how."""


MOST_AT_ONCE = 10_000
"""How many jobs that are gone are looked for in the event log with one statement."""


class AwaitedJob(NamedTuple):
    """A job that somebody waits for."""

    job: int
    queue: int
    id: str


class ResultWaiters:
    """Who waits for which job; answers are [state, return value, failed reason].

    `read` runs a statement on the thread for reads, and gives the answer to `ends_found`.
    """

    def __init__(
        self, driver: Driver, read: Callable[[str, Params, Sequence[AwaitedJob]], None]
    ) -> None:
        self._driver = driver
        self._read = read
        self._throttled_log = ThrottledLog(log)
        self._requests: dict[int, list[PendingRequest]] = {}
        self._watched: dict[int, AwaitedJob] = {}
        self._noted: set[int] = set()
        """Jobs that may have ended; `check_noted` looks at them."""
        self._gone: dict[int, AwaitedJob] = {}
        """Jobs that do not exist any more; the event log may know how they ended."""
        self._looked_up: frozenset[int] = frozenset()
        """Those of them that are being looked for in the event log."""
        self.since = 0
        """The lease time at which somebody last began to wait."""

    def __bool__(self) -> bool:
        return bool(self._requests)

    def add(self, watched: AwaitedJob, ask: PendingRequest) -> None:
        self.since = self._driver.clock.lease_now()
        self._watched[watched.job] = watched
        self._requests.setdefault(watched.job, []).append(ask)
        self._noted.add(watched.job)

    def remove(self, job: int, reply: Reply) -> None:
        """Somebody waits no more."""
        left = [ask for ask in self._requests.pop(job, []) if ask.reply is not reply]
        if left:
            self._requests[job] = left
        else:
            self._watched.pop(job, None)

    def everyone(self) -> list[PendingRequest]:
        return [ask for asks in self._requests.values() for ask in asks]

    def settled(
        self, requests: Sequence[Any], answers: Sequence[Any]
    ) -> list[tuple[PendingRequest, Any]]:
        """Return the answers that these requests, now committed, hold themselves.

        Read nothing: what else they may have ended is noted for `check_noted`.
        """
        if not self._requests:
            return []
        told: list[tuple[PendingRequest, Any]] = []
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(request, FinishRuns):
                told += self._ended(request, answer)
            elif isinstance(request, _MOVING):
                self._noted.update(self._requests.keys() & request.job_ids())
        return told

    def _ended(self, settle: FinishRuns, settled: FinishResult) -> list[tuple[PendingRequest, Any]]:
        """From the verdicts themselves: the job may be gone already.

        Any but a completion may have ended one that was cancelled: that is looked for.
        """
        mine = [verdict for verdict in settle.outcomes if verdict.job in self._requests]
        ended = [
            verdict
            for verdict in mine
            if verdict.move is COMPLETE or (verdict.move is FAIL and not verdict.manual)
            if verdict.job not in settled.lost and verdict.job not in settled.overridden
        ]
        told = [
            (ask, [verdict.move.target, verdict.value, verdict.reason])
            for verdict in ended
            for ask in self._pop(verdict.job)
        ]
        self._noted.update(verdict.job for verdict in mine if verdict.job in self._requests)
        return told

    def check_noted(self) -> list[tuple[PendingRequest, Any]]:
        """Look at the jobs that somebody began to wait for, or that requests may have ended."""
        if not self._noted:
            return []
        noted, self._noted = self._noted, set()
        return self.check(noted)

    def check(self, jobs: Iterable[int] | None = None) -> list[tuple[PendingRequest, Any]]:
        """Look at the watched jobs, or at those of them that are named; the answers there are."""
        watched = [
            job
            for job in (self._requests if jobs is None else jobs)
            if job in self._requests and job not in self._looked_up
        ]
        if not watched:
            return []
        params = {"jobs": as_json(watched)}
        try:
            finished = self._driver.execute("finished_jobs", params).rows
            existing = {row[0] for row in self._driver.execute("existing_jobs", params).rows}
            if finished or len(existing) < len(watched):
                self._driver.sync()  # somebody else may have committed that just now
        except _FAILURES as error:
            self._report(error)
            return []
        answers: list[tuple[PendingRequest, Any]] = []
        for job, *result in finished:
            answers += [(ask, result) for ask in self._pop(job)]
        self._gone |= {
            job: self._watched[job] for job in set(self._requests).intersection(watched) - existing
        }
        self._look_into_log()
        return answers

    def _pop(self, job: int) -> Sequence[PendingRequest]:
        """Those who wait for a job that ended."""
        self._watched.pop(job, None)
        return self._requests.pop(job, ())

    # --- jobs that are gone ---

    def _look_into_log(self) -> None:
        """Have the event log read for how jobs ended; all there are with one statement.

        It is as long as its readers want it. So it is never read on the engine's thread, and not
        for one more job before it was read for the last.
        """
        if not self._gone or self._looked_up:
            return
        gone = list(islice(self._gone.values(), MOST_AT_ONCE))
        for watched in gone:
            del self._gone[watched.job]
        self._looked_up = frozenset(watched.job for watched in gone)
        jobs = [[watched.job, watched.queue] for watched in gone]
        queues = sorted({watched.queue for watched in gone})
        self._read("ends_in_log", {"jobs": as_json(jobs), "queues": as_json(queues)}, gone)

    def ends_found(
        self, gone: Sequence[AwaitedJob], found: Any
    ) -> list[tuple[PendingRequest, Any]]:
        """Return the answers for jobs that are gone; `found` is the rows, or the exception."""
        self._looked_up = frozenset()
        if isinstance(found, BaseException):
            self._gone.clear()  # the next look finds them again
            self._report(found)
            return []
        newest: dict[int, tuple[int, str, Any]] = {}
        for job, kind, entry, row in found:
            if job not in newest or row > newest[job][0]:
                newest[job] = row, kind, entry
        answers: list[tuple[PendingRequest, Any]] = []
        for watched in gone:
            end = _end(watched, newest.get(watched.job))
            answers += [(ask, end) for ask in self._pop(watched.job)]
        self._look_into_log()
        return answers

    def _report(self, error: BaseException) -> None:
        """Warn of a read that failed; raise what ends the store, and what is a mistake of ours."""
        if isinstance(error, ENDING) or not isinstance(error, _FAILURES):
            raise error
        if not isinstance(error, StoreClosed):
            self._throttled_log.warning("could not look for results: %s", error)


_FAILURES = (StoreError, InvalidData, TransactionAborted)


def _end(watched: AwaitedJob, entry_in_log: tuple[int, str, Any] | None) -> Any:
    """How a job that is gone ended, if the event log still knows; else that it is gone."""
    gone = JobNotFound(f"job {watched.id} does not exist any more")
    if entry_in_log is None:
        return gone
    _, kind, entry = entry_in_log
    is_list = isinstance(entry, str) and entry.startswith("[")
    detail: list[Any] = decode(entry)[1:] if is_list else [None]
    if kind == FAIL.name:
        return [FAIL.target, None, detail[0][0]]
    if kind in (EXPIRE.name, CANCEL.name):
        return [State.FAILED, None, detail[0][1]]
    if detail[1:2] == [1]:
        return gone  # its result was too long for the log
    return [COMPLETE.target, as_json(detail[0]), None]
