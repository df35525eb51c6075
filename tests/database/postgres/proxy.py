"""A proxy on a Unix socket between our driver and a real server, which fails where it is told to.

It reads what clients send message by message, so it can tell the message with the COMMIT from all
others: our driver sends a transaction's last statements and its COMMIT together. A pipeline is one
message here.
"""

from __future__ import annotations

import contextlib
import enum
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from tests.support.postgres_database import with_options

PORT = 5432
READY = b"Z\x00\x00\x00\x05I"
"""What the server ends its answer with, outside of transactions."""

PIPELINED = (b"P", b"B", b"D", b"E")
"""What is followed by more, until a Sync ends the pipeline."""

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104


class Fault(enum.Enum):
    """What becomes of a message."""

    CUT_BEFORE = "the connection is cut, the server never sees it"
    CUT_AFTER = "the server sees it, and the connection is cut at once"
    CUT_ANSWER = "the server carries it out, the connection is cut instead of the answer"
    HOLD = "the connection is cut, and the server sees the message later, when it is let go"


Judge = Callable[[bytes], Fault | None]
"""Says for each message of a client, of its type and body, what becomes of it."""


class Link:
    """One connection through the proxy."""

    def __init__(
        self, proxy: Proxy, client: socket.socket, server: socket.socket, stopped: bool
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._mute = False
        self._going = threading.Event()
        if not stopped:
            self._going.set()
        self._said = ""
        self.is_open = True
        self.held: bytes | None = None
        """A message that the server has not got yet."""
        self.answers = b""
        """What the server said after the client was cut off."""
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._to_server, self._to_client)
        ]
        for thread in self._threads:
            thread.start()

    # --- from tests ---

    @property
    def kind(self) -> str:
        """Whose connection this is, by what was said last."""
        return kind_of(self._said)

    def let_go(self) -> None:
        """Let the server have the message that was held back."""
        assert self.held is not None
        message, self.held = self.held, None
        self._server.sendall(message)

    def let_go_if_open(self) -> None:
        """The same, unless the server has hung up."""
        with contextlib.suppress(OSError):
            self.let_go()

    def stop(self) -> None:
        """From now on nothing gets through, in no direction, and nobody is told."""
        self._going.clear()

    def go_on(self) -> None:
        self._going.set()

    def cut(self) -> None:
        self.is_open = False
        for end in (self._client, self._server):
            _shut(end)

    def close(self) -> None:
        self.go_on()
        self.cut()
        for thread in self._threads:
            thread.join(5)
        self._client.close()
        self._server.close()

    # --- threads ---

    def _to_server(self) -> None:
        with contextlib.suppress(OSError):
            for message in self._messages():
                self._going.wait()
                self._said = query_in(message) or self._said
                fault = self._proxy.fault_of(message)
                if fault is None:
                    self._server.sendall(message)
                elif fault is Fault.HOLD:
                    self.held = message
                    self._proxy.held.append(self)
                    _shut(self._client)
                    return  # the server's end stays open
                elif fault is Fault.CUT_ANSWER:
                    self._mute = True
                    self._server.sendall(message)
                    return  # the other thread cuts
                elif fault is Fault.CUT_AFTER:
                    _shut(self._client)
                    self._server.sendall(message)
                    return
                else:
                    break
        self.cut()

    def _to_client(self) -> None:
        with contextlib.suppress(OSError):
            while some := self._server.recv(65536):
                self._going.wait()
                time.sleep(self._proxy.delay)
                self._hand_back(some)
                if self._mute and some.endswith(READY):
                    break
        self.cut()

    def _hand_back(self, some: bytes) -> None:
        if not self._mute:
            try:
                return self._client.sendall(some)
            except OSError:  # it was cut off
                self._mute = True
        self.answers += some
        return None

    def _messages(self) -> Iterator[bytes]:
        """What the client sends, cut into messages; first the one without a type."""
        buffer = pipeline = b""
        started = False
        while some := self._client.recv(65536):
            buffer += some
            while (size := _size(buffer, started)) and len(buffer) >= size:
                message, buffer = buffer[:size], buffer[size:]
                is_request = not started and _code(message) in (SSL_REQUEST, GSS_REQUEST)
                if started and message[:1] in PIPELINED:
                    pipeline += message
                else:
                    started = started or not is_request
                    yield pipeline + message
                    pipeline = b""


def _size(buffer: bytes, started: bool) -> int:
    """Bytes of the message that a buffer begins with; 0 if that is not known yet."""
    prefix = 1 if started else 0
    if len(buffer) < prefix + 4:
        return 0
    return prefix + int(struct.unpack_from("!I", buffer, prefix)[0])


def _code(message: bytes) -> int:
    return int(struct.unpack_from("!I", message, 4)[0]) if len(message) == 8 else 0


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Takes connections and hands them on, until told otherwise."""

    def __init__(self, server_url: str) -> None:
        host = dict(parse_qsl(urlsplit(server_url).query))["host"]
        self._target = f"{host}/.s.PGSQL.{PORT}"
        self._folder = Path(tempfile.mkdtemp(prefix="proxy-"))
        self.delay = 0.0
        """Seconds by which every answer is late."""
        self._stopped = False
        self.judge: Judge = lambda message: None
        self.links: list[Link] = []
        self.held: list[Link] = []
        self.faults = 0
        """How many messages had something happen to them."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / f".s.PGSQL.{PORT}"))
        self._listener.listen(50)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def url(self, location: str) -> str:
        """The same place, reached through here."""
        return with_options(location, host=str(self._folder))

    # --- failing ---

    def links_of(self, kind: str) -> list[Link]:
        """The open connections of a kind: "listener", "writer" or "reader"."""
        return [link for link in self.links if link.is_open and link.kind == kind]

    def stop(self) -> None:
        """From now on nothing gets through on any connection, new or old, and nobody is told."""
        self._stopped = True
        for link in self.links:
            link.stop()

    def go_on(self) -> None:
        self._stopped = False
        for link in self.links:
            link.go_on()

    def fail_next_commit(self, fault: Fault, of: str = "") -> None:
        """One time, a message with a COMMIT (and with the value `of`) has this happen to it."""
        left = [fault]
        value = struct.pack("!I", len(of)) + of.encode() if of else b""

        def judge(message: bytes) -> Fault | None:
            return left.pop() if left and is_commit(message) and value in message else None

        self.judge = judge

    # --- inside ---

    def fault_of(self, message: bytes) -> Fault | None:
        fault = self.judge(message)
        self.faults += fault is not None
        return fault

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._target)
                except OSError:  # the server is away
                    client.close()
                    server.close()
                    continue
                self.links.append(Link(self, client, server, self._stopped))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        _shut(self._listener)
        self._thread.join(5)
        self._listener.close()
        for link in self.links:
            link.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def kind_of(query: str) -> str:
    """Which of our connections says such a thing: only one thread of each kind does."""
    if query.startswith(("listen", "with free as")):
        return "listener"
    return "reader" if query.startswith(("select", "with")) else "writer"


def query_in(message: bytes) -> str:
    """The first SQL in a message of a client; nothing if it has none."""
    if message[:1] == b"Q":
        return message[5:-1].decode()
    if message[:1] == b"P":  # its name comes first
        return message[5:].split(b"\x00")[1].decode()
    return ""


def is_commit(message: bytes) -> bool:
    """Whether this is the message that ends a transaction of ours for good."""
    if message[:1] == b"Q":
        return b";\ncommit\x00" in message or b";\ncommit;\n" in message
    return b"\x00commit\x00" in message
