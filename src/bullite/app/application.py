"""`Bullite`: queues, tasks, schedules and workers of an application, inside its own process."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from ..client.job.job import Job
from ..client.job.version_skew import postpone_newer
from ..client.queue.queue import Queue
from ..client.runtime.blocking import run_blocking
from ..client.runtime.store import Store
from ..core.checks import Duration, check_duration, check_int
from ..core.clock import SystemClock
from ..core.job_options import JobOptions
from ..core.names import check_name
from ..core.recurrence import check_recurrence
from ..errors import InvalidOption, InvalidOptionType
from ..worker.processors import is_async, make_handler
from .dispatch import (
    DISPATCH_BACKOFF,
    Dispatcher,
    HandlesJobs,
    as_processor,
    instantiate,
    takes_payload_and_job,
)
from .job_logging import JobLog
from .lifecycle import Lifecycle
from .middleware import Around, Hook, Hooks
from .queues import Location, Queues
from .registry import QueueProcessors, Registry
from .router import Router
from .task import Task, Upcaster, check_function, name_of

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_QUEUE = "default"


class Decorator(Protocol):
    """The result of `app.task(...)`, `app.cron(...)` and `app.every(...)`: makes a task."""

    def __call__(self, function: Task[P, R] | Callable[P, R], /) -> Task[P, R]: ...


class Bullite(Dispatcher):
    """Queues, workers and schedules of one application.

    `store` is a path, a URL or a Store; `files` puts single queues into files of their own.
    Nothing is opened, and nothing runs, until it is used or started. `concurrency` is how many
    jobs of a queue run at a time in each process. `stop_timeout` is in seconds. `capture_logs` is
    the least level of records that are also written to the log of the job that runs.
    """

    def __init__(
        self,
        store: Store | Location | None = None,
        *,
        files: Mapping[str, Location] | None = None,
        concurrency: int = 10,
        stop_timeout: float = 30,
        lock_duration: Duration = 30_000,
        capture_logs: int | str | None = None,
    ) -> None:
        super().__init__(Queues(store, files))
        job_log = None if capture_logs is None else JobLog(_level(capture_logs))
        self._registry = Registry(Hooks(job_log))
        self._lifecycle = Lifecycle(
            self._queues,
            self._registry,
            job_log,
            concurrency=concurrency,
            stop_timeout=stop_timeout,
            lock_duration=lock_duration,
        )

    # --- queues ---

    def queue(self, name: str = DEFAULT_QUEUE) -> Queue:
        """Return the queue of that name. It is opened when it is first used."""
        return self._queues.get(name)

    async def add(
        self, queue: str, name: str, data: Any = None, **options: Unpack[JobOptions]
    ) -> Job:
        """Add a job to a queue and return it; `options` are those of `Queue.add`."""
        return await self.queue(queue).add(name, data, **options)

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
        version before it. `options` are the defaults of the task's jobs.

        Raise TaskTaken if jobs of that name have a processor in that queue already, and
        ApplicationStarted if the application runs.
        """

        def decorate(function: Any) -> Any:
            implicit = self._registry.implicit_task(function)
            function = function if implicit is None else implicit.function
            check_function(function)
            task: Task[..., Any] = Task(
                function,
                name_of(function) if name is None else name,
                queue,
                lambda: self.queue(queue),
                options,
                version,
                {} if upcasters is None else upcasters,
            )
            self._lifecycle.require_not_started(repr(task.name))
            self._registry.add_task(task, _processor_of(task), concurrency, implicit)
            return task

        return decorate if function is None else decorate(function)

    # --- schedules ---

    def cron(self, pattern: str, *, tz: str | None = None, missed: str = "once") -> Decorator:
        """Enqueue a task, without arguments, at the times of a cron pattern.

        Put `@app.cron("0 2 * * *")` above `@app.task`. Each tick makes one job, however many
        processes run the application. `missed` says what becomes of ticks that passed while none
        did: "once" (one job for all of them), "all" (one job each) or "skip".
        """
        return self._schedule({"pattern": pattern, "tz": tz, "missed": missed})

    def every(self, interval: Duration, *, missed: str = "once") -> Decorator:
        """Enqueue a task, without arguments, at an interval: like `cron`."""
        return self._schedule({"every": interval, "missed": missed})

    def _schedule(self, recurrence: Mapping[str, Any]) -> Decorator:
        given = {key: value for key, value in recurrence.items() if value is not None}
        check_recurrence(SystemClock().now(), **given)

        def decorate(function: Any) -> Any:
            self._lifecycle.require_not_started("a schedule")
            task: Task[..., Any]
            if isinstance(function, Task):
                task = function
            else:
                task = self.task(function)
                self._registry.add_implicit(task)
            self._registry.add_schedule(task, given)
            return task

        return decorate

    # --- processors ---

    def process(
        self,
        queue: str,
        name: str,
        function: Callable[..., Any],
        concurrency: int | None = None,
    ) -> None:
        """Have `function` run the jobs of that name in that queue.

        `concurrency` is how many of them run at a time in each process, unless it is None. Raise
        TaskTaken if they have a processor already.
        """
        make_handler(f"the processor of {name!r}", function)
        check_name("the job's name", name)
        self._lifecycle.require_not_started(repr(name))
        self._registry.add_processor(queue, name, function, concurrency)

    def register(self, worker: type[HandlesJobs] | HandlesJobs) -> None:
        """Have a class, or an object of it, run every job of its `queue_name`.

        It has `handle(payload, job)`, and may have `concurrency` (1) and `poll_interval` (1000 ms).
        Raise TaskTaken if the queue has a processor already.
        """
        found = instantiate(worker) if isinstance(worker, type) else worker
        kind = type(found).__name__
        handle = getattr(found, "handle", None)
        if not callable(handle) or not takes_payload_and_job(handle):
            raise InvalidOptionType(f"{kind} must have a handle(payload, job) to be registered")
        queue = check_name(f"queue_name of {kind}", getattr(found, "queue_name", None))
        processors = QueueProcessors()
        processors.everything = as_processor(handle)
        processors.concurrency = check_int(
            "concurrency", getattr(found, "concurrency", 1), 1, 100_000
        )
        processors.poll_interval = check_duration(
            "poll_interval", getattr(found, "poll_interval", 1_000), least=1
        )
        self._lifecycle.require_not_started(kind)
        self._registry.add_queue_processors(queue, processors)
        self._queues.set_job_options(queue, {"backoff": DISPATCH_BACKOFF})

    def processors(self) -> dict[str, dict[str, Callable[..., Any]]]:
        """Return all processors, with middleware, by queue and by job name.

        The name "" stands for all jobs of a queue.
        """
        return self._registry.processors()

    # --- middleware ---

    def around(self, hook: Around) -> Around:
        """Call `hook(job, call_next)` around every job; `await call_next()` gives its result.

        The first hook that is added is the outermost, whether by `around`, `before` or `after`.
        """
        self._lifecycle.require_not_started("a hook")
        self._registry.hooks.around(hook)
        return hook

    def before(self, hook: Hook) -> Hook:
        """Call `hook(job)` before every job; if it raises, the job is not run."""
        self._lifecycle.require_not_started("a hook")
        self._registry.hooks.before(hook)
        return hook

    def after(self, hook: Hook) -> Hook:
        """Call `hook(job, result, error)` after every job; `error` is None if it succeeded.

        If it failed, `result` is None.
        """
        self._lifecycle.require_not_started("a hook")
        self._registry.hooks.after(hook)
        return hook

    # --- HTTP ---

    def router(self, token: str | None = None) -> Router:
        """Return an ASGI application with `/stats`, `/failed` and `/retry`, to be mounted in yours.

        Clients send `Authorization: Bearer <token>`. If `token` is None, BULLITE_TOKEN is used. If
        that is not set either, every request is answered with 403.
        """
        return Router(self, token)

    # --- start and stop ---

    @property
    def is_running(self) -> bool:
        """Whether the application was started in this process and not stopped since."""
        return self._lifecycle.is_running

    async def start(
        self, *, queues: Collection[str] | None = None, concurrency: int | None = None
    ) -> None:
        """Store the schedules and start the workers, in this process.

        There is one worker for each queue that has a processor, or only for those in `queues`;
        `concurrency` takes the place of the application's. Nothing happens if it runs already.
        Raise InvalidOption if a queue in `queues` has no processor.
        """
        await self._lifecycle.start(queues, concurrency)

    async def stop(self, timeout: float | None = None) -> None:
        """Take no more jobs and wait for running ones, up to `timeout` seconds.

        If it is None, `stop_timeout` counts. Then running jobs are interrupted and released, which
        uses no attempt. If `stop` is cancelled, that is done immediately, and CancelledError is
        raised afterwards. At the end the queues, and each store that was opened here, are closed.
        """
        await self._lifecycle.stop(timeout)

    def start_sync(
        self, *, queues: Collection[str] | None = None, concurrency: int | None = None
    ) -> None:
        """Do what `start` does, in code without an event loop: on one in a thread of its own."""
        self._lifecycle.start_in_thread(queues, concurrency)

    def stop_sync(self, timeout: float | None = None) -> None:
        """Do what `stop` does to an application that `start_sync` started; block until then."""
        self._lifecycle.stop_in_thread(timeout)

    def __enter__(self) -> Self:
        self.start_sync()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop_sync()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    @asynccontextmanager
    async def lifespan(self, asgi: object = None) -> AsyncIterator[None]:
        """Start, and stop at the end: for Starlette and FastAPI, `FastAPI(lifespan=app.lifespan)`.

        `asgi` is the ASGI application, which is not used.
        """
        async with self:
            yield


def _processor_of(task: Task[..., Any]) -> Callable[[Job], Any]:
    """Return the processor of a task's jobs."""
    function, pack_result = task.function, task._signature.pack_result
    if is_async(function):

        async def run(job: Job) -> Any:
            if task._is_newer(job):
                await postpone_newer(job)
            args, kwargs = task._unpack(job)
            return pack_result(await function(*args, **kwargs))

        return run

    def run_in_thread(job: Job) -> Any:
        if task._is_newer(job):
            run_blocking(postpone_newer(job))
        args, kwargs = task._unpack(job)
        return pack_result(function(*args, **kwargs))

    return run_in_thread


def _level(level: int | str) -> int:
    number = logging.getLevelName(level.upper()) if isinstance(level, str) else level
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidOption(f"capture_logs must be a level such as INFO, not {level!r}")
    return number
