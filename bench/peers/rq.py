# mypy: disable-error-code="import-not-found, misc"
# The package is not in our environment, so its names have no types here.
"""RQ: a SimpleWorker, its fastest, that does one job at a time; or a pool of such processes."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta
from typing import Any

from redis import Redis
from rq import Queue, Retry, SimpleWorker, get_current_job

from . import called
from .forking import Children
from .handling import Fork, Handler
from .protocol import main_sync
from .settling import Settling

QUEUE = "bench"
FUNCTION = f"{called.__name__}.mail"
ATTEMPTS = 2
"""Of a job that fails at the first one."""


class Rq:
    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self._place = place
        self._options = options
        self._settling = Settling()

    def install(self) -> None:
        """Redis has no tables."""

    def open(self) -> None:
        self._queue = self._connect()

    def close(self) -> None:
        self._queue.connection.close()

    def add(self, data: dict[str, Any]) -> None:
        self._queue.enqueue(FUNCTION, kwargs=data)

    def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        self._queue.enqueue_many([Queue.prepare_data(FUNCTION, kwargs=data) for data in jobs])

    def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        self._queue.enqueue_in(timedelta(milliseconds=milliseconds), FUNCTION, kwargs=data)

    def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        again = Retry(max=ATTEMPTS - 1)
        self._queue.enqueue_many(
            [Queue.prepare_data(FUNCTION, kwargs=data, retry=again) for data in jobs]
        )

    def work(self, handle: Handler, stop: threading.Event) -> None:
        self._settling = Settling()
        pool = self._options.get("pool", 0)
        if pool:
            self._work_in_pool(pool, handle, stop)
            return
        called.handle = self._calling(handle)

        def interrupt() -> None:
            stop.wait()
            os.kill(os.getpid(), signal.SIGTERM)  # it ends after the job that it does

        threading.Thread(target=interrupt, daemon=True).start()
        self._run_worker(self._settling)

    def extra(self) -> dict[str, Any]:
        return self._settling.report()

    def count(self) -> dict[str, int | None]:
        queue = self._queue
        others = (queue.started_job_registry, queue.scheduled_job_registry)
        waiting = queue.count + sum(registry.get_job_count(cleanup=False) for registry in others)
        finished = queue.finished_job_registry.get_job_count(cleanup=False)
        return {"waiting": waiting, "finished": finished}

    def _work_in_pool(self, pool: int, handle: Handler, stop: threading.Event) -> None:
        """What `rq worker-pool` does: it forks workers and looks after them."""
        telling = Fork(self._options)
        called.handle = self._calling(telling)
        children = Children(pool, lambda: self._run_worker(Settling()))
        telling.listen(handle)
        stop.wait()
        self._settling.settled()
        children.stop()
        telling.hang_up()

    def _run_worker(self, settling: Settling) -> None:
        queue = self._connect()
        worker = _Worker([queue], connection=queue.connection)
        worker.settling = settling
        # Quiet: otherwise it makes several lines of text for each job, which nobody reads.
        worker.work(logging_level="CRITICAL", with_scheduler=self._options.get("scheduler", False))

    def _connect(self) -> Queue:
        return Queue(QUEUE, connection=Redis.from_url(self._place))

    def _calling(self, handle: Any) -> Any:
        if not self._options.get("fails"):
            return handle

        def call(data: dict[str, Any]) -> None:
            handle(data, ATTEMPTS - get_current_job().retries_left)

        return call


class _Worker(SimpleWorker):
    settling: Settling

    def execute_job(self, job: Any, queue: Any) -> None:
        super().execute_job(job, queue)
        self.settling.settled()


if __name__ == "__main__":
    main_sync(Rq)
