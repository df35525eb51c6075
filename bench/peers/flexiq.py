# mypy: disable-error-code="import-not-found, untyped-decorator"
# The package is not in our environment, so its names have no types here.
"""flexiq on SQLite: its scheduler in Rust, handlers in its threads, loop or child processes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import flexiq

from .handling import Fork, Handler
from .protocol import main_sync

FOR_CHILDREN = "BENCH_FLEXIQ"


class Pipe(Fork):
    """A pipe to the first process, for children that are not forked but started."""

    def inheritable(self) -> int:
        os.set_inheritable(self._writing, True)
        return self._writing

    def use(self, number: int) -> None:
        self._writing = number


class Flexiq:
    def __init__(
        self, path: str, options: dict[str, Any], handle: Callable[..., None] = print
    ) -> None:
        concurrency = options.get("concurrency", 1)
        self._queue = flexiq.Queue(
            db_path=path,
            workers=concurrency,
            async_concurrency=concurrency,
            scheduler_poll_interval_ms=options.get("poll", 50),
            scheduler_batch_size=options.get("batch"),
            push_dispatch=options.get("push"),
        )
        self._handle = handle
        if options.get("coroutines") and not options.get("threads"):

            @self._queue.task(name="mail")
            async def mail(data: Any) -> None:
                self._handle(data)

        else:

            @self._queue.task(name="mail")
            def mail(data: Any) -> None:
                self._handle(data)

        @self._queue.task(name="flaky", max_retries=1, retry_delays=[0.0])
        def flaky(data: Any) -> None:
            self._handle(data, flexiq.current_job.retry_count + 1)

        self._mail = mail
        self._place, self._options = path, options

    def install(self) -> None:
        """Made with the instance."""

    def open(self) -> None: ...

    def close(self) -> None:
        self._queue.close()

    def add(self, data: dict[str, Any]) -> None:
        self._mail.delay(data)

    def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        self._queue.enqueue_many("mail", [(data,) for data in jobs])

    def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        self._mail.apply_async((data,), delay=milliseconds / 1000)

    def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        self._queue.enqueue_many("flaky", [(data,) for data in jobs])

    def work(self, handle: Handler, stop: threading.Event) -> None:
        self._handle = handle

        def end() -> None:
            stop.wait()
            self._queue.shutdown()  # what was begun is finished

        threading.Thread(target=end, daemon=True).start()
        with contextlib.redirect_stdout(sys.stderr):  # it greets
            if self._options.get("prefork"):
                self._run_children(handle)
            else:
                self._queue.run_worker()

    def _run_children(self, handle: Handler) -> None:
        """Its children are new interpreters: they are told through the environment what to do."""
        pipe = Pipe(self._options)
        pipe.listen(handle)
        # It starts what is called `python`, as if the environment were activated.
        os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        os.environ[FOR_CHILDREN] = json.dumps([self._place, self._options, pipe.inheritable()])
        self._queue.run_worker(pool="prefork", app="bench.peers.flexiq:queue")
        pipe.hang_up()

    def count(self) -> dict[str, int | None]:
        found = self._queue.stats()
        return {"waiting": found["pending"], "finished": found["completed"]}


def __getattr__(name: str) -> Any:
    """The queue of a child, which imports this module and asks for it."""
    if name != "queue" or FOR_CHILDREN not in os.environ:
        raise AttributeError(name)
    place, options, number = json.loads(os.environ[FOR_CHILDREN])
    pipe = Pipe(options)
    pipe.use(number)
    return Flexiq(place, options, pipe)._queue


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main_sync(Flexiq)
