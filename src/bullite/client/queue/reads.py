"""Read-only methods of a queue: jobs, lists of jobs, counts, logs, workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import __version__
from ...core.checks import Duration, Moment, check_bool, check_duration, check_int, check_moment
from ...core.codec import decode, encode_plain
from ...core.job_options import MAX_PRIORITY
from ...core.job_record import split_job_row
from ...core.names import job_number
from ...core.states import ERROR, PRIORITIZED, SHOWN_STATES, State, plain_word, state_named
from ...errors import InvalidOption, InvalidOptionType
from ...operations.dependencies import CHILD
from ...operations.job_lists import FARTHEST, START
from ...operations.metrics import MINUTE
from ...operations.queues import Settings
from ..job.job import Job
from ..runtime import bridge
from .base import QueueBase
from .explain import problems_of, why
from .metrics import Metrics, metrics_of
from .search import OUTCOMES, JobFilter, find, lists_meant, position_in_list, read_slice
from .workers import WorkerInfo, workers_of

READ_AT_ONCE = 1_000
"""Jobs that one read by primary keys returns."""

PAUSED = "paused"
"""The state that lists the waiting jobs of a paused queue."""


@dataclass(frozen=True, slots=True)
class Found:
    """Jobs that were found, and where the search continues."""

    jobs: list[Job]
    cursor: str | None
    """Give it to `find` with the same criteria for the next page; None at the end."""


class _Rows:
    """A queue, as the search reads its jobs."""

    def __init__(self, queue: QueueReads) -> None:
        self._store, self.pk, self.as_job = queue.store, queue._pk, queue._as_job

    async def read_rows(self, statement: str, params: Mapping[str, Any]) -> Sequence[Any]:
        return await bridge.query(self._store, statement, params)


class QueueReads(QueueBase):
    """A queue whose jobs, counts, logs and workers can be read."""

    # --- one job ---

    async def get_job(self, job_id: str) -> Job | None:
        """Return the job with this id as it is now; None if there is none."""
        number = await self._pk_of(job_id)
        return None if number is None else await self._job_by_pk(number)

    async def get_job_state(self, job_id: str) -> str:
        """Return the state of a job; `unknown` if it does not exist."""
        job = await self.get_job(job_id)
        return "unknown" if job is None else job.state

    async def _pk_of(self, job_id: str) -> int | None:
        """Return the primary key of a job; None if there is no such job."""
        if not isinstance(job_id, str):
            raise InvalidOptionType(f"job_id must be text, not {job_id!r}")
        await self._ensure_open()
        if (number := job_number(job_id)) is not None:
            return number
        params = {"queue": self._pk, "custom_id": job_id}
        rows = await bridge.query(self.store, "job_with_custom_id", params)
        return next((pk for [pk] in rows), None)

    async def _job_by_pk(self, number: int) -> Job | None:
        """Return the job with this primary key; None if it is not in this queue."""
        rows = await bridge.query(self.store, "job", {"queue": self._pk, "job": number})
        return self._as_job(rows[0]) if rows else None

    def _as_job(self, row: Sequence[Any]) -> Job:
        return Job(self, *split_job_row(row))

    async def find(
        self,
        *,
        name: str | None = None,
        tag: str | None = None,
        since: Moment | None = None,
        text: str | None = None,
        state: str | Iterable[str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Found:
        """Return the jobs that fit all criteria, newest first, and a cursor if there may be more.

        Tag, name, state and date are searched along one index, in this order of preference; with
        a state, jobs come in the reverse order of its list, finished ones by the time at which
        they finished. `text` is searched, ignoring case, in ids, names, tags, data, results and
        reasons. One call reads at most 20,000 jobs: it may return fewer than `limit`, or none, and
        a cursor. `state` may also be an outcome: `cancelled`, `expired`, `stalled`, `timed-out`.
        """
        for option, value in (("name", name), ("tag", tag), ("text", text)):
            if value is not None and not isinstance(value, str):
                raise InvalidOptionType(f"{option} must be text, not {value!r}")
        check_int("limit", limit, 1, 10_000)
        if not isinstance(state, str | Iterable | None):
            raise InvalidOptionType(f"state must be text or a list of texts, not {state!r}")
        words = [state] if isinstance(state, str) else list(state or ())
        meant, outcome = lists_meant(words)
        since_ms = None if since is None else check_moment("since", since)
        await self._ensure_open()
        lists = None if state is None else tuple(await self._lists(meant))
        criteria = JobFilter(name, tag, since_ms, text, lists, outcome)
        return Found(*await find(_Rows(self), criteria, limit, cursor))

    async def metrics(self, last: Duration = 3_600_000) -> Metrics:
        """Return numbers per minute: jobs that finished, their run and wait times.

        Seven days are kept. Processes write every 2 s, so the last seconds may be missing.
        """
        await self._ensure_open()
        now = self.store.open().clock.now()
        first = (now - check_duration("last", last, least=1)) // MINUTE
        params = {"queue": self._pk, "first": first, "last": now // MINUTE}
        return metrics_of(await bridge.query(self.store, "minutes", params))

    async def why(self, job_id: str) -> str:
        """Explain the state of a job in one sentence: what it waits for, and what delays that."""
        job = await self.get_job(job_id)
        return f"there is no job {job_id} in {self.name!r}" if job is None else await why(self, job)

    async def doctor(self) -> list[str]:
        """Return the problems of the queue that need an operator, one sentence each.

        They are: jobs that wait for jobs which failed or are gone, without a rule for that; and,
        while workers serve the queue, jobs whose name or task version no worker accepts.
        """
        await self._ensure_open()
        return await problems_of(self)

    async def get_dependencies(
        self, parent_id: str, type: str = "pending", start: int = 0, end: int = -1
    ) -> dict[str, Any]:
        """Return the children of a job that are `pending`, or that were `processed`: their keys as
        `items`, the `jobs` that still exist, and the number of all as `total`."""
        if type not in ("pending", "processed"):
            raise InvalidOption(f'type must be "pending" or "processed", not {type!r}')
        parent = await self.get_job(parent_id)
        if parent is None:
            return {"items": [], "jobs": [], "total": 0}
        links = await parent._links(CHILD, type)
        total = len(links)
        first, last = max(0, _window(start, total)), _window(end, total)
        wanted = links[first : last + 1]
        jobs = await self._existing_jobs(parent, type, [number for number, *_ in wanted])
        return {"items": [key for _, key, _ in wanted], "jobs": jobs, "total": total}

    async def _existing_jobs(self, parent: Job, state: str, numbers: Sequence[int]) -> list[Job]:
        """Return the children that still exist, from all queues."""
        if not numbers:
            return []
        params = {"job": parent.pk, "state": state, "after": numbers[0] - 1, "most": len(numbers)}
        rows = await bridge.query(self.store, "children_page", params)
        there = [(number, name) for number, name in rows if number <= numbers[-1]]
        return await jobs_in_queues(there, self._in)

    def _in(self, queue_name: str) -> QueueReads:
        return self if queue_name == self.name else QueueReads(queue_name, self.store)

    # --- lists ---

    async def get_jobs(
        self,
        states: str | Iterable[str] | None = None,
        start: int = 0,
        end: int = -1,
        asc: bool = False,
    ) -> list[Job]:
        """Return the jobs in these states, or in any, grouped by state.

        From each state the jobs `start` to `end`, inclusive; negative indexes count from its end.
        With `asc`, the next or oldest job of a state comes first, else last.
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
        """Yield the jobs in these states, or in any, oldest first in each state.

        Reads `batch` jobs at a time. A job that changes its state meanwhile may be yielded again,
        or missed.
        """
        check_int("batch", batch, 1, 10_000)
        for name in await self._lists(states):
            position = START
            while True:
                params = {
                    "queue": self._pk,
                    "first": position[0],
                    "second": position[1],
                    "most": batch,
                }
                rows = await self._read_list("after", name, params)
                for row in rows:
                    yield self._as_job(row)
                if len(rows) < batch:
                    break
                position = position_in_list(name, self._as_job(rows[-1]))

    async def get_waiting(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the waiting jobs without a priority, next first."""
        return await self.get_jobs(State.WAITING, start, end, asc=True)

    async def get_prioritized(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the waiting jobs with a priority, next first."""
        return await self.get_jobs(PRIORITIZED, start, end, asc=True)

    async def get_delayed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the delayed jobs, next first."""
        return await self.get_jobs(State.DELAYED, start, end, asc=True)

    async def get_active(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the active jobs, those that run longest first."""
        return await self.get_jobs(State.ACTIVE, start, end, asc=True)

    async def get_waiting_children(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the jobs that wait for other jobs, oldest first."""
        return await self.get_jobs(State.WAITING_CHILDREN, start, end, asc=True)

    async def get_completed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the completed jobs, the last to finish first."""
        return await self.get_jobs(State.COMPLETED, start, end)

    async def get_failed(self, start: int = 0, end: int = -1) -> list[Job]:
        """Return the failed jobs, the last to finish first."""
        return await self.get_jobs(State.FAILED, start, end)

    async def _lists(self, states: str | Iterable[str] | None) -> list[str]:
        """Return the names of the lists of these states, each once."""
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
        params = {"queue": self._pk, "skip": window[0], "most": window[1]}
        rows = await self._read_list("page_up" if asc else "page_down", name, params)
        return [self._as_job(row) for row in rows]

    async def _read_list(self, what: str, name: str, params: Mapping[str, Any]) -> Sequence[Any]:
        return await read_slice(_Rows(self), f"{what}:{name}", params)

    async def is_paused(self) -> bool:
        """Return True if the queue is paused: no worker claims its jobs."""
        return bool((await self._settings()).paused)

    # --- counts ---

    async def get_job_counts(self, *states: str) -> dict[str, int]:
        """Return the number of jobs in each state, or in these; it is stored, not counted."""
        wanted = [shown_name(state) for state in states] or list(SHOWN_STATES)
        await self._ensure_open()
        rows = await bridge.query(self.store, "counts", {"queue": self._pk})
        counts = dict.fromkeys(SHOWN_STATES, 0)
        if rows:
            counts = dict(zip(SHOWN_STATES, rows[0], strict=True))
        if PAUSED in wanted:
            waiting = counts[State.WAITING] + counts[PRIORITIZED]
            counts[PAUSED] = waiting if await self.is_paused() else 0
        return {name: counts[name] for name in wanted}

    async def get_job_count_by_types(self, *states: str) -> int:
        """Return the number of jobs in these states together, or in all."""
        names = await self._lists(states or None)
        return sum((await self.get_job_counts(*names)).values()) if names else 0

    async def count(self) -> int:
        """Return the number of jobs that wait: waiting, prioritized, delayed, waiting-children."""
        return await self.get_job_count_by_types(
            State.WAITING, PRIORITIZED, State.DELAYED, State.WAITING_CHILDREN
        )

    async def get_waiting_count(self) -> int:
        """Return the number of waiting jobs without a priority."""
        return await self.get_job_count_by_types(State.WAITING)

    async def get_prioritized_count(self) -> int:
        """Return the number of waiting jobs with a priority."""
        return await self.get_job_count_by_types(PRIORITIZED)

    async def get_delayed_count(self) -> int:
        """Return the number of delayed jobs."""
        return await self.get_job_count_by_types(State.DELAYED)

    async def get_active_count(self) -> int:
        """Return the number of active jobs."""
        return await self.get_job_count_by_types(State.ACTIVE)

    async def get_waiting_children_count(self) -> int:
        """Return the number of jobs that wait for other jobs."""
        return await self.get_job_count_by_types(State.WAITING_CHILDREN)

    async def get_completed_count(self) -> int:
        """Return the number of completed jobs."""
        return await self.get_job_count_by_types(State.COMPLETED)

    async def get_failed_count(self) -> int:
        """Return the number of failed jobs."""
        return await self.get_job_count_by_types(State.FAILED)

    async def get_counts_per_priority(
        self, priorities: Iterable[int] | None = None
    ) -> dict[int, int]:
        """Return the number of waiting jobs by priority, 0 for none; of all, or of these."""
        if priorities is not None:
            if not isinstance(priorities, Iterable):
                raise InvalidOptionType(f"priorities must be a list, not {priorities!r}")
            priorities = [
                check_int("a priority", priority, -MAX_PRIORITY, MAX_PRIORITY)
                for priority in priorities
            ]
        await self._ensure_open()
        rows = await bridge.query(self.store, "counts_per_priority", {"queue": self._pk})
        counts = dict(rows)
        if priorities is None:
            return counts
        return {priority: counts.get(priority, 0) for priority in priorities}

    # --- logs ---

    async def get_job_logs(
        self, job_id: str, start: int = 0, end: int = -1, asc: bool = True
    ) -> dict[str, Any]:
        """Return lines of a job's log and their number: {"logs": [...], "count": n}.

        Each line is {"timestamp", "message", "level"}.
        """
        check_bool("asc", asc)
        number = await self._pk_of(job_id)
        job = None if number is None else await self._job_by_pk(number)
        if job is None:
            return {"logs": [], "count": 0}
        [[low, high]] = await bridge.query(self.store, "log_range", {"job": job.pk})
        count = 0 if low is None else high - low + 1
        first, last = max(0, _window(start, count)), min(_window(end, count), count - 1)
        if first > last:
            return {"logs": [], "count": count}
        span = (low + first, low + last) if asc else (high - last, high - first)
        params = {"job": job.pk, "first": span[0], "last": span[1]}
        rows = await bridge.query(self.store, "logs", params)
        logs = [{"timestamp": at, "message": text, "level": level} for at, level, text in rows]
        return {"logs": logs if asc else logs[::-1], "count": count}

    # --- around ---

    async def get_workers(self) -> list[WorkerInfo]:
        """Return the workers of this queue in all processes. A lost worker is listed until its
        jobs are recovered."""
        await self._ensure_open()
        return await workers_of(self)

    async def get_workers_count(self) -> int:
        """Return the number of workers of this queue in all processes."""
        return len(await self.get_workers())

    async def get_meta(self) -> dict[str, Any]:
        """Return the settings and state of the queue; ages in ms, None keeps jobs for ever."""
        settings = await self._settings()
        options = settings.default_job_options
        return {
            **settings._asdict(),
            "paused": bool(settings.paused),
            "default_job_options": {} if options is None else decode(options),
            "on_failure": None if settings.on_failure is None else decode(settings.on_failure),
            "version": await self.get_version(),
        }

    async def get_version(self) -> str:
        """Return the name and version of the library, such as `bullite:1.0.0`."""
        return f"bullite:{__version__}"

    async def _settings(self) -> Settings:
        await self._ensure_open()
        rows = await bridge.query(self.store, "settings", {"queue": self._pk})
        return Settings(*rows[0])


async def jobs_with_pks(queue: QueueReads, pks: Collection[int]) -> dict[int, Job]:
    """Return the jobs of a queue that have these primary keys, by primary key."""
    jobs: dict[int, Job] = {}
    left = list(dict.fromkeys(pks))
    for start in range(0, len(left), READ_AT_ONCE):
        some = encode_plain(left[start : start + READ_AT_ONCE]).decode()
        rows = await bridge.query(queue.store, "jobs", {"queue": queue._pk, "jobs": some})
        jobs |= {job.pk: job for job in map(queue._as_job, rows)}
    return jobs


async def jobs_in_queues(
    there: Sequence[tuple[int, str]], find: Callable[[str], QueueReads]
) -> list[Job]:
    """Return jobs in the given order; each is given by primary key and name of its queue.

    Opens and reads each queue once. A job that has left its queue meanwhile is left out.
    """
    by_queue: dict[str, list[int]] = {}
    for number, queue_name in there:
        by_queue.setdefault(queue_name, []).append(number)
    jobs: dict[int, Job] = {}
    for queue_name, numbers in by_queue.items():
        queue = find(queue_name)
        await queue.wait_until_ready()
        jobs |= await jobs_with_pks(queue, numbers)
    return [jobs[number] for number, _ in there if number in jobs]


def shown_name(word: Any) -> str:
    """Return the name of the list for a state as a caller writes it."""
    if not isinstance(word, str):
        raise InvalidOptionType(f"a state must be text, not {word!r}")
    state = state_named(word)
    if state is not None:
        return state.value
    if word.strip().lower() in (PRIORITIZED, PAUSED):
        return word.strip().lower()
    known = ", ".join([*SHOWN_STATES, PAUSED])
    raise InvalidOption(f"unknown state {word!r}; the states are: {known}")


def finished_list(word: Any) -> tuple[State, str | None]:
    """Return the state for a state or an outcome of finished jobs, and the outcome, if given."""
    plain = plain_word(word) if isinstance(word, str) else word
    if plain in (ERROR, *OUTCOMES):
        return State.FAILED, plain
    name = shown_name(word)
    if name not in (State.COMPLETED, State.FAILED):
        known = ", ".join((State.COMPLETED, State.FAILED, ERROR, *OUTCOMES))
        raise InvalidOption(f"state must be one of {known}, not {word!r}")
    return State(name), None


def page_window(start: Any, end: Any, length: int) -> tuple[int, int] | None:
    """Return the number of entries to skip and to read; None if there are none to read."""
    first, last = max(0, _window(start, length)), _window(end, length)
    return None if first > last or first >= length else (first, last - first + 1)


def _window(index: Any, length: int) -> int:
    """Return an index from the beginning for one that may count from the end."""
    if isinstance(index, bool) or not isinstance(index, int):
        raise InvalidOptionType(f"start and end must be whole numbers, not {index!r}")
    return index + length if index < 0 else min(index, FARTHEST)
