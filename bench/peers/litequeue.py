# mypy: disable-error-code="import-not-found"
# The package is not in our environment, so its names have no types here.
"""litequeue: it has no worker, so this is the loop of its documentation: pop, handle, done."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import litequeue

from .handling import Handler
from .protocol import main_sync


class Litequeue:
    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self._path = path
        self._options = options
        self._own = threading.local()

    @property
    def _queue(self) -> Any:
        """Each thread has a connection of its own: a connection has one transaction at a time."""
        if not hasattr(self._own, "queue"):
            self._own.queue = litequeue.LiteQueue(self._path, timeout=30)
        return self._own.queue

    def install(self) -> None:
        assert self._queue.empty()

    def open(self) -> None:
        assert self._queue is not None

    def close(self) -> None:
        self._queue.conn.close()

    def add(self, data: dict[str, Any]) -> None:
        self._queue.put(json.dumps(data))

    def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        with self._queue.transaction():
            for data in jobs:
                self._queue.put(json.dumps(data))

    def work(self, handle: Handler, stop: threading.Event) -> None:
        threads = [
            threading.Thread(target=self._loop, args=(handle, stop))
            for _ in range(self._options.get("concurrency", 1))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _loop(self, handle: Handler, stop: threading.Event) -> None:
        queue = self._queue
        pause = self._options.get("poll", 0.01)
        while not stop.is_set():
            message = queue.pop()
            if message is None:
                time.sleep(pause)
                continue
            handle(message.data)
            queue.done(message.message_id)
        queue.conn.close()

    def count(self) -> dict[str, int | None]:
        rows = self._queue.conn.execute("select status, count(*) from Queue group by status")
        found = dict(rows)
        status = litequeue.MessageStatus
        return {"waiting": found.get(status.READY, 0), "finished": found.get(status.DONE, 0)}


if __name__ == "__main__":
    main_sync(Litequeue)
