"""`Playground`: a database for one test, whose jobs run only when the test says so."""

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
"""A folder in memory for the files, on systems that have one."""


class App(Protocol):
    """An object with processors: a `Bullite`, or another one."""

    def processors(self) -> Mapping[str, Mapping[str, Processor]]:
        """Return the processors by queue and by job name; "" for all other names."""


class Playground(Assertions):
    """The real engine on a file of its own, with a virtual clock and no worker in the background.

    Nothing runs until `drain` or `advance`; then jobs run one after the other, in the order in
    which a worker would claim them. With one `seed` everything repeats exactly, except tokens and
    what processors do themselves. In a coroutine, await the result of `drain` and `advance`; if no
    event loop runs, they return when all is done.
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
            parent = MEMORY if os.access(MEMORY, os.W_OK) else None
            self._temporary = tempfile.TemporaryDirectory(prefix="bullite-", dir=parent)
            folder = self._temporary.name
        self.path = Path(folder).absolute() / "jobs.db"
        self.clock = VirtualClock(start)
        self._random = random.Random(seed)
        bits = random.SystemRandom().getrandbits
        self._own = InlineStore(SQLiteDriver(self.path, self.clock, bits, durable=False))
        self.ran: list[Run] = []
        """All runs so far."""
        self._handlers: dict[str, dict[str, Handler]] = {}
        self._options: dict[str, dict[str, Any]] = {}
        self._process: Process | None = None
        self._processes = 0
        self._kill_rules: list[KillRule] = []
        self._deaths: dict[int, int] = {}
        """The lease time at which the death of a process is noticed, by its nonce."""
        self._runner: asyncio.Runner | None = None
        self._served: list[Bullite] = []
        self._exits = ExitStack()
        """Restores the stores of the served applications."""

    # --- queues ----------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store for the queues, locks and readers of the program under test."""
        return self._own

    def queue(self, name: str, **options: Any) -> Queue:
        """Return a queue of the playground; `options` are those of `Queue`."""
        return Queue(name, self.store, **{"random": self._random.random, **options})

    def add(
        self, queue: str | Queue, name: str, data: Any = None, **options: Unpack[JobOptions]
    ) -> Job:
        """Add a job and return it; nothing to await, also in a coroutine."""
        return self._at_once(self._queue(queue).add(name, data, **options))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a test that is none; always on the same event loop."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)

    # --- processors ------------------------------------------------------------------------------

    def process(self, queue: str | Queue, name: str | None, processor: F) -> F:
        """Run the jobs of this name, or of all other names if None, with a function.

        It takes `(job)`, `(job, token)` or `(job, token, signal)`, like a processor of `Worker`.
        """
        where = _name_of(queue)
        what = f"the processor of {where!r}" if not name else f"the processor of {name!r}"
        key = check_name("a processor's name", name) if name else ANY
        self._handlers.setdefault(where, {})[key] = make_handler(what, processor)
        self._replace_workers(where)
        return processor

    def serve(self, app: App) -> None:
        """Run jobs with all processors of an application.

        Until the playground is closed, all queues of a `Bullite` are in it, its schedules are
        stored and its logs captured; its own files are not opened. Raise BulliteError if it runs.
        """
        if isinstance(app, Bullite):
            self._use_application(app)
        for queue, processors in app.processors().items():
            for name, processor in processors.items():
                self.process(queue, name, processor)

    def _use_application(self, app: Bullite) -> None:
        if app not in self._served:
            self._exits.enter_context(app._lifecycle.use_store(self.store))
            self._served.append(app)
        self._at_once(app._registry.store_schedules())

    def worker_options(self, queue: str | Queue, **options: Any) -> None:
        """Set options of `Worker` for the workers of a queue, such as `max_stalled_count`."""
        where = _name_of(queue)
        check_worker_options(options)
        self._options.setdefault(where, {}).update(options)
        self._replace_workers(where)

    def _replace_workers(self, queue: str) -> None:
        if self._process is not None:
            self._process.stop_worker(queue)

    # --- run -------------------------------------------------------------------------------------

    def drain(
        self,
        queue: str | Queue | None = None,
        limit: int = 10_000,
        *,
        kill_at: str | None = None,
    ) -> Ran:
        """Run all ready jobs, one at a time, until none is ready. The clock does not move.

        Several queues take turns. Raise AssertionError if more than `limit` jobs run. With
        `kill_at`, the first worker process that reaches that point is killed.
        """
        check_int("limit", limit, 1, 2**31 - 1)
        if kill_at is not None:
            self.kill_at(kill_at)
        return self._perform(self._drain(None if queue is None else _name_of(queue), limit))

    def advance(
        self, duration: Duration, limit: int = 10_000, *, kill_at: str | None = None
    ) -> Ran:
        """Move the clock by a duration; stop whenever something is due, and `drain`."""
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
        """Kill the worker process when it reaches this point with a job, `times` times.

        `point` is one of POINTS. `job`, a job or its id, and `name` restrict it to some jobs.
        Another process replaces it immediately. After 250 ms of virtual time its death is noticed,
        and its jobs are recovered. If no process reaches the point, closing the playground raises
        AssertionError: such a test would have tested nothing.
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
        """Yield the times at which a claim may find more, and at which held locks are renewed."""
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
            is_busy = self._living().store.engine.run_maintenance(self._is_noticed)
        return runs

    async def _one_round(self, queue: str | None, runs: list[Run]) -> bool:
        """Run one job of each queue. Return False if there was none."""
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
            self._kill(process)
            return Run(job, at, KILLED, process.number)
        if isinstance(result, Returned):
            value = result.value
        elif isinstance(result, Raised):
            error = result.error
        return Run(job, at, job.state if kept else LOST, process.number, value, error)

    # --- simulated processes ---------------------------------------------------------------------

    def _living(self) -> Process:
        if self._process is None:
            self._processes += 1
            self._process = Process(self._processes, self.path, self.clock, self._random)
        return self._process

    def _kill_point(self, job: Job) -> str | None:
        for rule in self._kill_rules:
            if rule.applies_to(job):
                rule.killed += 1
                return rule.point
        return None

    def _kill(self, process: Process) -> None:
        process.kill()
        self._deaths[process.driver.nonce] = self.clock.lease_now() + process.driver.recover_every
        self._process = None

    def _is_noticed(self, worker: WorkerRow) -> bool:
        return self.clock.lease_now() >= self._deaths.get(worker.nonce, 0)

    # --- reading ---------------------------------------------------------------------------------

    def jobs(self, queue: str | Queue, *states: str) -> list[Job]:
        async def look() -> list[Job]:
            found = self._queue(queue)
            if found.name not in await directory.queue_names(found.store):
                return []  # reading its jobs would create it
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
        """Run a coroutine that waits only for the store, whose replies are immediate."""
        if running_loop() is None:
            return run_blocking(work)
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(run_blocking(work))
            except BaseException as error:
                errors.append(error)

        # In a coroutine replies come through the event loop; in a thread without one, directly.
        thread = threading.Thread(target=run, name="bullite-read")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    # --- close -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close everything. Raise AssertionError if a `kill_at` has killed no process."""
        self.release()
        self.assert_killed()

    def assert_killed(self) -> None:
        """Assert that each `kill_at` so far has killed a process."""
        __tracebackhide__ = True
        missed = [str(rule) for rule in self._kill_rules if not rule.killed]
        if missed:
            raise AssertionError(
                f"no worker process came to where it was to be killed: {', '.join(missed)}"
            )

    def release(self) -> None:
        """Close everything, without assertions; delete the temporary folder."""
        self._exits.close()
        if self._process is not None:
            self._process.close()
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
        # The error that is raised matters more than a kill that it prevented.
        if error is None:
            self.close()
        else:
            self.release()


def _name_of(queue: str | Queue) -> str:
    return queue.name if isinstance(queue, Queue) else check_name("the queue's name", queue)


def _never_ends(runs: list[Run], limit: int) -> str:
    last = "\n".join(f"  {run}" for run in runs[-5:])
    return f"{limit} jobs ran and there are more: does one add another? The last of them:\n{last}"
