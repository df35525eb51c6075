"""Starting and stopping an application: its workers, schedules, log capture and stores."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ..client.job.job import Job
from ..client.runtime.blocking import forbid_in_event_loop
from ..client.runtime.loop_thread import LoopThread
from ..client.runtime.store import Store
from ..core.checks import Duration, check_duration, check_int
from ..core.states import RELEASE
from ..errors import ApplicationStarted, InvalidOption, WrongLoop
from ..operations.finish import FinishResult
from ..worker.outcome_batch import OutcomeBatch
from ..worker.worker import Worker
from .dispatch import seconds_to_ms
from .job_logging import JobLog
from .queues import Queues
from .registry import QueueProcessors, Registry

log = logging.getLogger("bullite.app")


class Lifecycle:
    """The workers of an application in this process, from start to stop."""

    def __init__(
        self,
        queues: Queues,
        registry: Registry,
        job_log: JobLog | None,
        *,
        concurrency: int,
        stop_timeout: float,
        lock_duration: Duration,
    ) -> None:
        self._queues = queues
        self._registry = registry
        self._job_log = job_log
        self._concurrency = check_int("concurrency", concurrency, 1, 100_000)
        self._stop_timeout = seconds_to_ms("stop_timeout", stop_timeout) / 1000
        self._lock_duration = check_duration("lock_duration", lock_duration, least=100)
        self._workers: list[Worker] = []
        self._pid = 0
        """The process that started the application; 0 while it is stopped."""
        self._loop: asyncio.AbstractEventLoop
        self._loop_lock: asyncio.Lock
        self._loop_pid = 0
        """The process of `_loop` and `_loop_lock`."""
        self._thread: LoopThread | None = None

    @property
    def is_running(self) -> bool:
        """Whether the application was started in this process and not stopped since."""
        return self._pid == os.getpid()

    @property
    def workers(self) -> list[Worker]:
        """The workers of this process, one for each queue that it serves."""
        return list(self._workers) if self.is_running else []

    def require_not_started(self, what: str) -> None:
        """Raise ApplicationStarted, with `what` as the subject, if the application runs."""
        if self.is_running:
            raise ApplicationStarted(f"{what} came too late: the application has started")

    # --- start ---

    async def start(
        self, queues: Collection[str] | None = None, concurrency: int | None = None
    ) -> None:
        """Store the schedules and start the workers."""
        processors = self._registry.processors_of(queues)
        if concurrency is not None:
            check_int("concurrency", concurrency, 1, 100_000)
        async with self._lock():
            if self._queues.is_overridden:  # the playground runs the jobs
                await self._registry.store_schedules()
                return
            if self.is_running:
                return
            self._workers = []  # after a fork they are the parent's
            self._pid = os.getpid()
            self._capture_logs()
            try:
                await self._start_workers(processors, concurrency or self._concurrency)
            except BaseException:
                with suppress(Exception):  # a worker that failed to start raises here once more
                    await self._stop(0)
                raise

    async def _start_workers(
        self, processors: dict[str, QueueProcessors], concurrency: int
    ) -> None:
        await self._registry.store_schedules()
        self._workers = [
            self._worker(queue, found, concurrency) for queue, found in processors.items()
        ]
        for worker in self._workers:
            await worker.wait_until_ready()
        for queue in processors:
            await self._registry.release_postponed(self._queues.get(queue))

    def _worker(self, queue: str, processors: QueueProcessors, concurrency: int) -> Worker:
        return Worker(
            self._queues.get(queue),
            processors.for_worker(self._registry.hooks),
            concurrency=processors.concurrency or concurrency,
            poll_interval=processors.poll_interval,
            lock_duration=self._lock_duration,
        )

    def _lock(self) -> asyncio.Lock:
        """Return the lock of start and stop: one for each event loop and process.

        Raise WrongLoop if the application runs on another event loop.
        """
        loop = asyncio.get_running_loop()
        if self.is_running and self._loop is not loop and self._loop.is_running():
            raise WrongLoop("the application runs on another event loop: start and stop it there")
        if self._loop_pid != os.getpid() or self._loop is not loop:
            self._loop, self._loop_pid, self._loop_lock = loop, os.getpid(), asyncio.Lock()
        return self._loop_lock

    # --- stop ---

    async def stop(self, timeout: float | None = None) -> None:
        """Close the workers and then the stores; `timeout` is in seconds."""
        seconds = (
            self._stop_timeout if timeout is None else seconds_to_ms("timeout", timeout) / 1000
        )
        async with self._lock():
            await self._stop(seconds)

    async def _stop(self, timeout: float) -> None:
        hurry = asyncio.Event()
        stopping = asyncio.ensure_future(self._close(timeout, hurry))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            hurry.set()
            # However often it is cancelled: no store may be closed under a worker.
            while not stopping.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([stopping])
            if not stopping.cancelled() and (error := stopping.exception()) is not None:
                log.error("the application was stopped, but not well: %s", error)
            raise

    async def _close(self, timeout: float, hurry: asyncio.Event) -> None:
        workers = self._workers if self.is_running else []  # a forked child stops none
        self._workers = []
        try:
            await close_workers(workers, timeout, hurry)
        finally:
            self._pid = 0
            if not self._queues.is_overridden:
                self._stop_capturing_logs()
                await self._queues.close()

    # --- log capture, and tests ---

    def _capture_logs(self) -> None:
        if self._job_log is not None:
            logging.getLogger().addHandler(self._job_log)

    def _stop_capturing_logs(self) -> None:
        if self._job_log is not None:
            logging.getLogger().removeHandler(self._job_log)

    @contextmanager
    def use_store(self, store: Store) -> Iterator[None]:
        """Have all queues in `store`, and logs captured, inside the context: for tests.

        A start inside it starts no workers. Queues must be got anew inside it and after it.
        """
        self.require_not_started("a move to another store")
        with self._queues.use_store(store):
            self._capture_logs()
            try:
                yield
            finally:
                self._stop_capturing_logs()

    # --- without an event loop ---

    def start_in_thread(
        self, queues: Collection[str] | None = None, concurrency: int | None = None
    ) -> None:
        """Start on an event loop in a thread of its own."""
        forbid_in_event_loop("start_sync", "await start() instead")
        if self.is_running:
            return
        thread = LoopThread("app")
        try:
            thread.wait(self.start(queues, concurrency))
        except BaseException:
            thread.end()
            raise
        self._thread = thread

    def stop_in_thread(self, timeout: float | None = None) -> None:
        """Stop on the event loop that `start_in_thread` made, and end its thread."""
        forbid_in_event_loop("stop_sync", "await stop() instead")
        thread, self._thread = self._thread, None
        if thread is None or not self.is_running:
            return
        try:
            thread.wait(self.stop(timeout))
        except InvalidOption:
            self._thread = thread  # nothing was stopped
            raise
        finally:
            if self._thread is None:
                thread.end()


class _ForcedClose:
    """A worker that is closed by force, and the jobs that ran in it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._jobs = worker.running_jobs()
        self._released: set[int] = set()
        worker._notifications.recorded_hooks.append(self._record)

    def _record(self, batch: OutcomeBatch, result: FinishResult) -> None:
        released = {outcome.job for outcome in batch.outcomes if outcome.move is RELEASE}
        self._released |= released - set(result.lost)

    def released(self) -> list[Job]:
        return [job for job in self._jobs if job.pk in self._released]

    def still_running(self) -> list[Job]:
        return self._worker.running_jobs()


async def close_workers(workers: list[Worker], timeout: float, hurry: asyncio.Event) -> None:
    """Close the workers: wait for their jobs until `timeout` or `hurry`, then interrupt them."""
    closing = [asyncio.ensure_future(worker.close()) for worker in workers]
    await _wait(closing, timeout, hurry)
    late = f"took longer than {timeout:g} s"
    why = "did not end before stop was cancelled" if hurry.is_set() else late
    forced = [_ForcedClose(worker) for worker in workers]
    closing += [asyncio.ensure_future(worker.close(force=True)) for worker in workers]
    results = await asyncio.gather(*closing, return_exceptions=True)
    if released := _job_list(job for one in forced for job in one.released()):
        log.warning("these jobs %s and are given back: %s", why, released)
    if running := _job_list(job for one in forced for job in one.still_running()):
        log.warning(
            "these jobs %s and still run here; another worker takes them when their lease ends: %s",
            why,
            running,
        )
    for error in results:  # only now: all workers must be closed before their store is
        if error is not None:
            raise error


async def _wait(
    closing: Sequence[asyncio.Future[None]], timeout: float, hurry: asyncio.Event
) -> None:
    hurrying = asyncio.ensure_future(hurry.wait())
    either: list[asyncio.Future[Any]] = [
        asyncio.gather(*closing, return_exceptions=True),
        hurrying,
    ]
    await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    hurrying.cancel()


def _job_list(jobs: Iterable[Job]) -> str:
    return ", ".join(f"{job.id} ({job.name} of {job.queue_name})" for job in jobs)
