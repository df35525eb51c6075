"""The methods of a queue that add jobs: one, many, flows, jobs with a scheduler."""

from __future__ import annotations

import os
import random as _random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict, Unpack

from ...core.checks import check_int
from ...core.job_flags import DOWNSTREAM
from ...core.job_options import LINK_OPTIONS, CheckedOptions, JobOptions
from ...core.job_record import JobStatusRow
from ...core.states import State
from ...errors import BulliteError, InvalidOption, InvalidOptionType
from ...operations.add import Added, AddJobs, NewJob, StaleSettings
from ...operations.scheduler_ticks import SchedulerSpec
from ...operations.schedulers import SchedulersUpserted, UpsertSchedulers
from ..job.job import Job
from ..runtime import bridge
from ..runtime.emitter import EventEmitter
from ..runtime.store import Store
from .flow_builder import FlowDefinition, add_flow, check_early
from .inserted_jobs import former_holder, inserted_job, inserted_jobs
from .job_factory import JobFactory
from .reads import QueueReads, jobs_with_pks
from .scheduler_spec import spec_of_repeat

MAX_AT_ONCE = 100_000
"""Jobs that one `add_bulk` adds in one transaction."""

MAX_ALIKE = 1_000
"""Options shared by jobs of one `add_bulk` that are checked once; more are checked each time."""


class BulkJob(TypedDict, total=False):
    """One job of `add_bulk`."""

    name: str
    data: Any
    opts: JobOptions


_BULK_KEYS = frozenset(BulkJob.__annotations__)
_LINKS = frozenset(LINK_OPTIONS)
_WAITING, _DELAYED = State.WAITING.value, State.DELAYED.value

_ToAdd = NewJob | SchedulerSpec


class AddMethods(QueueReads):
    """A queue to which jobs can be added."""

    def __init__(
        self,
        name: str,
        store: Store | str | os.PathLike[str] | None = None,
        priority_order: str | None = None,
        events: EventEmitter | None = None,
        random: Callable[[], float] = _random.random,
        default_job_options: JobOptions | None = None,
    ) -> None:
        super().__init__(name, store, priority_order, events, random)
        self._factory = JobFactory(self.name, priority_order, default_job_options)
        self._plain_status = JobStatusRow(_WAITING)
        """The status of the jobs that were last added without a delay."""

    async def _open_row(self) -> None:
        await super()._open_row()
        self._factory.load(self._ready())

    async def add(self, name: str, data: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job. When this returns, the job is synced to disk.

        If a job has the `job_id` that is given, or holds the `deduplication` key, that job is
        returned and none is added. With `repeat`, a job scheduler is made or changed, and its
        pending job is returned.
        """
        if options.get("repeat") is not None:
            [job] = await self._add_all(
                lambda: (self._spec_of_repeat(name, data, options),), UpsertSchedulers
            )
            return job
        if not _LINKS.isdisjoint(options):
            [job] = await self._add_flow([{"name": name, "data": data, "opts": options}])
            return job
        factory = self._factory
        [job] = await self._add_all(lambda: (factory.new_job(name, data, factory.check(options)),))
        return job

    def _spec_of_repeat(self, name: str, data: Any, options: Mapping[str, Any]) -> SchedulerSpec:
        return spec_of_repeat(self._factory, self.name, self._now_if_open(), name, data, options)

    def _now_if_open(self) -> int:
        """The time of the database; 0 before it is open, so that no date has passed."""
        return self.store.open().clock.now() if self.store.is_open else 0

    # --- many ------------------------------------------------------------------------------------

    async def add_bulk(
        self,
        jobs: Iterable[BulkJob],
        *,
        chunk: int | None = None,
        on_chunk: Callable[[int], object] | None = None,
    ) -> list[Job]:
        """Add many jobs in one transaction; each is a mapping with `name`, `data` and `opts`.

        More than 100,000 need `chunk`: then each `chunk` jobs are added in a transaction of their
        own, and after each `on_chunk` is called with the number of jobs that are stored so far.
        """
        if isinstance(jobs, str | Mapping) or not isinstance(jobs, Iterable):
            raise InvalidOptionType(f"add_bulk takes a list of jobs, not {jobs!r}")
        given = list(jobs)
        if chunk is None:
            if len(given) > MAX_AT_ONCE:
                raise InvalidOption(
                    f"add_bulk adds at most {MAX_AT_ONCE} jobs at once, not {len(given)}; "
                    "pass chunk=10000 to add them in several"
                )
            chunk = max(1, len(given))
        else:
            check_int("chunk", chunk, 1, MAX_AT_ONCE)
        if not given:
            return []
        await self._ensure_open(partial(self._check_bulk, given, chunk))
        has_options = any([type(job) is not dict or "opts" in job for job in given])  # noqa: C419
        if has_options and any(_is_linked(job) for job in given):
            return await self._add_flows(given, chunk, on_chunk)
        new = self._bulk_jobs(given, range(len(given)))
        request: Callable[..., Any] = AddJobs
        if has_options and any(type(job) is SchedulerSpec for job in new):
            request = UpsertSchedulers
        version, stored = self._ready().version, list[Job]()
        for start in range(0, len(new), chunk):
            some = range(start, min(start + chunk, len(new)))
            resolve = partial(self._bulk_jobs, given, some)
            await bridge.wait_for_capacity(self.store)
            stored += await self._add_all(resolve, request, new[start : start + chunk], version)
            if on_chunk is not None:
                on_chunk(len(stored))
        return stored

    def _check_bulk(self, given: Sequence[Any], chunk: int) -> None:
        """Raise what is wrong with jobs whatever the queue's settings are."""
        new = self._bulk_jobs(given, range(len(given)))
        if any(_is_linked(job) for job in given):
            _forbid_schedulers(new)
            for start in range(0, len(given), chunk):
                some = given[start : start + chunk]
                check_early(FlowDefinition(some, self._finder(), self, "job"))

    def _bulk_jobs(self, given: Sequence[Any], some: Iterable[int]) -> list[Any]:
        alike: dict[int, tuple[CheckedOptions, NewJob]] = {}
        return [self._bulk_job(index, given[index], alike) for index in some]

    def _bulk_job(
        self, index: int, job: Any, alike: dict[int, tuple[CheckedOptions, NewJob]]
    ) -> _ToAdd:
        """A job of many. `alike` has, by the identity of its options, one that shares them."""
        if type(job) is not dict:
            alike.clear()  # what is no dict may run its own code, and change options of others
        if type(job) is not dict and not isinstance(job, Mapping):
            raise InvalidOptionType(
                f"jobs[{index}] must be a mapping with name, data and opts, not {job!r}"
            )
        if not (job.keys() <= _BULK_KEYS and "name" in job):
            unknown = [key for key in job if key not in _BULK_KEYS]
            problem = f"has an unknown key {unknown[0]!r}" if unknown else "has no name"
            raise InvalidOption(f"jobs[{index}] {problem}; give name, data and opts")
        options = job.get("opts")
        if options is not None and not isinstance(options, Mapping):
            raise InvalidOptionType(f"jobs[{index}]: opts must be a mapping, not {options!r}")
        factory = self._factory
        try:
            if options is None:
                return factory.new_job(job["name"], job.get("data"), factory.plain)
            if (known := alike.get(id(options))) is not None:
                return factory.new_job(job["name"], job.get("data"), *known)
            if options.get("repeat") is not None:
                return self._spec_of_repeat(job["name"], job.get("data"), options)
            checked = factory.check(options)
            new = factory.new_job(job["name"], job.get("data"), checked)
            if type(options) is dict and type(job) is dict and len(alike) < MAX_ALIKE:
                alike[id(options)] = checked, new
            return new
        except BulliteError as error:
            raise type(error)(f"jobs[{index}]: {error}") from error

    # --- flows -----------------------------------------------------------------------------------

    async def _add_flows(
        self, given: Sequence[Any], chunk: int, on_chunk: Callable[[int], object] | None
    ) -> list[Job]:
        _forbid_schedulers(self._bulk_jobs(given, range(len(given))))
        stored: list[Job] = []
        for start in range(0, len(given), chunk):
            some = [{**job, "opts": job.get("opts") or {}} for job in given[start : start + chunk]]
            stored += await self._add_flow(some)
            if on_chunk is not None:
                on_chunk(len(stored))
        return stored

    async def _add_flow(self, roots: Sequence[Mapping[str, Any]]) -> list[Job]:
        """Add jobs with links to others, and their children, in one transaction. Return the jobs
        of the roots."""
        definition = FlowDefinition(roots, self._finder(), self, "job")
        await self._ensure_open(lambda: check_early(definition))
        flat_nodes, jobs = await add_flow(definition)
        for root in roots:
            if isinstance(parent := root["opts"].get("parent"), Job):
                parent._add_flags(DOWNSTREAM)
        return [job for job, one in zip(jobs, flat_nodes, strict=True) if one.parent is None]

    def _finder(self) -> Callable[[str], AddMethods]:
        """Return a function that finds the queue of a child by its name."""
        queues: dict[str, AddMethods] = {self.name: self}

        def find(name: str) -> AddMethods:
            if name not in queues:
                self._factory.forbid_other_database("queue_name", name)
                queues[name] = AddMethods(name, self.store)
                queues[name]._factory.same_database = self._factory.same_database
            return queues[name]

        return find

    # --- one request -----------------------------------------------------------------------------

    async def _add_all(
        self,
        resolve: Callable[[], Sequence[_ToAdd]],
        request: Callable[..., Any] = AddJobs,
        new: Sequence[_ToAdd] | None = None,
        version: int = 0,
    ) -> list[Job]:
        """Add jobs in one transaction. If the queue's settings changed meanwhile, resolve again.

        `new` are those jobs as resolved under the settings of `version`.
        """
        await self._ensure_open(resolve)
        if new is None:
            new, version = resolve(), self._ready().version
        while True:
            on_reply = None
            if self.hears("added", "waiting", "delayed"):
                on_reply = partial(self._emit_added, new)
            added = await bridge.submit(self.store, request(self._pk, new, version), on_reply)
            if not isinstance(added, StaleSettings):
                return await self._added_jobs(new, added)
            await self._open_row()
            new, version = resolve(), self._ready().version

    def _emit_added(
        self, new: Sequence[Any], added: Added | SchedulersUpserted | StaleSettings
    ) -> None:
        if isinstance(added, StaleSettings):
            return
        if isinstance(added, SchedulersUpserted):
            new, added = added.jobs, added.added
        for one, id in zip(new, added.ids, strict=True):
            if id not in added.existing:
                job = inserted_job(self, one, id, added.created_at)
                self.emit("added", job)
                self.emit(_DELAYED if job.state == _DELAYED else _WAITING, job)

    async def _added_jobs(self, new: Sequence[Any], added: Added | SchedulersUpserted) -> list[Job]:
        if isinstance(added, SchedulersUpserted):
            new, added = added.jobs, added.added
        if self._plain_status.updated_at != added.created_at:
            self._plain_status = JobStatusRow(_WAITING, updated_at=added.created_at)
        jobs = inserted_jobs(self, new, added, self._plain_status)
        if added.existing:
            found = await jobs_with_pks(self, [id for id in added.ids if id in added.existing])
            for index, id in enumerate(added.ids):
                if id in added.existing:
                    holder = found.get(id) or former_holder(self, new[index], id, added)
                    jobs[index] = holder or jobs[index]
        return jobs


def forbid_links(queue: AddMethods, same_database: Callable[[str], bool]) -> None:
    """Let a queue refuse links to queues for which `same_database` returns False."""
    queue._factory.same_database = same_database


def _is_linked(job: Any) -> bool:
    options: Any = job.get("opts") if type(job) is dict or isinstance(job, Mapping) else None
    is_mapping = type(options) is dict or isinstance(options, Mapping)
    return is_mapping and not _LINKS.isdisjoint(options)


def _forbid_schedulers(new: Sequence[_ToAdd]) -> None:
    if any(type(job) is SchedulerSpec for job in new):
        raise InvalidOption(
            "jobs with repeat and jobs that are tied to others cannot be added together; add them "
            "apart"
        )
