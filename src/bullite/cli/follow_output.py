"""Follow the output of a command while it runs: all of it, and nothing twice."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Callable

from ..client.job.job import Job
from ..commands.history import CommandRun, LiveChunk, output_after, runs_of
from ..commands.output import StoredStream
from ..core.states import State
from .console import escape_control
from .session import Session

POLL_EVERY = 0.1
"""Seconds between two reads while output is followed."""

ENDED = (State.COMPLETED, State.FAILED)

OVERLAP = 200
"""Bytes of the last output that are searched for in the stored output of the run."""


def follow_output(
    session: Session, job: Job, raw: bool, on_state: Callable[[str], None] | None = None
) -> None:
    """Print the output of a job's command until the job has finished: all of it, nothing twice.

    `on_state` is called with the job's state after each read that returned no output.
    """
    follower = OutputFollower(session, raw)
    while True:
        chunks = session.wait(output_after(session.store(), job, follower.run, follower.number))
        for chunk in chunks:
            if chunk.run > follower.run:
                # The chunks of a run are deleted at its end: print the rest from its stored output.
                _print_rests(session, job, follower, before=chunk.run)
            follower.print_chunk(chunk)
        if chunks:
            continue
        state = session.wait(state_of(job))
        _print_rests(session, job, follower)
        if state in (*ENDED, "unknown"):
            return
        if on_state is not None:
            on_state(state)
        time.sleep(POLL_EVERY)


def keeps_output(job: Job) -> bool:
    """Return whether the output of a job's command is stored."""
    return not (isinstance(job.data, dict) and job.data.get("no_output"))


def _print_rests(
    session: Session, job: Job, follower: OutputFollower, before: int | None = None
) -> None:
    if not keeps_output(job):
        return
    for run in session.wait(runs_of(session.store(), job)):
        if run.number >= follower.run and (before is None or run.number < before):
            follower.print_rest(run)


class OutputFollower:
    """Prints the output of the runs of a command, and knows how much of it is printed."""

    def __init__(self, session: Session, raw: bool) -> None:
        self._session, self._raw = session, raw
        self.run, self.number = 0, 0
        self._begin(0)

    def _begin(self, run: int) -> None:
        self.run, self.number = run, 0
        self._seen = dict.fromkeys(("stdout", "stderr"), 0)
        self._last = dict.fromkeys(self._seen, b"")
        # A chunk may end inside of a character.
        utf8 = codecs.getincrementaldecoder("utf-8")
        self._text = {stream: utf8("replace") for stream in self._seen}

    def print_chunk(self, chunk: LiveChunk) -> None:
        """Print a chunk of live output."""
        if chunk.run != self.run:
            self._begin(chunk.run)
        self.number = chunk.number
        self._seen[chunk.stream] += len(chunk.data)
        self._last[chunk.stream] = (self._last[chunk.stream] + chunk.data)[-OVERLAP:]
        self._print(chunk.stream, chunk.data)

    def print_rest(self, run: CommandRun) -> None:
        """Print the output of an ended run after its last printed chunk."""
        if run.number != self.run:
            self._begin(run.number)
        for stream, stored in (("stdout", run.stdout), ("stderr", run.stderr)):
            self._print(stream, self._rest_of(stream, stored), final=True)
        self._begin(run.number + 1)

    def _rest_of(self, stream: str, stored: StoredStream) -> bytes:
        """Return the stored output that was not printed."""
        last = self._last[stream]
        if not (stored.dropped and last):
            return stored.after(self._seen[stream])
        # Chunks may have been deleted before they were read, so bytes cannot be counted: search for
        # the last output. The tail may contain only the end of it.
        if (position := stored.tail.rfind(last)) >= 0:
            return stored.tail[position + len(last) :]
        for size in range(len(last), 0, -1):
            if stored.tail.startswith(last[-size:]):
                return stored.tail[size:]
        return stored.after(self._seen[stream])

    def _print(self, stream: str, data: bytes, final: bool = False) -> None:
        out = sys.stdout if stream == "stdout" else sys.stderr
        if self._raw and not self._session.console.as_json:
            out.flush()
            out.buffer.write(data)
            out.buffer.flush()
            return
        text = self._text[stream].decode(data, final)
        if not text:
            return
        if self._session.console.as_json:
            self._session.console.data({"stream": stream, "data": text})
            self._session.console.flush()
            return
        out.write(escape_control(text))
        out.flush()


async def state_of(job: Job) -> str:
    """Read the state of a job."""
    return await job.get_state()
