# mypy: disable-error-code="import-not-found, untyped-decorator"
# The package is not in our environment, so its names have no types here.
"""huey on SQLite: the consumer that its command line runs, with threads or forked processes."""

from __future__ import annotations

import logging
import threading
from typing import Any

import huey

from .handling import Fork, Handler
from .protocol import main_sync

CLASSES = {"sqlite3": huey.SqliteHuey, "cysqlite": huey.CySqliteHuey}


class Huey:
    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self._options = options
        # Its documentation's way to speed: no sync, unless the cell asks for one.
        kind = CLASSES[options.get("driver", "sqlite3")]
        self._huey = kind("bench", filename=path, fsync=options.get("fsync", False))
        self._handle: Handler | Fork | None = None

        @self._huey.task()
        def mail(data: Any) -> None:
            self._handle(data)  # type: ignore[misc]

        @self._huey.task(retries=1, context=True)
        def flaky(data: Any, task: Any) -> None:
            self._handle(data, 2 - task.retries)  # type: ignore[misc]

        self._mail, self._flaky = mail, flaky

    def install(self) -> None:
        """Made with the instance."""

    def open(self) -> None: ...

    def close(self) -> None:
        self._huey.storage.close()

    def add(self, data: dict[str, Any]) -> None:
        self._mail(data)

    def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        self._mail.map([(data,) for data in jobs])

    def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        self._mail.schedule((data,), delay=milliseconds / 1000)

    def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        self._flaky.map([(data,) for data in jobs])

    def work(self, handle: Handler, stop: threading.Event) -> None:
        kind = self._options.get("workers", "thread")
        consumer = self._huey.create_consumer(
            workers=self._options.get("concurrency", 1),
            worker_type=kind,
            initial_delay=self._options.get("poll", 0.1),
            backoff=self._options.get("backoff", 1.15),
            periodic=False,
        )
        fork = Fork(self._options) if kind == "process" else None
        self._handle = fork or handle
        if fork is not None:
            fork.listen(handle)
        consumer.start()
        stop.wait()
        consumer.stop(graceful=True)
        if fork is not None:
            fork.hang_up()

    def count(self) -> dict[str, int | None]:
        waiting = self._huey.pending_count() + self._huey.scheduled_count()
        return {"waiting": waiting, "finished": None}  # it deletes a task before running it


def run(kind: type[Huey]) -> None:
    logging.disable(logging.CRITICAL)
    main_sync(kind)


if __name__ == "__main__":
    run(Huey)
