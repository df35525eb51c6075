"""Run processors: coroutines on the event loop, plain functions in threads.

A runner is given claimed jobs and reports the outcomes of their runs. It uses no database.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol

from ..client.job.job import Job, Wait
from ..core.decide_outcome import (
    STARTED_TOO_OFTEN,
    Interrupted,
    Raised,
    Result,
    Returned,
    Skipped,
    text_of,
)
from ..engine.metrics import RunTimings
from ..errors import (
    ControlError,
    DelayedError,
    JobSuspended,
    JobTimedOut,
    LostLock,
    WaitingChildrenError,
)
from .processors import ANY, Handler

TIME_SLICE = 0.002
"""Seconds that handlers which never suspend may run before others get the loop."""

PREFETCH_SECONDS, PREFETCH_MAX = 0.002, 400
"""Jobs are fetched ahead for so many seconds of work, at most so many."""

PREFETCH_MIN_SECONDS, PREFETCH_MIN = 0.08, 16
"""The same, if that is more: a transaction for a few takes as long as for one."""

PREFETCH_MAX_JOB_SECONDS = 0.020
"""Seconds that a job may take if any are to be fetched ahead."""

STUCK_AFTER = 1.0
"""Seconds that a run which can be told to stop gets to do so, before it is reported."""


class RunListener(Protocol):
    """Whom a runner works for."""

    def _on_started(self, job: Job) -> None:
        """A run begins; only told while `tells_begin` of the runner is set."""

    def returned(self, job: Job, value: Any) -> None:
        """A run on the loop ended by returning a value: the same as `ended`, for speed."""

    def ended(self, job: Job, result: Result | None) -> None:
        """A run ended; None if the job was moved by its own processor, or lost."""

    def _on_late_error(self, job: Job, error: Exception) -> None:
        """A run ended with an error after its job had been moved or lost."""

    def _on_stuck(self, job: Job) -> None:
        """A run goes on although its time is up."""

    def strategy(self, job: Job, error: BaseException) -> Awaitable[Wait] | Wait:
        """What the user's own strategy says about the next attempt; None if there is none."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call from the event loop's thread in a while; what cancels it. From any thread."""

    def _check_drained(self) -> None:
        """The runner may have nothing to do any more."""


class Runner(Protocol):
    """Runs jobs, a number of them at a time."""

    tells_begin: bool
    pace: PrefetchSizer

    def take(self, jobs: Sequence[Job]) -> None:
        """Run these; never blocks."""

    def running(self) -> list[Job]:
        """Those that have begun and not ended."""

    def waiting(self) -> list[Job]:
        """Those that were taken and have not begun."""

    def busy(self) -> int:
        """How many have been taken and have not ended."""

    def return_unstarted(self) -> list[Job]:
        """Give up what was not begun. From any thread."""

    def return_prefetched(self) -> list[Job]:
        """Give up what was fetched ahead and not begun. From any thread."""

    def remove(self, numbers: Container[int]) -> list[Job]:
        """Give up those of these jobs that were not begun. From any thread."""

    def cancel(self, job: Job) -> None:
        """End a run: its coroutine is cancelled, its function told."""

    def change_concurrency(self, concurrency: int) -> None:
        """Run so many at a time from now on; what runs is left alone."""

    def stop(self, interrupt: bool) -> list[Job]:
        """Begin nothing more and give up what was not begun; `interrupt` what runs, too."""


class PrefetchBuffer:
    """Jobs that were taken and not begun, in the order in which they stood in the queue.

    A job that comes later but stood before the others, because of its priority, is begun first.
    Any thread may clear it; putting and popping is for one at a time.
    """

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            if self._jobs and jobs and jobs[0].place < self._jobs[-1].place:
                jobs = sorted([*self._jobs, *jobs], key=attrgetter("place"))
                self._jobs.clear()
            self._jobs.extend(jobs)

    def pop(self) -> Job | None:
        try:
            return self._jobs.popleft()
        except IndexError:
            return None

    def remove_prefetched(self) -> list[Job]:
        """The jobs at its end that were fetched ahead."""
        jobs: list[Job] = []
        with self._lock:
            try:
                while self._jobs[-1].prefetched:
                    jobs.append(self._jobs.pop())
            except IndexError:  # the last of them was begun just now
                pass
        return jobs[::-1]

    def jobs(self) -> list[Job]:
        with self._lock:
            return list(self._jobs)

    def remove(self, numbers: Container[int]) -> list[Job]:
        """The jobs of these numbers."""
        with self._lock:
            jobs = []
            while (job := self.pop()) is not None:
                jobs.append(job)
            self._jobs.extend(job for job in jobs if job.pk not in numbers)
        return [job for job in jobs if job.pk in numbers]

    def clear(self) -> list[Job]:
        jobs = []
        with self._lock:
            # Pop one by one: another thread may pop beside this, and each job goes to one of them.
            while (job := self.pop()) is not None:
                jobs.append(job)
        return jobs


class PrefetchSizer:
    """How long jobs take, and so how many are worth fetching ahead.

    A slow job is believed at once, a quick one little by little: what was fetched ahead in error
    waits for somebody, what was not costs only speed.
    """

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.timings = RunTimings()
        self._usual = 2 * PREFETCH_MAX_JOB_SECONDS
        self.prefetched = 0
        """How many were last found worth it."""

    def finished(self, seconds: float) -> None:
        self.timings.took(seconds)
        if seconds > self._usual:
            self._usual = seconds
        else:
            self._usual += 0.25 * (seconds - self._usual)

    def stuck(self) -> None:
        """What was fetched ahead had to be given back."""
        self._usual = max(self._usual, 2 * PREFETCH_MAX_JOB_SECONDS)

    def prefetch(self) -> int:
        """How many jobs to hold beyond those that run."""
        self.prefetched = 0
        if self._usual <= PREFETCH_MAX_JOB_SECONDS:
            at_a_time = self.concurrency / max(self._usual, 1e-6)
            many = min(PREFETCH_MAX, PREFETCH_SECONDS * at_a_time)
            self.prefetched = int(max(many, min(PREFETCH_MIN, PREFETCH_MIN_SECONDS * at_a_time)))
        return self.prefetched


class BaseRunner:
    """What both runners think of a job before and after its run."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        concurrency: int,
        master: RunListener,
        most_started: int | None,
    ) -> None:
        self._handlers = handlers
        self._rest = handlers.get(ANY)
        self._only = self._rest.call if self._rest is not None and len(handlers) == 1 else None
        self._concurrency = concurrency
        self._master = master
        self._most_started = most_started
        self.pace = PrefetchSizer(concurrency)
        self._line = PrefetchBuffer()
        self.tells_begin = False

    def _call_of(self, job: Job) -> Callable[[Job], Any]:
        if self._only is not None:
            return self._only
        handler = self._handlers.get(job.name) or self._rest
        assert handler is not None, f"nobody asked for jobs called {job.name!r}"
        return handler.call

    def _skip_reason(self, job: Job) -> str | None:
        """Why a job must not run."""
        if job.deferred_failure is not None:
            return job.deferred_failure
        if self._most_started is not None and job.attempts_started > self._most_started:
            return STARTED_TOO_OFTEN
        return None

    def return_unstarted(self) -> list[Job]:
        self.pace.stuck()
        return self._line.clear()

    def return_prefetched(self) -> list[Job]:
        self.pace.stuck()
        return self._line.remove_prefetched()

    def waiting(self) -> list[Job]:
        return self._line.jobs()

    def remove(self, numbers: Container[int]) -> list[Job]:
        return self._line.remove(numbers)

    def _after_moving(self, job: Job, result: Result, problem: Exception | None) -> Result | None:
        """What is left to be done for a run that had its job moved.

        If the move failed because the job was lost, so is the run; if the store failed, the run.
        """
        if problem is not None and not isinstance(problem, LostLock):
            return Raised(problem)
        error: Exception | None = problem
        if isinstance(result, Raised) and not (
            isinstance(result.error, LostLock) or is_control(result.error)
        ):
            error = result.error if isinstance(result.error, Exception) else problem
        if error is not None:
            self._master._on_late_error(job, error)
        return None


def is_suspension(error: BaseException) -> bool:
    """Whether a run ended because its job sleeps or waits; several tasks of it may say so."""
    if not isinstance(error, BaseExceptionGroup):
        return isinstance(error, JobSuspended)
    # Not with `split`: groups may be nested deeper than it goes, and hold the same one often.
    left, seen = [error], {id(error)}
    while left:
        for one in left.pop().exceptions:
            if not isinstance(one, BaseExceptionGroup):
                if not isinstance(one, JobSuspended):
                    return False
            elif id(one) not in seen:
                seen.add(id(one))
                left.append(one)
    return True


def tame(error: BaseException) -> BaseException:
    """What a processor raised, or another error in its place, with which everything can be done
    that is done with errors: what is asked of one may run code of its class, which raises too."""
    if issubclass(type(error), (SystemExit, GeneratorExit)):
        return _instead_of(error)
    try:
        is_control(error)
        str(error)
        return error
    except KeyboardInterrupt:
        raise
    except BaseException:
        return _instead_of(error)


def _instead_of(error: BaseException) -> RuntimeError:
    text = text_of(error)
    kind = type(error).__name__
    instead = RuntimeError(kind if text == kind else f"{kind}: {text}")
    return instead.with_traceback(sys.exc_info()[2])


def is_control(error: BaseException) -> bool:
    """Whether an error says what is to become of the job; one from elsewhere does by its name."""
    return (
        isinstance(error, ControlError)
        or is_suspension(error)
        or not _CONTROLS.isdisjoint(_names_of(error))
    )


_CONTROLS = {kind.__name__ for kind in ControlError.__subclasses__()}


def _names_of(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def meaning_of_control(error: BaseException) -> Result:
    """What a control error means when the job was not moved."""
    for kind, before in _MOVES_BEFORE.items():
        if kind.__name__ in _names_of(error):
            advice = f"{kind.__name__} was raised without {before} before it"
            return Raised(RuntimeError(f"{advice}: {error}" if str(error) else advice))
    return Interrupted()


_MOVES_BEFORE = {
    DelayedError: "job.move_to_delayed(...)",
    WaitingChildrenError: "job.move_to_waiting_children() telling that it has to wait",
}


class LoopRunner(BaseRunner):
    """Runs coroutine processors with a fixed number of long-lived consumers.

    A task per job would cost more than most of what surrounds it. A consumer whose job has changed
    its context variables is replaced, so no job sees another's.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        concurrency: int,
        master: RunListener,
        most_started: int | None = None,
    ) -> None:
        super().__init__(handlers, concurrency, master, most_started)
        self._running: dict[Job, asyncio.Task[None] | None] = {}
        """Those that have begun, and while their processors run, who runs them."""
        self._cancelled: set[Job] = set()
        self._sleeping: deque[asyncio.Future[None]] = deque()
        self._consumers: set[asyncio.Task[None]] = set()
        self._context = contextvars.copy_context()
        self._turn_ends: float | None = None
        self._stopped = self._is_crowded = False

    def take(self, jobs: Sequence[Job]) -> None:
        self._line.put(jobs)
        self._wake_one()

    def running(self) -> list[Job]:
        return list(self._running)

    def busy(self) -> int:
        return len(self._running) + len(self._line)

    def change_concurrency(self, concurrency: int) -> None:
        self._concurrency = self.pace.concurrency = concurrency
        self._is_crowded = len(self._consumers) > concurrency

    def stop(self, interrupt: bool) -> list[Job]:
        self._stopped = True
        if interrupt:
            for consumer in self._consumers:
                consumer.cancel()
        for sleeper in self._sleeping:
            if not sleeper.done():
                sleeper.set_result(None)
        return self._line.clear()

    def cancel(self, job: Job) -> None:
        job.abort(job.cancellation)
        consumer = self._running.get(job)
        if consumer is not None and job not in self._cancelled:
            self._cancelled.add(job)
            consumer.cancel()

    def _job_was_cancelled(self, job: Job) -> bool:
        """Whether it was the job that was cancelled, and not the consumer that ran it."""
        if job not in self._cancelled:
            return False
        self._cancelled.discard(job)
        task = asyncio.current_task()
        assert task is not None
        return task.uncancel() == 0

    # --- consumers ---

    def _wake_one(self) -> None:
        """Wake a consumer, or make one."""
        while self._sleeping:
            sleeper = self._sleeping.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        if len(self._consumers) < self._concurrency:
            self._add_consumer()

    def _wake_more_consumers(self) -> None:
        """Wake two more if there is work for them.

        They wake two each in turn: a full house within a few turns of the loop, and hardly anybody
        woken for nothing when the first consumer's handlers never suspend.
        """
        for _ in range(min(2, len(self._line) - 1)):
            self._wake_one()

    def _add_consumer(self) -> None:
        context = self._context.copy()
        consumer = asyncio.get_running_loop().create_task(self._consume(), context=context)
        self._consumers.add(consumer)
        consumer.add_done_callback(self._consumer_ended)

    def _consumer_ended(self, consumer: asyncio.Task[None]) -> None:
        """One that a job has cancelled may have been counted on for what came meanwhile."""
        self._consumers.discard(consumer)
        if len(self._line) and not self._stopped:
            self._wake_one()

    def _replace_this_consumer(self) -> None:
        self._dismiss_this_consumer()
        if not self._stopped and len(self._consumers) < self._concurrency:
            self._add_consumer()

    def _exit_if_surplus(self) -> bool:
        """Whether this consumer is one too many since the concurrency was lowered."""
        self._is_crowded = len(self._consumers) > self._concurrency
        if self._is_crowded:
            self._dismiss_this_consumer()
            self._is_crowded = len(self._consumers) > self._concurrency
            return True
        return False

    def _dismiss_this_consumer(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._consumers.discard(task)

    async def _sleep(self) -> None:
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append(sleeper)
        await sleeper

    def _end_of_turn(self) -> float:
        """When this turn of the loop may begin no more jobs; all consumers share its time."""
        if self._turn_ends is None:
            self._turn_ends = time.perf_counter() + TIME_SLICE
            asyncio.get_running_loop().call_soon(self._next_turn)
        return self._turn_ends

    def _next_turn(self) -> None:
        self._turn_ends = None

    async def _consume(self) -> None:
        clean = contextvars.copy_context()
        only, running, returned = self._only, self._running, self._master.returned
        result: Result | None
        value: Any = None
        always_with_care = self._most_started is not None
        this_consumer = asyncio.current_task()
        while not self._stopped:
            if not len(self._line):
                await self._sleep()
            self._wake_more_consumers()
            now, turn_ends = time.perf_counter(), self._end_of_turn()
            # When its turn is over, it may be that it slept meanwhile and this is another turn.
            while now < turn_ends or now < (turn_ends := self._end_of_turn()):
                if self._is_crowded and self._exit_if_surplus():
                    return
                if (job := self._line.pop()) is None:
                    break
                running[job] = this_consumer
                if self.tells_begin:
                    self._master._on_started(job)
                try:
                    if always_with_care or job.needs_care:
                        result = await self._run_checked(job)
                    else:
                        value = await (only or self._call_of(job))(job)
                        result = None
                except Exception as error:
                    result = Raised(tame(error))
                except BaseException as raised:
                    if issubclass(type(raised), GeneratorExit) and not _is_current(this_consumer):
                        raise  # the loop is gone already, and this consumer is thrown away
                    tamed = tame(raised)
                    was_cancelled = isinstance(tamed, asyncio.CancelledError)
                    survives = was_cancelled and self._job_was_cancelled(job)
                    if not (survives or is_suspension(tamed) or _fails_its_job_alone(tamed)):
                        self._end(job, _meaning_of(tamed))
                        if not was_cancelled or _is_cancelled():
                            raise  # this consumer, or the whole loop, is told to end
                        continue
                    result = Raised(tamed)
                if self._cancelled:
                    self._job_was_cancelled(job)
                if result is None and job.moving is None:
                    del running[job]
                    returned(job, value)
                else:
                    running[job] = None
                    await self._finish_checked(job, Returned(value) if result is None else result)
                ended = time.perf_counter()
                self.pace.finished(ended - now)
                now = ended
                if contextvars.copy_context() != clean:
                    self._replace_this_consumer()
                    return
            await asyncio.sleep(0)

    def _end(self, job: Job, result: Result | None) -> None:
        self._running.pop(job, None)
        self._master.ended(job, result)

    async def _finish_checked(self, job: Job, result: Result) -> None:
        """End a run that failed, or that moved its job."""
        concluded: Result | None = result
        problem = None
        if job.moving is not None:
            try:
                await job.moving
            except Exception as error:
                problem = error
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                # The run was cancelled while it waited for this: whether it has moved its job is
                # seen when the verdict arrives.
                job.moving = None
        if job.moving is not None:
            concluded = self._after_moving(job, result, problem)
        elif isinstance(result, Raised) and is_control(result.error):
            concluded = meaning_of_control(result.error)
        elif isinstance(result, Raised) and job.cancellation is None:
            concluded = await self._ask_strategy(job, result.error)
        self.pace.timings.failed += type(concluded) is Raised
        self._end(job, concluded)

    async def _ask_strategy(self, job: Job, error: BaseException) -> Raised:
        try:
            wait = self._master.strategy(job, error)
            return Raised(error, await wait if inspect.isawaitable(wait) else wait)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as problem:
            if issubclass(type(problem), GeneratorExit) and not _is_current(asyncio.current_task()):
                raise
            return Raised(_because_of(problem, error), False)

    async def _run_checked(self, job: Job) -> Result:
        refusal = self._skip_reason(job)
        if refusal is not None:
            return Skipped(refusal)
        timeout = job.timeout
        if timeout is None:
            return Returned(await self._call_of(job)(job))
        return await self._run_in_time(job, timeout)

    async def _run_in_time(self, job: Job, timeout: int) -> Result:
        """Run for so many ms at most; then cancel, and wait until it has ended all the same."""
        run = asyncio.ensure_future(_result_of(self._call_of(job)(job)))
        in_time = True
        try:
            done, _ = await asyncio.wait({run}, timeout=timeout / 1000)
            if done:
                return run.result()
            in_time = False
            error = JobTimedOut(f"job {job.id} took longer than its timeout of {timeout} ms")
            job.abort(error)
            run.cancel()
            done, _ = await asyncio.wait({run}, timeout=STUCK_AFTER)
            if not done:
                self._master._on_stuck(job)
                await asyncio.wait({run})
            if not run.cancelled():
                run.exception()  # whatever it is: the time was up before
            return Raised(error)
        except asyncio.CancelledError:
            run.cancel()
            await asyncio.wait({run})
            if in_time and job in self._cancelled and not run.cancelled():
                return run.result()
            raise


async def _result_of(call: Awaitable[Any]) -> Result:
    """What a run in a task of its own comes to: SystemExit out of a task ends the event loop."""
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
    """Whether a run that raised what is no `Exception` failed, and nobody is told to end."""
    return not isinstance(error, asyncio.CancelledError | KeyboardInterrupt) and not _is_cancelled()


def _because_of(problem: BaseException, error: BaseException) -> BaseException:
    """What a retry strategy raised when it was asked about `error`."""
    problem = tame(problem)
    if problem is not error:
        problem.__context__ = error
    return problem


def _meaning_of(error: BaseException) -> Result:
    """A job whose consumer is cancelled did nothing wrong; one that cancels itself failed."""
    return Interrupted() if _is_cancelled() else Raised(error)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class ThreadRunner(BaseRunner):
    """Runs plain functions in threads that get jobs directly, never through the event loop."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        concurrency: int,
        master: RunListener,
        most_started: int | None = None,
        name: str = "bullite",
    ) -> None:
        super().__init__(handlers, concurrency, master, most_started)
        self._name = name
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        """One who sleeps wakes up for each."""
        self._counting = threading.Lock()
        self._running: set[Job] = set()
        self._ending: set[Job] = set()
        """Those whose runs have ended, of which nobody was told yet."""
        self._threads = self._sleeping = self._made = 0
        self._has_called = False

    def take(self, jobs: Sequence[Job]) -> None:
        with self._counting:
            self._has_called = False
            self._line.put(jobs)
            missing = min(self._concurrency, len(self._running) + len(self._line)) - self._threads
            for _ in range(missing):
                self._threads += 1
                self._made += 1
                name = f"{self._name}-{self._made}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
            self._wake(len(jobs))

    def running(self) -> list[Job]:
        with self._counting:
            return list(self._running)

    def busy(self) -> int:
        with self._counting:
            return len(self._running) + len(self._ending) + len(self._line)

    def change_concurrency(self, concurrency: int) -> None:
        self.pace.concurrency = concurrency
        with self._counting:
            self._concurrency = concurrency
            self._wake(self._threads - concurrency)

    def stop(self, interrupt: bool) -> list[Job]:
        jobs = self._line.clear()
        with self._counting:
            self._concurrency = 0
            self._wake(self._threads)
            if interrupt:
                for job in self._running:
                    job.abort("the worker is closing")
        return jobs

    def cancel(self, job: Job) -> None:
        job.abort(job.cancellation)

    def needs_more_work(self) -> bool:
        """Whether somebody must see to it now that there is more to do: all that it held ahead has
        begun, or half of it, and nobody was called since it was last given some. One that is told
        to stop always calls: what its runs came to must not wait for what is left of them."""
        if self._concurrency == 0 or self.pace.prefetched > PREFETCH_MIN:
            return True  # so many end while one transaction runs that none need wait for others
        ahead = len(self._running) + len(self._line) - self._concurrency
        if ahead > 0 and (self._has_called or ahead > self.pace.prefetched // 2):
            return False
        self._has_called = True
        return True

    def remove(self, numbers: Container[int]) -> list[Job]:
        with self._counting:  # who finds the line empty meanwhile would sleep, unwoken
            return super().remove(numbers)

    # --- threads ---

    def _wake(self, number: int) -> None:
        """Wake so many of those who sleep; who calls has the lock."""
        for _ in range(min(number, self._sleeping)):
            self._sleeping -= 1
            self._bell.put(None)

    def _work(self) -> None:
        job = self._wait()
        while job is not None:
            if self.tells_begin:
                self._master._on_started(job)
            began = time.perf_counter()
            ran = self._run(job)
            needs_care = job.moving is not None or type(ran) is Raised
            result = self._conclude(job, ran) if needs_care else ran
            ended = time.perf_counter()
            with self._counting:
                self.pace.finished(ended - began)
                if needs_care:
                    self.pace.timings.failed += type(result) is Raised
                self._running.discard(job)
                self._ending.add(job)
                following = self._begin_next()
            self._master.ended(job, result)
            self._ending.discard(job)
            if following is None:
                # What the run came to may have been recorded while it still counted here.
                self._master._check_drained()
            job = following or self._wait()

    def _wait(self) -> Job | None:
        """The next job, as soon as there is one; None for a thread that is one too many."""
        while True:
            with self._counting:
                if self._threads > self._concurrency:
                    self._threads -= 1
                    return None
                if (job := self._begin_next()) is not None:
                    return job
                self._sleeping += 1
            self._bell.get()

    def _begin_next(self) -> Job | None:
        """The next job, if there is one and this thread may go on; who calls has the lock."""
        if self._threads > self._concurrency or (job := self._line.pop()) is None:
            return None
        self._running.add(job)
        return job

    def _run(self, job: Job) -> Result:
        if job.needs_care or self._most_started is not None:
            refusal = self._skip_reason(job)
            if refusal is not None:
                return Skipped(refusal)
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
        """A thread cannot be stopped: it is told to, reported, and its time counts when it ends."""
        error = JobTimedOut(f"job {job.id} took longer than its timeout of {timeout} ms")
        time_is_up, has_ended = threading.Event(), threading.Event()

        def ring() -> None:
            time_is_up.set()
            job.abort(error)
            # One that takes a signal may be about to obey; the others cannot even hear.
            self._master.call_later(STUCK_AFTER if job._has_signal else 0, report)

        def report() -> None:
            if not has_ended.is_set():
                self._master._on_stuck(job)

        cancel = self._master.call_later(timeout / 1000, ring)
        began = time.monotonic()
        result = self._call(job)
        has_ended.set()
        late = time_is_up.is_set() or (time.monotonic() - began) * 1000 > timeout
        cancel()
        return Raised(error) if late else result

    def _conclude(self, job: Job, result: Result) -> Result | None:
        problem = None
        if job.moving is not None:
            try:
                job.moving.result()
            except Exception as error:
                problem = error
        if job.moving is not None:
            return self._after_moving(job, result, problem)
        if isinstance(result, Raised):
            if is_control(result.error):
                return meaning_of_control(result.error)
            return self._ask_strategy(job, result.error)
        return result

    def _ask_strategy(self, job: Job, error: BaseException) -> Raised:
        try:
            wait = self._master.strategy(job, error)
            if inspect.isawaitable(wait):
                wait = asyncio.run(_await(wait))
            return Raised(error, wait)
        except BaseException as problem:
            return Raised(_because_of(problem, error), False)


async def _await(wait: Awaitable[Wait]) -> Wait:
    return await wait
