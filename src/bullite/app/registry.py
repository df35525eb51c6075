"""Tasks, processors, schedules and middleware that are registered with one application."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..client.job.version_skew import release_newer
from ..client.queue.queue import Queue
from ..core.checks import check_int
from ..core.names import check_name
from ..errors import InvalidOption, TaskTaken
from .middleware import Hooks
from .schedule import Schedule, is_schedule_id
from .task import Task

Processor = Callable[..., Any]


class QueueProcessors:
    """Functions that run the jobs of one queue: one for all jobs, or one for each job name."""

    def __init__(self) -> None:
        self.by_name: dict[str, tuple[Processor, int | None]] = {}
        """Functions by job name, with their concurrency."""
        self.everything: Processor | None = None
        self.concurrency: int | None = None
        self.poll_interval = 1_000

    def wrapped(self, hooks: Hooks) -> dict[str, Processor]:
        """Return the functions by job name, with middleware; "" stands for all names."""
        if self.everything is not None:
            return {"": hooks.wrapped(self.everything)}
        return {name: hooks.wrapped(function) for name, (function, _) in self.by_name.items()}

    def for_worker(self, hooks: Hooks) -> Any:
        """Return the functions, with middleware, in the form that `Worker` takes."""
        if self.everything is not None:
            return hooks.wrapped(self.everything)
        return {
            name: hooks.wrapped(function)
            if concurrency is None
            else (hooks.wrapped(function), concurrency)
            for name, (function, concurrency) in self.by_name.items()
        }


class Registry:
    """Tasks, processors and schedules of an application, and the middleware around its jobs."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self._processors: dict[str, QueueProcessors] = {}
        self._tasks: list[Task[..., Any]] = []
        self._implicit: list[Task[..., Any]] = []
        """Tasks that a schedule made of a plain function."""
        self._schedules: list[Schedule] = []

    # --- tasks ---

    def implicit_task(self, function: Any) -> Task[..., Any] | None:
        """Return `function` if it is a task that a schedule made; None if it is no task.

        Raise TaskTaken if it is a task that was decorated as one.
        """
        if not isinstance(function, Task):
            return None
        if function not in self._implicit:
            raise TaskTaken(f"{function.name!r} is a task already")
        return function

    def add_task(
        self,
        task: Task[..., Any],
        processor: Processor,
        concurrency: int | None,
        replaced: Task[..., Any] | None = None,
    ) -> None:
        """Add a task and its processor.

        It takes the schedules of the implicit task that it replaces.
        """
        if replaced is not None:
            self._remove_implicit(replaced)
        self.add_processor(task.queue_name, task.name, processor, concurrency)
        self._tasks.append(task)
        for schedule in self._schedules:
            if schedule.task is replaced:
                schedule.set_task(task)

    def _remove_implicit(self, task: Task[..., Any]) -> None:
        self._implicit.remove(task)
        self._tasks.remove(task)
        processors = self._processors[task.queue_name]
        del processors.by_name[task.name]
        if not processors.by_name:
            del self._processors[task.queue_name]

    # --- processors ---

    def add_processor(
        self, queue: str, name: str, function: Processor, concurrency: int | None
    ) -> None:
        """Add the processor of jobs of that name. Raise TaskTaken if they have one already."""
        processors = self._processors.get(check_name("the queue", queue)) or QueueProcessors()
        if processors.everything is not None or name in processors.by_name:
            raise TaskTaken(f"{name!r} in the queue {queue!r} has a processor already")
        if concurrency is not None:
            check_int("concurrency", concurrency, 1, 100_000)
        self._processors[queue] = processors
        processors.by_name[name] = (function, concurrency)

    def add_queue_processors(self, queue: str, processors: QueueProcessors) -> None:
        """Add the processors of a queue. Raise TaskTaken if it has one already."""
        if queue in self._processors:
            raise TaskTaken(f"the queue {queue!r} has a processor already")
        self._processors[queue] = processors

    def processors(self) -> dict[str, dict[str, Processor]]:
        """Return functions, with middleware, by queue and job name; "" stands for all names."""
        return {queue: found.wrapped(self.hooks) for queue, found in self._processors.items()}

    def processors_of(self, queues: Collection[str] | None) -> dict[str, QueueProcessors]:
        """Return the processors of these queues, or of all. Raise InvalidOption for another."""
        unknown = sorted(set(queues or ()) - self._processors.keys())
        if unknown:
            raise InvalidOption(
                f"nothing here serves the queue {unknown[0]!r}; served are: "
                f"{', '.join(sorted(self._processors)) or 'none'}"
            )
        return {
            queue: processors
            for queue, processors in self._processors.items()
            if queues is None or queue in queues
        }

    # --- schedules ---

    def add_implicit(self, task: Task[..., Any]) -> None:
        """Mark a task as made by a schedule: a later `@app.task` of its function replaces it."""
        self._implicit.append(task)

    def add_schedule(self, task: Task[..., Any], recurrence: Mapping[str, Any]) -> None:
        """Add a schedule of a task. Raise TaskTaken if the task is of another application."""
        if task not in self._tasks:
            raise TaskTaken(f"{task.name!r} is a task of another application: schedule it there")
        number = sum(schedule.task is task for schedule in self._schedules) + 1
        self._schedules.append(Schedule(task, number, recurrence))

    async def store_schedules(self) -> None:
        """Store all schedules, and remove those that the tasks had in older code."""
        for queue in {task.queue_name: task._queue() for task in self._tasks}.values():
            await self._remove_old_schedules(queue)
        for schedule in self._schedules:
            await schedule.store()

    async def _remove_old_schedules(self, queue: Queue) -> None:
        names = {task.name for task in self._tasks if task.queue_name == queue.name}
        wanted = {one.id for one in self._schedules if one.task.queue_name == queue.name}
        for stored in await queue.get_job_schedulers():
            is_own = stored.name in names and is_schedule_id(stored.id, stored.name)
            # A paused one makes no jobs, and an operator paused it: it stays.
            if is_own and stored.enabled and stored.id not in wanted:
                await queue.remove_job_scheduler(stored.id)

    # --- versions ---

    async def release_postponed(self, queue: Queue) -> None:
        """Release jobs that older code postponed and that this code has the version for."""
        tasks = [t for t in self._tasks if t.queue_name == queue.name and t._version > 1]
        if tasks:
            await release_newer(queue, {task.name: task._is_newer for task in tasks})
