"""Runs processors: coroutines on the event loop, plain functions in threads.

Takes claimed jobs, gives verdicts. Knows nothing of the database.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from .backoff import Random
from .job import Job
from .outcome import Interrupted, NotRun, Raised, Result, Returned, Verdict, decide

R = TypeVar("R")
Processor = Callable[[Job], Awaitable[Any]] | Callable[[Job], Any]

TIME_SLICE = 0.002
"""Seconds that handlers which never suspend may run before others get the loop."""

AHEAD_TIME, AHEAD_MOST, AHEAD_SLOWEST = 0.002, 400, 0.005
"""Jobs are fetched ahead for so many seconds of work, at most so many, and none at all when one
takes longer than this."""


def is_async(processor: Processor) -> bool:
    """Whether a processor is a coroutine function, however it is wrapped."""
    while isinstance(processor, functools.partial):
        processor = processor.func
    return inspect.iscoroutinefunction(processor) or inspect.iscoroutinefunction(
        getattr(processor, "__call__", None)  # noqa: B004 - its kind is wanted, not its existence
    )


@dataclass(frozen=True, slots=True)
class Processors(Generic[R]):
    """Which function runs a job."""

    only: Callable[[Job], R] | None
    """The one for all names, if there is such a one."""
    by_name: Mapping[str, Callable[[Job], R]]

    def of(self, job: Job) -> Callable[[Job], R]:
        return self.only or self.by_name[job.name]


class Runner(Protocol):
    """Runs jobs, a number of them at a time."""

    def take(self, jobs: Sequence[Job]) -> None:
        """Run these; never blocks."""

    def running(self) -> int:
        """How many have been taken and have no verdict yet."""

    def unload(self) -> list[Job]:
        """Give up what was not begun. From any thread."""

    def stop(self, interrupt: bool) -> list[Job]:
        """Begin nothing more and give up what was not begun; `interrupt` what runs, too."""


class Line:
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

    def clear(self) -> list[Job]:
        jobs = []
        with self._lock:
            # One by one: each job goes either to whoever pops or to us.
            while (job := self.pop()) is not None:
                jobs.append(job)
        return jobs


class Pace:
    """How long jobs take, and so how many are worth fetching ahead.

    A slow job is believed at once, a quick one little by little: what was fetched ahead in error
    waits for somebody, what was not costs only speed.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._usual = 2 * AHEAD_SLOWEST

    def took(self, seconds: float) -> None:
        if seconds > self._usual:
            self._usual = seconds
        else:
            self._usual += 0.25 * (seconds - self._usual)

    def stuck(self) -> None:
        """What was fetched ahead had to be given back."""
        self._usual = max(self._usual, 2 * AHEAD_SLOWEST)

    def ahead(self) -> int:
        if self._usual > AHEAD_SLOWEST:
            return 0
        return int(min(AHEAD_MOST, self._concurrency * AHEAD_TIME / max(self._usual, 1e-6)))


class LoopRunner:
    """Runs coroutine processors with a fixed number of long-lived consumers.

    A task per job would cost more than most of what surrounds it. A consumer whose job has changed
    its context variables is replaced, so no job sees another's.
    """

    def __init__(
        self,
        processors: Processors[Awaitable[Any]],
        concurrency: int,
        done: Callable[[Verdict], None],
        random: Random,
    ) -> None:
        self._processors = processors
        self._concurrency = concurrency
        self._done = done
        self._random = random
        self.pace = Pace(concurrency)
        self._line = Line()
        self._running = 0
        self._sleeping: deque[asyncio.Future[None]] = deque()
        self._consumers: set[asyncio.Task[None]] = set()
        self._context = contextvars.copy_context()
        self._turn_ends: float | None = None
        self._stopped = False

    def take(self, jobs: Sequence[Job]) -> None:
        self._line.put(jobs)
        self._wake_one()

    def running(self) -> int:
        return self._running + len(self._line)

    def unload(self) -> list[Job]:
        self.pace.stuck()
        return self._line.clear()

    def stop(self, interrupt: bool) -> list[Job]:
        self._stopped = True
        if interrupt:
            for consumer in self._consumers:
                consumer.cancel()
        for sleeper in self._sleeping:
            if not sleeper.done():
                sleeper.set_result(None)
        return self._line.clear()

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

    def _wake_helpers(self) -> None:
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
        consumer.add_done_callback(self._consumers.discard)

    def _replace_this_consumer(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._consumers.discard(task)
        if not self._stopped:
            self._add_consumer()

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
        only = self._processors.only
        while not self._stopped:
            if not len(self._line):
                await self._sleep()
            self._wake_helpers()
            now, turn_ends = time.perf_counter(), self._end_of_turn()
            # When its turn is over, it may be that it slept meanwhile and this is another turn.
            while now < turn_ends or now < (turn_ends := self._end_of_turn()):
                if (job := self._line.pop()) is None:
                    break
                self._running += 1
                try:
                    if job.deferred_failure is None:
                        result: Result = Returned(await (only or self._processors.of(job))(job))
                    else:
                        result = NotRun(job.deferred_failure)
                except Exception as error:
                    result = Raised(error)
                except GeneratorExit:
                    raise  # the loop is gone already, and this consumer is thrown away
                except BaseException as error:
                    self._end(job, _meaning_of(error))
                    if not isinstance(error, asyncio.CancelledError) or _is_cancelled():
                        raise  # this consumer, or the whole loop, is told to end
                    continue
                ended = time.perf_counter()
                self.pace.took(ended - now)
                now = ended
                self._end(job, result)
                if contextvars.copy_context() != clean:
                    self._replace_this_consumer()
                    return
            await asyncio.sleep(0)

    def _end(self, job: Job, result: Result) -> None:
        self._running -= 1
        self._done(decide(job, result, self._random))


def _meaning_of(error: BaseException) -> Result:
    """A job whose consumer is cancelled did nothing wrong; one that cancels itself failed."""
    return Interrupted() if _is_cancelled() else Raised(error)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class ThreadRunner:
    """Runs plain functions in threads that are fed directly, never through the event loop."""

    def __init__(
        self,
        processors: Processors[Any],
        concurrency: int,
        done: Callable[[Verdict], None],
        random: Random,
        name: str,
    ) -> None:
        self._processors = processors
        self._concurrency = concurrency
        self._done = done
        self._random = random
        self._name = name
        self.pace = Pace(concurrency)
        self._line = Line()
        self._signals: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """For each job put into the line, True; False tells a thread to end."""
        self._counting = threading.Lock()
        self._running = self._threads = 0

    def take(self, jobs: Sequence[Job]) -> None:
        with self._counting:
            self._line.put(jobs)
            missing = min(self._concurrency, self._running + len(self._line)) - self._threads
            for _ in range(missing):
                self._threads += 1
                name = f"{self._name}-{self._threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        for _ in jobs:
            self._signals.put(True)

    def running(self) -> int:
        return self._running + len(self._line)

    def unload(self) -> list[Job]:
        self.pace.stuck()
        return self._line.clear()

    def stop(self, interrupt: bool) -> list[Job]:
        jobs = self._line.clear()
        for _ in range(self._threads):
            self._signals.put(False)
        return jobs

    def _work(self) -> None:
        while self._signals.get():
            with self._counting:
                job = self._line.pop()
                if job is None:
                    continue  # it was given up meanwhile
                self._running += 1
            began = time.perf_counter()
            result = self._run(job)
            self.pace.took(time.perf_counter() - began)
            verdict = decide(job, result, self._random)
            with self._counting:
                self._running -= 1
            self._done(verdict)

    def _run(self, job: Job) -> Result:
        if job.deferred_failure is not None:
            return NotRun(job.deferred_failure)
        try:
            value = contextvars.Context().run(self._processors.of(job), job)
        except BaseException as error:
            return Raised(error)
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            return Raised(TypeError("the processor returned an awaitable: make it an async def"))
        return Returned(value)
