"""One object that hosts queues, workers, tasks and schedules inside your own process."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from ..client.job.job import Job
from ..client.job.version_skew import postpone_newer, release_newer
from ..client.queue.add import forbid_links
from ..client.queue.queue import Queue
from ..client.queue.scheduler_spec import NOT_IN_TEMPLATES
from ..client.runtime import bridge
from ..client.runtime.blocking import forbid_in_event_loop, run_blocking
from ..client.runtime.loop_thread import LoopThread
from ..client.runtime.store import Store
from ..core.checks import Duration, check_duration, check_int
from ..core.clock import SystemClock
from ..core.job_options import JobOptions
from ..core.names import check_name
from ..core.recurrence import check_recurrence
from ..core.states import RELEASE
from ..errors import (
    ApplicationStarted,
    BulliteError,
    InvalidOption,
    InvalidOptionType,
    TaskTaken,
    WrongLoop,
)
from ..operations.finish import FinishResult
from ..worker.outcome_batch import OutcomeBatch
from ..worker.processors import is_async, make_handler
from ..worker.worker import Worker
from . import middleware
from .dispatch import (
    DISPATCH_BACKOFF,
    Dispatcher,
    HandlesJobs,
    as_processor,
    instantiate,
    seconds_to_ms,
    takes_payload_and_job,
)
from .job_logging import JobLog
from .middleware import Around as Around
from .middleware import Hook as Hook
from .middleware import Next as Next
from .router import Router
from .task import Task, Upcaster, check_function, name_of

log = logging.getLogger("bullite.app")

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_QUEUE = "default"


class Bullite(Dispatcher):
    """Queues, workers and schedules of one application.

    `store` is a path, a URL or a Store; `files` puts single queues into files of their own.
    Nothing is opened, and nothing runs, until it is used or started. `stop_timeout` is in seconds.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        files: Mapping[str, str | os.PathLike[str]] | None = None,
        concurrency: int = 10,
        stop_timeout: float = 30,
        lock_duration: Duration = 30_000,
        capture_logs: int | str | None = None,
    ) -> None:
        self._owns_store = not isinstance(store, Store)
        self._store = store if isinstance(store, Store) else None
        self._location = None if isinstance(store, Store) else store
        self._files = _checked_files(files)
        self._concurrency = check_int("concurrency", concurrency, 1, 100_000)
        self._stop_timeout = seconds_to_ms("stop_timeout", stop_timeout) / 1000
        self._lock_duration = check_duration("lock_duration", lock_duration, least=100)
        self._stores: dict[str, Store] = {}
        self._override_store: Store | None = None
        """Where all queues are while it is moved."""
        self._queues: dict[str, Queue] = {}
        self._processors: dict[str, _QueueProcessors] = {}
        self._schedules: list[_Schedule] = []
        self._tasks: list[Task[..., Any]] = []
        self._by_schedule: list[Task[..., Any]] = []
        """Tasks that were made of plain functions because they have a schedule."""
        self._log = None if capture_logs is None else JobLog(_level(capture_logs))
        self._hooks = middleware.Hooks(self._log)
        self._workers: list[Worker] = []
        self._pid = 0
        """The process that it was started in, until it is stopped."""
        self._loop: asyncio.AbstractEventLoop
        self._changing: asyncio.Lock
        self._changed_by = 0
        """The process that last started or stopped it, on that loop and under that lock."""
        self._thread: LoopThread | None = None

    # --- queues ---

    def queue(self, name: str = DEFAULT_QUEUE) -> Queue:
        """The queue of that name, opened when it is first used."""
        if name not in self._queues:
            role = self._processors.get(name)
            defaults = None if role is None else role.job_options
            made = Queue(name, self._store_of(name), default_job_options=defaults)
            if self._files:
                forbid_links(made, partial(self._are_together, name))
            self._queues[name] = made
        return self._queues[name]

    def _are_together(self, one: str, other: str) -> bool:
        """Whether two queues are in one database; in tests, too, they are as they will be."""
        return self._files.get(one) == self._files.get(other)

    def _store_of(self, queue: str) -> Store:
        if self._override_store is not None:
            return self._override_store
        if queue in self._files:
            if queue not in self._stores:
                self._stores[queue] = Store(self._files[queue])
            return self._stores[queue]
        if self._store is None:
            self._store = Store(self._location)
        return self._store

    def stores(self) -> dict[str | None, Store]:
        """Where its queues are: those in files of their own by name, all others under None."""
        if self._override_store is not None:
            return {None: self._override_store}
        return {None: self._store_of(""), **{name: self._store_of(name) for name in self._files}}

    async def add(
        self, queue: str, name: str, data: Any = None, **options: Unpack[JobOptions]
    ) -> Job:
        """Add a job to a queue."""
        return await self.queue(queue).add(name, data, **options)

    @contextmanager
    def use_store(self, store: Store) -> Iterator[None]:
        """Have all queues in this store, and logs captured, until the context ends: for tests.

        Starting it starts no workers meanwhile. Queues are to be asked for anew, then and
        afterwards; tasks do that by themselves.
        """
        self._require_not_started("a move to another store")
        if self._override_store is not None:
            raise BulliteError("the application is in another store already: one at a time")
        self._queues, self._override_store = {}, store
        self._capture_logs()
        try:
            yield
        finally:
            self._queues, self._override_store = {}, None
            self._capture_no_logs()

    # --- tasks ---

    @overload
    def task(self, function: Task[P, R] | Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        concurrency: int | None = None,
        version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
        **options: Unpack[JobOptions],
    ) -> Decorator: ...
    def task(  # type: ignore[misc]  # mypy: options that are unpacked fit nothing but themselves
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        concurrency: int | None = None,
        version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
        **options: Any,
    ) -> Any:
        """Make a function a task: `@app.task`, or `@app.task(queue="mail", attempts=3)`.

        Its name is its module's and its own, unless given. A parameter that is annotated with Job
        gets the job; type checkers know that of the first one only, so that one elsewhere needs a
        default for them: `job: Job | None = None`. A `version` above 1 needs an upcaster for each
        version before it.
        """

        def decorate(function: Any) -> Any:
            made_by_schedule = self._undo_implicit_task(function)
            function = function if made_by_schedule is None else made_by_schedule.function
            check_function(function)
            task: Task[..., Any] = Task(
                function,
                name_of(function) if name is None else name,
                queue,
                lambda: self.queue(queue),
                options,
                concurrency,
                version,
                {} if upcasters is None else upcasters,
            )
            self._add_processor(queue, task.name, self._runs(task), concurrency)
            self._tasks.append(task)
            for schedule in self._schedules:
                if schedule.task is made_by_schedule:
                    schedule.take(task)
            return task

        return decorate if function is None else decorate(function)

    def _undo_implicit_task(self, function: Any) -> Task[..., Any] | None:
        """The task that a schedule made of a function which is only now decorated as a task."""
        if not isinstance(function, Task):
            return None
        if function not in self._by_schedule:
            raise TaskTaken(f"{function.name!r} is a task already")
        self._by_schedule.remove(function)
        self._tasks.remove(function)
        role = self._processors[function.queue_name]
        del role.by_name[function.name]
        if not role.by_name:
            del self._processors[function.queue_name]
        return function

    def _runs(self, task: Task[..., Any]) -> Callable[[Job], Any]:
        """The processor of a task's jobs."""
        function, packed = task.function, task.signature.pack_result
        if is_async(function):

            async def run(job: Job) -> Any:
                if task.is_newer(job):
                    await postpone_newer(job)
                args, kwargs = task.unpack(job)
                return packed(await function(*args, **kwargs))

            return run

        def run_in_thread(job: Job) -> Any:
            if task.is_newer(job):
                run_blocking(postpone_newer(job))
            args, kwargs = task.unpack(job)
            return packed(function(*args, **kwargs))

        return run_in_thread

    # --- schedules ---

    def cron(self, pattern: str, *, tz: str | None = None, missed: str = "once") -> Decorator:
        """Enqueue a task, without arguments, whenever the pattern says: `@app.cron("0 2 * * *")`
        above `@app.task`. However many processes run the application, each tick is once."""
        return self._schedule({"pattern": pattern, "tz": tz, "missed": missed})

    def every(self, interval: Duration, *, missed: str = "once") -> Decorator:
        """The same, every so often."""
        return self._schedule({"every": interval, "missed": missed})

    def _schedule(self, recurrence: Mapping[str, Any]) -> Decorator:
        given = {key: value for key, value in recurrence.items() if value is not None}
        check_recurrence(SystemClock().now(), **given)

        def decorate(function: Any) -> Any:
            self._require_not_started("a schedule")
            made: Task[..., Any]
            if isinstance(function, Task):
                made = function
                if made not in self._tasks:
                    raise TaskTaken(
                        f"{made.name!r} is a task of another application: schedule it there"
                    )
            else:
                made = self.task(function)
                self._by_schedule.append(made)
            number = sum(schedule.task is made for schedule in self._schedules) + 1
            self._schedules.append(_Schedule(made, number, given))
            return made

        return decorate

    async def make_schedules(self) -> None:
        """Store the schedules, as they are here now, and remove those that its tasks have no more;
        `start` does it."""
        for queue in {task.queue_name: task.queue() for task in self._tasks}.values():
            await self._remove_old_schedules(queue)
        for schedule in self._schedules:
            await schedule.make()

    async def _remove_old_schedules(self, queue: Queue) -> None:
        names = {task.name for task in self._tasks if task.queue_name == queue.name}
        kept = {one.id for one in self._schedules if one.task.queue_name == queue.name}
        for found in await queue.get_job_schedulers():
            is_own = found.name in names and _is_own_id(found.id, found.name)
            # One that is paused does no harm, and somebody wanted it so.
            if is_own and found.enabled and found.id not in kept:
                await queue.remove_job_scheduler(found.id)

    # --- processors, as of jobs by their names ---

    def process(
        self,
        queue: str,
        name: str,
        function: Callable[..., Any],
        concurrency: int | None = None,
    ) -> None:
        """Have `function` run the jobs of that name in that queue."""
        make_handler(f"the processor of {name!r}", function)
        self._add_processor(queue, check_name("the job's name", name), function, concurrency)

    def register(self, worker: type[HandlesJobs] | HandlesJobs) -> None:
        """Have a class, or an object of it, run every job of its `queue_name`.

        It has `handle(payload, job)`, and may have `concurrency` (1) and `poll_interval` (1000 ms).
        """
        found = instantiate(worker) if isinstance(worker, type) else worker
        kind = type(found).__name__
        handle = getattr(found, "handle", None)
        if not callable(handle) or not takes_payload_and_job(handle):
            raise InvalidOptionType(f"{kind} must have a handle(payload, job) to be registered")
        queue = check_name(f"queue_name of {kind}", getattr(found, "queue_name", None))
        role = _QueueProcessors()
        role.everything = as_processor(handle)
        role.concurrency = check_int("concurrency", getattr(found, "concurrency", 1), 1, 100_000)
        role.poll_interval = check_duration(
            "poll_interval", getattr(found, "poll_interval", 1_000), least=1
        )
        role.job_options = {"backoff": DISPATCH_BACKOFF}
        self._require_not_started(kind)
        if queue in self._processors:
            raise TaskTaken(f"the queue {queue!r} has a processor already")
        self._processors[queue] = role
        self._queues.pop(queue, None)  # made anew, with what the jobs of such a worker have

    def _add_processor(
        self, queue: str, name: str, function: Callable[..., Any], concurrency: int | None
    ) -> None:
        role = self._processors.get(check_name("the queue", queue)) or _QueueProcessors()
        if role.everything is not None or name in role.by_name:
            raise TaskTaken(f"{name!r} in the queue {queue!r} has a processor already")
        if concurrency is not None:
            check_int("concurrency", concurrency, 1, 100_000)
        self._require_not_started(repr(name))
        self._processors[queue] = role
        role.by_name[name] = (function, concurrency)

    def _require_not_started(self, what: str) -> None:
        if self.is_running:
            raise ApplicationStarted(f"{what} came too late: the application has started")

    def processors(self) -> dict[str, dict[str, Callable[..., Any]]]:
        """What runs which jobs: by queue, and by name; under "" what runs all of a queue."""
        return {
            queue: {name: self._hooks.wrapped(function) for name, function in role.functions()}
            for queue, role in self._processors.items()
        }

    # --- around every job ---

    def around(self, hook: Around) -> Around:
        """Call `hook(job, call_next)` around every job; `await call_next()` gives its result.

        The first that is given is the outermost, of all three kinds.
        """
        self._require_not_started("a hook")
        self._hooks.around(hook)
        return hook

    def before(self, hook: Hook) -> Hook:
        """Call `hook(job)` before every job; if it raises, the job is not run."""
        self._require_not_started("a hook")
        self._hooks.before(hook)
        return hook

    def after(self, hook: Hook) -> Hook:
        """Call `hook(job, result, error)` after every job; one of both is None."""
        self._require_not_started("a hook")
        self._hooks.after(hook)
        return hook

    def router(self, token: str | None = None) -> Router:
        """Return an ASGI application with `/stats`, `/failed` and `/retry`, to be mounted in yours.

        Clients send `Authorization: Bearer <token>`. If `token` is None, BULLITE_TOKEN is used. If
        that is not set either, every request is answered with 403.
        """
        return Router(self, token)

    # --- starting and stopping ---

    @property
    def is_running(self) -> bool:
        """Whether it was started in this process, and not stopped since."""
        return self._pid == os.getpid()

    def _lifecycle_lock(self) -> asyncio.Lock:
        """Of starting and stopping, on the event loop that runs here."""
        here = asyncio.get_running_loop()
        if self.is_running and self._loop is not here and self._loop.is_running():
            raise WrongLoop("the application runs on another event loop: start and stop it there")
        if self._changed_by != os.getpid() or self._loop is not here:
            self._loop, self._changed_by, self._changing = here, os.getpid(), asyncio.Lock()
        return self._changing

    @property
    def location(self) -> str | None:
        """The database as it was named; None if it was not, or is a Store."""
        return None if self._location is None else os.fspath(self._location)

    @property
    def workers(self) -> list[Worker]:
        """Those that it started in this process, one for each queue that it serves."""
        return list(self._workers) if self.is_running else []

    async def start(
        self, *, queues: Collection[str] | None = None, concurrency: int | None = None
    ) -> None:
        """Make the schedules and start the workers, in this process.

        Of all queues that it serves, or of those named; `concurrency` takes the place of its own.
        """
        roles = self._processors_for(queues)
        if concurrency is not None:
            check_int("concurrency", concurrency, 1, 100_000)
        async with self._lifecycle_lock():
            if self._override_store is not None:  # the test that moved it runs its jobs
                await self.make_schedules()
                return
            if self.is_running:
                return
            self._workers = []  # they may be those of the process that this was forked from
            self._pid = os.getpid()
            self._capture_logs()
            try:
                await self.make_schedules()
                self._workers = [
                    self._worker(queue, role, concurrency or self._concurrency)
                    for queue, role in roles.items()
                ]
                for worker in self._workers:
                    await worker.wait_until_ready()
                for queue in roles:
                    await self._unpark(queue)
            except BaseException:
                with suppress(Exception):  # a worker that could not start says so again
                    await self._end(0)
                raise

    async def _unpark(self, queue: str) -> None:
        """Let jobs run that older code put off until this came."""
        tasks = [task for task in self._tasks if task.queue_name == queue and task.version > 1]
        if tasks:
            await release_newer(self.queue(queue), {task.name: task.is_newer for task in tasks})

    def _processors_for(self, queues: Collection[str] | None) -> dict[str, _QueueProcessors]:
        unknown = sorted(set(queues or ()) - self._processors.keys())
        if unknown:
            raise InvalidOption(
                f"nothing here serves the queue {unknown[0]!r}; served are: "
                f"{', '.join(sorted(self._processors)) or 'none'}"
            )
        return {name: r for name, r in self._processors.items() if queues is None or name in queues}

    def _worker(self, queue: str, role: _QueueProcessors, concurrency: int) -> Worker:
        found: Any
        if role.everything is not None:
            found = self._hooks.wrapped(role.everything)
        else:
            found = {
                name: self._hooks.wrapped(function)
                if own is None
                else (self._hooks.wrapped(function), own)
                for name, (function, own) in role.by_name.items()
            }
        return Worker(
            self.queue(queue),
            found,
            concurrency=role.concurrency or concurrency,
            poll_interval=role.poll_interval,
            lock_duration=self._lock_duration,
        )

    async def stop(self, timeout: float | None = None) -> None:
        """Take no more jobs and wait for those that run, at most so many seconds (30, or what
        `stop_timeout` was); then they are interrupted and given back.

        If this is cancelled, that is done at once, and then CancelledError raised.
        """
        seconds = (
            self._stop_timeout if timeout is None else seconds_to_ms("timeout", timeout) / 1000
        )
        async with self._lifecycle_lock():
            await self._end(seconds)

    async def _end(self, timeout: float) -> None:
        hurry = asyncio.Event()
        ending = asyncio.ensure_future(self._end_within(timeout, hurry))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            hurry.set()
            # However often it is cancelled: no store may be closed under a worker.
            while not ending.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([ending])
            if not ending.cancelled() and (problem := ending.exception()) is not None:
                log.error("the application was stopped, but not well: %s", problem)
            raise

    async def _end_within(self, timeout: float, hurry: asyncio.Event) -> None:
        """Close everything; jobs get so many seconds to end, unless there is a hurry."""
        workers = self._workers if self.is_running else []  # a forked child stops none
        self._workers = []
        try:
            await _close(workers, timeout, hurry)
        finally:
            self._pid = 0
            await self._close_stores()

    async def _close_stores(self) -> None:
        """Close what was opened; it is opened again when it is used again."""
        if self._override_store is not None:
            return
        self._capture_no_logs()
        queues, self._queues = self._queues, {}
        stores, self._stores = list(self._stores.values()), {}
        if self._owns_store and self._store is not None:
            stores.append(self._store)
            self._store = None
        for queue in queues.values():
            await queue.close()
        for store in stores:
            await bridge.run_in_thread(store.close)

    def _capture_logs(self) -> None:
        if self._log is not None:
            logging.getLogger().addHandler(self._log)

    def _capture_no_logs(self) -> None:
        if self._log is not None:
            logging.getLogger().removeHandler(self._log)

    # --- in code without an event loop ---

    def start_sync(
        self, *, queues: Collection[str] | None = None, concurrency: int | None = None
    ) -> None:
        """The same in code without an event loop: on one of its own, in a thread."""
        forbid_in_event_loop("start_sync", "await start() instead")
        if self.is_running:
            return
        thread = LoopThread("app")
        try:
            thread.wait(self.start(queues=queues, concurrency=concurrency))
        except BaseException:
            thread.end()
            raise
        self._thread = thread

    def stop_sync(self, timeout: float | None = None) -> None:
        """Stop what `start_sync` started, as `stop` does; it blocks until that is done."""
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

    def __enter__(self) -> Self:
        self.start_sync()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop_sync()

    # --- beside an event loop ---

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    @asynccontextmanager
    async def lifespan(self, asgi: object = None) -> AsyncIterator[None]:
        """For Starlette and FastAPI: `FastAPI(lifespan=app.lifespan)`."""
        async with self:
            yield


class _QueueProcessors:
    """Who runs the jobs of a queue."""

    def __init__(self) -> None:
        self.by_name: dict[str, tuple[Callable[..., Any], int | None]] = {}
        self.everything: Callable[..., Any] | None = None
        self.concurrency: int | None = None
        self.poll_interval = 1_000
        self.job_options: JobOptions | None = None

    def functions(self) -> list[tuple[str, Callable[..., Any]]]:
        """By the names of jobs; under "" what runs all of them."""
        if self.everything is not None:
            return [("", self.everything)]
        return [(name, function) for name, (function, _) in self.by_name.items()]


class _Schedule:
    """A task that is enqueued again and again."""

    def __init__(self, task: Task[..., Any], number: int, recurrence: Mapping[str, Any]) -> None:
        self._number = number
        self._recurrence = recurrence
        self.take(task)

    def take(self, task: Task[..., Any]) -> None:
        """Have it enqueue this task; refused now rather than at its first tick."""
        own = sorted(NOT_IN_TEMPLATES & task.job_options.keys())
        if own:
            raise InvalidOption(
                f"task {task.name} has a schedule, whose jobs cannot all have the option "
                f"{own[0]}: leave it out"
            )
        task.pack((), {})
        self.task = task

    @property
    def id(self) -> str:
        """Of its job scheduler: the task's name, and a number from the second on."""
        task = self.task
        return task.name if self._number == 1 else f"{task.name} {self._number}"

    async def make(self) -> None:
        task = self.task
        options: Any = task.job_options
        await task.queue().upsert_job_scheduler(
            self.id,
            template={"name": task.name, "data": task.pack((), {}), "opts": options},
            **self._recurrence,
        )


def _is_own_id(id: str, name: str) -> bool:
    """Whether that is the id of a schedule of the task of that name."""
    return re.fullmatch(rf"{re.escape(name)}( ([2-9]|[1-9][0-9]+))?", id) is not None


class Decorator(Protocol):
    """What `@app.task(...)` and the schedules are: it keeps the signature of what it decorates."""

    def __call__(self, function: Task[P, R] | Callable[P, R], /) -> Task[P, R]: ...


class _ForcedClose:
    """A worker that is closed by force, and what becomes of the jobs that it runs."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._jobs = worker.running_jobs()
        self._released: set[int] = set()
        worker._notifications.recorded_hooks.append(self._note)

    def _note(self, batch: OutcomeBatch, settled: FinishResult) -> None:
        released = {outcome.job for outcome in batch.outcomes if outcome.move is RELEASE}
        self._released |= released - set(settled.lost)

    def given_back(self) -> list[Job]:
        return [job for job in self._jobs if job.pk in self._released]

    def still_running(self) -> list[Job]:
        return self._worker.running_jobs()


async def _close(workers: list[Worker], timeout: float, hurry: asyncio.Event) -> None:
    """Wait for their jobs, so long or until there is a hurry, then interrupt them."""
    closing = [asyncio.ensure_future(worker.close()) for worker in workers]
    await _wait(closing, timeout, hurry)
    late = f"took longer than {timeout:g} s"
    why = "did not end before stop was cancelled" if hurry.is_set() else late
    leaving = [_ForcedClose(worker) for worker in workers]
    closing += [asyncio.ensure_future(worker.close(force=True)) for worker in workers]
    ended = await asyncio.gather(*closing, return_exceptions=True)
    if given_back := _named(job for one in leaving for job in one.given_back()):
        log.warning("these jobs %s and are given back: %s", why, given_back)
    if running := _named(job for one in leaving for job in one.still_running()):
        log.warning(
            "these jobs %s and still run here; another worker takes them when their lease ends: %s",
            why,
            running,
        )
    for problem in ended:  # only now: the others have to leave before their store is closed
        if problem is not None:
            raise problem


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


def _named(jobs: Iterable[Job]) -> str:
    return ", ".join(f"{job.id} ({job.name} of {job.queue_name})" for job in jobs)


def _checked_files(files: Any) -> dict[str, str | os.PathLike[str]]:
    if not isinstance(files or {}, Mapping):
        raise InvalidOptionType(f"files must be a mapping of queues to files, not {files!r}")
    for name, file in (files or {}).items():
        check_name("a queue in files", name)
        if not isinstance(file, str | os.PathLike):
            raise InvalidOptionType(f"the file of the queue {name!r} must be a path, not {file!r}")
    return dict(files or {})


def _level(level: int | str) -> int:
    number = logging.getLevelName(level.upper()) if isinstance(level, str) else level
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidOption(f"capture_logs must be a level such as INFO, not {level!r}")
    return number
