"""One run of a job: its claim token and what happens during the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .abort_signal import Signal

if TYPE_CHECKING:
    from ...core.decide_outcome import RetentionDefaults
    from ...errors import JobCancelled
    from ...operations.command_output import CommandExit
    from ..runtime.pending import Pending
    from .job import Job
    from .steps import StepContext

Wait = int | Literal[False] | None
"""Ms to the next attempt, False for no other; None if the job's back-off decides."""


class JobOwner(NamedTuple):
    """What a running job needs of the worker that has claimed it."""

    name: str
    retention_defaults: RetentionDefaults
    retry_delay: Callable[[Job, BaseException], Awaitable[Wait] | Wait]
    """The delay of the next attempt by a custom retry strategy; None if the job has none."""
    on_progress: Callable[[Job, Any], None]


class JobRun:
    """One run of a job, as the worker and the job itself know it."""

    __slots__ = (
        *("cancellation", "command_end", "label", "moving", "owner", "prefetched"),
        *("signal_or_none", "steps", "token_number"),
    )

    def __init__(
        self, token_number: int = 0, prefetched: bool = False, owner: JobOwner | None = None
    ) -> None:
        self.token_number = token_number
        """The number of the claim token; 0 outside a run."""
        self.prefetched = prefetched
        """The claim did not record the start of the run: its next write does."""
        self.owner = owner
        self.moving: Pending[Any] | None = None
        """The move that the run itself requested, if it did."""
        self.cancellation: JobCancelled | None = None
        """Why the run is to stop early; None while it need not."""
        self.command_end: CommandExit | None = None
        """How the command of the run ended, to be written with the outcome."""
        self.label: str | None = None
        """The claim token as text, or a text of the caller's that stands for it."""
        self.signal_or_none: Signal | None = None
        self.steps: StepContext | None = None

    @property
    def signal(self) -> Signal:
        """The abort signal; made when it is first read."""
        if self.signal_or_none is None:
            self.signal_or_none = Signal()
        return self.signal_or_none

    def abort(self, reason: Any) -> None:
        """Set the abort signal, if the processor has one."""
        if self.signal_or_none is not None:
            self.signal_or_none.abort(reason)


NO_RUN = JobRun()
"""The run of a job that is not held here; nothing is written to it."""
