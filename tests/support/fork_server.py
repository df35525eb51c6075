"""Where the processes of tests come from: forked from one that has imported what they run.

A new interpreter spends a second of work on imports, and some tests need thirty processes. The
fork server imports the module of each requested function once and does nothing else: it has no
store, no thread and no event loop that a child could inherit. A child ends as a program of its own
does, through the end of the interpreter. The fork server ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib
import inspect
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

_LENGTH = 8
"""Bytes that say how long a request is."""


# --- in the parent -------------------------------------------------------------------------------


class ForkedProcess:
    """A process that was forked from the fork server, used like `subprocess.Popen`."""

    def __init__(self, module: str, function: str, arguments: str) -> None:
        heard, said = os.pipe()
        self._report, report = os.pipe()
        request = json.dumps([module, function, arguments, dict(os.environ)]).encode()
        server = _fork_server()
        socket.send_fds(server, [len(request).to_bytes(_LENGTH)], [said, 2, report])
        server.sendall(request)
        os.close(said)
        os.close(report)
        self.stdout = os.fdopen(heard, "rb", buffering=0)
        self._code: int | None = None
        self._reported = b""
        self.pid = int(self._line(None))

    def poll(self) -> int | None:
        return self._code if self._is_over(0) else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._is_over(timeout):
            raise TimeoutError(f"process {self.pid} has not ended after {timeout} s")
        assert self._code is not None
        return self._code

    def _is_over(self, timeout: float | None) -> bool:
        if self._code is None:
            try:
                self._code = int(self._line(timeout))
            except TimeoutError:
                return False
            os.close(self._report)
        return True

    def _line(self, timeout: float | None) -> bytes:
        ends = None if timeout is None else time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._report, selectors.EVENT_READ)
            while b"\n" not in self._reported:
                if not selector.select(ends and max(0, ends - time.monotonic())):
                    raise TimeoutError
                some = os.read(self._report, 64)
                assert some, "the fork server is gone"
                self._reported += some
        line, _, self._reported = self._reported.partition(b"\n")
        return line


_started: list[socket.socket] = []


def _fork_server() -> socket.socket:
    """Return the socket to the fork server of this process. The first call starts it."""
    if not _started:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
            )
        _started.append(ours)
        atexit.register(_end, ours, process, os.getpid())
    return _started[0]


def _end(server: socket.socket, process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        server.shutdown(socket.SHUT_RDWR)
        process.wait()


# --- in the fork server --------------------------------------------------------------------------


class ForkServer:
    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._reports: dict[int, int] = {}
        """By process, where its end is told."""
        self._deaths, told = os.pipe()
        self._told = told
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us is interrupted, and ends us

    def next_child(self) -> tuple[str, str, str] | None:
        """In a child, what it is to run; None at the end of the fork server."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests, selectors.EVENT_READ)
            selector.register(self._deaths, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd == self._deaths:
                        self._tell_of_the_dead()
                    elif (request := self._receive()) is None:
                        return None
                    elif (task := self._fork(*request)) is not None:
                        return task

    def _receive(self) -> tuple[list[Any], list[int]] | None:
        length, fds, _, _ = socket.recv_fds(self._requests, _LENGTH, 3)
        if not length:
            return None
        request = self._requests.recv(int.from_bytes(length), socket.MSG_WAITALL)
        return json.loads(request), fds

    def _fork(self, request: list[Any], fds: list[int]) -> tuple[str, str, str] | None:
        module, function, arguments, environment = request
        with contextlib.suppress(Exception):  # the child runs into it, too, and says so
            importlib.import_module(module)
        if "://" in arguments:
            importlib.import_module("tests.support.postgres_database")
        said, errors, report = fds
        pid = os.fork()
        if pid:
            os.close(said)
            os.close(errors)
            self._reports[pid] = report
            os.write(report, b"%d\n" % pid)
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(said, 1)
        os.dup2(errors, 2)
        self._requests.close()
        for fd in (*fds, self._deaths, self._told, *self._reports.values()):
            os.close(fd)
        if environment != dict(os.environ):
            os.environ.clear()
            os.environ.update(environment)
        return module, function, arguments

    def _tell_of_the_dead(self) -> None:
        os.read(self._deaths, 4096)
        with contextlib.suppress(ChildProcessError):  # there are no more
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                report = self._reports.pop(ended[0])
                with contextlib.suppress(BrokenPipeError):  # nobody asks any more
                    os.write(report, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
                os.close(report)


# --- in the child --------------------------------------------------------------------------------


def run(module: str, function: str, arguments: str) -> None:
    args, kwargs = json.loads(arguments)
    result = getattr(importlib.import_module(module), function)(*args, **kwargs)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def main(fd: str) -> None:
    task = ForkServer(socket.socket(fileno=int(fd))).next_child()
    if task is not None:
        run(*task)


if __name__ == "__main__":
    main(*sys.argv[1:])
