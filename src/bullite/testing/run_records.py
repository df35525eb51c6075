"""What a test is told of the runs that it brought about."""

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
    """As its processor had it, with what became of it."""
    at: datetime
    """The virtual time at which it began."""
    came_to: str
    """The state of the job after it: `completed`, `failed`, `delayed` or `waiting` for another
    attempt, `waiting-children`; `killed` if its process died, `lost` if it was not the job's
    holder any more."""
    process: int
    """Which worker process ran it: 1, and one more for each that was killed."""
    value: Any = None
    """What its processor returned."""
    error: BaseException | None = None
    """What its processor raised."""

    def __str__(self) -> str:
        when = self.at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        return f"{when} {self.job.queue_name}: {self.job.name} {self.job.id} {self.came_to}"


class Ran(Sequence[Run]):
    """The runs that `drain` or `advance` brought about, in their order.

    In a coroutine it is to be awaited before it is looked at, and gives itself.
    """

    def __init__(self, work: Coroutine[Any, Any, list[Run]]) -> None:
        self._work = work
        self._runs: list[Run] | None = None

    def __await__(self) -> Generator[Any, None, Ran]:
        if self._runs is None:
            self._runs = yield from self._work.__await__()
        return self

    async def done(self) -> Ran:
        """The same as awaiting it, for those who need a coroutine."""
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
        """What the processors returned; None for those that raised."""
        return [run.value for run in self._known()]

    def _known(self) -> list[Run]:
        if self._runs is None:
            raise RuntimeError("an event loop runs here: await drain() or advance() first")
        return self._runs
