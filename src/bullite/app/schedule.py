"""A schedule of a task: stored as a job scheduler that enqueues the task without arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..client.queue.scheduler_spec import NOT_IN_TEMPLATES
from ..errors import InvalidOption

if TYPE_CHECKING:
    from .task import Task


class Schedule:
    """One `cron` or `every` of a task; `number` counts the schedules of the task from 1."""

    def __init__(self, task: Task[..., Any], number: int, recurrence: Mapping[str, Any]) -> None:
        self._number = number
        self._recurrence = recurrence
        self.set_task(task)

    def set_task(self, task: Task[..., Any]) -> None:
        """Set the task to enqueue.

        Raise InvalidOption or InvalidArguments now, not at the first tick, if the task cannot be
        enqueued without arguments or if its jobs have an option that job schedulers forbid.
        """
        forbidden = sorted(NOT_IN_TEMPLATES & task._job_options.keys())
        if forbidden:
            raise InvalidOption(
                f"task {task.name} has a schedule, whose jobs cannot all have the option "
                f"{forbidden[0]}: leave it out"
            )
        task._pack((), {})
        self.task = task

    @property
    def id(self) -> str:
        """The id of the job scheduler: the task's name, and the number from the second on."""
        task = self.task
        return task.name if self._number == 1 else f"{task.name} {self._number}"

    async def store(self) -> None:
        """Create or update the job scheduler."""
        task = self.task
        options: Any = task._job_options
        await task._queue().upsert_job_scheduler(
            self.id,
            template={"name": task.name, "data": task._pack((), {}), "opts": options},
            **self._recurrence,
        )


def is_schedule_id(id: str, name: str) -> bool:
    """Return whether a schedule of the task of that name can have that id."""
    return re.fullmatch(rf"{re.escape(name)}( ([2-9]|[1-9][0-9]+))?", id) is not None
