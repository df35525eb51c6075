"""Looking into a queue: jobs, lists of jobs, counts, logs, workers. Changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from . import __version__, loop
from .codec import decode
from .errors import InvalidOption, InvalidOptionType
from .job import Fate, Job
from .operations.claiming import JobRow
from .operations.governing import Settings
from .operations.linking import CHILD
from .options import HIGHEST_PRIORITY, check_bool, check_int
from .queuebase import QueueBase
from .reasons import reason_of
from .states import PRIORITIZED, SHOWN_STATES, State, state_named

_SPLIT = len(JobRow._fields)
_FARTHEST = 2**62

MOST_SHOWN = 100
"""Jobs named when somebody asks why."""

PAUSED = "paused"
"""The waiting jobs of a paused queue, when asked for by that name."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker that serves a queue, in whatever process."""

    id: str
    name: str
    pid: int
    host: str
    names: tuple[str, ...] | None
    """The job names it takes; None for all."""
    concurrency: int
    active: int
    """How many jobs it holds."""
    started_at: datetime


class Getters(QueueBase):
    """The reading half of a queue."""

    # --- one job ---

    async def get_job(self, job_id: str) -> Job | None:
        """The job with this id, as it is now; None if there is none."""
        number = await self._number_of(job_id)
        return None if number is None else await self.job_numbered(number)

    async def get_job_state(self, job_id: str) -> str:
        """Where a job is; `unknown` if it does not exist."""
        job = await self.get_job(job_id)
        return "unknown" if job is None else job.state

    async def _number_of(self, job_id: str) -> int | None:
        """The number of a job in the database; None if there is no such job."""
        if not isinstance(job_id, str):
            raise InvalidOptionType(f"job_id must be text, not {job_id!r}")
        await self._be_ready()
        if job_id.isdecimal():
            return int(job_id) if len(job_id) < 20 and str(int(job_id)) == job_id else None
        params = {"queue": self.key, "custom_id": job_id}
        rows = await loop.read(self.store, "job_with_custom_id", params)
        return rows[0][0] if rows else None

    async def job_numbered(self, number: int) -> Job | None:
        """The job of this number; None if it is not in this queue."""
        rows = await loop.read(self.store, "job", {"queue": self.key, "job": number})
        return self._as_job(rows[0]) if rows else None

    def _as_job(self, row: Sequence[Any]) -> Job:
        return Job(self, row[:_SPLIT], Fate(*row[_SPLIT:]))

    async def why(self, job_id: str) -> str:
        """Why a job is where it is: what it waits for, and what keeps that from happening."""
        job = await self.get_job(job_id)
        if job is None:
            return f"there is no job {job_id} in {self.name!r}"
        if job.state != State.WAITING_CHILDREN:
            return await reason_of(self, job)
        pending = await loop.read(
            self.store,
            "pending_links",
            {"job": job.pk, "most": MOST_SHOWN},
        )
        keys = ", ".join(row[0] for row in pending)
        stuck = await self._stuck(job.pk)
        return "; ".join([f"job {job_id} waits for {keys}", *stuck])

    async def doctor(self) -> list[str]:
        """What in this queue will not go on without help: jobs that wait for others which failed,
        or are gone, while nothing says what is to become of them."""
        await self._be_ready()
        return await self._stuck(None)

    async def _stuck(self, job: int | None) -> list[str]:
        params = {"queue": self.key, "job": job, "most": MOST_SHOWN}
        return [
            f"job {waits} waits for {key}, {_fate_of(state, reason)}: retry that, remove it from "
            "what is waited for, or remove the job that waits"
            for waits, key, state, reason in await loop.read(self.store, "stuck", params)
        ]

    async def get_dependencies(
        self, parent_id: str, type: str = "pending", start: int = 0, end: int = -1
    ) -> dict[str, Any]:
        """Children of a job that are `pending`, or were `processed`: their keys as `items`, the
        `jobs` that still exist, and how many there are in all as `total`."""
        if type not in ("pending", "processed"):
            raise InvalidOption(f'type must be "pending" or "processed", not {type!r}')
        parent = await self.get_job(parent_id)
        if parent is None:
            return {"items": [], "jobs": [], "total": 0}
        links = await parent.links(CHILD, type)
        total = len(links)
        first, last = max(0, _window(start, total)), _window(end, total)
        wanted = links[first : last + 1]
        jobs = await self._those_there(parent, type, [number for number, *_ in wanted])
        return {"items": [key for _, key, _ in wanted], "jobs": jobs, "total": total}

    async def _those_there(self, parent: Job, state: str, numbers: Sequence[int]) -> list[Job]:
        """Those of these children that still exist, wherever they are."""
        if not numbers:
            return []
        params = {"job": parent.pk, "state": state, "after": numbers[0] - 1, "most": len(numbers)}
        jobs: list[Job] = []
        for number, queue_name in await loop.read(self.store, "children_page", params):
            queue = self._in(queue_name)
            await queue.wait_until_ready()
            job = await queue.job_numbered(number)
            if job is not None and number <= numbers[-1]:
                jobs.append(job)
        return jobs

    def _in(self, queue_name: str) -> Getters:
        return self if queue_name == self.name else Getters(queue_name, self.store, None, None)

    # --- lists ---

    async def get_jobs(
        self,
        states: str | Iterable[str] | None = None,
        start: int = 0,
        end: int = -1,
        asc: bool = False,
    ) -> list[Job]:
        """Jobs in these states, or in any, those of each state together.

        From each state the jobs `start` to `end`, inclusive; negative ones count from its end.
        With `asc` those first that are next, or that are oldest; else the other way round.
        """
        check_bool("asc", asc)
        jobs: dict[int, Job] = {}
        for name in await self._lists(states):
            for job in await self._page(name, start, end, asc):
                jobs.setdefault(job.pk, job)
        return list(jobs.values())

    async def iter_jobs(
        self, states: str | Iterable[str] | None = None, *, batch: int = 500
    ) -> AsyncIterator[Job]:
        """The jobs in these states, or in any, one after the other, oldest first in each.

        Holds no more than `batch` of them at a time. A job that moves meanwhile may be met in the
        state it has come to, or missed.
        """
        check_int("batch", batch, 1, 10_000)
        for name in await self._lists(states):
            place = (-_FARTHEST, -_FARTHEST)
            while True:
                params = {"queue": self.key, "first": place[0], "second": place[1], "most": batch}
                rows = await self._read_list("after", name, params)
                for row in rows:
                    yield self._as_job(row)
                if len(rows) < batch:
                    break
                place = _place_in_list(name, self._as_job(rows[-1]))

    async def get_waiting(self, start: int = 0, end: int = -1) -> list[Job]:
        """Those without a priority, next first."""
        return await self.get_jobs(State.WAITING, start, end, asc=True)

    async def get_prioritized(self, start: int = 0, end: int = -1) -> list[Job]:
        """Those that wait with a priority, next first."""
        return await self.get_jobs(PRIORITIZED, start, end, asc=True)

    async def get_delayed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Those that wait for their time, next first."""
        return await self.get_jobs(State.DELAYED, start, end, asc=True)

    async def get_active(self, start: int = 0, end: int = -1) -> list[Job]:
        """Those that run, the longest first."""
        return await self.get_jobs(State.ACTIVE, start, end, asc=True)

    async def get_waiting_children(self, start: int = 0, end: int = -1) -> list[Job]:
        """Those that wait for other jobs, oldest first."""
        return await self.get_jobs(State.WAITING_CHILDREN, start, end, asc=True)

    async def get_completed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Newest first."""
        return await self.get_jobs(State.COMPLETED, start, end)

    async def get_failed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Newest first."""
        return await self.get_jobs(State.FAILED, start, end)

    async def _lists(self, states: str | Iterable[str] | None) -> list[str]:
        """The lists that are meant, each once."""
        if states is None:
            return list(SHOWN_STATES)
        if not isinstance(states, str | Iterable):
            raise InvalidOptionType(f"states must be text or a list of texts, not {states!r}")
        words = [states] if isinstance(states, str) else list(states)
        names: dict[str, None] = {}
        for name in [shown_name(word) for word in words]:
            if name != PAUSED:
                names[name] = None
            elif await self.is_paused():
                names |= {State.WAITING.value: None, PRIORITIZED: None}
        return list(names)

    async def _page(self, name: str, start: int, end: int, asc: bool) -> list[Job]:
        length = (await self.get_job_counts(name))[name]
        window = page_window(start, end, length)
        if window is None:
            return []
        params = {"queue": self.key, "skip": window[0], "most": window[1]}
        rows = await self._read_list("page_up" if asc else "page_down", name, params)
        return [self._as_job(row) for row in rows]

    async def _read_list(self, what: str, name: str, params: Mapping[str, Any]) -> Sequence[Any]:
        if name not in (State.WAITING, PRIORITIZED):
            return await loop.read(self.store, f"{what}:{name}", params)
        if not await self._has_lanes():
            rows = await loop.read(self.store, f"{what}:{name}", params)
            # If jobs were sorted into lanes meanwhile, some are missing.
            if not await self._has_lanes():
                return rows
        return await loop.read(self.store, f"{what}:{name}-by-name", params)

    async def _has_lanes(self) -> bool:
        """Whether jobs wait in several lanes: by their names, or aside because of their keys."""
        rows = await loop.read(self.store, "terms", {"queue": self.key})
        return bool(rows and (rows[0][0] or rows[0][2]))

    async def is_paused(self) -> bool:
        """Whether the queue hands out no jobs."""
        return bool((await self._settings()).paused)

    # --- counts ---

    async def get_job_counts(self, *states: str) -> dict[str, int]:
        """How many jobs are in each state, or in those named; never counts, the counts are kept."""
        wanted = [shown_name(state) for state in states] or list(SHOWN_STATES)
        await self._be_ready()
        rows = await loop.read(self.store, "counts", {"queue": self.key})
        counts = dict.fromkeys(SHOWN_STATES, 0)
        if rows:
            counts = dict(zip(SHOWN_STATES, rows[0], strict=True))
        if PAUSED in wanted:
            waiting = counts[State.WAITING] + counts[PRIORITIZED]
            counts[PAUSED] = waiting if await self.is_paused() else 0
        return {name: counts[name] for name in wanted}

    async def get_job_count_by_types(self, *states: str) -> int:
        """How many jobs are in these states together, or in all."""
        names = await self._lists(states or None)
        return sum((await self.get_job_counts(*names)).values()) if names else 0

    async def count(self) -> int:
        """How many jobs are still to be run: waiting, prioritized, delayed, waiting-children."""
        return await self.get_job_count_by_types(
            State.WAITING, PRIORITIZED, State.DELAYED, State.WAITING_CHILDREN
        )

    async def get_waiting_count(self) -> int:
        return await self.get_job_count_by_types(State.WAITING)

    async def get_prioritized_count(self) -> int:
        return await self.get_job_count_by_types(PRIORITIZED)

    async def get_delayed_count(self) -> int:
        return await self.get_job_count_by_types(State.DELAYED)

    async def get_active_count(self) -> int:
        return await self.get_job_count_by_types(State.ACTIVE)

    async def get_waiting_children_count(self) -> int:
        return await self.get_job_count_by_types(State.WAITING_CHILDREN)

    async def get_completed_count(self) -> int:
        return await self.get_job_count_by_types(State.COMPLETED)

    async def get_failed_count(self) -> int:
        return await self.get_job_count_by_types(State.FAILED)

    async def get_counts_per_priority(
        self, priorities: Iterable[int] | None = None
    ) -> dict[int, int]:
        """How many jobs wait with each priority, 0 for those without; with all, or with these."""
        if priorities is not None:
            if not isinstance(priorities, Iterable):
                raise InvalidOptionType(f"priorities must be a list, not {priorities!r}")
            priorities = [
                check_int("a priority", priority, -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
                for priority in priorities
            ]
        await self._be_ready()
        rows = await loop.read(self.store, "counts_per_priority", {"queue": self.key})
        counts = {row[0]: row[1] for row in rows}
        if priorities is None:
            return counts
        return {priority: counts.get(priority, 0) for priority in priorities}

    # --- logs ---

    async def get_job_logs(
        self, job_id: str, start: int = 0, end: int = -1, asc: bool = True
    ) -> dict[str, Any]:
        """Lines of a job's log, and how many there are: {"logs": [...], "count": n}.

        Each line is {"timestamp", "message", "level"}.
        """
        check_bool("asc", asc)
        number = await self._number_of(job_id)
        job = None if number is None else await self.job_numbered(number)
        if job is None:
            return {"logs": [], "count": 0}
        [[low, high]] = await loop.read(self.store, "log_range", {"job": job.pk})
        count = 0 if low is None else high - low + 1
        first, last = max(0, _window(start, count)), min(_window(end, count), count - 1)
        if first > last:
            return {"logs": [], "count": count}
        span = (low + first, low + last) if asc else (high - last, high - first)
        params = {"job": job.pk, "first": span[0], "last": span[1]}
        rows = await loop.read(self.store, "logs", params)
        logs = [{"timestamp": at, "message": text, "level": level} for at, level, text in rows]
        return {"logs": logs if asc else logs[::-1], "count": count}

    # --- around ---

    async def get_workers(self) -> list[WorkerInfo]:
        """The workers that serve this queue now, in whatever process."""
        await self._be_ready()
        rows = await loop.read(self.store, "workers_of_queue", {"queue": self.key})
        workers: dict[tuple[int, int], WorkerInfo] = {}
        for id, name, names, nonce, pid, host, number, concurrency, started, active in rows:
            mine = None if names is None else tuple(decode(names))
            seen = workers.get((nonce, number))
            if seen is not None and number:
                # One worker with several assignments has a row for each.
                both = None if mine is None or seen.names is None else seen.names + mine
                concurrency, active = concurrency + seen.concurrency, active + seen.active
                id, mine = seen.id, both
            at = datetime.fromtimestamp(started / 1000, UTC)
            workers[nonce, number or -id] = WorkerInfo(
                str(id), name, pid, host, mine, concurrency, active, at
            )
        return list(workers.values())

    async def get_workers_count(self) -> int:
        return len(await self.get_workers())

    async def get_meta(self) -> dict[str, Any]:
        """What is stored about the queue beside its jobs; ages in ms, None keeps for ever."""
        settings = await self._settings()
        options = settings.default_job_options
        return {
            **settings._asdict(),
            "paused": bool(settings.paused),
            "default_job_options": {} if options is None else decode(options),
            "version": await self.get_version(),
        }

    async def get_version(self) -> str:
        """The library and its version."""
        return f"bullite:{__version__}"

    async def _settings(self) -> Settings:
        await self._be_ready()
        rows = await loop.read(self.store, "settings", {"queue": self.key})
        return Settings(*rows[0])


def shown_name(word: Any) -> str:
    """The name of the list that a user means by a state."""
    if not isinstance(word, str):
        raise InvalidOptionType(f"a state must be text, not {word!r}")
    state = state_named(word)
    if state is not None:
        return state.value
    if word.strip().lower() in (PRIORITIZED, PAUSED):
        return word.strip().lower()
    known = ", ".join([*SHOWN_STATES, PAUSED])
    raise InvalidOption(f"unknown state {word!r}; the states are: {known}")


def page_window(start: Any, end: Any, length: int) -> tuple[int, int] | None:
    """How many to pass over, and how many to read; None if that would be nothing."""
    first, last = max(0, _window(start, length)), _window(end, length)
    return None if first > last or first >= length else (first, last - first + 1)


def _window(index: Any, length: int) -> int:
    """An index from the end as one from the beginning."""
    if isinstance(index, bool) or not isinstance(index, int):
        raise InvalidOptionType(f"start and end must be whole numbers, not {index!r}")
    return index + length if index < 0 else min(index, _FARTHEST)


def _place_in_list(name: str, job: Job) -> tuple[int, int]:
    """Where in its list a job stands: what the list is ordered by."""
    fate = job._fate
    if name == PRIORITIZED:
        return job.place
    if name == State.WAITING:
        return job.place[1], job.pk
    first = {
        State.DELAYED.value: fate.due_at,
        State.ACTIVE.value: fate.processed_at,
        State.WAITING_CHILDREN.value: job.timestamp,
    }.get(name, fate.finished_at)
    return first or 0, job.pk


def _fate_of(state: str | None, reason: str | None) -> str:
    if state == State.FAILED:
        return f"which failed ({reason})" if reason else "which failed"
    return "which was removed" if state == State.REMOVED else "which is gone"
