"""Runs one command: starts it, takes what it says, and ends it with all that it started.

Knows nothing of jobs. What it starts has a session of its own, no terminal, no descriptor of ours
but its badge, and none of our secrets. A thread does nothing but that while a command runs: an
event loop would take longer for a short one than its shell does (docs/decisions/0026).
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

from ..client.job.abort_signal import Signal
from ..processes.private_environment import OURS
from ..processes.process_info import ENV_MARKER, file_id, make_fd_marker, now_ticks
from ..processes.process_tree import ProcessTree, new_env_marker, reap
from .capture import MAX_KEPT, HeadTail, HeadTailBuffer

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
_NOTHING: Mapping[str, str] = {}

_ITS_OWN = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENOEXEC}
    | {errno.E2BIG, errno.ELOOP, errno.ENAMETOOLONG}
)
"""What the kernel says of commands that it will never start; of others it may later."""

NULL_BYTE = "a null byte in the command, in an argument or in the name of a file"

EXITED, SIGNALLED, TIMED_OUT = "exited", "signalled", "timed-out"
STDOUT, STDERR = "stdout", "stderr"


class Listener(Protocol):
    """Told what a command says, as it says it."""

    due: float | None
    """The monotonic second at which it wants to be called, whether anything was said or not."""

    def heard(self, stream: str, data: bytes) -> None:
        """A piece of what a stream says."""

    def call(self) -> None:
        """It is due."""


class NotStarted(Exception):
    """A command could not be started; the text says why."""

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final
        """Whether another try would end the same way."""


class Stopped(Exception):
    """A command was ended before its time, because somebody said so."""

    def __init__(self, ended: CommandResult) -> None:
        super().__init__("the command was stopped")
        self.ended = ended


class Command(NamedTuple):
    """What is to be run: a line for the shell, or a program and its arguments."""

    line: str | None = None
    argv: Sequence[str] = ()
    cwd: str | None = None
    env: Mapping[str, str] = _NOTHING
    env_from: Sequence[str] = ()
    """Variables that are taken from the environment it is started in, whatever they are called."""
    clean_env: bool = False
    """Nothing of that environment but where programs are."""
    stdin: str | None = None
    """A file to read from, by a name that counts where we are; nothing, if there is none."""
    input: bytes = b""
    """What it can read instead, from a file without a name: if we are killed, nothing is left."""
    timeout: float | None = None
    """Seconds."""
    grace: float = GRACE
    most_kept: int = MAX_KEPT
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
        if self.stdin is not None:
            # We never open it ourselves. A pipe may keep us waiting; to close a file, such as our
            # database, would drop the locks that this process holds on it.
            line = " && ".join([*limits, 'exec "$@" <"$0"'])
            return [SHELL, "-c", line, _readable(self.stdin), *argv]
        if not limits:
            return argv
        return [SHELL, "-c", " && ".join([*limits, 'exec "$@"']), "sh", *argv]

    def environment(self, ours: BaseEnvironment) -> dict[bytes, bytes]:
        """What it finds in its environment, of what there is in ours."""
        missing = [name for name in self.env_from if name not in ours.variables]
        if missing:
            raise NotStarted(
                f"the worker has no variable {missing[0]} in its environment", is_final=True
            )
        return {
            **(ours.minimal if self.clean_env else ours.harmless),
            **encoded({name: ours.variables[name] for name in self.env_from}),
            **encoded(self.env),
        }


def _readable(file: str) -> str:
    """The name of a file that can be read, wherever it is opened; an OSError, if it cannot."""
    if stat.S_ISDIR(os.stat(file).st_mode):
        raise _error(errno.EISDIR, file)
    if not os.access(file, os.R_OK):
        raise _error(errno.EACCES, file)
    return os.path.join(os.getcwd(), file)


def _error(number: int, file: str) -> OSError:
    return OSError(number, os.strerror(number), file)


def encoded(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    """Variables as the kernel has them."""
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}


class BaseEnvironment:
    """What commands may find of ours, looked at once: to do that for each would take long."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = dict(variables)
        harmless = {n: v for n, v in variables.items() if not n.startswith(OURS)}
        self.harmless = encoded(harmless)
        self.minimal = encoded({n: v for n, v in harmless.items() if n == "PATH"})
        self.nothing_to_read = os.open(os.devnull, os.O_RDONLY)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it could not be opened
            os.close(self.nothing_to_read)


class CommandResult(NamedTuple):
    """How a command ended."""

    how: str
    """`exited`, `signalled` or `timed-out`."""
    exit_code: int | None
    signal: int | None
    stdout: HeadTail
    stderr: HeadTail

    @property
    def succeeded(self) -> bool:
        return self.how == EXITED and self.exit_code == 0


class CommandRunner:
    """Runs commands in the threads that ask for it, any number at a time.

    Those that drop all marks are found only if this process adopts orphans (`tree.adopt_orphans`);
    those that do not even write to it any more, only if it is `alone`: if nobody else starts
    processes here.
    """

    def __init__(self, *, alone: bool = True) -> None:
        self._running: dict[int, ProcessTree] = {}
        if not alone:
            # A rival that was there from the start: what has no mark may always be its own.
            self._running[0] = ProcessTree(0, new_env_marker(), 0)
        self._ended: list[ProcessTree] = []
        self._reaping: threading.Timer | None = None
        self._lock = threading.Lock()
        self.longest_grace = math.inf
        """Seconds that any command gets, whatever it was promised."""

    @cached_property
    def _surroundings(self) -> BaseEnvironment:
        """Ours at the first command: what sets variables for commands, such as an app that is
        imported, has done so by then."""
        return BaseEnvironment(os.environ)

    @property
    def remembers(self) -> int:
        """Of how many commands that have ended somebody may be left."""
        return len(self._ended)

    def run(
        self,
        command: Command,
        listener: Listener | None = None,
        cookie: str | None = None,
        leash: Signal | None = None,
    ) -> CommandResult:
        """Run a command to its end, or to its timeout; `cookie` marks its processes.

        It is ended when the `leash` says so, which raises `Stopped`. Once it has ended, how it did
        counts, and nobody can stop it any more.
        """
        with _starting():
            run = _Execution(
                command, self._surroundings, listener, cookie or new_env_marker(), leash
            )
            with self._lock:
                # At once: who ends another command must not take this one for a part of it.
                run.start()
                self._running[run.tree.leader] = run.tree
        timed_out = was_stopped = False
        try:
            run.attend(_in(command.timeout))
            if not run.has_exited:
                timed_out = not run.is_to_stop
                self._end(run, command.grace)
                was_stopped = run.is_to_stop
            run.drain()
        except BaseException:
            run.stop_reading()
            if not run.has_exited:
                self._end(run, 0)  # nobody would know of it any more
            raise
        finally:
            run.close()
            with self._lock:
                del self._running[run.tree.leader]
                self._ended.append(run.tree)
            self._reap_soon()
        ended = run.ended(timed_out)
        if was_stopped:
            raise Stopped(ended)
        return ended

    def _end(self, run: _Execution, grace: float) -> None:
        """End all of a command's processes: tell them, wait, kill those that are left."""
        told_at, told = time.monotonic(), set[tuple[int, int]]()
        self._send(run, signal.SIGTERM, told)
        self._send(run, signal.SIGCONT)  # who is stopped cannot obey
        # Somebody may be in a hurry by now who was in none before.
        while time.monotonic() < told_at + min(grace, self.longest_grace):
            if not self._send(run, signal.SIGTERM, told):
                break
            run.listen(BETWEEN_SWEEPS)
        for _ in range(SWEEPS):
            if not self._send(run, signal.SIGKILL):
                break
            run.listen(BETWEEN_SWEEPS)
        if not run.has_exited:
            run.kill()
            run.await_exit()

    def _send(self, run: _Execution, number: int, told: set[tuple[int, int]] | None = None) -> int:
        """Signal all of a command's processes that live, but for those `told`; how many live."""
        with self._lock:
            others = [tree for tree in self._running.values() if tree is not run.tree]
            return run.tree.send(number, others, told)

    def _reap_soon(self) -> None:
        """Hear of the end of what was left behind, in a while and as long as somebody is."""
        with self._lock:
            if self._reaping is None and self._ended:
                self._reaping = threading.Timer(REAP_EVERY, self._reap)
                self._reaping.daemon = True
                self._reaping.start()

    def _reap(self) -> None:
        with self._lock:
            self._reaping = None
            ended, self._ended = self._ended, []
            awaited = set(self._running)
        left = reap(ended, awaited)
        with self._lock:
            self._ended += left
        self._reap_soon()


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """What fails in here keeps a command from being started."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        is_final = error.errno in _ITS_OWN
        raise NotStarted(f"{error.strerror}{where}", is_final=is_final) from error
    except (TypeError, ValueError) as error:
        # Each version of Python words this one differently.
        reason = NULL_BYTE if "embedded null" in str(error) else str(error)
        raise NotStarted(reason, is_final=True) from error
    except RuntimeError as error:  # there can be no more threads
        raise NotStarted(str(error), is_final=False) from error


def _nameless(data: bytes) -> int:
    """A descriptor of a file that has no name, to be read from its beginning."""
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(data)
        file.seek(0)
        return os.dup(file.fileno())


class _Execution:
    """One command, to be started and under way."""

    def __init__(
        self,
        command: Command,
        ours: BaseEnvironment,
        listener: Listener | None,
        cookie: str,
        leash: Signal | None,
    ) -> None:
        self._listener, self._abort = listener, leash
        self._captures = {
            STDOUT: HeadTailBuffer(command.most_kept),
            STDERR: HeadTailBuffer(command.most_kept),
        }
        self._arguments, self._cwd = command.arguments(), command.cwd
        self._environment = command.environment(ours) | encoded({ENV_MARKER: cookie})
        self._ours, self._env_marker, self._input = ours, cookie, command.input
        self._bell = _wakeup()
        self._handle: int | None = None
        self.has_exited = False

    def start(self) -> None:
        """Start it; if it cannot be watched, nothing is left of it."""
        before = now_ticks()
        self._process, out, err = self._spawned()
        self._pipes = {out: STDOUT, err: STDERR}
        self._open = dict(self._pipes)
        try:
            pipes = frozenset((file_id(out), file_id(err)))
            self.tree = ProcessTree(self._process.pid, self._env_marker, before, pipes)
            self._poll = select.poll()
            for descriptor in (out, err, self._bell.fileno()):
                self._poll.register(descriptor, select.POLLIN)
            self._watch()
        except BaseException:
            self.kill()
            self._process.wait()
            self.close()
            raise
        if self._abort is not None:
            self._abort.on_abort(self._bell.ring)

    def _spawned(self) -> tuple[subprocess.Popen[bytes], int, int]:
        """The process, and what its standard output and error are read from."""
        opened: list[int] = []
        try:
            out, out_end = os.pipe()
            opened += [out, out_end]
            err, err_end = os.pipe()
            opened += [err, err_end]
            badge = make_fd_marker(self._env_marker)
            if badge is not None:
                opened.append(badge)
            stdin = self._ours.nothing_to_read
            if self._input:
                stdin = _nameless(self._input)
                opened.append(stdin)
            process = subprocess.Popen(
                self._arguments,
                cwd=self._cwd,
                env=self._environment,
                stdin=stdin,
                stdout=out_end,
                stderr=err_end,
                bufsize=0,
                start_new_session=True,
                pass_fds=() if badge is None else (badge,),
            )
            opened.remove(out)
            opened.remove(err)
            return process, out, err
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _watch(self) -> None:
        """Have a descriptor tell of its end, or where there are none, a thread."""
        try:
            self._handle = os.pidfd_open(self._process.pid)
        except (OSError, AttributeError):
            threading.Thread(target=self._wait, args=(self._bell,), daemon=True).start()
        else:
            self._poll.register(self._handle, select.POLLIN)

    def _wait(self, bell: Wakeup) -> None:
        self._process.wait()
        bell.ring()

    def stop_reading(self) -> None:
        """Tell nobody any more what it says."""
        self._listener = None

    @property
    def is_to_stop(self) -> bool:
        return self._abort is not None and self._abort.aborted

    def attend(self, until: float) -> None:
        """Take what it says until it exits, or somebody stops it, or the time has come."""
        while not self.has_exited and not self.is_to_stop and time.monotonic() < until:
            self._hear(until)

    def listen(self, seconds: float) -> None:
        """Take what it says for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._hear(until)

    def kill(self) -> None:
        """Kill it and its group, which the kernel need not show for that."""
        if self._process.poll() is None:  # its number is nobody else's
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def await_exit(self) -> None:
        """Wait until the started process has exited, even if its children live on."""
        while not self.has_exited:
            self._hear(math.inf)

    def drain(self) -> None:
        """Wait until all output was read, or DRAINING s if another process keeps the pipes open."""
        until = time.monotonic() + DRAINING
        while self._open and time.monotonic() < until:
            self._hear(until)

    def _hear(self, until: float) -> None:
        """Wait for something to happen, and take note of it."""
        listener = self._listener
        if listener is not None and listener.due is not None:
            until = min(until, listener.due)
        for descriptor, _ in self._poll.poll(_ms_until(until)):
            if descriptor in self._open:
                self._read(descriptor)
            elif descriptor == self._handle:
                self._exit()
            else:
                self._bell.hush()
                self.has_exited = self.has_exited or self._process.returncode is not None
        if listener is not None and listener.due is not None and listener.due <= time.monotonic():
            listener.call()

    def _exit(self) -> None:
        self._process.poll()
        self.has_exited = True
        assert self._handle is not None
        self._poll.unregister(self._handle)
        os.close(self._handle)
        self._handle = None

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, PIECE)
        except OSError:
            data = b""
        if not data:
            self._poll.unregister(descriptor)
            del self._open[descriptor]
            return
        name = self._open[descriptor]
        self._captures[name].add(data)
        if self._listener is not None:
            self._listener.heard(name, data)

    def close(self) -> None:
        """Let go of everything that belongs to the run."""
        for pipe in self._pipes:
            os.close(pipe)
        if self._handle is not None:
            os.close(self._handle)

    def ended(self, timed_out: bool) -> CommandResult:
        code = self._process.returncode
        assert code is not None
        how = TIMED_OUT if timed_out else EXITED if code >= 0 else SIGNALLED
        return CommandResult(
            how,
            code if code >= 0 else None,
            -code if code < 0 else None,
            self._captures[STDOUT].captured(),
            self._captures[STDERR].captured(),
        )


def _in(seconds: float | None) -> float:
    return math.inf if seconds is None else time.monotonic() + seconds


def _ms_until(moment: float) -> float | None:
    return None if moment == math.inf else max(0, math.ceil((moment - time.monotonic()) * 1000))


class Wakeup:
    """Wakes up a thread that waits for a command."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair()
        for end in (self._inside, self._outside):
            end.setblocking(False)

    def ring(self) -> None:
        with contextlib.suppress(OSError):  # it rings already, or its thread is gone
            self._outside.send(b".")

    def hush(self) -> None:
        with contextlib.suppress(OSError):
            self._inside.recv(PIECE)

    def fileno(self) -> int:
        return self._inside.fileno()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # they could not be made
            self._inside.close()
            self._outside.close()


_bells = threading.local()


def _wakeup() -> Wakeup:
    """That of this thread, for all of its commands."""
    try:
        bell: Wakeup = _bells.bell
    except AttributeError:
        bell = _bells.bell = Wakeup()
    return bell
