# mypy: disable-error-code="import-not-found, untyped-decorator"
# The package is not in our environment, so its names have no types here.
"""DBOS on PostgreSQL: jobs are workflows that a client adds to a queue and one process takes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient

from .handling import Handler
from .protocol import main_sync

QUEUE = "bench"
NAME = "bench"

SETTLING = 1.2
"""Seconds in which a launched process has found the queue: it looks for new ones each second."""

COUNT = """
select count(*) filter (where status in ('ENQUEUED', 'DELAYED')) as waiting,
    count(*) filter (where status = 'PENDING') as running,
    count(*) filter (where status = 'SUCCESS') as finished
from dbos.workflow_status
"""


class Dbos:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._url = url
        self._options = options
        self._works = sys.argv[1] == "work"  # it is launched then, before it says that it is ready
        self._handle: Callable[..., None] = print

    def install(self) -> None:
        self._launch()
        DBOS.destroy()

    def open(self) -> None:
        self._engine = sqlalchemy.create_engine(
            self._url.replace("postgresql:", "postgresql+psycopg:")
        )
        if self._works:
            self._launch()
            # Lets nothing through until it is told to. It is not made by install(): a process slows
            # its looks down at once to the interval it finds, but quickens them only in steps.
            self._queue = DBOS.register_queue(
                QUEUE,
                worker_concurrency=0,
                polling_interval_sec=self._options.get("poll", 1.0),
                on_conflict="always_update",
            )
            time.sleep(SETTLING)
        else:
            self._client = DBOSClient(system_database_url=self._url, application_name=NAME)

    def close(self) -> None:
        if self._works:
            DBOS.destroy()
        else:
            self._client.destroy()
        self._engine.dispose()

    def _launch(self) -> None:
        DBOS(
            config={
                "name": NAME,
                "system_database_url": self._url,
                "application_version": "1",
                "console_log_level": "CRITICAL",
                "log_level": "CRITICAL",
            }
        )
        self._define()
        DBOS.launch()

    def _define(self) -> None:
        if self._options.get("coroutines") and not self._options.get("threads"):

            @DBOS.workflow(name="mail")
            async def mail(data: Any) -> None:
                self._handle(data)

        else:

            @DBOS.workflow(name="mail")
            def mail(data: Any) -> None:
                self._handle(data)

        @DBOS.step(retries_allowed=True, interval_seconds=0, max_attempts=2)
        def fail_once(data: Any) -> None:
            self._handle(data, DBOS.step_status.current_attempt + 1)

        @DBOS.workflow(name="flaky")
        def flaky(data: Any) -> None:
            fail_once(data)

    def add(self, data: dict[str, Any]) -> None:
        self._client.enqueue({"queue_name": QUEUE, "workflow_name": "mail"}, data)

    def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        self._add_together("mail", jobs)

    def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        self._add_together("flaky", jobs)

    def _add_together(self, name: str, jobs: list[dict[str, Any]]) -> None:
        options = {"queue_name": QUEUE, "workflow_name": name}
        with self._engine.begin() as connection:
            for data in jobs:
                self._client.enqueue_in_transaction(connection, options, data)

    def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        options = {
            "queue_name": QUEUE,
            "workflow_name": "mail",
            "delay_seconds": milliseconds / 1000,
        }
        self._client.enqueue(options, data)

    def work(self, handle: Handler, stop: threading.Event) -> None:
        self._handle = handle
        self._queue.set_worker_concurrency(self._options["concurrency"])
        stop.wait()
        while self._rows()["running"]:
            time.sleep(0.005)  # destroy() would wait for them too, in steps of a second

    def count(self) -> dict[str, int | None]:
        found = self._rows()
        return {"waiting": found["waiting"], "finished": found["finished"]}

    def _rows(self) -> dict[str, int]:
        with self._engine.connect() as connection:
            return dict(connection.execute(sqlalchemy.text(COUNT)).mappings().one())


if __name__ == "__main__":
    main_sync(Dbos)
