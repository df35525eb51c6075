# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# The package is not in our environment, so its names have no types here.
"""Celery with Redis as its broker: no results are stored, messages are acknowledged early."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

from celery import Celery
from celery.worker import WorkController, state

from .handling import FailedOnPurpose, Fork, Handler
from .protocol import main_sync
from .settling import Settling

QUEUE = "bench"
NOTHING = "idle"
"""A queue that stays empty: the worker reads it until it may begin."""


class Producer:
    """Puts tasks in, and counts what is left."""

    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self._options = options
        self._app = Celery("bench", broker=place)
        self._app.conf.update(
            task_default_queue=QUEUE,
            task_ignore_result=True,
            broker_connection_retry_on_startup=True,
            worker_prefetch_multiplier=options.get("prefetch_multiplier", 4),
            worker_hijack_root_logger=False,
        )
        self._handle: Any = None

        @self._app.task(bind=True, name="mail")
        def mail(task: Any, **data: Any) -> None:
            try:
                self._handle(data, task.request.retries + 1)
            except FailedOnPurpose as reason:
                raise task.retry(exc=reason, countdown=0, max_retries=1) from None

        @self._app.task(name="wake")
        def wake() -> None: ...

        self._mail, self._wake = mail, wake

    def install(self) -> None:
        """Redis has no tables."""

    def open(self) -> None: ...

    def close(self) -> None:
        self._app.close()

    def add(self, data: dict[str, Any]) -> None:
        self._mail.apply_async(kwargs=data)

    def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        """It has no call for many; one producer for all of them saves a little."""
        with self._app.producer_pool.acquire(block=True) as producer:
            for data in jobs:
                self._mail.apply_async(kwargs=data, producer=producer)

    def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        self._mail.apply_async(kwargs=data, countdown=milliseconds / 1e3)

    def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        self.add_bulk(jobs)  # how often a task is tried is said by the task

    def work(self, handle: Handler, stop: threading.Event) -> None:
        raise NotImplementedError

    def count(self) -> dict[str, int | None]:
        with self._app.connection_for_read() as connection:
            redis = connection.default_channel.client
            return {"waiting": redis.llen(QUEUE) + redis.hlen("unacked"), "finished": None}


class Consumer(Producer):
    """A worker that is up, its processes or threads too, before anything is timed."""

    def open(self) -> None:
        self._pool: str = self._options.get("pool", "prefork")
        self._fork = Fork(self._options) if self._pool == "prefork" else None
        self._handle = self._fork or self._wait_for_handler
        ready = threading.Event()
        self._app.finalize()
        self._app.set_default()
        self._worker = WorkController(
            app=self._app,
            hostname=f"bench@{id(self)}",
            pool=self._pool,
            concurrency=self._options.get("concurrency", 1),
            queues=[NOTHING],
            loglevel=logging.CRITICAL,
            # Talk between workers; its documentation has options to go without.
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            ready_callback=lambda consumer: ready.set(),
        )
        self._thread = threading.Thread(target=self._worker.start, daemon=True)
        self._thread.start()
        if not ready.wait(30):
            raise RuntimeError("the worker did not start")

    def work(self, handle: Handler, stop: threading.Event) -> None:
        if self._fork:
            self._fork.listen(handle)
        else:
            self._handle = handle
        here = [self._worker.hostname]
        self._app.control.add_consumer(QUEUE, destination=here, reply=True)
        # Until now it waits for the empty queue alone, for up to a second: a message there wakes
        # it, and it looks at both. That wait is of our making, so time begins with its end.
        self._settling = Settling()
        self._wake.apply_async(queue=NOTHING)
        self._app.control.cancel_consumer(NOTHING, destination=here)
        stop.wait()
        # A message is acknowledged before its task begins, so after it there is no more to do.
        self._settling.settled()
        state.should_stop = 0
        self._thread.join(30)
        if self._fork:
            self._fork.hang_up()

    def extra(self) -> dict[str, Any]:
        return self._settling.report()

    def _wait_for_handler(self, data: dict[str, Any], attempt: int) -> None:
        raise RuntimeError("a task came before its time")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main_sync(Consumer if sys.argv[1] == "work" else Producer)
