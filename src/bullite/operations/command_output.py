"""The output and the exits of commands, stored beside the jobs that ran them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.codec import as_json
from ..core.job_flags import COMMAND
from .request import Request
from .transaction import Operation, Transaction
from .transitions import load_for_update


class OutputChunk(NamedTuple):
    """A part of the output of a command, in base64."""

    number: int
    stream: str
    data: str


class WriteOutput(Request):
    """Store output of a running command. Reply with False if the worker does not hold the job.

    Chunks are numbered in the order of their arrival. `drop` has the first and the last number of
    the chunks to delete, if the stored output has become too long.
    """

    job: int
    token: int
    run: int
    chunks: Sequence[OutputChunk]
    drop: tuple[int, int] | None = None
    durable = False

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def write_output(tx: Transaction, requests: Sequence[WriteOutput]) -> Operation[list[bool]]:
    held = yield from _still_held(tx, requests)
    for r in requests:
        if r.job in held:
            yield "insert_output", [(r.job, r.run, *piece) for piece in r.chunks]
            if r.drop is not None:
                first, last = r.drop
                yield "trim_output", {"job": r.job, "run": r.run, "first": first, "last": last}
    return [r.job in held for r in requests]


class CommandExit(NamedTuple):
    """The exit of a command; written with the outcome of its job, if the worker still holds it."""

    job: int
    token: int
    run: int
    began_at: int
    how: str
    exit_code: int | None
    signal: int | None
    stdout: tuple[str, str, int]
    """The head and the tail of the output, in base64, and the number of bytes left out between."""
    stderr: tuple[str, str, int]
    was_shown: bool
    """Chunks of its output were stored while it ran."""


def record_exits(tx: Transaction, ends: Sequence[CommandExit]) -> Operation[None]:
    held = yield from _still_held(tx, ends)
    kept = {(r.job, r.run): r for r in ends if r.job in held}
    if not kept:
        return
    yield (
        "end_runs",
        [
            (r.job, r.run, r.began_at, tx.now, r.how, r.exit_code, r.signal, *r.stdout, *r.stderr)
            for r in kept.values()
        ],
    )
    for r in kept.values():
        # An earlier run may have ended without an exit, after chunks of its output were stored.
        if r.was_shown or r.run > 1:
            yield "clear_output", {"job": r.job, "run": r.run}


def _still_held(
    tx: Transaction, requests: Sequence[WriteOutput | CommandExit]
) -> Operation[set[int]]:
    """Return the jobs of these requests that their workers still hold; set their flag."""
    rows = yield from load_for_update([r.job for r in requests])
    held = {
        r.job: row
        for r in requests
        if (row := rows.get(r.job)) is not None and (row.token, row.nonce) == (r.token, tx.nonce)
    }
    new = [job for job, row in held.items() if not row.flags & COMMAND]
    if new:
        yield "add_flags", {"jobs": as_json(new), "traits": COMMAND}
    return set(held)
