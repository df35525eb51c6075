"""Tasks: functions that can be enqueued, with their types kept."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from ..client.job.job import Job
from ..client.runtime.blocking import forbid_in_event_loop, run_blocking
from ..core.checks import Duration, check_int
from ..core.job_options import JobOptions, check_options, merge_options
from ..core.names import check_name
from ..errors import InvalidArguments, InvalidOption, InvalidOptionType, NoCurrentJob, WrongLoop
from .arguments import VERSION, Signature, parse_payload
from .current_job import running_job

if TYPE_CHECKING:
    from ..client.queue.queue import Queue
    from .task_typing import CallsWithJob, Verb

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes the data of one version, {"args": [...], "kwargs": {...}}, that of the next."""


def _here(verb: str, coroutine: Coroutine[Any, Any, R]) -> R:
    """Carry out a coroutine here, where no event loop runs that it would block."""
    try:
        forbid_in_event_loop(f"{verb}_sync", f"await {verb}(...) instead")
    except WrongLoop:
        coroutine.close()
        raise
    return run_blocking(coroutine)


class TaskJob(Job, Generic[R_co]):
    """A job that a task was enqueued as; `result()` has the type that the task returns."""

    __slots__ = ("_signature",)

    def __init__(self, job: Job, signature: Signature) -> None:
        super().__init__(job._queue, job._columns, job._status)
        self._signature = signature

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until it is finished; what the task returned, or JobFailed."""
        return cast(R_co, self._signature.result(await super().result(timeout)))

    wait_until_finished = result

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        """The same in code without an event loop: it blocks."""
        return _here("result", self.result(timeout))


class Producer(Generic[P, R_co]):
    """What enqueues a task, under some options."""

    def __init__(self, task: Task[P, R_co], options: Mapping[str, Any]) -> None:
        self.function: Callable[P, R_co] = task.function
        self._task = task
        self._given = dict(options)

    if TYPE_CHECKING:
        enqueue: Verb[P, R_co, Literal["awaited"]]
        """Add a job that calls the task with these arguments; they are checked first."""
        enqueue_sync: Verb[P, R_co, Literal["blocking"]]
        """The same in code without an event loop: it blocks until the job is stored."""
    else:

        async def enqueue(self, /, *args: Any, **kwargs: Any) -> TaskJob[Any]:
            """Add a job that calls the task with these arguments; they are checked first."""
            return await self._enqueue(args, kwargs)

        def enqueue_sync(self, /, *args: Any, **kwargs: Any) -> TaskJob[Any]:
            """The same in code without an event loop: it blocks until the job is stored."""
            return _here("enqueue", self._enqueue(args, kwargs))

    async def _enqueue(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskJob[Any]:
        data = self._task.pack(args, kwargs)
        queue = self._task.queue()
        job = await queue.add(self._task.name, data, **self._options())
        return TaskJob(job, self._task.signature)

    @overload
    async def map(
        self: Producer[..., Coroutine[Any, Any, R]],
        arguments: Iterable[Any],
        *,
        chunk: int | None = None,
    ) -> list[TaskJob[R]]: ...
    @overload
    async def map(
        self: Producer[..., R], arguments: Iterable[Any], *, chunk: int | None = None
    ) -> list[TaskJob[R]]: ...
    async def map(
        self, arguments: Iterable[Any], *, chunk: int | None = None
    ) -> list[TaskJob[Any]]:
        """Add a job for each: a tuple is its positional arguments, a mapping those by name,
        anything else, a NamedTuple too, the only one. All are added, or none.

        More than 100,000 need `chunk`: then so many at a time, each chunk all or none.
        """
        if not isinstance(arguments, Iterable):
            raise InvalidOptionType(f"map takes an iterable of arguments, not {arguments!r}")
        options = self._options()
        jobs: Any = [
            {"name": self._task.name, "data": self._packed(one), "opts": options}
            for one in arguments
        ]
        added = await self._task.queue().add_bulk(jobs, chunk=chunk)
        return [TaskJob(job, self._task.signature) for job in added]

    def _packed(self, one: Any) -> dict[str, Any]:
        args: Sequence[Any] = ()
        kwargs: Mapping[str, Any] = {}
        if isinstance(one, tuple) and not hasattr(one, "_fields"):
            args = one
        elif isinstance(one, Mapping):
            kwargs = one
        else:
            return self._task.pack((one,), {})
        try:
            return self._task.pack(args, kwargs)
        except InvalidArguments as error:
            if self._task.signature.takes(args, kwargs):
                raise
            raise InvalidArguments(
                f"{error}; map takes a mapping as arguments by name and a tuple as positional "
                "ones: wrap one that is an argument itself, (item,)"
            ) from None

    def _options(self) -> Any:
        return merge_options(self._task.job_options, self._given)


class Task(Producer[P, R_co]):
    """A function with a name, a queue and options for its jobs; calling it runs it here and now.

    `R_co` is what calling it gives: a coroutine if it is a coroutine function.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        name: str,
        queue_name: str,
        queue: Callable[[], Queue],
        job_options: Mapping[str, Any],
        concurrency: int | None,
        version: int,
        upcasters: Mapping[int, Upcaster],
    ) -> None:
        self.function = function
        super().__init__(self, {})
        self.name = check_name("the task's name", name)
        self.queue_name = check_name("the task's queue", queue_name)
        self.queue = queue
        """Where its jobs go, made when it is first needed."""
        check_options(job_options)
        self.job_options = dict(job_options)
        self.concurrency = concurrency
        self.signature = Signature(name, function, Job)
        self.version = check_int("version", version, 1, 2**31 - 1)
        self._upcasters = check_upcasters(name, version, upcasters)
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__doc__ = function.__doc__
        self.__module__ = getattr(function, "__module__", __name__)
        self.__wrapped__ = function

    def pack(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The data of a job of it."""
        data = self.signature.pack(args, kwargs)
        return data if self.version == 1 else {**data, VERSION: self.version}

    def unpack(self, job: Job) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments that a job holds, brought up to the version of this code."""
        version, data = _version_of(job), {} if job.data is None else job.data
        if version < self.version:
            # A copy: what upcasters change is not what the job holds.
            data = parse_payload(f"task {self.name}: the data of the job", copy.deepcopy(data))
        while version < self.version:
            data = self._upcasters[version](data)
            data = parse_payload(
                f"task {self.name}: what its upcaster of version {version} gave", data
            )
            version += 1
        return self.signature.unpack(data, job)

    def is_newer(self, job: Job) -> bool:
        """Whether a job was made by code that is newer than this."""
        return _version_of(job) > self.version

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self: CallsWithJob[Q, R], /, *args: Q.args, **kwargs: Q.kwargs) -> R: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the function; if it takes the job, with the one that runs here, unless given one."""
        complete = self._with_job(args, kwargs)
        return self.function(*complete[0], **complete[1])

    def _with_job(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Arguments and the job, where the function takes it and is not given one."""
        if not self.signature.injected or self._is_given_job(args, kwargs):
            return args, kwargs
        job = running_job()
        if job is not None:
            return self.signature.with_job(args, kwargs, job)
        if self.signature.needs_job:
            raise NoCurrentJob(
                f"task {self.name} takes the job: call it inside of a job or pass one"
            )
        return args, kwargs

    def _is_given_job(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        by_name = any(name in kwargs for name in self.signature.injected)
        return by_name or any(isinstance(value, Job) for value in args)

    def options(self, **options: Unpack[JobOptions]) -> Producer[P, R_co]:
        """The same task under other options: `task.options(delay="5m").enqueue(...)`."""
        check_options(options)
        return Producer(self, options)

    def __repr__(self) -> str:
        return f"<Task {self.name!r} of {self.queue_name!r}>"


def check_upcasters(
    name: str, version: int, upcasters: Mapping[int, Upcaster]
) -> dict[int, Upcaster]:
    """One for each version before this, so that no job that was enqueued is lost to a deploy."""
    if not isinstance(upcasters, Mapping):
        raise InvalidOptionType(
            f"task {name}: upcasters must map versions to functions, not {upcasters!r}"
        )
    missing = next((number for number in range(1, version) if number not in upcasters), None)
    if missing is not None:
        raise InvalidOption(
            f"task {name} has version {version} and no upcaster for version {missing}: give "
            f"upcasters={{{missing}: function}}"
        )
    for number, upcaster in upcasters.items():
        if number not in range(1, version):
            raise InvalidOption(
                f"task {name} has version {version} and an upcaster for version {number!r}, which "
                "is not before it: upcasters are for the versions before the task's"
            )
        if not callable(upcaster):
            raise InvalidOptionType(
                f"task {name}: the upcaster of version {number} must be a function, "
                f"not {upcaster!r}"
            )
    return dict(upcasters)


def _version_of(job: Job) -> int:
    version = job.data.get(VERSION, 1) if isinstance(job.data, Mapping) else 1
    return version if type(version) is int else 1


_YIELDING = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def check_function(function: Any) -> None:
    """Refuse what cannot be called with arguments alone."""
    if isinstance(function, type) or not callable(function):
        raise InvalidOptionType(f"a task must be a function, not {function!r}")
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    try:
        first = next(iter(inspect.signature(function).parameters), None)
    except ValueError:
        raise InvalidOptionType(f"{function!r} does not tell what arguments it takes") from None
    if any(yields(one) for yields in _YIELDING for one in (function, type(function).__call__)):
        raise InvalidOptionType(f"{function!r} yields; a task returns one value")
    if owner and not owner.endswith("<locals>") and first in ("self", "cls"):
        raise InvalidOptionType(
            f"{function.__qualname__} is a method, and a job has no object to call it on: make it "
            "a function, or register the class"
        )


def name_of(function: Any) -> str:
    """The name of a task that was given none: its module's and its own."""
    own = getattr(function, "__qualname__", None)
    if own is None:
        raise InvalidOption(f"{function!r} has no name of its own: give its task one, name=…")
    return f"{_module_name(function)}.{own}"


def _module_name(function: Any) -> str:
    """A program is called `__main__` where it runs, and by its name where it is imported."""
    module: str = function.__module__
    if module not in ("__main__", "__mp_main__"):
        return module
    names = getattr(function, "__globals__", None) or vars(sys.modules[module])
    spec, file = names.get("__spec__"), names.get("__file__")
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return module if file is None else Path(file).stem
