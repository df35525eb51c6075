"""Callers that wait for a job to finish, in `job.result()`.

If a read fails, they keep waiting and the next check reads again. Only an error after which the
store must be opened again (`ENDING`) is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from ..core.codec import as_json, decode
from ..core.event_log import failure_of
from ..core.log_throttle import ThrottledLog
from ..core.states import COMPLETE, FAIL
from ..database.driver import Driver, InvalidData, TransactionAborted
from ..errors import ENDING, JobNotFound, StoreClosed, StoreError
from ..operations.cancel_and_expire import Cancel
from ..operations.children import AwaitChildren
from ..operations.finish import FinishResult, FinishRuns
from ..operations.move import MoveJob, MoveJobs
from ..operations.steps import Suspend
from .calls import Submit, call
from .read_thread import ReadThread
from .replies import SAME_THREAD, Answered, PendingRequest, Reply, ReplyTarget, deliver

log = logging.getLogger("bullite.engine")

_MOVES = AwaitChildren | Cancel | MoveJobs | MoveJob | Suspend
"""Requests that may finish a job, without the result in their answer."""

MAX_LOOKED_UP = 10_000
"""Deleted jobs that one statement looks up in the event log."""


class AwaitedJob(NamedTuple):
    """A job whose result a caller waits for."""

    job: int
    queue: int
    id: str


class _LoggedEnd(NamedTuple):
    """The end of a job, as the event log has it."""

    row: int
    kind: str
    entry: Any


class ResultWaiters:
    """Which callers wait for which job; their reply is [state, return value, failed reason].

    `began` is called on the engine's thread when a caller begins to wait.
    """

    def __init__(
        self, driver: Driver, read_thread: ReadThread, submit: Submit, began: Callable[[], None]
    ) -> None:
        self._driver = driver
        self._read_thread = read_thread
        self._submit = submit
        self._began = began
        self._throttled_log = ThrottledLog(log)
        self._callers: dict[int, list[PendingRequest]] = {}
        self._jobs: dict[int, AwaitedJob] = {}
        self._noted: set[int] = set()
        """Jobs that may have finished; `check_noted` reads them."""
        self._deleted: dict[int, AwaitedJob] = {}
        """Jobs that do not exist any more; the event log may know how they ended."""
        self._looked_up: frozenset[int] = frozenset()
        """Those of them that are being read from the event log."""
        self.since = 0
        """The lease time at which a caller last began to wait."""

    # --- from any thread ---

    def watch(self, job: AwaitedJob, reply: Reply, target: ReplyTarget) -> None:
        """Call `reply` with [state, return value, failed reason] once the job is finished."""
        self._submit(call(partial(self._add, job), reply, target))

    def unwatch(self, job: int, reply: Reply) -> None:
        """End the wait that `watch` began with this reply."""
        self._submit(call(partial(self._remove, job, reply)))

    # --- on the engine's thread ---

    def __bool__(self) -> bool:
        return bool(self._callers)

    def _add(self, job: AwaitedJob, pending: PendingRequest) -> None:
        self.since = self._driver.clock.lease_now()
        self._jobs[job.job] = job
        self._callers.setdefault(job.job, []).append(pending)
        self._noted.add(job.job)
        self._began()

    def _remove(self, job: int, reply: Reply, pending: PendingRequest) -> None:
        left = [caller for caller in self._callers.pop(job, []) if caller.reply is not reply]
        if left:
            self._callers[job] = left
        else:
            self._jobs.pop(job, None)

    def everyone(self) -> list[PendingRequest]:
        return [caller for callers in self._callers.values() for caller in callers]

    def finished(self, requests: Sequence[Any], answers: Sequence[Any]) -> list[Answered]:
        """Return the replies that these requests, now committed, contain.

        Read nothing: other jobs that they may have finished are noted for `check_noted`.
        """
        if not self._callers:
            return []
        replies: list[Answered] = []
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(request, FinishRuns):
                replies += self._finished_by(request, answer)
            elif isinstance(request, _MOVES):
                self._noted.update(self._callers.keys() & request.job_ids())
        return replies

    def _finished_by(self, request: FinishRuns, result: FinishResult) -> list[Answered]:
        """Take the results from the outcomes themselves: the jobs may be deleted already.

        Any outcome but a completion may have finished a job that was cancelled: that is noted.
        """
        awaited = [outcome for outcome in request.outcomes if outcome.job in self._callers]
        final = [
            outcome
            for outcome in awaited
            if outcome.move is COMPLETE or (outcome.move is FAIL and not outcome.manual)
            if outcome.job not in result.lost and outcome.job not in result.overridden
        ]
        replies = [
            (caller, [outcome.move.target, outcome.value, outcome.reason])
            for outcome in final
            for caller in self._pop(outcome.job)
        ]
        self._noted.update(outcome.job for outcome in awaited if outcome.job in self._callers)
        return replies

    def check_noted(self) -> list[Answered]:
        """Read the jobs that callers began to wait for, or that requests may have finished."""
        if not self._noted:
            return []
        noted, self._noted = self._noted, set()
        return self.check(noted)

    def check(self, jobs: Iterable[int] | None = None) -> list[Answered]:
        """Read the awaited jobs, or those of them that are given. Return the replies."""
        awaited = [
            job
            for job in (self._callers if jobs is None else jobs)
            if job in self._callers and job not in self._looked_up
        ]
        if not awaited:
            return []
        params = {"jobs": as_json(awaited)}
        try:
            finished = self._driver.execute("finished_jobs", params).rows
            existing = {job for [job] in self._driver.execute("existing_jobs", params).rows}
            if finished or len(existing) < len(awaited):
                self._driver.sync()  # another process may just have committed that
        except _FAILURES as error:
            self._report(error)
            return []
        replies: list[Answered] = []
        for job, *result in finished:
            replies += [(caller, result) for caller in self._pop(job)]
        self._deleted |= {
            job: self._jobs[job] for job in set(self._callers).intersection(awaited) - existing
        }
        self._look_up_deleted()
        return replies

    def _pop(self, job: int) -> Sequence[PendingRequest]:
        """Return the callers of a job that finished, which wait no more."""
        self._jobs.pop(job, None)
        return self._callers.pop(job, ())

    # --- jobs that are deleted ---

    def _look_up_deleted(self) -> None:
        """Have the event log read for how jobs ended: all of them with one statement.

        The log may be long. So it is read on the read thread, and not again for one job more before
        the last read has ended.
        """
        if not self._deleted or self._looked_up:
            return
        deleted = list(islice(self._deleted.values(), MAX_LOOKED_UP))
        for awaited in deleted:
            del self._deleted[awaited.job]
        self._looked_up = frozenset(awaited.job for awaited in deleted)
        jobs = [[awaited.job, awaited.queue] for awaited in deleted]
        queues = sorted({awaited.queue for awaited in deleted})
        self._read_thread.read(
            "ends_in_log",
            {"jobs": as_json(jobs), "queues": as_json(queues)},
            lambda rows: self._submit(call(partial(self._looked_up_deleted, deleted, rows))),
            SAME_THREAD,
        )

    def _looked_up_deleted(
        self, deleted: Sequence[AwaitedJob], rows: Any, pending: PendingRequest
    ) -> None:
        """Deliver the replies for deleted jobs; `rows` is the log entries, or the exception."""
        self._looked_up = frozenset()
        if isinstance(rows, BaseException):
            self._deleted.clear()  # the next check finds them again
            self._report(rows)
            return
        newest: dict[int, _LoggedEnd] = {}
        for job, kind, entry, row in rows:
            if job not in newest or row > newest[job].row:
                newest[job] = _LoggedEnd(row, kind, entry)
        replies: list[Answered] = []
        for awaited in deleted:
            end = _end(awaited, newest.get(awaited.job))
            replies += [(caller, end) for caller in self._pop(awaited.job)]
        self._look_up_deleted()
        deliver(replies)

    def _report(self, error: BaseException) -> None:
        """Log a failed read. Raise an error that ends the engine, or that is a defect."""
        if isinstance(error, ENDING) or not isinstance(error, _FAILURES):
            raise error
        if not isinstance(error, StoreClosed):
            self._throttled_log.warning("could not look for results: %s", error)


_FAILURES = (StoreError, InvalidData, TransactionAborted)


def _end(awaited: AwaitedJob, logged: _LoggedEnd | None) -> Any:
    """Return how a deleted job ended, if the event log still has it; else JobNotFound."""
    gone = JobNotFound(f"job {awaited.id} does not exist any more")
    if logged is None:
        return gone
    is_list = isinstance(logged.entry, str) and logged.entry.startswith("[")
    entry: list[Any] = decode(logged.entry) if is_list else [awaited.job, None]
    failure = failure_of(logged.kind, entry) if is_list else None
    if failure is not None:
        return [failure.state, None, failure.reason]
    _, result, *truncated = entry
    return gone if truncated == [1] else [COMPLETE.target, as_json(result), None]
