"""What a command says, as it says it: everything, and nothing twice."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Callable

from ..client.job.job import Job
from ..commands.history import CommandRun, Said, runs_of, said_after
from ..commands.output import StoredStream
from ..core.states import State
from .console import escape_control
from .session import Session

LOOK_EVERY = 0.1
"""Seconds between two looks while something is followed."""

ENDED = (State.COMPLETED, State.FAILED)

KNOWN_BY = 200
"""Bytes by which it is known again what was said last."""


def follow_output(
    session: Session, job: Job, raw: bool, look: Callable[[str], None] | None = None
) -> None:
    """Show what the command says until its job has ended: everything, and nothing twice.

    Meanwhile `look` is told of the job's state, whenever there is nothing to show.
    """
    voice = OutputFollower(session, raw)
    while True:
        pieces = session.wait(said_after(session.store(), job, voice.run, voice.number))
        for piece in pieces:
            if piece.run > voice.run:
                # Of the run before, what came after the last look is no piece any more.
                _tell_rests(session, job, voice, before=piece.run)
            voice.print_chunk(piece)
        if pieces:
            continue
        state = session.wait(state_of(job))
        _tell_rests(session, job, voice)
        if state in (*ENDED, "unknown"):
            return
        if look is not None:
            look(state)
        time.sleep(LOOK_EVERY)


def keeps_output(job: Job) -> bool:
    """Whether anything of what the command says is kept."""
    return not (isinstance(job.data, dict) and job.data.get("no_output"))


def _tell_rests(
    session: Session, job: Job, voice: OutputFollower, before: int | None = None
) -> None:
    if not keeps_output(job):
        return
    for run in session.wait(runs_of(session.store(), job)):
        if run.number >= voice.run and (before is None or run.number < before):
            voice.print_rest(run)


class OutputFollower:
    """Says what a command said, and knows how much of it was said already."""

    def __init__(self, session: Session, raw: bool) -> None:
        self._session, self._raw = session, raw
        self.run, self.number = 0, 0
        self._begin(0)

    def _begin(self, run: int) -> None:
        self.run, self.number = run, 0
        self._seen = dict.fromkeys(("stdout", "stderr"), 0)
        self._last = dict.fromkeys(self._seen, b"")
        # A piece may end in the middle of a character.
        utf8 = codecs.getincrementaldecoder("utf-8")
        self._text = {stream: utf8("replace") for stream in self._seen}

    def print_chunk(self, piece: Said) -> None:
        if piece.run != self.run:
            self._begin(piece.run)
        self.number = piece.number
        self._seen[piece.stream] += len(piece.data)
        self._last[piece.stream] = (self._last[piece.stream] + piece.data)[-KNOWN_BY:]
        self._print(piece.stream, piece.data)

    def print_rest(self, run: CommandRun) -> None:
        """What a run that has ended said after its last piece."""
        if run.number != self.run:
            self._begin(run.number)
        for stream, kept in (("stdout", run.stdout), ("stderr", run.stderr)):
            self._print(stream, self._print_stream(stream, kept), final=True)
        self._begin(run.number + 1)

    def _print_stream(self, stream: str, kept: StoredStream) -> bytes:
        last = self._last[stream]
        if not (kept.dropped and last):
            return kept.after(self._seen[stream])
        # Pieces may have gone before they were seen: where it stopped is known by its words, of
        # which the tail may hold only the end.
        if (place := kept.tail.rfind(last)) >= 0:
            return kept.tail[place + len(last) :]
        for size in range(len(last), 0, -1):
            if kept.tail.startswith(last[-size:]):
                return kept.tail[size:]
        return kept.after(self._seen[stream])

    def _print(self, stream: str, data: bytes, final: bool = False) -> None:
        out = sys.stdout if stream == "stdout" else sys.stderr
        if self._raw and not self._session.talk.as_json:
            out.flush()
            out.buffer.write(data)
            out.buffer.flush()
            return
        text = self._text[stream].decode(data, final)
        if not text:
            return
        if self._session.talk.as_json:
            self._session.talk.data({"stream": stream, "data": text})
            self._session.talk.flush()
            return
        out.write(escape_control(text))
        out.flush()


async def state_of(job: Job) -> str:
    return await job.get_state()
