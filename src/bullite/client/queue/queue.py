"""Queue, for producers and operators: add, read and manage jobs."""

from __future__ import annotations

import os
import random as _random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypedDict, Unpack, overload

from ...core.checks import (
    MAX_TIME,
    Duration,
    Moment,
    check_bool,
    check_duration,
    check_int,
    check_moment,
    check_size,
    encode_limited,
)
from ...core.codec import encode
from ...core.decide_outcome import storable
from ...core.dependency_options import DependencyOptions
from ...core.job_flags import DEDUPLICATED, DOWNSTREAM
from ...core.job_options import (
    LINK_OPTIONS,
    PLAIN,
    CheckedOptions,
    JobOptions,
    KeepJobs,
    RateLimit,
    check_options,
    merge_options,
)
from ...core.job_record import JobStatusRow
from ...core.names import check_name
from ...core.states import (
    DELETE,
    DELETE_ACTIVE,
    PRIORITIZED,
    PROMOTE,
    REMOVE,
    RESTORE,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    SHOWN_STATES,
    Move,
    State,
)
from ...errors import (
    BulliteError,
    InvalidOption,
    InvalidOptionType,
    JobIdTaken,
    JobNotFound,
    QueueHasActiveJobs,
    SchedulerOwnsJob,
)
from ...operations.add import NO_RARE_FIELDS, Added, AddJobs, NewJob, RareFields, StaleSettings
from ...operations.add_flow import FlowAdded
from ...operations.cancel_and_expire import Cancel
from ...operations.job_lists import START
from ...operations.move import Moved, MoveJob, MoveJobs, MoveListed
from ...operations.queues import (
    MAX_TRIMMED,
    Configure,
    LogCleaned,
    ResetQueue,
    SetPaused,
    TrimEvents,
)
from ...operations.retention import Purge
from ...operations.scheduler_ticks import SchedulerSpec
from ...operations.schedulers import DeleteSchedulers, SchedulersUpserted, UpsertSchedulers
from ...operations.update import Progress
from ..directory import removed_job
from ..job.job import Job
from ..runtime import bridge
from ..runtime.emitter import Entry, EventEmitter, L, Listener, fitted, plain
from ..runtime.store import Store
from .deduplication import DeduplicationMethods
from .flow_builder import FlowDefinition, add_flow, check_early
from .job_schedulers import SchedulerMethods
from .limits import LimitMethods
from .local_events import LocalEventFeed, follow
from .reads import finished_list, shown_name
from .settings import QueueSettings, check_defaults, check_settings, read_defaults

MAX_AT_ONCE = 100_000
"""Jobs that one `add_bulk` adds in one transaction."""

MOVED_AT_ONCE = 1_000
"""Jobs that a verb for many jobs moves in one transaction."""

MAX_ALIKE = 1_000
"""Options shared by jobs of one `add_bulk` that are checked once; more are checked each time."""

PAUSE_TIMEOUT = 2.0
"""Seconds that `pause` waits for workers to give back what they fetched ahead."""


class BulkJob(TypedDict, total=False):
    """One job of `add_bulk`."""

    name: str
    data: Any
    opts: JobOptions


_BULK_KEYS = frozenset(BulkJob.__annotations__)
_TIES = frozenset(LINK_OPTIONS)
_WAITING, _DELAYED = State.WAITING.value, State.DELAYED.value


class _StoredSettings(TypedDict, total=False):
    """The settings that may be given to `Queue`, too."""

    dead_letter: str | None
    keep_completed: Duration | KeepJobs | None
    keep_failed: Duration | KeepJobs | None
    trash_age: Duration
    max_events: int
    max_waiting: int | None
    max_payload_bytes: int | None
    max_rate: RateLimit | None


class Queue(DeduplicationMethods, SchedulerMethods, LimitMethods):
    """A named queue in a store.

    `store` is a path, a `sqlite:///` URL, a Store, or None for the default database. Nothing is
    opened until the queue is first used. `default_job_options` hold for jobs added through this
    object; the other settings are stored for everybody, as `configure` does.
    """

    def __init__(
        self,
        name: str,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        priority_order: str | None = None,
        default_job_options: JobOptions | None = None,
        events: EventEmitter | None = None,
        random: Callable[[], float] = _random.random,
        **settings: Unpack[_StoredSettings],
    ) -> None:
        super().__init__(name, store, priority_order, events, random)
        self._wants_feed = events is not None
        self._feed: LocalEventFeed | None = None
        check_defaults(default_job_options)
        self._own_defaults = dict(default_job_options or {})
        self._unstored = check_settings(settings, self.name)
        self._defaults: Mapping[str, Any] = self._own_defaults
        self._plain = check_options(self._own_defaults)
        self._known_name = self.name
        self._fresh_status = JobStatusRow(_WAITING)
        self._same_database: Callable[[str], bool] | None = None
        """Whether the queue of a name is in the same database; None if all are."""

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} in {self.store.location}>"

    async def wait_until_ready(self) -> None:
        """Open the store and find or make the queue in it."""
        await super().wait_until_ready()
        if self._wants_feed:
            self._start_feed()

    async def close(self) -> None:
        """Let go of the store; everything accepted is written first."""
        if self._feed is not None:
            await self._feed.told()
            self._feed.stop(self)
            self._feed = None
        await super().close()

    async def _open_row(self) -> None:
        await super()._open_row()
        if self._unstored:
            changes, self._unstored = self._unstored, {}
            await bridge.submit(self.store, Configure(self.key, changes))
            await super()._open_row()
        stored = read_defaults(self._ready().default_job_options)
        self._defaults = merge_options(stored, self._own_defaults)
        self._plain = check_options(self._defaults)

    # --- listeners -------------------------------------------------------------------------------

    @overload
    def on(self, event: str, listener: Listener) -> Self: ...
    @overload
    def on(self, event: str) -> Callable[[L], L]: ...
    def on(self, event: str, listener: Listener | None = None) -> Any:
        """Hear of what is done with this object; `job.completed` and other dotted names: of what
        this process does to the queue, as `(job_id, ...)`."""
        return self._register(event, listener, once=False)

    def _register(self, event: Any, listener: Listener | None, once: bool) -> Any:
        if not (callable(listener) and isinstance(event, str) and "." in event):
            return super()._register(event, listener, once)
        entry = Entry(listener, fitted(listener), once, scope=self.name)
        self.events.add_entry(plain(event), entry)
        self._wants_feed = True
        if self._opened is not None and self.store.is_open:
            self._start_feed()
        return self

    def off(self, event: str, listener: Listener | None = None) -> Self:
        if "." in event:
            self.events.forget(plain(event), listener, scope=self.name)
            return self
        return super().off(event, listener)

    def _start_feed(self) -> None:
        if self._feed is None:
            self._feed = follow(self)

    # --- adding ----------------------------------------------------------------------------------

    async def add(self, name: str, data: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job; when this returns, the job is on the disk.

        With a `job_id` that is taken nothing is added and the existing job is returned; so with a
        `deduplication` key that another job holds. With `repeat` a job scheduler is made, or
        changed, and its pending job is returned.
        """
        if options.get("repeat") is not None:
            [job] = await self._add_planned(lambda: (self._repeating(name, data, options),))
            return job
        if not _TIES.isdisjoint(options):
            [job] = await self._add_flow([{"name": name, "data": data, "opts": options}])
            return job
        [job] = await self._add_all(lambda: (self.new_job(name, data, self.check(options)),))
        return job

    async def _add_flow(self, roots: Sequence[Mapping[str, Any]]) -> list[Job]:
        """Add jobs that are tied to others, and their children, in one transaction; the jobs of
        the roots."""
        definition = FlowDefinition(roots, self._finder(), self, "job")
        await self._ensure_open(lambda: check_early(definition))
        flat_nodes, jobs = await add_flow(definition)
        for root in roots:
            if isinstance(parent := root["opts"].get("parent"), Job):
                parent._add_flags(DOWNSTREAM)
        return [job for job, one in zip(jobs, flat_nodes, strict=True) if one.parent is None]

    def _finder(self) -> Callable[[str], Queue]:
        """What finds the queues of jobs that belong to some of this one."""
        queues = {self.name: self}

        def find(name: str) -> Queue:
            if name not in queues:
                self._forbid_other_database("queue_name", name)
                queues[name] = Queue(name, self.store)
                queues[name]._same_database = self._same_database
            return queues[name]

        return find

    def _forbid_other_database(self, option: str, name: str | None) -> None:
        if name is not None and self._same_database is not None and not self._same_database(name):
            raise InvalidOption(
                f"{option}: queue {name!r} is in another file than {self.name!r}, and jobs that "
                "belong together must be in one database: leave one of them out of files="
            )

    def _refuse_ties_apart(
        self, options: Mapping[str, Any], ties: DependencyOptions | None
    ) -> None:
        """Refuse checked options that name a queue in another database."""
        if options.get("on_failure") is not None:
            self._forbid_other_database("on_failure", options["on_failure"]["queue"])
        if ties is not None:
            if ties.parent is not None:
                self._forbid_other_database("parent", ties.parent.queue)
            for other in ties.depends_on:
                self._forbid_other_database("depends_on", other.queue)

    async def add_bulk(
        self,
        jobs: Iterable[BulkJob],
        *,
        chunk: int | None = None,
        on_chunk: Callable[[int], object] | None = None,
    ) -> list[Job]:
        """Add many jobs, all or none; each is a mapping with `name`, `data` and `opts`.

        More than 100,000 need `chunk`: then each chunk is a transaction of its own, and `on_chunk`
        is told how many jobs are stored so far.
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
        if has_options and any(_is_tied(job) for job in given):
            return await self._add_flows(given, chunk, on_chunk)
        new = self._bulk_jobs(given, range(len(given)))
        add: Callable[..., Any] = self._add_all
        if has_options and any(type(job) is SchedulerSpec for job in new):
            add = self._add_planned
        version, stored = self._ready().version, list[Job]()
        for start in range(0, len(new), chunk):
            some = range(start, min(start + chunk, len(new)))
            resolve = partial(self._bulk_jobs, given, some)
            await bridge.wait_for_capacity(self.store)
            stored += await add(resolve, new[start : start + chunk], version)
            if on_chunk is not None:
                on_chunk(len(stored))
        return stored

    def _check_bulk(self, given: Sequence[Any], chunk: int) -> None:
        """Raises what is wrong with jobs whatever the queue's settings are."""
        new = self._bulk_jobs(given, range(len(given)))
        if any(_is_tied(job) for job in given):
            _refuse_plans(new)
            for start in range(0, len(given), chunk):
                some = given[start : start + chunk]
                check_early(FlowDefinition(some, self._finder(), self, "job"))

    async def _add_flows(
        self, given: Sequence[Any], chunk: int, on_chunk: Callable[[int], object] | None
    ) -> list[Job]:
        _refuse_plans(self._bulk_jobs(given, range(len(given))))
        stored: list[Job] = []
        for start in range(0, len(given), chunk):
            some = [{**job, "opts": job.get("opts") or {}} for job in given[start : start + chunk]]
            stored += await self._add_flow(some)
            if on_chunk is not None:
                on_chunk(len(stored))
        return stored

    async def _add_all(
        self,
        resolve: Callable[[], Sequence[NewJob]],
        new: Sequence[NewJob] | None = None,
        version: int = 0,
    ) -> list[Job]:
        """Add jobs; if the queue's settings have changed meanwhile, resolve them anew and again.

        `new` are those jobs as resolved under the settings of `version`.
        """
        await self._ensure_open(resolve)
        if new is None:
            new, version = resolve(), self._ready().version
        while True:
            request = AddJobs(self.key, new, version)
            first = None
            if self.hears("added", "waiting", "delayed"):
                first = self._emit_added(new)
            added = await bridge.submit(self.store, request, first)
            if not isinstance(added, StaleSettings):
                return await self._as_jobs(new, added)
            await self._open_row()
            new, version = resolve(), self._ready().version

    async def _add_planned(
        self,
        resolve: Callable[[], Sequence[NewJob | SchedulerSpec]],
        new: Sequence[NewJob | SchedulerSpec] | None = None,
        version: int = 0,
    ) -> list[Job]:
        """The same for jobs of which some are made by job schedulers."""
        await self._ensure_open(resolve)
        if new is None:
            new, version = resolve(), self._ready().version
        while True:
            request = UpsertSchedulers(self.key, new, version)
            first = None
            if self.hears("added", "waiting", "delayed"):
                first = self._emit_upserted
            planned = await bridge.submit(self.store, request, first)
            if isinstance(planned, SchedulersUpserted):
                return await self._as_jobs(planned.jobs, planned.added)
            await self._open_row()
            new, version = resolve(), self._ready().version

    def check(self, options: Mapping[str, Any]) -> CheckedOptions:
        """The options of a job of this queue, its defaults among them."""
        if not options:
            return self._plain
        checked = check_options(
            merge_options(self._defaults, options) if self._defaults else options
        )
        if self._same_database is not None:
            self._refuse_ties_apart(options, checked.dependencies)
        return checked

    def _bulk_jobs(self, given: Sequence[Any], some: Iterable[int]) -> list[Any]:
        alike: dict[int, tuple[CheckedOptions, NewJob]] = {}
        return [self._bulk_job(index, given[index], alike) for index in some]

    def _bulk_job(
        self, index: int, job: Any, alike: dict[int, tuple[CheckedOptions, NewJob]]
    ) -> NewJob | SchedulerSpec:
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
        try:
            if options is None:
                return self.new_job(job["name"], job.get("data"), self._plain)
            if (known := alike.get(id(options))) is not None:
                return self.new_job(job["name"], job.get("data"), *known)
            if options.get("repeat") is not None:
                return self._repeating(job["name"], job.get("data"), options)
            checked = self.check(options)
            new = self.new_job(job["name"], job.get("data"), checked)
            if type(options) is dict and type(job) is dict and len(alike) < MAX_ALIKE:
                alike[id(options)] = checked, new
            return new
        except BulliteError as error:
            raise type(error)(f"jobs[{index}]: {error}") from error

    async def _reload_settings(self) -> None:
        """The queue's settings have changed."""
        await self._open_row()

    @property
    def settings_version(self) -> int:
        """Of the settings that options are resolved under."""
        return self._ready().version

    def new_job(
        self, name: str, data: Any, options: CheckedOptions, like: NewJob | None = None
    ) -> NewJob:
        """A job as it is to be stored; `like` is another with the same options.

        Before the queue is ready, a job as it might be: what its settings decide is left open.
        """
        if name is not self._known_name:  # thousands of jobs may share one that was checked
            self._known_name = check_name("the job's name", name)
        text = encode(data, "the data of job ", name)
        if len(text) * 4 > options.size_limit and self._opened is not None:
            check_size(name, text, options.size_limit)
        if options is PLAIN:
            # Made without its constructor, which would be a good part of adding such a job.
            return tuple.__new__(NewJob, (name, None, 0, 0, 0, 0, 1, text, None, None))
        if like is not None:
            return tuple.__new__(NewJob, (name, *like[1:7], text, *like[8:]))
        priority = self.priority_number(options.priority)
        return NewJob(
            name,
            options.job_id,
            self._rank(priority),
            priority,
            int(options.lifo),
            options.delay,
            options.attempts,
            text,
            options.stored,
            _extras_of(options),
        )

    def _emit_added(self, new: Sequence[NewJob]) -> Callable[[Added | StaleSettings], None]:
        def tell(added: Added | StaleSettings) -> None:
            if isinstance(added, StaleSettings):
                return
            for job, id in zip(new, added.ids, strict=True):
                if id not in added.existing:
                    made = self._job_from_insert(job, id, added.created_at)
                    self.emit("added", made)
                    self.emit(_DELAYED if made.state == _DELAYED else _WAITING, made)

        return tell

    def _emit_upserted(self, planned: SchedulersUpserted | StaleSettings) -> None:
        if isinstance(planned, SchedulersUpserted):
            self._emit_added(planned.jobs)(planned.added)

    async def _as_jobs(self, new: Sequence[NewJob], added: Added) -> list[Job]:
        now = added.created_at
        if self._fresh_status.updated_at != now:
            self._fresh_status = JobStatusRow(_WAITING, updated_at=now)
        at_once = self._fresh_status
        jobs = [
            Job(self, (id, job[0], job[1], job[3], job[6], 0, 0, 0, now, None, job[8], job[2], id,
                       0, job[7]), at_once)
            if job[-1] is None and not (job[4] or job[5])
            else self._job_from_insert(job, id, now)
            for job, id in zip(new, added.ids)
        ]  # fmt: skip
        if added.existing:
            found = await self.jobs_numbered([id for id in added.ids if id in added.existing])
            for index, id in enumerate(added.ids):
                if id in added.existing:
                    kept = found.get(id) or self._missing_job(new[index], id, added)
                    jobs[index] = kept or jobs[index]
        return jobs

    def _missing_job(self, job: NewJob, id: int, added: Added | FlowAdded) -> Job | None:
        """What stands behind a deduplication key when only its name is left."""
        if id not in added.behind_keys:
            return None
        named = job._replace(custom_id=added.behind_keys[id])
        return self._job_from_insert(named, id, added.created_at, state="unknown")

    def _job_from_insert(self, job: NewJob, id: int, now: int, state: str | None = None) -> Job:
        """A job that was just stored, tied to nobody."""
        extras = job.rare_fields or NO_RARE_FIELDS
        created_at = now if extras.timestamp is None else extras.timestamp
        facts = (id, job.name, job.custom_id, job.priority, job.attempts, 0, 0, 0, created_at,
                 None, job.opts, job.rank, -id if job.lifo else id, extras.flags,
                 job.data)  # fmt: skip
        due_at = created_at + job.delay if job.delay else extras.run_at
        waits = job.delay > 0 or (extras.run_at or 0) > now
        expires_at = None if extras.expires is None else now + extras.expires
        fate = JobStatusRow(
            state or (_DELAYED if waits else _WAITING),
            job.lifo,
            job.delay,
            due_at if waits else None,
            updated_at=now,
            expires_at=expires_at,
        )
        return Job(self, facts, fate)

    # --- the queue as a whole --------------------------------------------------------------------

    async def configure(self, **settings: Unpack[QueueSettings]) -> dict[str, Any]:
        """Store settings for every producer and worker of the queue; what is stored then.

        Changing `priority_order` ranks the jobs there are anew.
        """
        changes = check_settings(settings, self.name)
        self._forbid_other_database("dead_letter", changes.get("dead_letter"))
        for options in (settings, settings.get("default_job_options") or {}):
            self._refuse_ties_apart(options, None)
        await self._ensure_open()
        if "priority_order" in changes and self._wanted_order is not None:
            self._wanted_order = changes["priority_order"]
        await bridge.submit(self.store, Configure(self.key, changes))
        await self._open_row()
        return await self.get_meta()

    async def pause(self) -> None:
        """Let the queue hand out no jobs, in any process, until `resume`; running jobs run on."""
        await self._ensure_open()
        if await bridge.submit(self.store, SetPaused(self.key, True)):
            self.emit("paused")
        patience = time.monotonic() + PAUSE_TIMEOUT
        # Other processes ring no bell for this.
        while await self._holds_jobs_ahead() and time.monotonic() < patience:
            await bridge.sleep(0.005)

    async def _holds_jobs_ahead(self) -> bool:
        rows = await bridge.query(self.store, "count_prefetched", {"queue": self.key})
        return bool(rows[0][0])

    async def resume(self) -> None:
        """Let the queue hand out jobs again."""
        await self._ensure_open()
        if await bridge.submit(self.store, SetPaused(self.key, False)):
            self.emit("resumed")

    async def drain(self, delayed: bool = False) -> None:
        """Remove the jobs that wait, with `delayed` also those that wait for their time."""
        lists = [State.WAITING.value, PRIORITIZED]
        if check_bool("delayed", delayed):
            lists.append(State.DELAYED.value)
        await self._ensure_open()
        for name in lists:
            async for _ in self._move_list(REMOVE, name):
                pass

    empty = drain

    async def obliterate(self, force: bool = False, count: int = 1_000) -> None:
        """Delete the queue's jobs, schedulers, log and settings for good, `count` jobs at a time.

        Refused while jobs run, unless by `force`: then their workers find that they lost them. The
        queue is paused first, stays so when it is refused, and is as new afterwards.
        """
        check_bool("force", force)
        check_int("count", count, 1, MAX_AT_ONCE)
        await self.pause()
        if not force and await self.get_active_count():
            raise QueueHasActiveJobs(
                f"queue {self.name!r} has active jobs: wait for them, or obliterate(force=True)"
            )
        await bridge.submit(self.store, DeleteSchedulers(self.key))
        while any([await self._delete_list(name, count) for name in SHOWN_STATES]):
            pass  # jobs that waited for others may have come to a list that was empty already
        params = {"queue": self.key, "before": MAX_TIME, "most": count}
        while rows := await bridge.query(self.store, "trash_to_delete", params):
            await bridge.submit(self.store, MoveJobs(DELETE, [row[0] for row in rows]))
        await bridge.submit(self.store, ResetQueue(self.key))
        await self._open_row()

    async def _delete_list(self, name: str, at_once: int) -> bool:
        """Delete the jobs of a list; return whether others came to the queue's lists by that."""
        move = DELETE_ACTIVE if name == State.ACTIVE else DELETE
        frees = False
        async for moved in self._move_list(move, name, at_once=at_once):
            frees = frees or moved.frees
        return frees

    async def trim_events(self, max_length: int) -> int:
        """Keep about so many of the newest events; how many rows of the log went."""
        check_int("max_length", max_length, 0, 2**31 - 1)
        await self._ensure_open()
        trimmed = piece = await bridge.submit(self.store, TrimEvents(self.key, max_length))
        while piece >= MAX_TRIMMED:
            piece = await bridge.submit(self.store, TrimEvents(self.key, max_length, recount=False))
            trimmed += piece
        return int(trimmed)

    async def cancel(self, job_id: str, reason: str | None = None) -> bool:
        """End a job before its time; it is failed, with the outcome `cancelled`, and not retried.

        One that waits ends at once: True. One that runs, in whatever process, is told to: False. A
        coroutine is cancelled, a function gets its signal; if it completes all the same, it is
        completed. JobNotFound if there is no such job, IllegalMove if it has ended.
        """
        if reason is not None and not isinstance(reason, str):
            raise InvalidOptionType(f"reason must be text, not {reason!r}")
        number = await self._pk_of(job_id)
        job = None if number is None else await self._job_by_pk(number)
        if job is None:
            raise JobNotFound(f"job {job_id} does not exist")
        answer = await bridge.submit(
            self.store, Cancel(job.pk, job.id, storable(reason or "the job was cancelled"))
        )
        if isinstance(answer, BulliteError):
            raise answer
        return bool(answer)

    # --- many jobs -------------------------------------------------------------------------------

    async def clean(self, grace: Duration, limit: int = 0, state: str = "completed") -> list[str]:
        """Remove the jobs of a state that are older than `grace`, the oldest first; their ids.

        At most `limit`, 0 for all. Running jobs are never removed. `restore` brings one back.
        """
        age = check_duration("grace", grace)
        check_int("limit", limit, 0, 2**31 - 1)
        names = await self._lists(shown_name(state))
        await self._ensure_open()
        before = self.store.open().clock.now() - age
        cleaned: list[str] = []
        for name in names:
            if name not in (State.ACTIVE, State.WAITING_CHILDREN):
                left = limit - len(cleaned) if limit else None
                async for moved in self._move_list(REMOVE, name, before=before, limit=left):
                    cleaned += moved.ids
        await bridge.submit(self.store, LogCleaned(self.key, len(cleaned)))
        self.emit("cleaned", cleaned, shown_name(state))
        return cleaned

    async def purge(
        self,
        older_than: Duration,
        state: str = "completed",
        limit: int = 0,
        *,
        fits: Callable[[Job], bool] | None = None,
        on_piece: Callable[[int], object] | None = None,
    ) -> int:
        """Delete completed, or failed, jobs that ended longer ago than that, for good; how many.

        The oldest first, at most `limit`, 0 for all; with `fits` only those it says yes to. `state`
        may also be an outcome, such as `cancelled`. What other jobs wait for stays. `on_piece` is
        told how many are gone so far, each time that some are.
        """
        age = check_duration("older_than", older_than)
        check_int("limit", limit, 0, 2**31 - 1)
        where, outcome = finished_list(state)
        await self._ensure_open()
        before = self.store.open().clock.now() - age
        purged, piece = 0, list[int]()

        async def delete() -> int:
            gone: int = await bridge.submit(self.store, Purge(self.key, where, list(piece)))
            piece.clear()
            if on_piece is not None:
                on_piece(purged + gone)
            return gone

        async for job in self.iter_jobs(where.value, batch=MOVED_AT_ONCE):
            if (job.finished_on or 0) > before or (limit and purged >= limit):
                break
            if outcome in (None, job.outcome) and (fits is None or fits(job)):
                piece.append(job.pk)
            if len(piece) >= (min(MOVED_AT_ONCE, limit - purged) if limit else MOVED_AT_ONCE):
                purged += await delete()
        return purged + (await delete() if piece else 0)

    async def retry_jobs(
        self,
        count: int = 1_000,
        state: str = "failed",
        timestamp: Moment | None = None,
        *,
        delay: Duration = 0,
        reset_attempts: bool = False,
        fits: Callable[[Job], bool] | None = None,
        on_piece: Callable[[int], object] | None = None,
    ) -> list[str]:
        """Let all failed, or completed, jobs that ended by `timestamp` run again; their ids.

        After `delay`; with `fits` only those it says yes to. What ends again meanwhile had its run.
        Jobs of a dead-letter queue go home, and stay if their ids are taken there. `count` is how
        many are moved at a time; `on_piece` is told how many are so far, each time that some are.
        """
        check_int("count", count, 1, MAX_AT_ONCE)
        name = shown_name(state)
        if name not in (State.FAILED, State.COMPLETED):
            raise InvalidOption(f'state must be "failed" or "completed", not {state!r}')
        wait = check_duration("delay", delay)
        check_bool("reset_attempts", reset_attempts)
        await self._ensure_open()
        now = self.store.open().clock.now()
        before = now if timestamp is None else check_moment("timestamp", timestamp)
        move = RETRY_FINISHED_DELAYED if wait else RETRY_FINISHED
        if fits is not None:
            request = partial(MoveJobs, move, delay=wait, forget_attempts=reset_attempts)
            return await self._retry_those(fits, name, before, count, request, on_piece)
        retried: list[str] = []
        async for moved in self._move_list(
            move, name, before=before, at_once=count, delay=wait, forget_attempts=reset_attempts
        ):
            retried += moved.ids
            if moved.ids and on_piece is not None:
                on_piece(len(retried))
        return retried

    async def _retry_those(
        self,
        fits: Callable[[Job], bool],
        name: str,
        before: int,
        count: int,
        request: Callable[[list[int]], MoveJobs],
        on_piece: Callable[[int], object] | None,
    ) -> list[str]:
        """Retry the jobs of a list that `fits` says yes to, which has to see each of them."""
        retried, piece = dict[int, str](), dict[int, str]()

        async def revive() -> None:
            went = set(await bridge.submit(self.store, request(list(piece))))
            retried.update((pk, id) for pk, id in piece.items() if pk in went)
            piece.clear()
            if on_piece is not None:
                on_piece(len(retried))

        async for job in self.iter_jobs(name, batch=min(count, MOVED_AT_ONCE)):
            if (job.finished_on or 0) > before:
                break
            if job.pk not in retried and fits(job):
                piece[job.pk] = job.id
            if len(piece) >= count:
                await revive()
        if piece:
            await revive()
        return list(retried.values())

    async def promote_jobs(self, count: int = 1_000) -> list[str]:
        """Let all delayed jobs wait in line now; their ids. `count` are moved at a time."""
        check_int("count", count, 1, MAX_AT_ONCE)
        await self._ensure_open()
        promoted: list[str] = []
        async for moved in self._move_list(PROMOTE, State.DELAYED.value, at_once=count):
            promoted += moved.ids
        return promoted

    async def _move_list(
        self,
        move: Move,
        name: str,
        *,
        before: int = MAX_TIME,
        limit: int | None = None,
        at_once: int | None = None,
        delay: int = 0,
        forget_attempts: bool = False,
    ) -> AsyncIterator[Moved]:
        """Move the jobs of a list, the first first, and at most `limit`; yield what was done to
        each piece, which is a transaction of its own and no larger than `at_once`."""
        after, since, left, frees = START, MAX_TIME, MAX_TIME if limit is None else limit, False
        while left > 0:
            most = min(MOVED_AT_ONCE if at_once is None else at_once, left)
            request = MoveListed(
                self.key, name, move, most, before, after, since, delay, forget_attempts
            )
            moved: Moved = await bridge.submit(self.store, request)
            since, left, frees = min(since, moved.at), left - len(moved.ids), frees or moved.frees
            yield moved
            if moved.after is None and not frees:
                return
            # Those that came meanwhile may be in front of the place that was come to.
            after, frees = (START, False) if moved.after is None else (moved.after, frees)

    # --- one job ---------------------------------------------------------------------------------

    async def remove(self, job_id: str, remove_children: bool = True) -> bool:
        """Take a job out; False if there is none, or if it runs. `restore` brings it back.

        SchedulerOwnsJob if a job scheduler waits for it.
        """
        check_bool("remove_children", remove_children)
        job = await self.get_job(job_id)
        if job is None or job.state == State.ACTIVE:
            return False
        try:
            await job.remove(remove_children)
        except SchedulerOwnsJob:
            raise
        except BulliteError:
            return False
        return True

    remove_job = remove

    async def restore(self, job_id: str) -> Job:
        """Bring back a job that was removed not longer ago than the queue's `trash_age`.

        JobNotFound if there is none, JobIdTaken if another job has its id by now.
        """
        if not isinstance(job_id, str):
            raise InvalidOptionType(f"job_id must be text, not {job_id!r}")
        settings = await self._settings()
        removed = await removed_job(self.store, self.key, job_id)
        oldest = self.store.open().clock.now() - settings.trash_age
        if removed is None or removed.removed_at < oldest:
            raise JobNotFound(f"no job {job_id} was removed from {self.name!r} of late")
        move = RESTORE[State(removed.removed_from)]
        await bridge.submit(self.store, MoveJob(move, removed.pk, job_id, with_descendants=True))
        job = await self._job_by_pk(removed.pk)
        if job is None:
            raise JobIdTaken(f"job {job_id} was removed again meanwhile")
        return job

    async def retry_job(
        self, job_id: str, *, delay: Duration = 0, reset_attempts: bool = False
    ) -> Job:
        """Let a failed or completed job run once more; a job of a dead-letter queue goes home."""
        wait = check_duration("delay", delay)
        check_bool("reset_attempts", reset_attempts)
        job = await self._existing(job_id)
        move = RETRY_FINISHED_DELAYED if wait else RETRY_FINISHED
        await bridge.submit(self.store, MoveJob(move, job.pk, job.id, wait, reset_attempts))
        home: Queue = self
        if job.original_queue is not None:
            home = Queue(job.original_queue, self.store)
            await home.wait_until_ready()
        job._apply_retry(wait, reset_attempts)
        return job._in_queue(home)

    async def _existing(self, job_id: str) -> Job:
        job = await self.get_job(job_id)
        if job is None:
            raise JobNotFound(f"job {job_id} does not exist in {self.name!r}")
        return job

    async def update_job_progress(self, job_id: str, progress: Any) -> None:
        """Say how far a job is, from outside its run."""
        text = encode_limited(progress, "the progress")
        job = await self._existing(job_id)
        if not await bridge.submit(self.store, Progress(self.key, job.pk, None, text)):
            raise JobNotFound(f"job {job_id} does not exist in {self.name!r}")
        self.emit("progress", job.id, progress)

    async def add_job_log(
        self, job_id: str, message: str, level: str = "info", keep_logs: int | None = None
    ) -> int:
        """Append a line to a job's log, from outside its run; how many lines it has now."""
        job = await self._existing(job_id)
        return await job.append_log(message, level, None, keep_logs)

    async def send_event(self, job_id: str, name: str, payload: Any = None) -> bool:
        """Send a job an event; whether it was waiting for it. If not, it is kept until it does.

        JobNotFound if there is no such job, IllegalMove if it is finished.
        """
        job = await self._existing(job_id)
        return await job.send_event(name, payload)


def _is_tied(job: Any) -> bool:
    options: Any = job.get("opts") if type(job) is dict or isinstance(job, Mapping) else None
    is_mapping = type(options) is dict or isinstance(options, Mapping)
    return is_mapping and not _TIES.isdisjoint(options)


def _refuse_plans(new: Sequence[NewJob | SchedulerSpec]) -> None:
    if any(type(job) is SchedulerSpec for job in new):
        raise InvalidOption(
            "jobs with repeat and jobs that are tied to others cannot be added together; add them "
            "apart"
        )


def _extras_of(options: CheckedOptions) -> RareFields | None:
    """What few jobs have; None for the many."""
    extras = RareFields(
        options.timestamp,
        options.run_at,
        options.expires,
        flags=options.flags | (DEDUPLICATED if options.deduplication else 0),
        deduplication=options.deduplication,
    )
    return None if extras == NO_RARE_FIELDS else extras
