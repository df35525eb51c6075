"""Outcomes of ended runs, as a worker sends them to the engine and reports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..client.job.job import Job
from ..core.decide_outcome import Result, RunOutcome
from ..operations.command_output import CommandExit


class EndedRun(NamedTuple):
    """A run that has ended, kept for the listeners of `completed` and `failed`."""

    job: Job
    result: Result


ThreadOutcome = tuple[RunOutcome, EndedRun | None, CommandExit | None]
"""The outcome of one run in a thread, the run if the worker has listeners, the exit of its command.

No class: it would make short runs in threads several per cent slower."""


class OutcomeBatch(NamedTuple):
    """Outcomes that are sent in one request; the runs only if the worker has listeners."""

    outcomes: Sequence[RunOutcome]
    runs: Sequence[EndedRun] | None
    commands: Sequence[CommandExit] = ()

    @classmethod
    def of_threads(cls, ended: Sequence[ThreadOutcome]) -> OutcomeBatch:
        """Return the batch of these outcomes, which all have their run or all have none."""
        return cls(
            [outcome for outcome, _, _ in ended],
            [run for _, run, _ in ended if run is not None] or None,
            [command for _, _, command in ended if command is not None],
        )
