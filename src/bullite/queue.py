"""A queue, as producers hold it: add jobs, look at them, count them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypedDict, Unpack

from . import loop
from .codec import encode
from .errors import BulliteError, InvalidOption, InvalidOptionType, QueueOptionMismatch
from .job import Fate, Job
from .operations.adding import Added, AddJobs, NewJob
from .operations.claiming import JobRow
from .operations.opening import OpenQueue
from .options import PLAIN, CheckedOptions, JobOptions, check_int, check_name, check_options
from .states import VISIBLE_STATES, State, state_named
from .store import Store

MOST_AT_ONCE = 100_000
"""Jobs that one `add_bulk` adds in one transaction."""

#: The kept counts in the order they are read; "prioritized" is waiting with a priority.
_COUNTED = (
    State.WAITING.value,
    "prioritized",
    State.DELAYED.value,
    State.ACTIVE.value,
    State.WAITING_CHILDREN.value,
    State.COMPLETED.value,
    State.FAILED.value,
)


class BulkJob(TypedDict, total=False):
    """One job of `add_bulk`."""

    name: str
    data: Any
    opts: JobOptions


_BULK_KEYS = frozenset(BulkJob.__annotations__)
_WAITING, _DELAYED = State.WAITING.value, State.DELAYED.value


class Queue:
    """A named queue in a store.

    `store` is a path, a `sqlite:///` URL, a Store, or None for the default database. Nothing is
    opened until the queue is first used.
    """

    def __init__(
        self,
        name: str,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        priority_order: str | None = None,
    ) -> None:
        self.name = check_name("the queue's name", name)
        if priority_order not in (None, "low", "high"):
            raise InvalidOption(f'priority_order must be "low" or "high", not {priority_order!r}')
        self._wanted_order = priority_order
        self._owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else Store(store)
        self._key: int | None = None
        self._rank_sign = 1

    # --- opening and closing ---

    async def wait_until_ready(self) -> None:
        """Open the store and find or make the queue in it."""
        if self._key is not None and self.store.is_open:
            return
        if not self.store.is_open:
            await loop.in_thread(self.store.open)
        key, order = await loop.ask(self.store, OpenQueue(self.name, self._wanted_order))
        if self._wanted_order is not None and order != self._wanted_order:
            raise QueueOptionMismatch(
                f"queue {self.name!r} has priority_order={order!r}, fixed when it was made; "
                "open it with that, or without the option"
            )
        self._rank_sign = 1 if order == "low" else -1
        self._key = key

    @property
    def key(self) -> int:
        """The number of the queue in its database, once it is ready."""
        if self._key is None:
            raise RuntimeError(
                f"queue {self.name!r} is not open yet: await queue.wait_until_ready()"
            )
        return self._key

    async def close(self) -> None:
        """Let go of the store; everything accepted is written first."""
        if self._owns_store:
            await loop.in_thread(self.store.close)

    async def __aenter__(self) -> Self:
        await self.wait_until_ready()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # --- adding ---

    async def add(self, name: str, data: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job; when this returns, the job is on the disk.

        With a `job_id` that is taken nothing is added and the existing job is returned.
        """
        checked = check_options(options)
        await self._be_ready()
        new = self._new_job(name, data, checked)
        added = await loop.ask(self.store, AddJobs(self.key, (new,)))
        [job] = await self._as_jobs((new,), added)
        return job

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
        await self._be_ready()
        new = [self._bulk_job(index, job) for index, job in enumerate(jobs)]
        if chunk is None:
            if len(new) > MOST_AT_ONCE:
                raise InvalidOption(
                    f"add_bulk adds at most {MOST_AT_ONCE} jobs at once, not {len(new)}; "
                    "pass chunk=10000 to add them in several"
                )
            chunk = max(1, len(new))
        else:
            check_int("chunk", chunk, 1, MOST_AT_ONCE)
        stored: list[Job] = []
        for start in range(0, len(new), chunk):
            some = new[start : start + chunk]
            await loop.room(self.store)
            added = await loop.ask(self.store, AddJobs(self.key, some))
            stored += await self._as_jobs(some, added)
            if on_chunk is not None:
                on_chunk(len(stored))
        return stored

    async def _be_ready(self) -> None:
        if self._key is None or not self.store.is_open:
            await self.wait_until_ready()
        if not self.store.open().has_room():
            await loop.room(self.store)

    def _bulk_job(self, index: int, job: Any) -> NewJob:
        if type(job) is not dict and not isinstance(job, Mapping):
            raise InvalidOptionType(
                f"jobs[{index}] must be a mapping with name, data and opts, not {job!r}"
            )
        if not (job.keys() <= _BULK_KEYS and "name" in job):
            unknown = [key for key in job if key not in _BULK_KEYS]
            problem = f"has an unknown key {unknown[0]!r}" if unknown else "has no name"
            raise InvalidOption(f"jobs[{index}] {problem}; give name, data and opts")
        options = job.get("opts")
        try:
            checked = check_options(options) if options else PLAIN
            return self._new_job(job["name"], job.get("data"), checked)
        except BulliteError as error:
            raise type(error)(f"jobs[{index}]: {error}") from error

    def _new_job(self, name: str, data: Any, options: CheckedOptions) -> NewJob:
        return NewJob(
            check_name("the job's name", name),
            options.job_id,
            _DELAYED if options.delay else _WAITING,
            self._rank_sign * options.priority,
            options.priority,
            int(options.lifo),
            options.delay,
            options.attempts,
            encode(data, "the data of job ", name),
            options.stored,
        )

    async def _as_jobs(self, new: Sequence[NewJob], added: Added) -> list[Job]:
        now = added.created_at
        at_once = Fate(_WAITING, updated_at=now)
        jobs = []
        for job, id in zip(new, added.ids, strict=True):
            if id in added.existing:
                existing = await self._job_numbered(id)
                if existing is not None:
                    jobs.append(existing)
                    continue
            facts = (id, job.name, job.custom_id, job.priority, job.attempts, 0, 0, 0, now, None,
                     job.opts, job.rank, -id if job.lifo else id, job.data)  # fmt: skip
            plain = not (job.delay or job.lifo)
            jobs.append(Job(self, facts, at_once if plain else _fate_of_new(job, now)))
        return jobs

    # --- looking ---

    async def get_job(self, job_id: str) -> Job | None:
        """The job with this id, as it is now; None if there is none."""
        if not isinstance(job_id, str):
            raise InvalidOptionType(f"job_id must be text, not {job_id!r}")
        await self._be_ready()
        if job_id.isdecimal():
            is_number = len(job_id) < 20 and str(int(job_id)) == job_id
            return await self._job_numbered(int(job_id)) if is_number else None
        params = {"queue": self.key, "custom_id": job_id}
        rows = await loop.read(self.store, "job_with_custom_id", params)
        return await self._job_numbered(rows[0][0]) if rows else None

    async def _job_numbered(self, number: int) -> Job | None:
        rows = await loop.read(self.store, "job", {"queue": self.key, "job": number})
        if not rows:
            return None
        row = rows[0]
        split = len(JobRow._fields)
        return Job(self, row[:split], Fate(*row[split:]))

    async def get_job_counts(self, *states: str) -> dict[str, int]:
        """How many jobs are in each state, or in those named; never counts, the counts are kept."""
        wanted = [_counted_name(state) for state in states] or list(_COUNTED)
        await self._be_ready()
        rows = await loop.read(self.store, "counts", {"queue": self.key})
        counts = dict(zip(_COUNTED, rows[0], strict=True)) if rows else dict.fromkeys(_COUNTED, 0)
        return {name: counts[name] for name in wanted}


def _fate_of_new(job: NewJob, now: int) -> Fate:
    due_at = now + job.delay if job.delay else None
    return Fate(job.state, job.lifo, job.delay, due_at, updated_at=now)


def _counted_name(word: Any) -> str:
    if not isinstance(word, str):
        raise InvalidOptionType(f"a state must be text, not {word!r}")
    state = state_named(word)
    if state is not None:
        return state.value
    if word.lower() == "prioritized":
        return "prioritized"
    known = ", ".join([*VISIBLE_STATES, "prioritized"])
    raise InvalidOption(f"unknown state {word!r}; the states are: {known}")
