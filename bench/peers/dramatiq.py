# mypy: disable-error-code="import-not-found, misc"
# The package is not in our environment, so its names have no types here.
"""Dramatiq on Redis: a worker with threads in this process, or several as its command line has."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage
from dramatiq.worker import Worker

from .forking import Children
from .handling import Fork, Handler
from .protocol import main_sync
from .settling import Settling

QUEUE = "bench"


class Dramatiq:
    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self._place = place
        self._options = options
        self._settling = Settling()

    def install(self) -> None:
        """Redis has no tables."""

    def open(self) -> None:
        self._broker, self._mail = self._declare(lambda data, attempt: None)

    def close(self) -> None:
        self._broker.close()

    def add(self, data: dict[str, Any]) -> None:
        self._mail.send(**data)

    def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        """It has no call for many; a group on Redis sends them one by one, too."""
        messages = [self._mail.message(**data) for data in jobs]
        dramatiq.group(messages, broker=self._broker).run()

    def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        self._mail.send_with_options(kwargs=data, delay=milliseconds)

    def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        self.add_bulk(jobs)  # how often a job is tried is said by its actor

    def work(self, handle: Handler, stop: threading.Event) -> None:
        self._settling = Settling()
        forks = self._options.get("forks", 0)
        if forks:
            self._work_in_forks(forks, handle, stop)
            return
        broker, _ = self._declare(handle)
        broker.add_middleware(_Settled(self._settling))
        worker = self._start(broker)
        stop.wait()
        worker.stop()
        broker.close()

    def extra(self) -> dict[str, Any]:
        return self._settling.report()

    def count(self) -> dict[str, int | None]:
        return {"waiting": self._broker.do_qsize(QUEUE), "finished": None}  # delayed ones too

    def _work_in_forks(self, forks: int, handle: Handler, stop: threading.Event) -> None:
        telling = Fork(self._options)

        def work() -> None:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            broker, _ = self._declare(telling)
            worker = self._start(broker)
            signal.sigwait({signal.SIGTERM})
            worker.stop()

        children = Children(forks, work)
        telling.listen(handle)
        stop.wait()
        self._settling.settled()
        children.stop()
        telling.hang_up()

    def _declare(self, handle: Any) -> tuple[RedisBroker, Any]:
        """A broker with the actor; what tells the number of an attempt only where it is needed."""
        broker = RedisBroker(url=self._place)
        fails = self._options.get("fails", False)
        if fails:
            broker.add_middleware(CurrentMessage())

        def call(**data: Any) -> None:
            handle(data, _attempt() if fails else 1)

        # A back-off of nothing is not possible; a millisecond is the least.
        backoff = {"min_backoff": 1, "max_backoff": 1}
        actor = dramatiq.actor(
            call, actor_name="mail", queue_name=QUEUE, broker=broker, max_retries=1, **backoff
        )
        return broker, actor

    def _start(self, broker: RedisBroker) -> Worker:
        timeout = self._options.get("worker_timeout", 1_000)
        worker = Worker(
            broker,
            worker_threads=self._options.get("concurrency", 8),
            worker_timeout=timeout,
        )
        worker.start()
        return worker


class _Settled(dramatiq.Middleware):
    def __init__(self, settling: Settling) -> None:
        self.after_ack = settling.settled
        self.after_nack = settling.settled


def _attempt() -> int:
    options: dict[str, Any] = CurrentMessage.get_current_message().options
    return int(options.get("retries", 0)) + 1


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # each attempt that fails on purpose is logged as an error
    main_sync(Dramatiq)
