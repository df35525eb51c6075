"""The job schedulers of a queue: create, change, read, pause and remove them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...core.checks import Duration, Moment, check_bool
from ...core.clock import moment_of
from ...core.codec import decode
from ...core.recurrence import Recurrence, check_recurrence
from ...operations.scheduler_ticks import Scheduler, SchedulerSpec, offset_of
from ...operations.schedulers import (
    EnableScheduler,
    RemoveScheduler,
    RunScheduler,
    SchedulersUpserted,
    UpsertSchedulers,
)
from ..job.job import Job
from ..runtime import bridge
from .add import AddMethods
from .reads import page_window
from .scheduler_spec import JobTemplate, check_key, check_template, make_spec


@dataclass(frozen=True, slots=True)
class JobScheduler:
    """A job scheduler, as it was when it was read; durations are in ms."""

    id: str
    name: str
    pattern: str | None
    every: int | None
    tz: str | None
    """The time zone of `pattern`; None for an interval."""
    offset: int
    limit: int | None
    start_date: datetime | None
    end_date: datetime | None
    immediately: bool
    missed: str
    enabled: bool
    """False while it is paused, and after its last tick."""
    next_run_at: datetime | None
    """The tick of its pending job; None if there is none."""
    last_run_at: datetime | None
    """Time at which a worker last claimed one of its jobs."""
    last_run_job_id: str | None
    iteration_count: int
    """The number of its ticks, that of the pending job included."""
    template: Mapping[str, Any]
    """`{"name", "data", "opts"}` as given."""
    created_at: datetime
    updated_at: datetime


class SchedulerMethods(AddMethods):
    """A queue, and its job schedulers."""

    async def upsert_job_scheduler(
        self,
        id: str,
        *,
        pattern: str | None = None,
        every: Duration | None = None,
        limit: int | None = None,
        start_date: Moment | None = None,
        end_date: Moment | None = None,
        tz: str | None = None,
        immediately: bool = False,
        offset: Duration | None = None,
        missed: str = "once",
        most_missed: int | None = None,
        template: JobTemplate | None = None,
    ) -> Job:
        """Create a job scheduler, or change it and replace its pending job. Return the pending job.

        It adds jobs by a cron `pattern`, in UTC or in `tz`, or `every` interval, the first one
        immediately. If the pattern or interval does not change, neither does the next tick. There
        is one pending job; a worker that claims it adds the next. For ticks that no worker claimed
        in time, `missed` is "skip", "once" (one job for all of them) or "all" (one job each, at
        most `most_missed`).
        """
        recurrence: dict[str, Any] = {
            "pattern": pattern,
            "every": every,
            "limit": limit,
            "start_date": start_date,
            "end_date": end_date,
            "tz": tz,
            "immediately": immediately,
            "offset": offset,
            "missed": missed,
            "most_missed": most_missed,
        }
        key = check_key("the id of a job scheduler", id)
        name, data, options = check_template(key, template)

        def resolve() -> tuple[SchedulerSpec]:
            checked = check_recurrence(self._now_if_open(), **recurrence)
            return (make_spec(self._factory, key, checked, name, data, options),)

        [job] = await self._add_all(resolve, UpsertSchedulers)
        return job

    async def remove_job_scheduler(self, id: str) -> bool:
        """Remove a job scheduler, and its pending job unless that was promoted. Return False if
        there is no such scheduler."""
        return bool(await self._submit_for(RemoveScheduler, id))

    async def pause_job_scheduler(self, id: str) -> bool:
        """Pause a job scheduler and remove its pending job, until it is resumed or upserted.

        Return False if it was paused or has ended. Raise SchedulerNotFound if there is none.
        """
        return bool(await self._submit_for(EnableScheduler, id, False))

    async def resume_job_scheduler(self, id: str) -> bool:
        """Resume a paused job scheduler; its rule for missed ticks holds for those of the pause.

        Return False if it was not paused or has ended. Raise SchedulerNotFound if there is none.
        """
        return bool(await self._submit_for(EnableScheduler, id, True))

    async def run_job_scheduler(self, id: str) -> Job:
        """Add one job of a job scheduler now, even if it is paused; its ticks do not change.

        Raise SchedulerNotFound if there is none.
        """
        planned: SchedulersUpserted = await self._submit_for(RunScheduler, id)
        [job] = await self._added_jobs((), planned)
        return job

    async def get_job_scheduler(self, id: str) -> JobScheduler | None:
        """Return the job scheduler with this id as it is now; None if there is none."""
        params = await self._params(id)
        rows = await bridge.query(self.store, "scheduler", params)
        return _entry(Scheduler(*rows[0])) if rows else None

    async def get_job_schedulers(
        self, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[JobScheduler]:
        """Return the job schedulers from `start` to `end`, inclusive; negative indexes count from
        the end.

        That with the latest next tick comes first, with `asc` that with the earliest; those that
        are not enabled come last.
        """
        statement = "schedulers_up" if check_bool("asc", asc) else "schedulers_down"
        window = page_window(start, end, await self.get_job_schedulers_count())
        if window is None:
            return []
        params = {"queue": self._pk, "skip": window[0], "most": window[1]}
        rows = await bridge.query(self.store, statement, params)
        return [_entry(Scheduler(*row)) for row in rows]

    async def get_job_schedulers_count(self) -> int:
        """Return the number of job schedulers of the queue."""
        await self._ensure_open()
        [[count]] = await bridge.query(self.store, "count_schedulers", {"queue": self._pk})
        number: int = count
        return number

    # --- helpers ---

    async def _params(self, id: str) -> dict[str, Any]:
        key = check_key("the id of a job scheduler", id)
        await self._ensure_open()
        return {"queue": self._pk, "key": key}

    async def _submit_for(self, request: Callable[..., Any], id: str, *more: Any) -> Any:
        params = await self._params(id)
        return await bridge.submit(self.store, request(params["queue"], params["key"], *more))


def _entry(stored: Scheduler) -> JobScheduler:
    recurrence = Recurrence.from_json(stored.recurrence)
    options = decode(stored.opts)
    known: dict[str, Any] = {
        "priority": options["priority"],
        "attempts": options["attempts"],
        "lifo": bool(options["lifo"]),
        **options["stored"],
    }
    given = {name: known[name] for name in options["given"] if name in known}
    next_at = stored.next_at if stored.enabled else None
    return JobScheduler(
        id=stored.key,
        name=stored.name,
        pattern=recurrence.pattern,
        every=recurrence.every,
        tz=None if recurrence.pattern is None else recurrence.tz,
        offset=offset_of(recurrence, stored.next_at),
        limit=recurrence.limit,
        start_date=_moment(recurrence.start_date),
        end_date=_moment(recurrence.end_date),
        immediately=recurrence.immediately,
        missed=recurrence.missed,
        enabled=bool(stored.enabled),
        next_run_at=_moment(next_at),
        last_run_at=_moment(stored.last_at),
        last_run_job_id=stored.last_job,
        iteration_count=stored.iterations,
        template={"name": stored.name, "data": decode(stored.data), "opts": given},
        created_at=moment_of(stored.created_at),
        updated_at=moment_of(stored.updated_at),
    )


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else moment_of(ms)
