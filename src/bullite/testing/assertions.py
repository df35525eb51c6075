"""Assertions about the jobs of a playground, with messages that list the jobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack, overload

from ..app.arguments import ARGS, KWARGS, VERSION
from ..app.task import Producer, Task, TaskJob
from ..client.job.job import Job
from ..client.queue.queue import Queue
from ..core.checks import check_int
from ..core.codec import decode
from ..core.job_options import CheckedOptions, JobOptions, Priority, check_options
from ..core.job_record import stored_options
from ..errors import BulliteError, InvalidArguments, InvalidOption, InvalidOptionType

if TYPE_CHECKING:
    from ..app.task_typing import CallsWithJob

P = ParamSpec("P")

READY = ("waiting", "prioritized", "active")
ENQUEUED = ("waiting", "prioritized", "delayed", "waiting-children")
FINISHED = ("completed", "failed")
MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """The jobs that an assertion is about."""

    queue: Queue
    description: str
    """For messages: follows the words "a job"."""
    fits: Callable[[Job], bool]


class Assertions:
    """Assertions that read stored jobs and change nothing; usable inside and outside of coroutines.

    pytest shows a failure at the line of the test (`__tracebackhide__`).
    """

    def queue(self, name: str) -> Queue:
        """Return the queue of this name."""
        raise NotImplementedError

    def jobs(self, queue: str | Queue, *states: str) -> list[Job]:
        """Return the jobs of a queue in these states, or in any: next, or oldest, first."""
        raise NotImplementedError

    def queue_names(self) -> list[str]:
        """Return the names of all queues."""
        raise NotImplementedError

    def refreshed(self, job: Job) -> Job | None:
        """Return a job with its stored state; None if it was removed."""
        raise NotImplementedError

    # --- enqueued jobs ---

    @overload
    def assert_enqueued(self, task: Producer[..., Any], /) -> list[Job]: ...
    @overload
    def assert_enqueued(
        self, task: CallsWithJob[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> list[Job]: ...
    @overload
    def assert_enqueued(
        self, task: Producer[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> list[Job]: ...
    @overload
    def assert_enqueued(
        self,
        queue: str | Queue,
        /,
        name: str | None = None,
        data: Any = ...,
        *,
        count: int | None = None,
        **options: Unpack[JobOptions],
    ) -> list[Job]: ...
    def assert_enqueued(self, where: Any, /, *args: Any, **kwargs: Any) -> list[Job]:
        """Assert that `count` such jobs wait to run, or at least one. Return them.

        For a queue, `data` is compared as a whole, and `options` only those that are given. For a
        task, jobs match with equal arguments, positional or by name, or with any if none is given;
        `task.options(...)` also compares these options.
        """
        __tracebackhide__ = True
        count = None if isinstance(where, Producer) else kwargs.pop("count", None)
        if count is not None:
            check_int("count", count, 0, 2**31 - 1)
        wanted = self._wanted(where, args, kwargs)
        found = self._enqueued(wanted)
        if (count is None and found) or len(found) == count:
            return found
        number = "a job" if count is None else f"{count} job{'' if count == 1 else 's'}"
        raise self._failure(
            f"expected {number} {wanted.description} in {wanted.queue.name!r}, "
            f"found {len(found) or 'none'}",
            wanted.queue,
        )

    @overload
    def assert_not_enqueued(self, task: Producer[..., Any], /) -> None: ...
    @overload
    def assert_not_enqueued(
        self, task: CallsWithJob[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    @overload
    def assert_not_enqueued(
        self, task: Producer[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    @overload
    def assert_not_enqueued(
        self,
        queue: str | Queue,
        /,
        name: str | None = None,
        data: Any = ...,
        **options: Unpack[JobOptions],
    ) -> None: ...
    def assert_not_enqueued(self, where: Any, /, *args: Any, **kwargs: Any) -> None:
        """Assert that no such job waits to run."""
        __tracebackhide__ = True
        wanted = self._wanted(where, args, kwargs)
        found = self._enqueued(wanted)
        if found:
            raise self._failure(
                f"expected no job {wanted.description} in {wanted.queue.name!r}, "
                f"found {len(found)}",
                wanted.queue,
            )

    def assert_drained(self, queue: str | Queue | None = None) -> None:
        """Assert that no job is running or could run now; delayed jobs are allowed."""
        __tracebackhide__ = True
        for name in self.queue_names() if queue is None else [_name_of(queue)]:
            left = self.jobs(name, *READY)
            if left:
                raise self._failure(f"expected nothing to be left to run in {name!r}", name)

    # --- finished jobs ---

    def assert_completed(self, job: Job, value: Any = ...) -> Job:
        """Assert that a job is completed, with this value if one is given. Return it, re-read."""
        __tracebackhide__ = True
        now = self._finished(job, "completed")
        returned = now.return_value
        if isinstance(job, TaskJob) and returned != value:
            returned = job._signature.result(returned)
        if not isinstance(value, EllipsisType) and returned != value:
            raise AssertionError(
                f"expected {_call(job)} to have returned {value!r}, not {returned!r}"
            )
        return now

    def assert_failed(self, job: Job, reason: str | None = None) -> Job:
        """Assert that a job has failed, with `reason` in its reason. Return it, re-read."""
        __tracebackhide__ = True
        now = self._finished(job, "failed")
        if reason is not None and reason not in (now.failed_reason or ""):
            raise AssertionError(
                f"expected {_call(job)} to have failed with {reason!r}, not {now.failed_reason!r}"
            )
        return now

    # --- internals ---

    def _finished(self, job: Job, state: str) -> Job:
        __tracebackhide__ = True
        now = self.refreshed(job)
        if now is None:
            raise AssertionError(f"expected {_call(job)} to be {state}, but it does not exist")
        if now.state != state:
            raise AssertionError(f"expected {_call(job)} to be {state}:\n  {_job_text(now)}")
        return now

    def _enqueued(self, wanted: Wanted) -> list[Job]:
        return [job for job in self.jobs(wanted.queue, *ENQUEUED) if wanted.fits(job)]

    def _wanted(self, where: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Wanted:
        if isinstance(where, Producer):
            return self._wanted_calls(where._task, args, kwargs, where._given)
        if isinstance(where, str | Queue):
            return self._wanted_jobs(where, *args, **kwargs)
        raise InvalidOptionType(f"jobs are of a queue, or of a task; not of {where!r}")

    def _wanted_jobs(
        self,
        queue: str | Queue,
        name: str | None = None,
        data: Any = ...,
        **options: Unpack[JobOptions],
    ) -> Wanted:
        where = self.queue(queue) if isinstance(queue, str) else queue
        has_options = _having(options, where)

        def fits(job: Job) -> bool:
            return (
                (name is None or job.name == name)
                and (isinstance(data, EllipsisType) or job.data == data)
                and has_options(job)
            )

        parts = [] if name is None else [f"called {name!r}"]
        if not isinstance(data, EllipsisType):
            parts.append(f"with data={data!r}")
        return Wanted(where, " ".join([*parts, *_listed_options(options)]) or "of any name", fits)

    def _wanted_calls(
        self,
        task: Task[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Any,
    ) -> Wanted:
        where = task._queue()
        if where.store is not self.queue(task.queue_name).store:
            raise BulliteError(
                f"{task.name} is not in this playground: serve its application first"
            )
        call = task._pack(args, kwargs) if args or kwargs else None
        has_options = _having(options, where)

        def fits(job: Job) -> bool:
            return (
                job.name == task.name
                and (call is None or _is_same_call(task, job, call))
                and has_options(job)
            )

        text = task.name if call is None else _as_call(task.name, call)
        return Wanted(where, " ".join([f"that calls {text}", *_listed_options(options)]), fits)

    def _failure(self, message: str, queue: str | Queue) -> AssertionError:
        waiting = self.jobs(queue, *ENQUEUED, "active")
        finished = self.jobs(queue, *FINISHED)
        lines = [f"{message}.", *_listed("in the queue", waiting)]
        if finished:
            lines += _listed("finished", finished)
        return AssertionError("\n".join(lines))


def _name_of(queue: str | Queue) -> str:
    return queue if isinstance(queue, str) else queue.name


def _having(options: JobOptions, queue: Queue) -> Callable[[Job], bool]:
    """Return a function that returns whether a job has these options."""
    if "children" in options:
        raise InvalidOption("children are jobs of their own: claim each of them, with its parent")
    checked = check_options(options)
    return lambda job: _has(job, queue, options, checked)


def _has(job: Job, queue: Queue, options: JobOptions, checked: CheckedOptions) -> bool:
    priority = checked.priority
    if isinstance(priority, Priority):
        priority = priority.number(queue.priority_order)
    parent = _parents(job, queue, checked)
    columns = {
        "parent": parent,
        "parent_id": parent,
        "priority": (job.priority, priority),
        "attempts": (job.attempts, checked.attempts),
        "lifo": (job.lifo, checked.lifo),
        "job_id": (job.custom_id, checked.job_id),
        "delay": (stored_options(job).get("delay", 0), checked.delay),
    }
    if any(has != wanted for name, (has, wanted) in columns.items() if name in options):
        return False
    stored = {} if checked.stored is None else decode(checked.stored)
    return all(stored_options(job).get(name) == value for name, value in stored.items())


def _parents(job: Job, queue: Queue, checked: CheckedOptions) -> tuple[Any, Any]:
    """Return the parent of a job, and the one that it should have."""
    wanted = None if checked.dependencies is None else checked.dependencies.parent
    return (
        None if job.parent is None else (job.parent["queue"], job.parent["id"]),
        None if wanted is None else (wanted.queue or queue.name, wanted.id),
    )


def _is_same_call(task: Task[..., Any], job: Job, call: Mapping[str, Any]) -> bool:
    try:
        has, wanted = task._unpack(job), task._signature.unpack(call, job)
    except InvalidArguments:
        return False  # not added by this version of the task
    return _given(task, *has) == _given(task, *wanted)


def _given(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each parameter, given by position, by name or by default."""
    bound = inspect.signature(task.function).bind(*args, **kwargs)
    bound.apply_defaults()
    # In stored form: objects without __eq__ are not equal to their copies.
    return {name: task._signature.pack_result(value) for name, value in bound.arguments.items()}


def _listed_options(options: Mapping[str, Any]) -> list[str]:
    listed = ", ".join(f"{option}={value!r}" for option, value in options.items())
    return [f"with {listed}"] if listed else []


def _as_call(name: str, data: Mapping[str, Any]) -> str:
    by_name = (f"{key}={value!r}" for key, value in data.get(KWARGS, {}).items())
    return f"{name}({', '.join([*map(repr, data.get(ARGS, [])), *by_name])})"


def _is_call(data: Any) -> bool:
    """Return whether data has the form of a task's arguments."""
    if not data or not isinstance(data, dict) or data.keys() - {ARGS, KWARGS, VERSION}:
        return False
    return isinstance(data.get(ARGS, []), list) and isinstance(data.get(KWARGS, {}), dict)


def _listed(heading: str, jobs: Sequence[Job]) -> list[str]:
    if not jobs:
        return [f"  {heading}: nothing"]
    lines = [f"  {heading}:", *(f"    {_job_text(job)}" for job in jobs[:MAX_LISTED])]
    if len(jobs) > MAX_LISTED:
        lines.append(f"    … and {len(jobs) - MAX_LISTED} more")
    return lines


def _call(job: Job) -> str:
    return f"job {job.id} ({job.name!r} of {job.queue_name!r})"


def _job_text(job: Job) -> str:
    is_call = _is_call(job.data)
    work = _as_call(job.name, job.data) if is_call else f"{job.name!r} {job.data!r:.200}"
    text = f"{job.id} {work:.500} {job.state}"
    if job.process_at is not None and job.state == "delayed":
        text += f" until {job.process_at:%Y-%m-%d %H:%M:%S}"
    if job.state == "completed":
        text += f", returned {job.return_value!r:.200}"
    elif job.failed_reason is not None:
        text += f", attempt {job.attempts_made} of {job.attempts} failed: {job.failed_reason:.200}"
    return text
