"""Run plain functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
import time
from collections.abc import Awaitable, Container, Mapping, Sequence

from ..client.job.job import Job
from ..client.job.run import Wait
from ..core.decide_outcome import Raised, Result, Returned, Skipped
from ..core.job_record import needs_checks
from ..errors import JobTimedOut
from .context import WorkerContext
from .control_errors import is_control, result_of_control, strategy_error, tame
from .prefetch import PREFETCH_MIN
from .processors import Handler
from .runner import STUCK_AFTER, BaseRunner, ResultReceiver


class ThreadRunner(BaseRunner):
    """Runs plain functions in threads, which take jobs themselves, not through the event loop."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        concurrency: int,
        worker: WorkerContext,
        results: ResultReceiver,
        name: str = "bullite",
    ) -> None:
        super().__init__(handlers, concurrency, worker, results)
        self._loop, self._activity = worker.loop, worker.activity
        self._name = name
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Each item wakes one sleeping thread."""
        self._counting = threading.Lock()
        self._running: set[Job] = set()
        self._ending: set[Job] = set()
        """The jobs whose runs have ended and whose results are not reported yet."""
        self._threads = self._sleeping = self._started_threads = 0
        self._has_requested_more = False

    def take(self, jobs: Sequence[Job]) -> None:
        with self._counting:
            self._has_requested_more = False
            self._buffer.put(jobs)
            missing = min(self._concurrency, len(self._running) + len(self._buffer)) - self._threads
            for _ in range(missing):
                self._threads += 1
                self._started_threads += 1
                name = f"{self._name}-{self._started_threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
            self._wake(len(jobs))

    def running(self) -> list[Job]:
        with self._counting:
            return list(self._running)

    def busy(self) -> int:
        with self._counting:
            return len(self._running) + len(self._ending) + len(self._buffer)

    def change_concurrency(self, concurrency: int) -> None:
        self.sizer.concurrency = concurrency
        with self._counting:
            self._concurrency = concurrency
            self._wake(self._threads - concurrency)

    def stop(self, interrupt: bool) -> list[Job]:
        jobs = self._buffer.clear()
        with self._counting:
            self._concurrency = 0
            self._wake(self._threads)
            if interrupt:
                for job in self._running:
                    job._run.abort("the worker is closing")
        return jobs

    def cancel(self, job: Job) -> None:
        job._run.abort(job._run.cancellation)

    def needs_more_work(self) -> bool:
        """Return True if an outcome must be sent now, to get more jobs, not merged with later ones.

        That is when half of the prefetched jobs have started, once per batch of claimed jobs, and
        whenever none are left. A stopping runner sends each outcome: no later one may come.
        """
        if self._concurrency == 0 or self.sizer.prefetched > PREFETCH_MIN:
            return True  # so many runs end during one transaction that they are merged anyway
        prefetched = len(self._running) + len(self._buffer) - self._concurrency
        requested = self._has_requested_more
        if prefetched > 0 and (requested or prefetched > self.sizer.prefetched // 2):
            return False
        self._has_requested_more = True
        return True

    def remove(self, pks: Container[int]) -> list[Job]:
        with self._counting:  # a thread that found the buffer empty would sleep, unwoken
            return super().remove(pks)

    def end(self, job: Job, result: Result | None) -> None:
        if result is None:
            self._results.ended(job, None)
        else:
            self._results.ended_in_thread(job, result, self.needs_more_work())

    # --- threads ---

    def _wake(self, number: int) -> None:
        """Wake so many sleeping threads. The caller holds the lock."""
        for _ in range(min(number, self._sleeping)):
            self._sleeping -= 1
            self._wakeups.put(None)

    def _work(self) -> None:
        job = self._wait()
        while job is not None:
            if self.reports_starts:
                self._notifications.started(job)
            started = time.perf_counter()
            ran = self._run(job)
            needs_check = job._run.moving is not None or type(ran) is Raised
            result = self._conclude(job, ran) if needs_check else ran
            ended = time.perf_counter()
            with self._counting:
                self.sizer.finished(ended - started)
                if needs_check:
                    self.sizer.timings.failed += type(result) is Raised
                self._running.discard(job)
                self._ending.add(job)
                following = self._start_next()
            self.end(job, result)
            self._ending.discard(job)
            if following is None:
                # The outcome may have been recorded while the job still counted as busy here.
                self._activity.check_soon()
            job = following or self._wait()

    def _wait(self) -> Job | None:
        """Wait for a job, start and return it. Return None if this thread is to end."""
        while True:
            with self._counting:
                if self._threads > self._concurrency:
                    self._threads -= 1
                    return None
                if (job := self._start_next()) is not None:
                    return job
                self._sleeping += 1
            self._wakeups.get()

    def _start_next(self) -> Job | None:
        """Start and return the next job. Return None if there is none, or this thread is to end.

        The caller holds the lock.
        """
        if self._threads > self._concurrency or (job := self._buffer.pop()) is None:
            return None
        self._running.add(job)
        return job

    def _run(self, job: Job) -> Result:
        if needs_checks(job) or self._max_started_attempts is not None:
            reason = self._skip_reason(job)
            if reason is not None:
                return Skipped(reason)
            if job.timeout is not None:
                return self._run_in_time(job, job.timeout)
        return self._call(job)

    def _call(self, job: Job) -> Result:
        try:
            value = contextvars.Context().run(self._call_of(job), job)
            if value is None or not inspect.isawaitable(value):
                return Returned(value)
            if inspect.iscoroutine(value):
                value.close()
        except BaseException as error:
            return Raised(tame(error))
        return Raised(TypeError("the processor returned an awaitable: make it an async def"))

    def _run_in_time(self, job: Job, timeout: int) -> Result:
        """Run, and set the abort signal at the timeout: a thread cannot be interrupted."""
        error = JobTimedOut(f"job {job.id} took longer than its timeout of {timeout} ms")
        time_is_up, has_ended = threading.Event(), threading.Event()

        def abort() -> None:
            time_is_up.set()
            job._run.abort(error)
            # A function that takes a signal gets time to return; others do not know of it.
            self._loop.call_later(STUCK_AFTER if job._run.signal_or_none else 0, report)

        def report() -> None:
            if not has_ended.is_set():
                self._notifications.stuck(job)

        cancel = self._loop.call_later(timeout / 1000, abort)
        started = time.monotonic()
        result = self._call(job)
        has_ended.set()
        late = time_is_up.is_set() or (time.monotonic() - started) * 1000 > timeout
        cancel()
        return Raised(error) if late else result

    def _conclude(self, job: Job, result: Result) -> Result | None:
        problem = None
        if job._run.moving is not None:
            try:
                job._run.moving.result()
            except Exception as error:
                problem = error
        if job._run.moving is not None:
            return self._after_moving(job, result, problem)
        if isinstance(result, Raised):
            if is_control(result.error):
                return result_of_control(result.error)
            return self._ask_strategy(job, result.error)
        return result

    def _ask_strategy(self, job: Job, error: BaseException) -> Raised:
        try:
            wait = self._retry_delay(job, error)
            if inspect.isawaitable(wait):
                wait = asyncio.run(_await(wait))
            return Raised(error, wait)
        except BaseException as problem:
            return Raised(strategy_error(problem, error), False)


async def _await(wait: Awaitable[Wait]) -> Wait:
    return await wait
