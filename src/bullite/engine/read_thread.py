"""Read requests run on a thread and a connection of their own: they never wait for a writer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from ..database.driver import Params, Reader
from ..errors import ENDING, StoreClosed, StoreError
from .replies import Reply, ReplyTarget
from .threads import Spawn, start_thread

_STOP = None


class ReadThread:
    """Executes read requests one after the other; its thread starts with the first.

    `ended` is called with an error after which the store must be opened again, before the reply is
    delivered.
    """

    def __init__(
        self,
        open_reader: Callable[[], Reader],
        spawn: Spawn = start_thread,
        ended: Callable[[StoreError], None] = lambda error: None,
    ) -> None:
        self._open_reader = open_reader
        self._spawn = spawn
        self._ended_by = ended
        self._requests: queue.SimpleQueue[tuple[str, Params, Reply, ReplyTarget] | None] = (
            queue.SimpleQueue()
        )
        self._started = self._closed = False
        self._entering = threading.Lock()
        """Held while a request is put in, so that none is put in after the close."""
        self._ended = threading.Event()

    def read(self, statement: str, params: Params, reply: Reply, target: ReplyTarget) -> None:
        """Execute a read. `reply` gets the rows, or the exception."""
        with self._entering:
            if not self._closed:
                if not self._started:
                    self._spawn(self._run, "bullite-reader")
                    self._started = True
                self._requests.put((statement, params, reply, target))
                return
        target.deliver([(reply, StoreClosed("the store is closed"))])

    def close(self) -> None:
        """Execute all that was put in, then stop. Wait for that, 10 s at most."""
        with self._entering:
            self._closed = True
            self._requests.put(_STOP)
        if self._started:
            self._ended.wait(10)

    def _run(self) -> None:
        reader: Reader | None = None
        while (request := self._requests.get()) is not _STOP:
            statement, params, reply, target = request
            answer: Any
            try:
                reader = reader or self._open_reader()
                answer = reader.read(statement, params).rows
            except Exception as error:
                answer = error
                if isinstance(error, ENDING):
                    self._ended_by(error)
            target.deliver([(reply, answer)])
        if reader is not None:
            reader.close()
        self._ended.set()
