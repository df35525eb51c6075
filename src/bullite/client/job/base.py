"""Base of a job: its record, its queue and its run; how its attributes follow what is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.codec import encode_plain
from ...core.decide_outcome import RunOutcome
from ...core.job_record import JobRecord, JobStatusRow
from ...core.states import COMPLETE, State
from ...errors import IllegalMove, LostLock
from ..runtime.pending import Pending
from ..runtime.store import Store
from .run import NO_RUN, JobRun

if TYPE_CHECKING:
    from ..queue.reads import QueueReads


class JobBase(JobRecord):
    """A job of a queue, and the run that holds it, if one does here."""

    __slots__ = ("_run",)

    _queue: QueueReads

    def __init__(
        self,
        queue: QueueReads,
        columns: Sequence[Any],
        status: JobStatusRow,
        run: JobRun = NO_RUN,
    ) -> None:
        # Without the constructor of JobRecord: this is done for every job that runs.
        self._queue, self._run = queue, run
        self._columns, self._status = columns, status

    @property
    def _store(self) -> Store:
        return self._queue.store

    def _submit(self, request: Any, read: Callable[[Any], Any]) -> Pending[Any]:
        return Pending(self._store, request, read)

    # --- its run ---

    def _own_token(self) -> int | None:
        return self._run.token_number or None

    def _token_label(self) -> str | None:
        """The claim token as text; None outside a run."""
        run = self._run
        if not run.token_number:
            return None
        if run.label is None:
            nonce = self._store.open().driver.nonce
            run.label = f"{nonce & (2**64 - 1):016x}-{run.token_number}"
        return run.label

    def _held_run(self, token: str | None) -> JobRun:
        """Return the run that holds the job. Raise LostLock if none does here, or if `token` is
        not its token; IllegalMove if the job is not active."""
        if token is not None and token != self._token_label():
            raise LostLock(f"job {self.id} is not held with the token {token!r}")
        if not self._run.token_number:
            if self._status.state != State.ACTIVE:
                raise IllegalMove(f"job {self.id} is not in the active state but {self.state}")
            raise LostLock(f"job {self.id} is not held here: only the run that holds it can end it")
        return self._run

    def _start_recorded(self) -> None:
        """The write that was just requested also records the start of a prefetched run."""
        if self._run.prefetched:
            self._run.prefetched = False

    # --- its attributes, after a write ---

    def _set_state(self, state: State | None, **more: Any) -> None:
        self._status = self._status._replace(state=(state or State.REMOVED).value, **more)

    def _due_in(self, delay: int) -> int:
        return self._store.open().clock.now() + delay

    def _add_flags(self, flags: int) -> None:
        """Note what was attached to the job here: the outcome of the run is compared with it."""
        if self._flags & flags != flags:
            self._change_columns(traits=self._flags | flags)

    def _apply_stored(self, status: JobStatusRow) -> None:
        """The job was just added, with links to other jobs."""
        self._status = status

    def _apply_retry(self, delay: int, reset_attempts: bool) -> None:
        """The finished job was moved back to its queue."""
        counts = {"attempts_made": 0, "attempts_started": 0} if reset_attempts else {}
        self._change_columns(deferred_failure=None, **counts)
        self._set_state(
            State.DELAYED if delay else State.WAITING,
            delay=delay,
            due_at=self._due_in(delay) if delay else None,
            **dict.fromkeys(("processed_at", "finished_at", "return_value"), None),
            **dict.fromkeys(("failed_reason", "outcome", "expires_at", "original_queue"), None),
        )

    def _apply_outcome(self, outcome: RunOutcome, at: int) -> None:
        """The outcome of this run was recorded."""
        move = outcome.move
        counted = 1 if move.target in (State.COMPLETED, State.FAILED) or outcome.reason else 0
        started = self.attempts_started
        if outcome.unrun:
            counted, started = 0, started - 1
        self._change_columns(attempts_made=self.attempts_made + counted, attempts_started=started)
        if outcome.unrun and not started:
            self._status = self._status._replace(processed_at=None)
        due = at + outcome.delay if move.target is State.DELAYED else None
        finished = at if move.target in (State.COMPLETED, State.FAILED) else None
        self._set_state(
            move.target, delay=outcome.delay, due_at=due, finished_at=finished, updated_at=at
        )
        if outcome.value is not None or move is COMPLETE:
            self._status = self._status._replace(return_value=outcome.value)
        if outcome.reason is not None:
            stacks = [*self.stacktrace, outcome.stack] if outcome.stack else self.stacktrace
            if outcome.stack_limit is not None:
                stacks = stacks[-outcome.stack_limit :] if outcome.stack_limit else []
            self._status = self._status._replace(
                failed_reason=outcome.reason,
                outcome=outcome.outcome,
                stacks=encode_plain(stacks).decode(),
            )
