"""The program as tests use it: in this process, which is quick, or in one of its own."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any
from unittest.mock import patch

from bullite.cli import program as queuectl
from bullite.client.runtime.blocking import running_loop


@dataclass(frozen=True)
class Said:
    """What the program said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document that is all of its answer."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def plain(screen: str) -> list[str]:
    """The lines of what a terminal was shown, without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", screen).splitlines()


class Screen(io.TextIOWrapper):
    """A stream that may say it is a terminal."""

    def __init__(self, text: str | bytes = b"", terminal: bool = False) -> None:
        content = text.encode() if isinstance(text, str) else text
        super().__init__(io.BytesIO(content), encoding="utf-8", newline="")
        self._is_terminal = terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def said(self) -> str:
        self.flush()
        shown = self.buffer.getvalue()  # type: ignore[attr-defined]
        return shown.decode(errors="replace")


def run(
    *arguments: object, db: str | None = None, stdin: str | bytes = "", terminal: bool = False
) -> Said:
    """Carry out a command line in this process.

    Blocks the event loop, if there is one: where something in it must go on meanwhile, use
    `await asyncio.to_thread(run, ...)`.
    """
    out, err = Screen(terminal=terminal), Screen(terminal=terminal)
    code = 0

    def carry_out() -> None:
        nonlocal code
        try:
            queuectl.run([str(argument) for argument in arguments])
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)

    with _streams(Screen(stdin), out, err), _environment(db):
        if running_loop() is None:
            carry_out()
        else:
            thread = Thread(target=carry_out)
            thread.start()
            thread.join()
    return Said(code, out.said(), err.said())


def run_well(*arguments: object, db: str | None = None, **how: Any) -> Said:
    """The same; an error unless it ends well."""
    said = run(*arguments, db=db, **how)
    assert said.code == 0, said
    return said


@contextmanager
def _streams(stdin: Screen, out: Screen, err: Screen) -> Iterator[None]:
    with patch("sys.stdin", stdin), patch("sys.stdout", out), patch("sys.stderr", err):
        yield


@contextmanager
def _environment(db: str | None) -> Iterator[None]:
    logger = logging.getLogger("bullite")
    level = logger.level
    with patch.dict(os.environ, {} if db is None else {"BULLITE_URL": db}):
        try:
            yield
        finally:
            logger.setLevel(level)


def command(*arguments: object) -> list[str]:
    """The command line of the program in a process of its own; like the installed `queuectl`, it
    imports nothing from the current folder."""
    return [sys.executable, "-P", "-m", "bullite", *map(str, arguments)]


def environment(db: str | None = None, **more: str) -> dict[str, str]:
    return {**os.environ, **({} if db is None else {"BULLITE_URL": db}), **more}


def program(
    *arguments: object,
    db: str | None = None,
    stdin: str | bytes = "",
    cwd: Any = None,
    timeout: float = 30,
) -> Said:
    """Carry out a command line in a process of its own."""
    done = subprocess.run(
        command(*arguments),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=environment(db),
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    out, err = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
    return Said(done.returncode, out, err)
