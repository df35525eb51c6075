"""A server on this machine that says whatever a test likes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def listening(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Its port; `talk` is called with each line, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                with line, contextlib.suppress(OSError):
                    talk(line)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
