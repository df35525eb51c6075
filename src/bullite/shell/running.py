"""Runs one command: starts it, takes what it says, and ends it with all that it started.

Knows nothing of jobs. What it starts has a session of its own, no terminal, none of our descriptors
and none of our secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .capture import MOST_KEPT, Capture, Captured
from .tree import COOKIE, Tree, new_cookie, reap

SHELL = "/bin/sh"
GRACE = 5.0
"""Seconds that a command gets between being told to end and being killed."""

DRAINING = 1.0
"""Seconds that output is waited for when a command has ended and others hold its pipes open."""

SWEEPS = 50
"""How often those are looked for that were started while the others were being killed."""

BETWEEN_SWEEPS = 0.02
REAP_EVERY = 1.0
"""Seconds between looks for the ends of what commands left behind."""

PIECE = 65_536
_OURS = "BULLITE_"
"""How the names of variables begin that commands do not get: they may hold passwords."""

EXITED, SIGNALLED, TIMED_OUT = "exited", "signalled", "timed-out"
STDOUT, STDERR = "stdout", "stderr"

Heard = Callable[[str, bytes], None]
"""Told what a command says, as it says it: the stream's name, and a piece of it."""


class NotStarted(Exception):
    """A command could not be started; the text says why."""


@dataclass(frozen=True, slots=True)
class Command:
    """What is to be run: a line for the shell, or a program and its arguments."""

    line: str | None = None
    argv: Sequence[str] = ()
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    env_from: Sequence[str] = ()
    """Variables that are taken from the environment it is started in, whatever they are called."""
    stdin: str | None = None
    """A file to read from; nothing, if there is none."""
    timeout: float | None = None
    """Seconds."""
    grace: float = GRACE
    most_kept: int = MOST_KEPT
    cpu_seconds: int | None = None
    memory_bytes: int | None = None

    def arguments(self) -> list[str]:
        """What the kernel is asked to run."""
        argv = [SHELL, "-c", self.line] if self.line is not None else list(self.argv)
        limits = []
        if self.cpu_seconds is not None:
            limits.append(f"ulimit -t {self.cpu_seconds}")
        if self.memory_bytes is not None:
            limits.append(f"ulimit -v {self.memory_bytes // 1024}")
        if not limits:
            return argv
        return [SHELL, "-c", " && ".join([*limits, 'exec "$@"']), "sh", *argv]

    def environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """What it finds in its environment, of what there is in ours."""
        missing = [name for name in self.env_from if name not in ours]
        if missing:
            raise NotStarted(f"the worker has no variable {missing[0]} in its environment")
        passed = {name: value for name, value in ours.items() if not name.startswith(_OURS)}
        return {**passed, **{name: ours[name] for name in self.env_from}, **self.env}


class Ended(NamedTuple):
    """How a command ended."""

    how: str
    """`exited`, `signalled` or `timed-out`."""
    exit_code: int | None
    signal: int | None
    stdout: Captured
    stderr: Captured

    @property
    def succeeded(self) -> bool:
        return self.how == EXITED and self.exit_code == 0


class Shell:
    """Runs commands in this process, any number at a time.

    Those that drop all marks are found only if this process adopts orphans (`tree.adopt_orphans`).
    """

    def __init__(self) -> None:
        self._running: dict[int, Tree] = {}
        self._ended: list[Tree] = []
        self._reaping: asyncio.TimerHandle | None = None

    @property
    def remembers(self) -> int:
        """Of how many commands that have ended somebody may be left."""
        return len(self._ended)

    async def run(self, command: Command, heard: Heard | None = None) -> Ended:
        """Run a command to its end, or to its timeout.

        Whoever is cancelled while waiting for it ends it before that takes effect.
        """
        run = _Run(command, heard)
        tree = self._running[run.tree.leader] = run.tree
        timed_out = False
        try:
            try:
                async with asyncio.timeout(command.timeout):
                    await run.exited()
            except TimeoutError:
                timed_out = True
                await self._end(run, command.grace)
            except asyncio.CancelledError:
                await asyncio.shield(asyncio.ensure_future(self._end(run, command.grace)))
                raise
            await run.drained()
        finally:
            run.close()
            del self._running[tree.leader]
            self._ended.append(tree)
            self._reap_soon()
        return run.ended(timed_out)

    async def _end(self, run: _Run, grace: float) -> None:
        """End all of a command's processes: tell them, wait, kill those that are left."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + grace
        others = [tree for tree in self._running.values() if tree is not run.tree]
        run.tree.send(signal.SIGTERM, others)
        run.tree.send(signal.SIGCONT, others)  # who is stopped cannot obey
        while loop.time() < give_up and run.tree.members(others):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(BETWEEN_SWEEPS)
        for _ in range(SWEEPS):
            if not run.tree.send(signal.SIGKILL, others):
                break
            await asyncio.sleep(BETWEEN_SWEEPS)
        await run.exited()

    def _reap_soon(self) -> None:
        """Hear of the end of what was left behind, in a while and as long as somebody is."""
        if self._reaping is None and self._ended:
            self._reaping = asyncio.get_running_loop().call_later(REAP_EVERY, self._reap)

    def _reap(self) -> None:
        self._reaping = None
        self._ended = reap(self._ended, self._running)
        self._reap_soon()


class _Run:
    """One command under way."""

    def __init__(self, command: Command, heard: Heard | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard = heard
        self._captures = {STDOUT: Capture(command.most_kept), STDERR: Capture(command.most_kept)}
        self._open: dict[int, str] = {}
        self._has_exited, self._has_said_all = asyncio.Event(), asyncio.Event()
        cookie = new_cookie()
        self._process = _start(command, cookie)
        self.tree = Tree(self._process.pid, cookie)
        self._handle = self._watch()
        for name, pipe in ((STDOUT, self._process.stdout), (STDERR, self._process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._open[pipe.fileno()] = name
            self._loop.add_reader(pipe.fileno(), self._read, pipe.fileno())

    def _watch(self) -> int | None:
        try:
            handle = os.pidfd_open(self._process.pid)
        except (OSError, AttributeError):
            self._loop.run_in_executor(None, self._process.wait).add_done_callback(self._exit)
            return None
        self._loop.add_reader(handle, self._exit)
        return handle

    def _exit(self, *_: Any) -> None:
        self._process.poll()
        self._has_exited.set()
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

    async def exited(self) -> None:
        """Wait until the process that was started has ended, whoever else lives on."""
        await self._has_exited.wait()

    async def drained(self) -> None:
        """Wait until everything was read; not for ever, if somebody keeps the pipes open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAINING):
                await self._has_said_all.wait()

    def _read(self, descriptor: int) -> None:
        name = self._open[descriptor]
        try:
            data = os.read(descriptor, PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(descriptor)
            del self._open[descriptor]
            if not self._open:
                self._has_said_all.set()
            return
        self._captures[name].add(data)
        if self._heard is not None:
            self._heard(name, data)

    def close(self) -> None:
        """Let go of everything that belongs to the run."""
        for descriptor in self._open:
            self._loop.remove_reader(descriptor)
        self._open.clear()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def ended(self, timed_out: bool) -> Ended:
        code = self._process.returncode
        assert code is not None
        how = TIMED_OUT if timed_out else EXITED if code >= 0 else SIGNALLED
        return Ended(
            how,
            code if code >= 0 else None,
            -code if code < 0 else None,
            self._captures[STDOUT].captured(),
            self._captures[STDERR].captured(),
        )


def _start(command: Command, cookie: str) -> subprocess.Popen[bytes]:
    environment = command.environment(os.environ) | {COOKIE: cookie}
    with contextlib.ExitStack() as stack:
        stdin: Any = subprocess.DEVNULL
        try:
            if command.stdin is not None:
                stdin = stack.enter_context(open(command.stdin, "rb"))
            return subprocess.Popen(
                command.arguments(),
                cwd=command.cwd,
                env=environment,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            raise NotStarted(f"{error.strerror}{where}") from error
        except ValueError as error:
            raise NotStarted(str(error)) from error
