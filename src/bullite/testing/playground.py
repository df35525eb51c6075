"""A database of a test's own, with jobs that run when the test says so and as it would expect."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, Unpack

from ..app.application import Bullite
from ..client import directory
from ..client.job.job import Job
from ..client.queue.queue import Queue
from ..client.runtime.blocking import run_blocking, running_loop
from ..client.runtime.store import Store
from ..core.checks import Duration, Moment, check_duration, check_int
from ..core.decide_outcome import Raised, Returned
from ..core.job_options import JobOptions
from ..core.names import check_name
from ..database.driver import WorkerRow
from ..database.sqlite.driver import SQLiteDriver
from ..worker.processors import ANY, Handler, Processor, make_handler
from .assertions import Assertions
from .clock import START, VirtualClock
from .inline_engine import InlineStore
from .killable_process import Killed, KillRule, Process
from .manual_worker import StepWorker, check_worker_options
from .next_due import next_moment
from .run_records import KILLED, LOST, Ran, Run

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

MEMORY = Path("/dev/shm")  # noqa: S108  (a folder of its own is made there, mode 0700)
"""Where files are kept in memory, where there is such a place."""


class App(Protocol):
    """Whatever knows which functions run which jobs."""

    def processors(self) -> Mapping[str, Mapping[str, Processor]]:
        """By queue and by name of jobs; "" for those of any other name."""


class Playground(Assertions):
    """The real engine on a file of its own, with a virtual clock and no worker at the back.

    Nothing runs until `drain` or `advance`; then jobs run one after the other, in the order in
    which the queue hands them out. For one `seed` everything repeats exactly, but for tokens and
    what processors do by themselves. What `drain` and `advance` return is to be awaited in a
    coroutine; where no event loop runs, they have done their work when they return.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        start: Moment = START,
        seed: int = 0,
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            place = MEMORY if os.access(MEMORY, os.W_OK) else None
            self._temporary = tempfile.TemporaryDirectory(prefix="bullite-", dir=place)
            folder = self._temporary.name
        self.path = Path(folder).absolute() / "jobs.db"
        self.clock = VirtualClock(start)
        self._dice = random.Random(seed)
        bits = random.SystemRandom().getrandbits
        self._own = InlineStore(SQLiteDriver(self.path, self.clock, bits, durable=False))
        self.ran: list[Run] = []
        """Every run so far."""
        self._handlers: dict[str, dict[str, Handler]] = {}
        self._options: dict[str, dict[str, Any]] = {}
        self._process: Process | None = None
        self._processes = 0
        self._kill_rules: list[KillRule] = []
        self._deaths: dict[int, int] = {}
        """When the death of a process will be noticed, in lease time, by its nonce."""
        self._runner: asyncio.Runner | None = None
        self._served: list[Bullite] = []
        self._guests = ExitStack()
        """The applications that have moved in, until this is closed."""

    # --- what there is ---------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store for the queues, locks and readers of the program under test."""
        return self._own

    def queue(self, name: str, **options: Any) -> Queue:
        """A queue in it; options as of `Queue`."""
        return Queue(name, self.store, **{"random": self._dice.random, **options})

    def add(
        self, queue: str | Queue, name: str, data: Any = None, **options: Unpack[JobOptions]
    ) -> Job:
        """Add a job, in a coroutine or outside of one, without awaiting it."""
        return self._at_once(self._queue(queue).add(name, data, **options))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, in a test that is not one; always on the same event loop."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)

    # --- who runs jobs ---------------------------------------------------------------------------

    def process(self, queue: str | Queue, name: str | None, processor: F) -> F:
        """Run the jobs of a queue that have this name, or any other with None, with a function.

        It takes `(job)`, `(job, token)` or `(job, token, signal)`, as that of a `Worker`.
        """
        where = _name_of(queue)
        what = f"the processor of {where!r}" if not name else f"the processor of {name!r}"
        key = check_name("a processor's name", name) if name else ANY
        self._handlers.setdefault(where, {})[key] = make_handler(what, processor)
        self._replace_workers(where)
        return processor

    def serve(self, app: App) -> None:
        """Run jobs with all the processors of an application.

        A `Bullite` moves in until the playground is closed: all its queues are here, its schedules
        are made and its logs captured; none of its own files is opened. BulliteError if it runs.
        """
        if isinstance(app, Bullite):
            self._take_in(app)
        for queue, processors in app.processors().items():
            for name, processor in processors.items():
                self.process(queue, name, processor)

    def _take_in(self, app: Bullite) -> None:
        if app not in self._served:
            self._guests.enter_context(app._lifecycle.use_store(self.store))
            self._served.append(app)
        self._at_once(app._registry.store_schedules())

    def worker_options(self, queue: str | Queue, **options: Any) -> None:
        """Options of `Worker` for those who work on a queue, such as `max_stalled_count`."""
        where = _name_of(queue)
        check_worker_options(options)
        self._options.setdefault(where, {}).update(options)
        self._replace_workers(where)

    def _replace_workers(self, queue: str) -> None:
        if self._process is not None:
            self._process.dismiss(queue)

    # --- letting things happen -------------------------------------------------------------------

    def drain(
        self,
        queue: str | Queue | None = None,
        limit: int = 10_000,
        *,
        kill_at: str | None = None,
    ) -> Ran:
        """Run everything that is ready, one job at a time, until nothing is; time stands still.

        Of several queues each has its turn. AssertionError if more than `limit` jobs run. With
        `kill_at` the first worker process that comes to that point is killed.
        """
        check_int("limit", limit, 1, 2**31 - 1)
        if kill_at is not None:
            self.kill_at(kill_at)
        return self._perform(self._drain(None if queue is None else _name_of(queue), limit))

    def advance(
        self, duration: Duration, limit: int = 10_000, *, kill_at: str | None = None
    ) -> Ran:
        """Let time pass, stopping wherever something is due, to have it done and to `drain`."""
        ms = check_duration("duration", duration)
        check_int("limit", limit, 1, 2**31 - 1)
        if kill_at is not None:
            self.kill_at(kill_at)
        return self._perform(self._advance(ms, limit))

    def kill_at(
        self,
        point: str,
        *,
        job: Job | str | None = None,
        name: str | None = None,
        times: int = 1,
    ) -> None:
        """Kill the worker process when it comes to this point with a job, `times` times.

        `point` is one of POINTS; `job` a job or its id, `name` the name of jobs, if not any will
        do. Another process takes its place at once; that this one is dead is noticed after 250 ms
        of virtual time, and what it held goes back to its queue. If no process ever comes there,
        closing the playground is an AssertionError: such a test would have shown nothing.
        """
        self._kill_rules.append(
            KillRule(point, job.id if isinstance(job, Job) else job, name, times)
        )

    def _perform(self, work: Coroutine[Any, Any, list[Run]]) -> Ran:
        ran = Ran(work)
        return ran if running_loop() is not None else self.run(ran.done())

    async def _advance(self, ms: int, limit: int) -> list[Run]:
        target = self.clock.now() + ms
        runs = await self._drain(None, limit)
        while self.clock.now() < target:
            moment = next_moment(self._living().driver, self._known_moments(), self._deaths, target)
            self.clock.move_to(target if moment is None else moment)
            runs += await self._drain(None, limit)
        return runs

    def _known_moments(self) -> Iterator[int]:
        """Those at which a claim may find more, and at which held locks are renewed."""
        ahead = self.clock.lease_now() - self.clock.now()
        process = self._living()
        yield from (w.next_due for w in process.workers.values() if w.next_due is not None)
        for engine in (self._own.engine, process.store.engine):
            renewal = engine.held_locks.next_at()
            if renewal is not None:
                yield renewal - ahead

    async def _drain(self, queue: str | None, limit: int) -> list[Run]:
        runs: list[Run] = []
        is_busy = True
        while is_busy:
            while await self._one_round(queue, runs):
                if len(runs) >= limit:
                    raise AssertionError(_never_ends(runs, limit))
            self._own.engine.poll_now()
            is_busy = self._living().store.engine.do_chores(self._is_noticed)
        return runs

    async def _one_round(self, queue: str | None, runs: list[Run]) -> bool:
        """One job of each queue that has one; whether there was any."""
        before = len(runs)
        for name, handlers in list(self._handlers.items()):
            if queue in (None, name):
                process = self._living()
                worker = await process.worker(name, handlers, self._options.get(name, {}))
                job = worker.take()
                if job is not None:
                    run = await self._run(process, worker, job)
                    runs.append(run)
                    self.ran.append(run)
        return len(runs) > before

    async def _run(self, process: Process, worker: StepWorker, job: Job) -> Run:
        at, value, error = self.clock.time, None, None
        try:
            result, kept = await process.run(worker, job, self._kill_point(job))
        except Killed:
            self._child_ended(process)
            return Run(job, at, KILLED, process.number)
        if isinstance(result, Returned):
            value = result.value
        elif isinstance(result, Raised):
            error = result.error
        return Run(job, at, job.state if kept else LOST, process.number, value, error)

    # --- processes, alive and dead ---------------------------------------------------------------

    def _living(self) -> Process:
        if self._process is None:
            self._processes += 1
            self._process = Process(self._processes, self.path, self.clock, self._dice)
        return self._process

    def _kill_point(self, job: Job) -> str | None:
        for ambush in self._kill_rules:
            if ambush.awaits(job):
                ambush.killed += 1
                return ambush.point
        return None

    def _child_ended(self, process: Process) -> None:
        process.die()
        self._deaths[process.driver.nonce] = self.clock.lease_now() + process.driver.recover_every
        self._process = None

    def _is_noticed(self, worker: WorkerRow) -> bool:
        return self.clock.lease_now() >= self._deaths.get(worker.nonce, 0)

    # --- looking ---------------------------------------------------------------------------------

    def jobs(self, queue: str | Queue, *states: str) -> list[Job]:
        async def look() -> list[Job]:
            found = self._queue(queue)
            if found.name not in await directory.queue_names(found.store):
                return []  # looking for it would make it
            await found.wait_until_ready()
            return await found.get_jobs(states or None, asc=True)

        return self._at_once(look())

    def queue_names(self) -> list[str]:
        return self._at_once(directory.queue_names(self.store))

    def refreshed(self, job: Job) -> Job | None:
        return self._at_once(self._queue(job.queue_name).get_job(job.id))

    def _queue(self, queue: str | Queue) -> Queue:
        return queue if isinstance(queue, Queue) else self.queue(queue)

    def _at_once(self, work: Coroutine[Any, Any, T]) -> T:
        """The answer to what waits for the store only: that is there as soon as it is asked for."""
        if running_loop() is None:
            return run_blocking(work)
        answers: list[T] = []
        problems: list[BaseException] = []

        def look() -> None:
            try:
                answers.append(run_blocking(work))
            except BaseException as error:
                problems.append(error)

        # In a coroutine answers come by the event loop; in a thread without one, at once.
        thread = threading.Thread(target=look, name="bullite-look")
        thread.start()
        thread.join()
        if problems:
            raise problems[0]
        return answers[0]

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of everything; then AssertionError if nobody was killed where `kill_at` said."""
        self.let_go()
        self.assert_killed()

    def assert_killed(self) -> None:
        """Each `kill_at` so far has killed a process."""
        __tracebackhide__ = True
        missed = [str(ambush) for ambush in self._kill_rules if not ambush.killed]
        if missed:
            raise AssertionError(
                f"no worker process came to where it was to be killed: {', '.join(missed)}"
            )

    def let_go(self) -> None:
        """Close everything, whatever came of it; what is in a folder of its own is deleted."""
        self._guests.close()
        if self._process is not None:
            self._process.leave()
            self._process = None
        self._own.close()
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *rest: object) -> None:
        # What is on its way says more than what did not happen because of it.
        if error is None:
            self.close()
        else:
            self.let_go()


def _name_of(queue: str | Queue) -> str:
    return queue.name if isinstance(queue, Queue) else check_name("the queue's name", queue)


def _never_ends(runs: list[Run], limit: int) -> str:
    last = "\n".join(f"  {run}" for run in runs[-5:])
    return f"{limit} jobs ran and there are more: does one add another? The last of them:\n{last}"
