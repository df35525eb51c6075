"""Records of the runs in a playground."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, overload

from ..client.job.job import Job

KILLED, LOST = "killed", "lost"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job."""

    job: Job
    """The job object that the processor got, with its state after the run."""
    at: datetime
    """The virtual time at which the run started."""
    came_to: str
    """The state of the job after the run: `completed`, `failed`, `delayed` or `waiting` for another
    attempt, `waiting-children`; `killed` if its process was killed, `lost` if the job had been
    recovered by another process."""
    process: int
    """The number of the worker process: 1, and one more for each that was killed."""
    value: Any = None
    """The return value of the processor."""
    error: BaseException | None = None
    """The exception of the processor."""

    def __str__(self) -> str:
        when = self.at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        return f"{when} {self.job.queue_name}: {self.job.name} {self.job.id} {self.came_to}"


class Ran(Sequence[Run]):
    """The runs of a `drain` or `advance`, in their order.

    In a coroutine, await it before its first use; awaiting returns the object itself.
    """

    def __init__(self, work: Coroutine[Any, Any, list[Run]]) -> None:
        self._work = work
        self._runs: list[Run] | None = None

    def __await__(self) -> Generator[Any, None, Ran]:
        if self._runs is None:
            self._runs = yield from self._work.__await__()
        return self

    async def done(self) -> Ran:
        """Await it: for callers that need a coroutine."""
        return await self

    def __len__(self) -> int:
        return len(self._known())

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        return self._known()[index]

    def __repr__(self) -> str:
        if self._runs is None:
            return "<Ran: not awaited yet>"
        return "\n".join(["<Ran:", *(f"  {run}" for run in self._runs)]) + ">"

    @property
    def names(self) -> list[str]:
        """The names of the jobs."""
        return [run.job.name for run in self._known()]

    @property
    def values(self) -> list[Any]:
        """The return values of the processors; None for those that raised."""
        return [run.value for run in self._known()]

    def _known(self) -> list[Run]:
        if self._runs is None:
            raise RuntimeError("an event loop runs here: await drain() or advance() first")
        return self._runs
