"""Job: one job of a queue, as producers, operators and processors hold it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.checks import (
    MAX_DATA_BYTES,
    Duration,
    check_bool,
    check_duration,
    check_int,
    check_size,
    encode_limited,
)
from ...core.codec import decode, encode
from ...core.decide_outcome import MAX_REASON_LENGTH, storable
from ...core.job_options import Priority, check_priority
from ...core.job_record import JobStatusRow
from ...core.states import (
    PROMOTE,
    REMOVE,
    RESCHEDULE,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    Move,
    State,
)
from ...engine.result_waiters import AwaitedJob
from ...errors import InvalidOption, JobFailed, JobNotFound, LostLock
from ...operations.claim import Claimed
from ...operations.deduplicate_release import FreeKeyOf
from ...operations.move import MoveJob
from ...operations.update import AddLog, ClearLogs, Progress, SetData, SetPriority
from ..runtime import bridge
from ..runtime.pending import Pending
from .dependencies import JobDependencies
from .history import Attempt, read_attempts
from .run import JobOwner, JobRun
from .running_job import RunningJob
from .steps import DurableSteps

if TYPE_CHECKING:
    from ..queue.reads import QueueReads

LOG_LEVELS = ("info", "warn", "error")


class Job(RunningJob, JobDependencies, DurableSteps):
    """One job of a queue.

    Attributes show what was true when the job was last read; `queue.get_job(job.id)` reads again.
    Methods that change the job are requested when they are called: await them in a coroutine; in a
    thread, call `.result()` on what they return, or ignore it. Those of a running job are fenced:
    once the job is lost to another worker they raise LostLock and change nothing.
    """

    __slots__ = ()

    async def get_attempts(self) -> list[Attempt]:
        """Return the history of the job's runs, oldest first, with the present one."""
        job = await self._queue.get_job(self.id)
        return await read_attempts(self if job is None or job.pk != self.pk else job)

    # --- state -----------------------------------------------------------------------------------

    async def get_state(self) -> str:
        """Return the state of the job now; `unknown` if it does not exist."""
        return await self._queue.get_job_state(self.id)

    async def is_waiting(self) -> bool:
        """Read the job's state. Return True if it waits without a priority."""
        return await self.get_state() == State.WAITING

    async def is_prioritized(self) -> bool:
        """Read the job's state. Return True if it waits with a priority."""
        return await self.get_state() == "prioritized"

    async def is_delayed(self) -> bool:
        """Read the job's state. Return True if it is delayed."""
        return await self.get_state() == State.DELAYED

    async def is_active(self) -> bool:
        """Read the job's state. Return True if it is active."""
        return await self.get_state() == State.ACTIVE

    async def is_waiting_children(self) -> bool:
        """Read the job's state. Return True if it waits for other jobs."""
        return await self.get_state() == State.WAITING_CHILDREN

    async def is_completed(self) -> bool:
        """Read the job's state. Return True if it is completed."""
        return await self.get_state() == State.COMPLETED

    async def is_failed(self) -> bool:
        """Read the job's state. Return True if it is failed."""
        return await self.get_state() == State.FAILED

    # --- progress, data, log ---------------------------------------------------------------------

    def update_progress(self, progress: Any) -> Pending[None]:
        """Store the progress of the job: any JSON value of at most 1 MiB.

        Raise LostLock if this run no longer holds the job, JobNotFound if the job is gone.
        """
        text = encode_limited(progress, "the progress")
        self._status = self._status._replace(progress=text)
        request = Progress(self._queue._pk, self.pk, self._own_token(), text)
        self._start_recorded()
        if self._run.owner is not None:
            self._run.owner.on_progress(self, progress)
        return self._submit(request, self._require_held)

    def _require_held(self, held: bool) -> None:
        if not held and not self._run.token_number:
            raise JobNotFound(f"job {self.id} does not exist any more")
        if not held:
            raise LostLock(
                f"job {self.id} is no longer held by this run; its progress was not stored"
            )

    def update_data(self, data: Any) -> Pending[None]:
        """Replace the job's data; the next attempt gets the new data."""
        text = encode(data, "the data of job ", self.name)
        check_size(self.name, text, self._stored_options.get("size_limit", MAX_DATA_BYTES))
        request = SetData(self.pk, self._own_token(), text)

        def stored(answer: Any) -> None:
            self._change_columns(data=text)
            self._data = decode(text)

        return self._submit(request, stored)

    def log(self, message: str, level: str = "info") -> Pending[int]:
        """Append a line to the job's log. Return the number of lines that the log has now."""
        return self._append_log(message, level, self._own_token())

    def _append_log(
        self, message: str, level: str, token: int | None, keep: int | None = None
    ) -> Pending[int]:
        """Append a line to the job's log; with a token, only if the job is held with it."""
        text, checked_level = _check_log(message, level)
        if keep is None:
            keep = self._stored_options.get("keep_logs")
        else:
            check_int("keep_logs", keep, 0, 2**31 - 1)
        request = AddLog(self._queue._pk, self.pk, token, checked_level, text, keep)
        self._start_recorded()
        return self._submit(request, lambda count: count)

    def clear_logs(self, keep: int = 0) -> Pending[None]:
        """Delete the job's log, except the newest `keep` lines."""
        check_int("keep", keep, 0, 2**31 - 1)
        return self._submit(ClearLogs(self.pk, keep), _nothing)

    async def get_logs(self, start: int = 0, end: int = -1, asc: bool = True) -> dict[str, Any]:
        """Return lines of the job's log and their number: {"logs": [...], "count": n}."""
        return await self._queue.get_job_logs(self.id, start, end, asc)

    # --- moves without its claim token -----------------------------------------------------------

    def promote(self) -> Pending[None]:
        """Move a delayed job to waiting, so that it runs now."""
        return self._move(
            PROMOTE, then=partial(self._set_state, State.WAITING, delay=0, due_at=None)
        )

    def retry(
        self, state: str = "failed", *, delay: Duration = 0, reset_attempts: bool = False
    ) -> Pending[None]:
        """Let a failed job, or with `state="completed"` a completed one, run again.

        It keeps the attempts it made, so it gets one run, unless `reset_attempts`.
        """
        source = _finished_state(state)
        wait = check_duration("delay", delay)
        check_bool("reset_attempts", reset_attempts)

        move = RETRY_FINISHED_DELAYED if wait else RETRY_FINISHED
        request = MoveJob(move, self.pk, self.id, wait, reset_attempts, source)
        return self._submit(request, lambda _: self._apply_retry(wait, reset_attempts))

    def remove(self, remove_children: bool = True) -> Pending[None]:
        """Remove the job and all its descendants; `queue.restore` brings them back within
        `trash_age`.

        Raise JobLocked, and remove nothing, if one of them is active.
        """
        check_bool("remove_children", remove_children)
        request = MoveJob(REMOVE, self.pk, self.id, with_descendants=remove_children)
        return self._submit(request, lambda _: self._emit_removed())

    def _emit_removed(self) -> None:
        self._queue.emit("removed", self.id)

    def change_delay(self, delay: Duration) -> Pending[None]:
        """Let a delayed job be due `delay` from now."""
        wait = check_duration("delay", delay)

        def rescheduled() -> None:
            self._set_state(State.DELAYED, delay=wait, due_at=self._due_in(wait))

        return self._move(RESCHEDULE, wait, rescheduled)

    def change_priority(
        self, priority: int | Priority | None = None, lifo: bool = False
    ) -> Pending[None]:
        """Change the job's priority. A waiting job goes behind those of the same priority, with
        `lifo` in front of them."""
        given = self.priority if priority is None else check_priority(priority)
        is_level = isinstance(given, Priority)
        number = given.value if isinstance(given, Priority) else given
        request = SetPriority(self.pk, number, is_level, check_bool("lifo", lifo))
        return self._submit(request, lambda number: self._change_columns(priority=number))

    def remove_deduplication_key(self) -> Pending[bool]:
        """Free the job's deduplication key. Return True if the job held it."""
        return self._submit(FreeKeyOf(self.pk), bool)

    def _move(
        self, move: Move, delay: int = 0, then: Callable[[], None] | None = None
    ) -> Pending[None]:
        request = MoveJob(move, self.pk, self.id, delay)
        return self._submit(request, lambda _: then() if then is not None else None)

    def _in_queue(self, queue: QueueReads) -> Job:
        """Return the same job in the queue to which it was moved."""
        return Job(queue, self._columns, self._status)

    # --- waiting for it --------------------------------------------------------------------------

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait until the job is finished. Return its return value.

        Raise JobFailed with its reason if it failed, TimeoutError after `timeout`, JobNotFound if
        the job is gone and the event log no longer has its end.
        """
        limit = None if timeout is None else check_duration("timeout", timeout) / 1000
        watched = AwaitedJob(self.pk, self._queue._pk, self.id)
        try:
            state, value, reason = await bridge.wait_result(self._store, watched, limit)
        except TimeoutError:
            raise TimeoutError(f"job {self.id} was not finished within {timeout}") from None
        self._status = self._status._replace(state=state, return_value=value, failed_reason=reason)
        if state == State.FAILED:
            raise JobFailed(reason)
        return self.return_value

    wait_until_finished = result


def claimed_jobs(queue: QueueReads, claimed: Claimed, owner: JobOwner) -> list[Job]:
    """Return the jobs that a worker has claimed, each with its run."""
    active, now = State.ACTIVE.value, claimed.claimed_at
    status = JobStatusRow(active, processed_at=now, processed_by=owner.name)
    token, started = claimed.token, claimed.started
    jobs = [Job(queue, row, status, JobRun(token, False, owner)) for row in claimed.rows[:started]]
    jobs += [Job(queue, row, status, JobRun(token, True, owner)) for row in claimed.rows[started:]]
    if claimed.failed_reasons:
        for job in jobs:
            job._status = status._replace(failed_reason=claimed.failed_reasons.get(job.pk))
    return jobs


def _finished_state(word: str) -> State:
    for state in (State.FAILED, State.COMPLETED):
        if word == state:
            return state
    raise InvalidOption(f'state must be "failed" or "completed", not {word!r}')


def _check_log(message: Any, level: Any) -> tuple[str, str]:
    """Return a line for a job's log, as it can be stored, and its level."""
    if level not in LOG_LEVELS:
        raise InvalidOption(f"level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
    text = message if isinstance(message, str) else str(message)
    return storable(text)[: MAX_REASON_LENGTH + 100], level


def _nothing(answer: Any) -> None:
    pass
