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
"""Converts the data of one version, {"args": [...], "kwargs": {...}}, to that of the next."""


def _block_on(verb: str, coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine and return its result. Raise WrongLoop if that would block an event loop."""
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
        """Wait until the job has finished and return the result, typed as the task returns it.

        Raise JobFailed if the job failed.
        """
        return cast(R_co, self._signature.result(await super().result(timeout)))

    wait_until_finished = result

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        """Do what `result` does, in code without an event loop: block until then."""
        return _block_on("result", self.result(timeout))


class Producer(Generic[P, R_co]):
    """Enqueues a task with some job options; `task.options(...)` returns one."""

    def __init__(self, task: Task[P, R_co], options: Mapping[str, Any]) -> None:
        self.function: Callable[P, R_co] = task.function
        """The function that the task was made of."""
        self._task = task
        self._given = dict(options)

    if TYPE_CHECKING:
        enqueue: Verb[P, R_co, Literal["awaited"]]
        """Add a job that calls the task with these arguments, and return it.

        Raise InvalidArguments, and add nothing, if they do not fit the function's annotations.
        """
        enqueue_sync: Verb[P, R_co, Literal["blocking"]]
        """Do what `enqueue` does, in code without an event loop: block until then."""
    else:

        async def enqueue(self, /, *args: Any, **kwargs: Any) -> TaskJob[Any]:
            """Add a job that calls the task with these arguments, and return it.

            Raise InvalidArguments, and add nothing, if they do not fit the function's annotations.
            """
            return await self._enqueue(args, kwargs)

        def enqueue_sync(self, /, *args: Any, **kwargs: Any) -> TaskJob[Any]:
            """Do what `enqueue` does, in code without an event loop: block until then."""
            return _block_on("enqueue", self._enqueue(args, kwargs))

    async def _enqueue(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskJob[Any]:
        data = self._task._pack(args, kwargs)
        queue = self._task._queue()
        job = await queue.add(self._task.name, data, **self._options())
        return TaskJob(job, self._task._signature)

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
        """Add a job for each item of `arguments`, all or none, and return them.

        A tuple is the positional arguments of a job, a mapping its arguments by name; anything
        else, also a NamedTuple, is the only argument. More than 100,000 need `chunk`, the number of
        jobs that are added at a time; then each chunk is added as a whole or not at all. Raise
        InvalidArguments, and add nothing, if an item does not fit the function's annotations.
        """
        if not isinstance(arguments, Iterable):
            raise InvalidOptionType(f"map takes an iterable of arguments, not {arguments!r}")
        options = self._options()
        jobs: Any = [
            {"name": self._task.name, "data": self._pack_item(one), "opts": options}
            for one in arguments
        ]
        added = await self._task._queue().add_bulk(jobs, chunk=chunk)
        return [TaskJob(job, self._task._signature) for job in added]

    def _pack_item(self, item: Any) -> dict[str, Any]:
        args: Sequence[Any] = ()
        kwargs: Mapping[str, Any] = {}
        if isinstance(item, tuple) and not hasattr(item, "_fields"):
            args = item
        elif isinstance(item, Mapping):
            kwargs = item
        else:
            return self._task._pack((item,), {})
        try:
            return self._task._pack(args, kwargs)
        except InvalidArguments as error:
            if self._task._signature.takes(args, kwargs):
                raise
            raise InvalidArguments(
                f"{error}; map takes a mapping as arguments by name and a tuple as positional "
                "ones: wrap one that is an argument itself, (item,)"
            ) from None

    def _options(self) -> Any:
        return merge_options(self._task._job_options, self._given)


class Task(Producer[P, R_co]):
    """A function that can be enqueued; it has a name, a queue and options for its jobs.

    Calling a task calls the function. `R_co` is what that returns: a coroutine if it is a coroutine
    function.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        name: str,
        queue_name: str,
        queue: Callable[[], Queue],
        job_options: Mapping[str, Any],
        version: int,
        upcasters: Mapping[int, Upcaster],
    ) -> None:
        self.function = function
        super().__init__(self, {})
        self.name = check_name("the task's name", name)
        """The name of the task's jobs."""
        self.queue_name = check_name("the task's queue", queue_name)
        """The name of the queue that the task's jobs are added to."""
        self._queue = queue
        check_options(job_options)
        self._job_options = dict(job_options)
        self._signature = Signature(name, function, Job)
        self._version = check_int("version", version, 1, 2**31 - 1)
        self._upcasters = _checked_upcasters(name, version, upcasters)
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__doc__ = function.__doc__
        self.__module__ = getattr(function, "__module__", __name__)
        self.__wrapped__ = function

    def _pack(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data of a job with these arguments."""
        data = self._signature.pack(args, kwargs)
        return data if self._version == 1 else {**data, VERSION: self._version}

    def _unpack(self, job: Job) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments of a job, converted to the version of this code."""
        version, data = _version_of(job), {} if job.data is None else job.data
        if version < self._version:
            # A copy: upcasters may change it, and the data of the job must stay.
            data = parse_payload(f"task {self.name}: the data of the job", copy.deepcopy(data))
        while version < self._version:
            data = self._upcasters[version](data)
            data = parse_payload(
                f"task {self.name}: what its upcaster of version {version} gave", data
            )
            version += 1
        return self._signature.unpack(data, job)

    def _is_newer(self, job: Job) -> bool:
        """Return whether a job has a newer version than this code."""
        return _version_of(job) > self._version

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self: CallsWithJob[Q, R], /, *args: Q.args, **kwargs: Q.kwargs) -> R: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function and return what it returns.

        If it has a parameter for the job and no job is passed, it gets the current job. Raise
        NoCurrentJob if there is none and the parameter has no default.
        """
        args, kwargs = self._with_job(args, kwargs)  # type: ignore[assignment]
        return self.function(*args, **kwargs)

    def _with_job(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments, and the current job among them if the function takes one."""
        if not self._signature.injected or self._is_given_job(args, kwargs):
            return args, kwargs
        job = running_job()
        if job is not None:
            return self._signature.with_job(args, kwargs, job)
        if self._signature.needs_job:
            raise NoCurrentJob(
                f"task {self.name} takes the job: call it inside of a job or pass one"
            )
        return args, kwargs

    def _is_given_job(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        by_name = any(name in kwargs for name in self._signature.injected)
        return by_name or any(isinstance(value, Job) for value in args)

    def options(self, **options: Unpack[JobOptions]) -> Producer[P, R_co]:
        """Return a producer of this task with other job options than the task's.

        `task.options(delay="5m").enqueue(...)` adds a job with them.
        """
        check_options(options)
        return Producer(self, options)

    def __repr__(self) -> str:
        return f"<Task {self.name!r} of {self.queue_name!r}>"


def _checked_upcasters(
    name: str, version: int, upcasters: Mapping[int, Upcaster]
) -> dict[int, Upcaster]:
    """Return the upcasters. Raise InvalidOption unless each older version has one."""
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


_GENERATORS = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def check_function(function: Any) -> None:
    """Raise InvalidOptionType if `function` cannot be called with arguments alone."""
    if isinstance(function, type) or not callable(function):
        raise InvalidOptionType(f"a task must be a function, not {function!r}")
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    try:
        first = next(iter(inspect.signature(function).parameters), None)
    except ValueError:
        raise InvalidOptionType(f"{function!r} does not tell what arguments it takes") from None
    if any(
        is_generator(one)
        for is_generator in _GENERATORS
        for one in (function, type(function).__call__)
    ):
        raise InvalidOptionType(f"{function!r} yields; a task returns one value")
    if owner and not owner.endswith("<locals>") and first in ("self", "cls"):
        raise InvalidOptionType(
            f"{function.__qualname__} is a method, and a job has no object to call it on: make it "
            "a function, or register the class"
        )


def name_of(function: Any) -> str:
    """Return the default name of a task: the names of its module and of the function."""
    own = getattr(function, "__qualname__", None)
    if own is None:
        raise InvalidOption(f"{function!r} has no name of its own: give its task one, name=…")
    return f"{_module_name(function)}.{own}"


def _module_name(function: Any) -> str:
    """Return the name under which other processes import the function's module.

    The module of a program is `__main__` where the program runs.
    """
    module: str = function.__module__
    if module not in ("__main__", "__mp_main__"):
        return module
    names = getattr(function, "__globals__", None) or vars(sys.modules[module])
    spec, file = names.get("__spec__"), names.get("__file__")
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return module if file is None else Path(file).stem
