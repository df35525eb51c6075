"""Stored runs of commands: how each ended, and its output; live output of the current run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from ..client.job.job import Job
from ..client.runtime import bridge
from ..client.runtime.store import Store
from ..core.clock import moment_of
from .output import StoredStream, as_bytes

MAX_READ = 200
"""Chunks of live output read at a time."""


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One run of a command that has ended."""

    number: int
    began_at: datetime
    ended_at: datetime
    how: str
    """`exited`, `signalled` or `timed-out`."""
    exit_code: int | None
    signal: int | None
    stdout: StoredStream
    stderr: StoredStream


class LiveChunk(NamedTuple):
    """A chunk of the output of a running command."""

    run: int
    number: int
    stream: str
    data: bytes


async def runs_of(store: Store, job: Job) -> list[CommandRun]:
    """Return the runs that have ended, oldest first."""
    rows = await bridge.query(store, "runs", {"job": job.pk})
    return [_run(row) for row in rows]


def _run(row: Sequence[Any]) -> CommandRun:
    number, began, ended, how, code, signal, *streams = row
    return CommandRun(
        number,
        moment_of(began),
        moment_of(ended),
        how,
        code,
        signal,
        StoredStream.decoded(*streams[:3]),
        StoredStream.decoded(*streams[3:]),
    )


async def output_after(store: Store, job: Job, run: int, number: int) -> list[LiveChunk]:
    """Return the live output of a job's command after a chunk, at most MAX_READ chunks."""
    params = {"job": job.pk, "run": run, "number": number, "most": MAX_READ}
    rows = await bridge.query(store, "output_after", params)
    return [LiveChunk(run, number, stream, as_bytes(data)) for run, number, stream, data in rows]
