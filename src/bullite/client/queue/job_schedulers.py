"""The job schedulers of a queue: create, change, read, pause and remove them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from ...core.checks import MAX_TIME, Duration, Moment, check_bool
from ...core.clock import moment_of
from ...core.codec import decode, encode_plain
from ...core.job_options import PER_JOB_OPTIONS, CheckedOptions, JobOptions, Repeat
from ...core.names import MAX_NAME_LENGTH, check_name
from ...core.recurrence import Recurrence, check_recurrence
from ...errors import InvalidOption, InvalidOptionType
from ...operations.add import NewJob
from ...operations.scheduler_ticks import Scheduler, SchedulerSpec, id_of, offset_of
from ...operations.schedulers import (
    EnableScheduler,
    RemoveScheduler,
    RunScheduler,
    SchedulersUpserted,
)
from ..job.job import Job
from ..runtime import bridge
from .reads import QueueReads, page_window


class JobTemplate(TypedDict, total=False):
    """What a job scheduler makes its jobs from: the name is its id, the data {} unless given."""

    name: str
    data: Any
    opts: JobOptions


@dataclass(frozen=True, slots=True)
class JobScheduler:
    """A job scheduler, as it was when it was read; durations are in ms."""

    id: str
    name: str
    pattern: str | None
    every: int | None
    tz: str | None
    """None for an interval, which is the same in all zones."""
    offset: int
    limit: int | None
    start_date: datetime | None
    end_date: datetime | None
    immediately: bool
    missed: str
    enabled: bool
    """False while it is paused, and once it has come to its limit or its end."""
    next_run_at: datetime | None
    """The tick that its pending job is for; None if there is none."""
    last_run_at: datetime | None
    """When a worker last took a job of its schedule."""
    last_run_job_id: str | None
    iteration_count: int
    """How many ticks it has had, the next one counted in."""
    template: Mapping[str, Any]
    """`{"name", "data", "opts"}`, with the options that were given."""
    created_at: datetime
    updated_at: datetime


_TEMPLATE_KEYS = frozenset(JobTemplate.__annotations__)
_REPEAT_KEYS = frozenset(Repeat.__annotations__)
_SAME = {"cron": "pattern", "immediate": "immediately"}
"""Words of the repeat option that mean others."""

NOT_IN_TEMPLATES = frozenset({*PER_JOB_OPTIONS, "delay"})
"""Options that cannot hold for every job of a scheduler, which says when each is due."""

MAX_KEY_LENGTH = MAX_NAME_LENGTH - len(id_of("", MAX_TIME))


class SchedulerMethods(QueueReads):
    """The half of a queue that deals with its job schedulers."""

    _defaults: Mapping[str, Any]
    check: Callable[[Mapping[str, Any]], CheckedOptions]
    new_job: Callable[[str, Any, CheckedOptions], NewJob]
    _add_planned: Callable[[Callable[[], Sequence[NewJob | SchedulerSpec]]], Any]
    _as_jobs: Callable[..., Any]

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
        """Make a job scheduler, or change it: its pending job gives way to one of the new kind.

        It makes jobs by a cron `pattern`, in UTC or in `tz`, or `every` so often, the first at
        once. One whose pattern, or interval, stays the same keeps the time of its next run. Answers
        the pending job, which is the only one; the next is made when a worker takes it. `missed`
        says what becomes of ticks that nobody took in time: "skip", "once" for all, or "all" up to
        `most_missed`.
        """
        recurrence = {
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
        name, data, options = _check_template(key, template)
        [job] = await self._add_planned(
            lambda: (self._plan(key, self._recurrence(recurrence), name, data, options),)
        )
        made: Job = job
        return made

    async def remove_job_scheduler(self, id: str) -> bool:
        """Remove a job scheduler, with its pending job unless that was promoted; False if there is
        none."""
        return bool(await self._ask_scheduler(RemoveScheduler, id))

    async def pause_job_scheduler(self, id: str) -> bool:
        """Let a job scheduler make no jobs until it is resumed, or upserted; its pending job goes.

        False if it was paused, or had ended, already. SchedulerNotFound if there is none.
        """
        return bool(await self._ask_scheduler(EnableScheduler, id, False))

    async def resume_job_scheduler(self, id: str) -> bool:
        """Let a paused job scheduler go on; what it missed is up to its rule for missed ticks.

        False if it was not paused, or has ended. SchedulerNotFound if there is none.
        """
        return bool(await self._ask_scheduler(EnableScheduler, id, True))

    async def run_job_scheduler(self, id: str) -> Job:
        """Make one job of a job scheduler now, paused or not; its schedule goes on as it would."""
        planned: SchedulersUpserted = await self._ask_scheduler(RunScheduler, id)
        [job] = await self._as_jobs(planned.jobs, planned.added)
        made: Job = job
        return made

    async def get_job_scheduler(self, id: str) -> JobScheduler | None:
        """The job scheduler with this id, as it is now; None if there is none."""
        params = await self._params(id)
        rows = await bridge.query(self.store, "scheduler", params)
        return _entry(Scheduler(*rows[0])) if rows else None

    async def get_job_schedulers(
        self, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[JobScheduler]:
        """The job schedulers from `start` to `end`, inclusive; negative ones count from the end.

        The one that runs latest first, with `asc` the next; those that are not enabled come last.
        """
        statement = "schedulers_up" if check_bool("asc", asc) else "schedulers_down"
        window = page_window(start, end, await self.get_job_schedulers_count())
        if window is None:
            return []
        params = {"queue": self.key, "skip": window[0], "most": window[1]}
        rows = await bridge.query(self.store, statement, params)
        return [_entry(Scheduler(*row)) for row in rows]

    async def get_job_schedulers_count(self) -> int:
        await self._ensure_open()
        [[count]] = await bridge.query(self.store, "count_schedulers", {"queue": self.key})
        number: int = count
        return number

    # --- underneath ---

    async def _params(self, id: str) -> dict[str, Any]:
        key = check_key("the id of a job scheduler", id)
        await self._ensure_open()
        return {"queue": self.key, "key": key}

    async def _ask_scheduler(self, request: Callable[..., Any], id: str, *more: Any) -> Any:
        params = await self._params(id)
        return await bridge.submit(self.store, request(params["queue"], params["key"], *more))

    def _repeating(self, name: str, data: Any, options: Mapping[str, Any]) -> SchedulerSpec:
        """What `add` with `repeat` asks for."""
        key, settings = _check_repeat(options["repeat"])
        recurrence = self._recurrence(settings)
        others = {option: value for option, value in options.items() if option != "repeat"}
        _refuse_one_jobs_own("repeat cannot go together with", others)
        check_name("the job's name", name)
        if key is None:
            import hashlib

            told = encode_plain([self.name, name, recurrence.to_json()])
            key = hashlib.blake2b(told, digest_size=16).hexdigest()
        return self._plan(key, recurrence, name, data, others)

    def _recurrence(self, settings: Mapping[str, Any]) -> Recurrence:
        # Whether a date has passed is not known before the database is open, which has the clock.
        now = self.store.open().clock.now() if self.store.is_open else 0
        return check_recurrence(now, **settings)

    def _plan(
        self,
        key: str,
        recurrence: Recurrence,
        name: str,
        data: Any,
        options: Mapping[str, Any],
    ) -> SchedulerSpec:
        """A plan with the options of its jobs resolved, those of the queue's that can hold, too."""
        late = {name: 0 for name in ("delay",) if name in self._defaults}
        checked = self.check({**late, **options})
        return SchedulerSpec(key, recurrence, self.new_job(name, data, checked), list(options))


def check_key(what: str, value: Any) -> str:
    """The id of a job scheduler, short enough for those of its jobs."""
    key = check_name(what, value)
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidOption(f"{what} must have at most {MAX_KEY_LENGTH} characters, not {len(key)}")
    return key


def _check_template(key: str, template: Any) -> tuple[str, Any, dict[str, Any]]:
    """The name, the data and the options of a scheduler's jobs."""
    if template is None:
        template = {}
    if not isinstance(template, Mapping):
        raise InvalidOptionType(
            f"template must be a mapping with name, data and opts, not {template!r}"
        )
    for name in template:
        if name not in _TEMPLATE_KEYS:
            raise InvalidOption(
                f"template has an unknown key {name!r}; the keys are: name, data, opts"
            )
    options = template.get("opts")
    if options is not None and not isinstance(options, Mapping):
        raise InvalidOptionType(f"the opts of a template must be a mapping, not {options!r}")
    _refuse_one_jobs_own("the opts of a template cannot hold", options or {})
    name = template.get("name")
    return key if name is None else name, template.get("data", {}), dict(options or {})


def _refuse_one_jobs_own(why: str, options: Mapping[str, Any]) -> None:
    for name in options:
        if name in NOT_IN_TEMPLATES and options[name] is not None:
            raise InvalidOption(f"{why} {name}: every job of the scheduler would have it")


def _check_repeat(repeat: Any) -> tuple[str | None, dict[str, Any]]:
    """The key, if one was given, and the settings of a recurrence."""
    if not isinstance(repeat, Mapping):
        raise InvalidOptionType(
            f"repeat must be a mapping with cron or every, and more, not {repeat!r}"
        )
    settings: dict[str, Any] = {}
    for name, value in repeat.items():
        if name not in _REPEAT_KEYS:
            known = ", ".join(sorted(_REPEAT_KEYS))
            raise InvalidOption(f"repeat has an unknown key {name!r}; the keys are: {known}")
        meant = _SAME[name] if name in _SAME else str(name)
        if meant in settings:
            raise InvalidOption(f"repeat says {meant} twice, in two words; give one of them")
        settings[meant] = value
    key = settings.pop("key", None)
    return None if key is None else check_key("repeat key", key), settings


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
