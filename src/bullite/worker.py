"""A worker: takes jobs of a queue, runs them, settles them; ends without losing any."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Mapping
from typing import Any, Self

from . import loop
from .engine.appetite import Appetite
from .engine.mail import DIRECT
from .engine.writer import Engine
from .errors import InvalidOption, InvalidOptionType, StoreClosed, WrongProcess
from .job import Fate, Job
from .operations.claiming import Claimed
from .operations.tending import Register
from .options import Duration, check_bool, check_duration, check_int, check_name
from .outcome import Interrupted, Verdict, decide
from .queue import Queue
from .runner import LoopRunner, Processor, Processors, Runner, ThreadRunner, is_async
from .settler import Settler
from .states import State

log = logging.getLogger("bullite.worker")

MOST_CONCURRENT = 100_000
CANCEL_GRACE = 1.0
"""Seconds that interrupted coroutines get to end when a worker is closed by force."""


class Worker:
    """Runs `processor(job)` for the jobs of `queue`, `concurrency` of them at a time.

    An `async def` runs on the event loop, a `def` in a thread. A mapping of names to processors
    takes only jobs of those names. Made inside a running event loop it starts at once, unless
    `autorun=False`; else with `run()` or `async with`.
    """

    def __init__(
        self,
        queue: Queue,
        processor: Processor | Mapping[str, Processor],
        *,
        concurrency: int = 1,
        name: str | None = None,
        autorun: bool = True,
        lock_duration: Duration = 30_000,
        lock_renew_time: Duration | None = None,
        max_stalled_count: int = 1,
        random: Callable[[], float] = random.random,
    ) -> None:
        if not isinstance(queue, Queue):
            raise InvalidOptionType(f"a worker needs a Queue, not {queue!r}")
        self.queue = queue
        self.name = check_name("the worker's name", name or f"{socket.gethostname()}:{os.getpid()}")
        self.concurrency = check_int("concurrency", concurrency, 1, MOST_CONCURRENT)
        self._processors = _check_processors(processor)
        self._lock_duration = check_duration("lock_duration", lock_duration, least=100)
        self._renew_every = (
            self._lock_duration // 2
            if lock_renew_time is None
            else check_duration("lock_renew_time", lock_renew_time, least=10)
        )
        self._max_stalled_count = check_int("max_stalled_count", max_stalled_count, 0, 2**31 - 1)
        self._random = random
        self._pid = os.getpid()
        self._closed = self._closing = False
        self._verdicts: list[Verdict] = []
        self._running: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        if check_bool("autorun", autorun):
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                pass  # no loop yet: run() or async with will start it
            else:
                self._start()

    # --- starting and running ---

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    async def run(self) -> None:
        """Work until `close`; on a worker that runs already, wait until it ends."""
        if self._running is not None or not self._closed:
            await asyncio.shield(self._start())

    def _start(self) -> asyncio.Task[None]:
        if self._pid != os.getpid():
            raise WrongProcess("this worker was made before a fork; make a new one in this process")
        if self._running is None:
            self._started, self._ended = asyncio.Event(), asyncio.Event()
            self._idle, self._hurry = asyncio.Event(), asyncio.Event()
            self._loop = asyncio.get_running_loop()
            self._running = self._loop.create_task(
                self._life(), name=f"worker of {self.queue.name}"
            )
        return self._running

    async def _life(self) -> None:
        """Register, be fed until closed, settle everything, leave."""
        try:
            await self.queue.wait_until_ready()
            engine = self.queue.store.open()
        except Exception as error:
            log.error("worker %s cannot start: %s", self.name, error)
            raise
        self._equip(engine)
        engine.attach(self._appetite)
        self._started.set()
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            # The loop is ending without close(): claim nothing that nobody will run.
            self._closing = True
            engine.starve(self._appetite, _ignore)
            self._stop_runners(interrupt=True)
            raise

    def _equip(self, engine: Engine) -> None:
        """The parts of a working worker: who runs, who settles, and the standing order for jobs."""
        self._engine = engine
        self._in_loop = {name: is_async(processor) for name, processor in self._processors.items()}
        self._fed_directly = not any(self._in_loop.values())
        mailbox = DIRECT if self._fed_directly else loop.mailbox()
        processors: Processors[Any] = Processors(self._processors.get(ANY), self._processors)
        self._loop_runner = LoopRunner(
            processors, self.concurrency, self._done_in_loop, self._random
        )
        self._thread_runner = ThreadRunner(
            processors,
            self.concurrency,
            self._done_in_thread,
            self._random,
            f"bullite-{self.queue.name}",
        )
        names = None if ANY in self._processors else tuple(self._processors)
        registration = Register(
            queue=self.queue.key,
            name=self.name,
            names=names,
            lock_duration=self._lock_duration,
            max_stalled_count=self._max_stalled_count,
            pid=os.getpid(),
            host=socket.gethostname(),
            boot=engine.clock.boot,
            address=None,
        )
        self._appetite = Appetite(
            registration, self.concurrency, self._receive, mailbox, self._renew_every, self._unload
        )
        self._settler = Settler(engine, self._appetite, self._something_settled)

    # --- jobs in, verdicts out ---

    def _receive(self, claimed: Claimed | BaseException) -> None:
        """Jobs to run; on the loop, or on the engine's thread when only threads run them."""
        if isinstance(claimed, BaseException):
            log.error("worker %s could not take jobs: %s", self.name, claimed)
            return
        fate = Fate(State.ACTIVE.value, processed_at=claimed.claimed_at, locked_by=self.name)
        queue, token, begun = self.queue, claimed.token, claimed.begun
        jobs = [Job(queue, row, fate, token) for row in claimed.rows[:begun]]
        jobs += [Job(queue, row, fate, token, ahead=True) for row in claimed.rows[begun:]]
        if self._closing:
            self._give_back(jobs)
        elif self._fed_directly:
            self._thread_runner.take(jobs)
        elif all(self._in_loop.values()):
            self._loop_runner.take(jobs)
        else:
            for job in jobs:
                in_loop = self._in_loop[job.name]
                (self._loop_runner if in_loop else self._thread_runner).take((job,))

    def _done_in_thread(self, verdict: Verdict) -> None:
        if self._fed_directly:
            self._appetite.ahead = self._thread_runner.pace.ahead()
        self._settler.send((verdict,))

    def _done_in_loop(self, verdict: Verdict) -> None:
        if not self._verdicts:
            self._loop.call_soon(self._flush)
        self._verdicts.append(verdict)

    def _flush(self) -> None:
        """Everything that ended in this turn of the loop goes to the engine together."""
        verdicts, self._verdicts = self._verdicts, []
        if all(self._in_loop.values()):
            self._appetite.ahead = self._loop_runner.pace.ahead()
        self._settler.send(verdicts)

    def _unload(self) -> None:
        """What was fetched ahead waits too long: let others have it. On the engine's thread."""
        self._appetite.ahead = 0
        for runner in self._runners():
            self._give_back(runner.unload())

    def _something_settled(self) -> None:
        if self._closing and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._check_idle)

    def _give_back(self, jobs: list[Job]) -> None:
        if jobs:
            self._settler.send([decide(job, Interrupted(), self._random) for job in jobs])

    # --- leaving ---

    async def close(self, force: bool = False, timeout: Duration | None = None) -> None:
        """Take no more jobs and end.

        Waits for the running jobs, at most `timeout`; then, or at once with `force`, interrupts
        coroutines and gives their jobs back at no cost. A thread cannot be interrupted: its job
        stays with it until its lease runs out.
        """
        limit = None if timeout is None else check_duration("timeout", timeout) / 1000
        self._closed = True
        if self._running is None:
            return
        if await self._has_started():
            if self._leaving is None:
                self._leaving = asyncio.create_task(self._leave())
            done, _ = await asyncio.wait({self._leaving}, timeout=0 if force else limit)
            if not done:
                self._hurry.set()
            await asyncio.shield(self._leaving)
        await self._running

    async def _has_started(self) -> bool:
        """Wait until the worker works; False if it failed to."""
        assert self._running is not None
        starting = asyncio.create_task(self._started.wait())
        await asyncio.wait({starting, self._running}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        return self._started.is_set()

    async def _leave(self) -> None:
        self._closing = True
        try:
            await self._stop_feeding()
            self._stop_runners(interrupt=False)
            if not await self._becomes_idle(self._hurry):
                self._stop_runners(interrupt=True)
                if not await self._becomes_idle(None):
                    log.warning("worker %s: %d of its jobs still run", self.name, self._busy())
            await self._deregister()
        except StoreClosed:
            log.warning("worker %s: its store was closed before it", self.name)
        finally:
            self._ended.set()

    async def _stop_feeding(self) -> None:
        """After this no claim of the worker is under way."""
        self._appetite_closed = asyncio.get_running_loop().create_future()
        self._engine.starve(self._appetite, loop.Resolver(self._appetite_closed), loop.mailbox())
        await self._appetite_closed

    def _stop_runners(self, interrupt: bool) -> None:
        for runner in self._runners():
            self._give_back(runner.stop(interrupt))

    async def _becomes_idle(self, unless: asyncio.Event | None) -> bool:
        """Wait until everything is settled, or until `unless`, or else for a short grace."""
        self._idle.clear()
        self._check_idle()
        waits = [asyncio.create_task(e.wait()) for e in (self._idle, unless) if e is not None]
        limit = CANCEL_GRACE if unless is None else None
        await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return self._idle.is_set()

    def _check_idle(self) -> None:
        if self._busy() == 0:
            self._idle.set()

    def _busy(self) -> int:
        running = sum(runner.running() for runner in self._runners())
        return running + len(self._verdicts) + self._settler.unsettled

    def _runners(self) -> tuple[Runner, Runner]:
        return self._loop_runner, self._thread_runner

    async def _deregister(self) -> None:
        gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._engine.detach(self._appetite, loop.Resolver(gone), loop.mailbox())
        await gone

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def _ignore(answer: object) -> None:
    pass


ANY = ""
"""The name under which the processor for all names is kept; no job can be called that."""


def _check_processors(processor: Any) -> dict[str, Processor]:
    if callable(processor):
        return {ANY: processor}
    if isinstance(processor, Mapping) and processor:
        for name, function in processor.items():
            check_name("a processor's name", name)
            if not callable(function):
                raise InvalidOptionType(
                    f"the processor of {name!r} must be callable, not {function!r}"
                )
        return dict(processor)
    if isinstance(processor, Mapping):
        raise InvalidOption("processor must name at least one job name")
    raise InvalidOptionType(
        f"processor must be a function or a mapping of names to functions, not {processor!r}"
    )
