"""Runs commands: starts one, reads its output, and ends it with all processes that it started.

This module knows no jobs. A command has a session of its own, no terminal, no descriptor of this
process except its run marker, and none of our private variables. Each command is run by a thread of
its own: for a short one, an event loop would take longer than the shell (docs/decisions/0026).
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
"""Seconds between SIGTERM and SIGKILL."""

DRAINING = 1.0
"""Seconds to read on after a command has exited, if other processes keep its pipes open."""

SWEEPS = 50
"""How often to search for processes that were started while others were killed."""

BETWEEN_SWEEPS = 0.02
REAP_EVERY = 1.0
"""Seconds between reaping the processes that commands left behind."""

CHUNK = 65_536
_NOTHING: Mapping[str, str] = {}

_FINAL_ERRORS = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENOEXEC}
    | {errno.E2BIG, errno.ELOOP, errno.ENAMETOOLONG}
)
"""Errors of commands that can never be started; after other errors a retry may succeed."""

NULL_BYTE = "a null byte in the command, in an argument or in the name of a file"

EXITED, SIGNALLED, TIMED_OUT = "exited", "signalled", "timed-out"
STDOUT, STDERR = "stdout", "stderr"


class Listener(Protocol):
    """Receives the output of a command while it runs."""

    due: float | None
    """The monotonic time of the next `on_due`, with or without output; None for never."""

    def on_output(self, stream: str, data: bytes) -> None:
        """Receive a chunk of a stream."""

    def on_due(self) -> None:
        """`due` has passed."""


class NotStarted(Exception):
    """A command could not be started; the text says why."""

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final
        """Whether a retry would fail in the same way."""


class Stopped(Exception):
    """A command was ended because its abort signal was set."""

    def __init__(self, result: CommandResult) -> None:
        super().__init__("the command was stopped")
        self.result = result


class Command(NamedTuple):
    """A command to run: a line for the shell, or a program and its arguments."""

    line: str | None = None
    argv: Sequence[str] = ()
    cwd: str | None = None
    env: Mapping[str, str] = _NOTHING
    env_from: Sequence[str] = ()
    """Variables to copy from this process's environment, also private ones."""
    clean_env: bool = False
    """Copy only PATH, and `env_from`, from this process's environment."""
    stdin: str | None = None
    """The file to use as standard input, relative to our current folder; None for no input."""
    input: bytes = b""
    """Bytes to use as standard input instead, through a file that has no name to be left behind."""
    timeout: float | None = None
    """Seconds."""
    grace: float = GRACE
    max_kept: int = MAX_KEPT
    cpu_seconds: int | None = None
    memory_bytes: int | None = None

    def arguments(self) -> list[str]:
        """Return the arguments of the process: with limits or `stdin`, a shell that executes it."""
        argv = [SHELL, "-c", self.line] if self.line is not None else list(self.argv)
        limits = []
        if self.cpu_seconds is not None:
            limits.append(f"ulimit -t {self.cpu_seconds}")
        if self.memory_bytes is not None:
            limits.append(f"ulimit -v {self.memory_bytes // 1024}")
        if self.stdin is not None:
            # The shell opens it, not this process: a FIFO would block us, and closing a file, such
            # as our database, would drop the locks that this process holds on it.
            line = " && ".join([*limits, 'exec "$@" <"$0"'])
            return [SHELL, "-c", line, _readable(self.stdin), *argv]
        if not limits:
            return argv
        return [SHELL, "-c", " && ".join([*limits, 'exec "$@"']), "sh", *argv]

    def environment(self, base: BaseEnvironment) -> dict[bytes, bytes]:
        """Return its environment. Raise NotStarted if a variable of `env_from` is missing."""
        missing = [name for name in self.env_from if name not in base.variables]
        if missing:
            raise NotStarted(
                f"the worker has no variable {missing[0]} in its environment", is_final=True
            )
        return {
            **(base.minimal if self.clean_env else base.public),
            **encoded({name: base.variables[name] for name in self.env_from}),
            **encoded(self.env),
        }


def _readable(file: str) -> str:
    """Return the absolute path of a file. Raise OSError if it cannot be read."""
    if stat.S_ISDIR(os.stat(file).st_mode):
        raise _error(errno.EISDIR, file)
    if not os.access(file, os.R_OK):
        raise _error(errno.EACCES, file)
    return os.path.join(os.getcwd(), file)


def _error(number: int, file: str) -> OSError:
    return OSError(number, os.strerror(number), file)


def encoded(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return variables in the encoding of the file system."""
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}


class BaseEnvironment:
    """The variables of this process that commands may get; encoded once, not for each command."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = dict(variables)
        public = {n: v for n, v in variables.items() if not n.startswith(OURS)}
        self.public = encoded(public)
        self.minimal = encoded({n: v for n, v in public.items() if n == "PATH"})
        self.dev_null = os.open(os.devnull, os.O_RDONLY)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # /dev/null could not be opened
            os.close(self.dev_null)


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
    """Runs commands, each in the calling thread, any number at a time.

    Processes that drop their run markers are found only if this process adopts orphans (see
    `adopt_orphans`). Those that have also closed their output are found only if this runner is
    `alone`: if no other code of this process starts processes.
    """

    def __init__(self, *, alone: bool = True) -> None:
        self._running: dict[int, ProcessTree] = {}
        if not alone:
            # A placeholder for other code: any process without a marker may belong to it.
            self._running[0] = ProcessTree(0, new_env_marker(), 0)
        self._ended: list[ProcessTree] = []
        self._reaping: threading.Timer | None = None
        self._lock = threading.Lock()
        self.longest_grace = math.inf
        """The maximum of `grace` for all commands, in seconds."""

    @cached_property
    def _base_environment(self) -> BaseEnvironment:
        """The environment at the first command: an app may set variables when it is imported."""
        return BaseEnvironment(os.environ)

    @property
    def unreaped(self) -> int:
        """The number of commands that have exited and may have left processes behind."""
        return len(self._ended)

    def run(
        self,
        command: Command,
        listener: Listener | None = None,
        env_marker: str | None = None,
        abort: Signal | None = None,
    ) -> CommandResult:
        """Run a command to its end or its timeout; `env_marker` is the run marker of its processes.

        If `abort` is set before the command has exited, end it and raise `Stopped`. Raise
        NotStarted if it cannot be started.
        """
        with _starting():
            run = _Execution(
                command, self._base_environment, listener, env_marker or new_env_marker(), abort
            )
            with self._lock:
                # Under the lock: a thread that ends another command must know this one as another.
                run.start()
                self._running[run.tree.leader] = run.tree
        timed_out = was_stopped = False
        try:
            run.wait(_in(command.timeout))
            if not run.has_exited:
                timed_out = not run.is_aborted
                self._end(run, command.grace)
                was_stopped = run.is_aborted
            run.drain()
        except BaseException:
            run.stop_reading()
            if not run.has_exited:
                self._end(run, 0)  # no caller is left that could end it
            raise
        finally:
            run.close()
            with self._lock:
                del self._running[run.tree.leader]
                self._ended.append(run.tree)
            self._reap_soon()
        result = run.result(timed_out)
        if was_stopped:
            raise Stopped(result)
        return result

    def _end(self, run: _Execution, grace: float) -> None:
        """End all processes of a command: SIGTERM, then SIGKILL to those left after `grace`."""
        ended_at, signalled = time.monotonic(), set[tuple[int, int]]()
        self._send(run, signal.SIGTERM, signalled)
        self._send(run, signal.SIGCONT)  # a stopped process cannot react
        # Read longest_grace each time: `BuiltinProcessors.hurry` may shorten it meanwhile.
        while time.monotonic() < ended_at + min(grace, self.longest_grace):
            if not self._send(run, signal.SIGTERM, signalled):
                break
            run.read_for(BETWEEN_SWEEPS)
        for _ in range(SWEEPS):
            if not self._send(run, signal.SIGKILL):
                break
            run.read_for(BETWEEN_SWEEPS)
        if not run.has_exited:
            run.kill()
            run.await_exit()

    def _send(
        self, run: _Execution, number: int, signalled: set[tuple[int, int]] | None = None
    ) -> int:
        """Signal the live processes of a command that are not in `signalled`.

        Return how many are alive.
        """
        with self._lock:
            others = [tree for tree in self._running.values() if tree is not run.tree]
            return run.tree.send(number, others, signalled)

    def _reap_soon(self) -> None:
        """Reap processes that commands left behind, every REAP_EVERY s until none is alive."""
        with self._lock:
            if self._reaping is None and self._ended:
                self._reaping = threading.Timer(REAP_EVERY, self._reap)
                self._reaping.daemon = True
                self._reaping.start()

    def _reap(self) -> None:
        with self._lock:
            self._reaping = None
            ended, self._ended = self._ended, []
            running = set(self._running)
        alive = reap(ended, running)
        with self._lock:
            self._ended += alive
        self._reap_soon()


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """Raise errors of the block as NotStarted."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        is_final = error.errno in _FINAL_ERRORS
        raise NotStarted(f"{error.strerror}{where}", is_final=is_final) from error
    except (TypeError, ValueError) as error:
        # The message differs between versions of Python.
        reason = NULL_BYTE if "embedded null" in str(error) else str(error)
        raise NotStarted(reason, is_final=True) from error
    except RuntimeError as error:  # no thread could be started
        raise NotStarted(str(error), is_final=False) from error


def _unnamed_file(data: bytes) -> int:
    """Return a descriptor of a file without a name that contains `data`."""
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(data)
        file.seek(0)
        return os.dup(file.fileno())


class _Execution:
    """One run of a command."""

    def __init__(
        self,
        command: Command,
        base: BaseEnvironment,
        listener: Listener | None,
        env_marker: str,
        abort: Signal | None,
    ) -> None:
        self._listener, self._abort = listener, abort
        self._captures = {
            STDOUT: HeadTailBuffer(command.max_kept),
            STDERR: HeadTailBuffer(command.max_kept),
        }
        self._arguments, self._cwd = command.arguments(), command.cwd
        self._environment = command.environment(base) | encoded({ENV_MARKER: env_marker})
        self._base, self._env_marker, self._input = base, env_marker, command.input
        self._wakeup = _thread_wakeup()
        self._handle: int | None = None
        self.has_exited = False

    def start(self) -> None:
        """Start the process; if it cannot be watched, kill it and raise."""
        before = now_ticks()
        self._process, out, err = self._spawn()
        self._pipes = {out: STDOUT, err: STDERR}
        self._open = dict(self._pipes)
        try:
            pipes = frozenset((file_id(out), file_id(err)))
            self.tree = ProcessTree(self._process.pid, self._env_marker, before, pipes)
            self._poll = select.poll()
            for descriptor in (out, err, self._wakeup.fileno()):
                self._poll.register(descriptor, select.POLLIN)
            self._watch()
        except BaseException:
            self.kill()
            self._process.wait()
            self.close()
            raise
        if self._abort is not None:
            self._abort.on_abort(self._wakeup.wake)

    def _spawn(self) -> tuple[subprocess.Popen[bytes], int, int]:
        """Return the process and the descriptors to read its standard output and error from."""
        opened: list[int] = []
        try:
            out, out_end = os.pipe()
            opened += [out, out_end]
            err, err_end = os.pipe()
            opened += [err, err_end]
            marker_fd = make_fd_marker(self._env_marker)
            if marker_fd is not None:
                opened.append(marker_fd)
            stdin = self._base.dev_null
            if self._input:
                stdin = _unnamed_file(self._input)
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
                pass_fds=() if marker_fd is None else (marker_fd,),
            )
            opened.remove(out)
            opened.remove(err)
            return process, out, err
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _watch(self) -> None:
        """Watch for the exit through a pidfd, or a thread if the kernel has none."""
        try:
            self._handle = os.pidfd_open(self._process.pid)
        except (OSError, AttributeError):
            threading.Thread(target=self._wait_in_thread, args=(self._wakeup,), daemon=True).start()
        else:
            self._poll.register(self._handle, select.POLLIN)

    def _wait_in_thread(self, wakeup: Wakeup) -> None:
        self._process.wait()
        wakeup.wake()

    def stop_reading(self) -> None:
        """Pass no more output to the listener."""
        self._listener = None

    @property
    def is_aborted(self) -> bool:
        return self._abort is not None and self._abort.aborted

    def wait(self, until: float) -> None:
        """Read output until the process exits, the abort signal is set, or `until` has passed."""
        while not self.has_exited and not self.is_aborted and time.monotonic() < until:
            self._wait_for_event(until)

    def read_for(self, seconds: float) -> None:
        """Read output for that time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._wait_for_event(until)

    def kill(self) -> None:
        """Kill the process group; that needs no /proc."""
        if self._process.poll() is None:  # not reaped: the pid cannot be another process's
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def await_exit(self) -> None:
        """Wait until the started process has exited, even if its children live on."""
        while not self.has_exited:
            self._wait_for_event(math.inf)

    def drain(self) -> None:
        """Wait until all output was read, or DRAINING s if another process keeps the pipes open."""
        until = time.monotonic() + DRAINING
        while self._open and time.monotonic() < until:
            self._wait_for_event(until)

    def _wait_for_event(self, until: float) -> None:
        """Wait for output, the exit, the abort signal, `due` or `until`, and handle it."""
        listener = self._listener
        if listener is not None and listener.due is not None:
            until = min(until, listener.due)
        for descriptor, _ in self._poll.poll(_ms_until(until)):
            if descriptor in self._open:
                self._read(descriptor)
            elif descriptor == self._handle:
                self._exit()
            else:
                self._wakeup.clear()
                self.has_exited = self.has_exited or self._process.returncode is not None
        if listener is not None and listener.due is not None and listener.due <= time.monotonic():
            listener.on_due()

    def _exit(self) -> None:
        self._process.poll()
        self.has_exited = True
        assert self._handle is not None
        self._poll.unregister(self._handle)
        os.close(self._handle)
        self._handle = None

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, CHUNK)
        except OSError:
            data = b""
        if not data:
            self._poll.unregister(descriptor)
            del self._open[descriptor]
            return
        name = self._open[descriptor]
        self._captures[name].add(data)
        if self._listener is not None:
            self._listener.on_output(name, data)

    def close(self) -> None:
        """Close the descriptors of the run."""
        for pipe in self._pipes:
            os.close(pipe)
        if self._handle is not None:
            os.close(self._handle)

    def result(self, timed_out: bool) -> CommandResult:
        """Return how the process ended and its output."""
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
    """Wakes a thread that polls a command; a descriptor to poll beside those of the command."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)

    def wake(self) -> None:
        """Make the descriptor readable."""
        with contextlib.suppress(OSError):  # it is readable already, or its thread has ended
            self._writer.send(b".")

    def clear(self) -> None:
        """Make the descriptor unreadable again."""
        with contextlib.suppress(OSError):
            self._reader.recv(CHUNK)

    def fileno(self) -> int:
        return self._reader.fileno()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # the sockets could not be created
            self._reader.close()
            self._writer.close()


_local = threading.local()


def _thread_wakeup() -> Wakeup:
    """Return the wake-up of this thread, which all of its commands share."""
    try:
        wakeup: Wakeup = _local.wakeup
    except AttributeError:
        wakeup = _local.wakeup = Wakeup()
    return wakeup
