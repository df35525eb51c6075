"""Runs processors: coroutines on the event loop, plain functions in threads.

Takes claimed rows, gives verdicts. Knows nothing of the database.
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
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from .backoff import Random
from .job import Job
from .outcome import Interrupted, NotRun, Raised, Result, Returned, Verdict, decide

Processor = Callable[[Job], Awaitable[Any]] | Callable[[Job], Any]

TIME_SLICE = 0.002
"""Seconds that handlers which never suspend may run before others get the loop."""


def is_async(processor: Processor) -> bool:
    """Whether a processor is a coroutine function, however it is wrapped."""
    while isinstance(processor, functools.partial):
        processor = processor.func
    return inspect.iscoroutinefunction(processor) or inspect.iscoroutinefunction(
        getattr(processor, "__call__", None)  # noqa: B004 - its kind is wanted, not its existence
    )


class Runner(Protocol):
    """Runs jobs, a number of them at a time."""

    def take(self, jobs: Sequence[Job]) -> None:
        """Run these; never blocks."""

    def running(self) -> int:
        """How many have been taken and have no verdict yet."""

    def stop(self, interrupt: bool) -> list[Job]:
        """Start nothing more and give back what was not started; `interrupt` what runs, too."""


class LoopRunner:
    """Runs coroutine processors with a fixed number of long-lived consumers.

    A task per job would cost more than most of what surrounds it. A consumer whose job has changed
    its context variables is replaced, so no job sees another's.
    """

    def __init__(
        self,
        processor_of: Callable[[Job], Callable[[Job], Awaitable[Any]]],
        concurrency: int,
        done: Callable[[Verdict], None],
        random: Random,
    ) -> None:
        self._processor_of = processor_of
        self._done = done
        self._random = random
        self._ready: deque[Job] = deque()
        self._sleeping: deque[asyncio.Future[None]] = deque()
        self._taken = 0
        self._stopped = False
        self._consumers: set[asyncio.Task[None]] = set()
        self._concurrency = concurrency
        self._context = contextvars.copy_context()
        self._turn_ends: float | None = None

    def take(self, jobs: Sequence[Job]) -> None:
        self._ready.extend(jobs)
        self._taken += len(jobs)
        self._wake_one()

    def running(self) -> int:
        return self._taken

    def stop(self, interrupt: bool) -> list[Job]:
        self._stopped = True
        unstarted = list(self._ready)
        self._ready.clear()
        self._taken -= len(unstarted)
        if interrupt:
            for consumer in self._consumers:
                consumer.cancel()
        for sleeper in self._sleeping:
            if not sleeper.done():
                sleeper.set_result(None)
        return unstarted

    def _wake_one(self) -> None:
        """Wake a consumer, or make one."""
        while self._sleeping:
            sleeper = self._sleeping.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        if len(self._consumers) < self._concurrency:
            self._add_consumer()

    def _add_consumer(self) -> None:
        context = self._context.copy()
        consumer = asyncio.get_running_loop().create_task(self._consume(), context=context)
        self._consumers.add(consumer)
        consumer.add_done_callback(self._consumers.discard)

    async def _consume(self) -> None:
        clean = contextvars.copy_context()
        while not self._stopped:
            if not self._ready:
                await self._sleep()
            self._wake_helpers()
            while self._ready and self._has_time():
                job = self._ready.popleft()
                try:
                    if job.deferred_failure is None:
                        result: Result = Returned(await self._processor_of(job)(job))
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
                self._end(job, result)
                if contextvars.copy_context() != clean:
                    asyncio.get_running_loop().call_soon(self._replace_consumer)
                    return
            await asyncio.sleep(0)

    def _has_time(self) -> bool:
        """Whether this turn of the loop may start another job; all consumers share its time."""
        if self._turn_ends is None:
            self._turn_ends = time.perf_counter() + TIME_SLICE
            asyncio.get_running_loop().call_soon(self._next_turn)
        return time.perf_counter() < self._turn_ends

    def _next_turn(self) -> None:
        self._turn_ends = None

    def _end(self, job: Job, result: Result) -> None:
        self._taken -= 1
        self._done(decide(job, result, self._random))

    def _wake_helpers(self) -> None:
        """Wake two more if there is work for them.

        They wake two each in turn: a full house within a few turns of the loop, and hardly anybody
        woken for nothing when the first consumer's handlers never suspend.
        """
        for _ in range(min(2, len(self._ready) - 1)):
            self._wake_one()

    def _replace_consumer(self) -> None:
        if not self._stopped and len(self._consumers) < self._concurrency:
            self._add_consumer()

    async def _sleep(self) -> None:
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append(sleeper)
        await sleeper


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
        processor_of: Callable[[Job], Callable[[Job], Any]],
        concurrency: int,
        done: Callable[[Verdict], None],
        random: Random,
        name: str,
    ) -> None:
        self._processor_of = processor_of
        self._done = done
        self._random = random
        self._concurrency = concurrency
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = 0
        self._taken = 0
        self._lock = threading.Lock()
        self._stopped = False

    def take(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            self._taken += len(jobs)
            missing = min(self._concurrency, self._taken) - self._threads
            for _ in range(max(0, missing)):
                self._threads += 1
                thread = threading.Thread(
                    target=self._work, name=f"{self._name}-{self._threads}", daemon=True
                )
                thread.start()
        for job in jobs:
            self._jobs.put(job)

    def running(self) -> int:
        return self._taken

    def stop(self, interrupt: bool) -> list[Job]:
        self._stopped = True
        unstarted = []
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is not None:
                unstarted.append(job)
        with self._lock:
            self._taken -= len(unstarted)
        for _ in range(self._threads):
            self._jobs.put(None)
        return unstarted

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            verdict = decide(job, self._run(job), self._random)
            with self._lock:
                self._taken -= 1
            self._done(verdict)

    def _run(self, job: Job) -> Result:
        if job.deferred_failure is not None:
            return NotRun(job.deferred_failure)
        try:
            value = contextvars.Context().run(self._processor_of(job), job)
        except BaseException as error:
            return Raised(error)
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            return Raised(TypeError("the processor returned an awaitable: make it an async def"))
        return Returned(value)
