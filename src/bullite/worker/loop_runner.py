"""Run coroutine processors on the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from ..client.job.job import Job
from ..core.decide_outcome import Interrupted, Raised, Result, Returned, Skipped
from ..core.job_record import needs_checks
from ..errors import JobTimedOut
from .context import WorkerContext
from .control_errors import is_control, is_suspension, result_of_control, strategy_error, tame
from .processors import Handler
from .runner import STUCK_AFTER, BaseRunner, ResultReceiver

TIME_SLICE = 0.002
"""Seconds per turn of the event loop in which coroutines that never suspend may start."""


class LoopRunner(BaseRunner):
    """Runs coroutine processors in up to `concurrency` long-lived tasks, the consumers.

    One task per job would cost more than the rest of a short run. A consumer whose job has changed
    context variables is replaced, so that no job sees those of another.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        concurrency: int,
        worker: WorkerContext,
        results: ResultReceiver,
    ) -> None:
        super().__init__(handlers, concurrency, worker, results)
        self._running: dict[Job, asyncio.Task[None] | None] = {}
        """The jobs that have started, each with its consumer while its processor runs."""
        self._cancelled: set[Job] = set()
        self._sleeping: deque[asyncio.Future[None]] = deque()
        self._consumers: set[asyncio.Task[None]] = set()
        self._context = contextvars.copy_context()
        self._slice_ends: float | None = None
        self._stopped = self._has_surplus = False

    def take(self, jobs: Sequence[Job]) -> None:
        self._buffer.put(jobs)
        self._wake_one()

    def running(self) -> list[Job]:
        return list(self._running)

    def busy(self) -> int:
        return len(self._running) + len(self._buffer)

    def change_concurrency(self, concurrency: int) -> None:
        self._concurrency = self.sizer.concurrency = concurrency
        self._has_surplus = len(self._consumers) > concurrency

    def stop(self, interrupt: bool) -> list[Job]:
        self._stopped = True
        if interrupt:
            for consumer in self._consumers:
                consumer.cancel()
        for sleeper in self._sleeping:
            if not sleeper.done():
                sleeper.set_result(None)
        return self._buffer.clear()

    def cancel(self, job: Job) -> None:
        job._run.abort(job._run.cancellation)
        consumer = self._running.get(job)
        if consumer is not None and job not in self._cancelled:
            self._cancelled.add(job)
            consumer.cancel()

    def _job_was_cancelled(self, job: Job) -> bool:
        """Return True if this cancellation was meant for the job, not for its consumer."""
        if job not in self._cancelled:
            return False
        self._cancelled.discard(job)
        task = asyncio.current_task()
        assert task is not None
        return task.uncancel() == 0

    # --- consumers ---

    def _wake_one(self) -> None:
        """Wake a sleeping consumer, or add one."""
        while self._sleeping:
            sleeper = self._sleeping.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        if len(self._consumers) < self._concurrency:
            self._add_consumer()

    def _wake_more_consumers(self) -> None:
        """Wake two more consumers if there are jobs for them.

        Each of them wakes two in turn, so all run within a few turns of the loop. If processors
        never suspend, the first consumer runs all jobs, and only two were woken in vain.
        """
        for _ in range(min(2, len(self._buffer) - 1)):
            self._wake_one()

    def _add_consumer(self) -> None:
        context = self._context.copy()
        consumer = asyncio.get_running_loop().create_task(self._consume(), context=context)
        self._consumers.add(consumer)
        consumer.add_done_callback(self._consumer_ended)

    def _consumer_ended(self, consumer: asyncio.Task[None]) -> None:
        # It may have been woken for a job, and then been cancelled by the job that it ran.
        self._consumers.discard(consumer)
        if len(self._buffer) and not self._stopped:
            self._wake_one()

    def _replace_this_consumer(self) -> None:
        self._discard_this_consumer()
        if not self._stopped and len(self._consumers) < self._concurrency:
            self._add_consumer()

    def _exit_if_surplus(self) -> bool:
        """Discard this consumer if there are more than `concurrency`. Return True if it was."""
        self._has_surplus = len(self._consumers) > self._concurrency
        if self._has_surplus:
            self._discard_this_consumer()
            self._has_surplus = len(self._consumers) > self._concurrency
            return True
        return False

    def _discard_this_consumer(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._consumers.discard(task)

    async def _sleep(self) -> None:
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append(sleeper)
        await sleeper

    def _slice_end(self) -> float:
        """Return when the time slice of this turn of the loop ends. All consumers share it."""
        if self._slice_ends is None:
            self._slice_ends = time.perf_counter() + TIME_SLICE
            asyncio.get_running_loop().call_soon(self._end_turn)
        return self._slice_ends

    def _end_turn(self) -> None:
        self._slice_ends = None

    async def _consume(self) -> None:
        clean = contextvars.copy_context()
        only, running, returned = self._only, self._running, self._results.returned
        result: Result | None
        value: Any = None
        always_checked = self._max_started_attempts is not None
        this_consumer = asyncio.current_task()
        while not self._stopped:
            if not len(self._buffer):
                await self._sleep()
            self._wake_more_consumers()
            now, slice_ends = time.perf_counter(), self._slice_end()
            # If the slice has ended, the consumer may have slept since: get that of this turn.
            while now < slice_ends or now < (slice_ends := self._slice_end()):
                if self._has_surplus and self._exit_if_surplus():
                    return
                if (job := self._buffer.pop()) is None:
                    break
                running[job] = this_consumer
                if self.reports_starts:
                    self._notifications.started(job)
                try:
                    if always_checked or needs_checks(job):
                        result = await self._run_checked(job)
                    else:
                        value = await (only or self._call_of(job))(job)
                        result = None
                except Exception as error:
                    result = Raised(tame(error))
                except BaseException as raised:
                    if issubclass(type(raised), GeneratorExit) and not _is_current(this_consumer):
                        raise  # the loop is closed, and Python deletes this consumer
                    tamed = tame(raised)
                    was_cancelled = isinstance(tamed, asyncio.CancelledError)
                    survives = was_cancelled and self._job_was_cancelled(job)
                    if not (survives or is_suspension(tamed) or _fails_its_job_alone(tamed)):
                        self.end(job, _result_of_cancellation(tamed))
                        if not was_cancelled or _consumer_is_cancelled():
                            raise  # this consumer, or every task of the loop, was cancelled
                        continue
                    result = Raised(tamed)
                if self._cancelled:
                    self._job_was_cancelled(job)
                if result is None and job._run.moving is None:
                    del running[job]
                    returned(job, value)
                else:
                    running[job] = None
                    await self._finish_checked(job, Returned(value) if result is None else result)
                ended = time.perf_counter()
                self.sizer.finished(ended - now)
                now = ended
                if contextvars.copy_context() != clean:
                    self._replace_this_consumer()
                    return
            await asyncio.sleep(0)

    def end(self, job: Job, result: Result | None) -> None:
        self._running.pop(job, None)
        self._results.ended(job, result)

    async def _finish_checked(self, job: Job, result: Result) -> None:
        """End a run that failed, or that moved its job; first await the move."""
        concluded: Result | None = result
        problem = None
        if job._run.moving is not None:
            try:
                await job._run.moving
            except Exception as error:
                problem = error
            except asyncio.CancelledError:
                if _consumer_is_cancelled():
                    raise
                # The run was cancelled while it awaited the move. If the job was moved, the
                # outcome of this run is rejected.
                job._run.moving = None
        if job._run.moving is not None:
            concluded = self._after_moving(job, result, problem)
        elif isinstance(result, Raised) and is_control(result.error):
            concluded = result_of_control(result.error)
        elif isinstance(result, Raised) and job._run.cancellation is None:
            concluded = await self._ask_strategy(job, result.error)
        self.sizer.timings.failed += type(concluded) is Raised
        self.end(job, concluded)

    async def _ask_strategy(self, job: Job, error: BaseException) -> Raised:
        try:
            wait = self._retry_delay(job, error)
            return Raised(error, await wait if inspect.isawaitable(wait) else wait)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as problem:
            if issubclass(type(problem), GeneratorExit) and not _is_current(asyncio.current_task()):
                raise
            return Raised(strategy_error(problem, error), False)

    async def _run_checked(self, job: Job) -> Result:
        reason = self._skip_reason(job)
        if reason is not None:
            return Skipped(reason)
        timeout = job.timeout
        if timeout is None:
            return Returned(await self._call_of(job)(job))
        return await self._run_in_time(job, timeout)

    async def _run_in_time(self, job: Job, timeout: int) -> Result:
        """Run for at most `timeout` ms, then cancel the run and wait until it has ended."""
        run = asyncio.ensure_future(_result_of(self._call_of(job)(job)))
        in_time = True
        try:
            done, _ = await asyncio.wait({run}, timeout=timeout / 1000)
            if done:
                return run.result()
            in_time = False
            error = JobTimedOut(f"job {job.id} took longer than its timeout of {timeout} ms")
            job._run.abort(error)
            run.cancel()
            done, _ = await asyncio.wait({run}, timeout=STUCK_AFTER)
            if not done:
                self._notifications.stuck(job)
                await asyncio.wait({run})
            if not run.cancelled():
                run.exception()  # retrieved, or asyncio logs it; the run has timed out in any case
            return Raised(error)
        except asyncio.CancelledError:
            run.cancel()
            await asyncio.wait({run})
            if in_time and job in self._cancelled and not run.cancelled():
                return run.result()
            raise


async def _result_of(call: Awaitable[Any]) -> Result:
    """Return the result of a run in its own task, from which SystemExit would end the loop."""
    try:
        return Returned(await call)
    except SystemExit as error:
        return Raised(tame(error))


def _is_current(task: asyncio.Task[Any] | None) -> bool:
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:  # no event loop runs
        return False


def _fails_its_job_alone(error: BaseException) -> bool:
    """Return True if a BaseException fails the job, and is not to end the consumer or the loop."""
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return False
    return not _consumer_is_cancelled()


def _result_of_cancellation(error: BaseException) -> Result:
    """Return the result of a cancelled run: a failure unless its consumer was cancelled."""
    return Interrupted() if _consumer_is_cancelled() else Raised(error)


def _consumer_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
