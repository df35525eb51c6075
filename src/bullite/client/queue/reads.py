"""Read-only methods of a queue: jobs, lists of jobs, counts, logs, workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ... import __version__
from ...core.checks import Duration, Moment, check_bool, check_duration, check_int, check_moment
from ...core.clock import moment_of
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
from ..directory import is_lost
from ..job.job import Job
from ..job.version_skew import NEWER, POSTPONED_FOR
from ..runtime import bridge
from .base import QueueBase
from .explain import reason_of
from .metrics import Metrics, metrics_of
from .search import OUTCOMES, JobFilter, find, lists_meant, place_in_list, read_slice

READ_AT_ONCE = 1_000
"""Jobs of known numbers that one read returns."""

MAX_SHOWN = 100
"""Jobs named when somebody asks why."""

PAUSED = "paused"
"""The waiting jobs of a paused queue, when asked for by that name."""


@dataclass(frozen=True, slots=True)
class Found:
    """Jobs that were found, and where to go on looking."""

    jobs: list[Job]
    cursor: str | None
    """To be given to `find` with the same criteria; None when everything was looked at."""


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
    seen_at: datetime
    """When it was last heard of."""
    is_lost: bool
    """Whether its process is gone, or was not heard of for too long."""


class QueueReads(QueueBase):
    """The reading half of a queue."""

    # --- one job ---

    async def get_job(self, job_id: str) -> Job | None:
        """The job with this id, as it is now; None if there is none."""
        number = await self._pk_of(job_id)
        return None if number is None else await self._job_by_pk(number)

    async def get_job_state(self, job_id: str) -> str:
        """Where a job is; `unknown` if it does not exist."""
        job = await self.get_job(job_id)
        return "unknown" if job is None else job.state

    async def _pk_of(self, job_id: str) -> int | None:
        """The number of a job in the database; None if there is no such job."""
        if not isinstance(job_id, str):
            raise InvalidOptionType(f"job_id must be text, not {job_id!r}")
        await self._ensure_open()
        if (number := job_number(job_id)) is not None:
            return number
        params = {"queue": self.key, "custom_id": job_id}
        rows = await bridge.query(self.store, "job_with_custom_id", params)
        return rows[0][0] if rows else None

    async def _job_by_pk(self, number: int) -> Job | None:
        """The job of this number; None if it is not in this queue."""
        rows = await bridge.query(self.store, "job", {"queue": self.key, "job": number})
        return self.as_job(rows[0]) if rows else None

    async def jobs_numbered(self, numbers: Collection[int]) -> dict[int, Job]:
        """The jobs of these numbers that are in this queue, by number."""
        jobs: dict[int, Job] = {}
        left = list(dict.fromkeys(numbers))
        for start in range(0, len(left), READ_AT_ONCE):
            some = encode_plain(left[start : start + READ_AT_ONCE]).decode()
            rows = await bridge.query(self.store, "jobs", {"queue": self.key, "jobs": some})
            jobs |= {row[0]: self.as_job(row) for row in rows}
        return jobs

    def as_job(self, row: Sequence[Any]) -> Job:
        """A job from the row that tells of it."""
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
        """Jobs that fit, newest first, and a cursor to go on from when there may be more.

        Name, tag, date and state go along an index, the one that leaves out most; along that of a
        state, the last of its list come first, which of those that ended are the last to end. Text
        is looked for, in either case, in ids, names, tags, data, results and reasons: 20,000 jobs
        at a time, then the answer is what was found so far, perhaps nothing, and a cursor. `state`
        may also be an outcome: `cancelled`, `expired`, `stalled`, `timed-out`.
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
        return Found(*await find(self, criteria, limit, cursor))

    async def metrics(self, last: Duration = 3_600_000) -> Metrics:
        """What the queue did of late: jobs that ended, how long they ran and waited, by the minute.

        Seven days are kept. Processes tell every other second: the last moments may be missing.
        """
        await self._ensure_open()
        now = self.store.open().clock.now()
        first = (now - check_duration("last", last, least=1)) // MINUTE
        params = {"queue": self.key, "first": first, "last": now // MINUTE}
        return metrics_of(await bridge.query(self.store, "minutes", params))

    async def why(self, job_id: str) -> str:
        """Why a job is where it is: what it waits for, and what keeps that from happening."""
        job = await self.get_job(job_id)
        if job is None:
            return f"there is no job {job_id} in {self.name!r}"
        if job.state != State.WAITING_CHILDREN:
            return await reason_of(self, job)
        pending = await bridge.query(
            self.store,
            "pending_links",
            {"job": job.pk, "most": MAX_SHOWN},
        )
        keys = ", ".join(row[0] for row in pending)
        stuck = await self._stuck(job.pk)
        return "; ".join([f"job {job_id} waits for {keys}", *stuck])

    async def doctor(self) -> list[str]:
        """What in this queue will not go on without help: jobs that wait for others which failed,
        or are gone, while nothing says what is to become of them; and jobs of names, or of versions
        of their tasks, that no worker takes, although some serve the queue."""
        await self._ensure_open()
        return [*await self._stuck(None), *await self._unserved(), *await self._parked()]

    async def _unserved(self) -> list[str]:
        taken = [worker.names for worker in await self.get_workers() if not worker.is_lost]
        if not taken or None in taken:
            return []  # that nobody serves a queue is no wonder while none has been started
        names = sorted({name for some in taken for name in some or ()})
        params = {"queue": self.key, "names": encode_plain(names).decode(), "most": MAX_SHOWN}
        return [
            f"{number} {'job waits' if number == 1 else 'jobs wait'} with the name {name!r}, which "
            "no worker takes: start one that does, or remove what is not wanted any more"
            for name, number in await bridge.query(self.store, "unserved_names", params)
        ]

    async def _parked(self) -> list[str]:
        return [
            f"{number} {'job' if number == 1 else 'jobs'} of {name!r} came from a newer version of "
            "the task than its workers have: start newer ones"
            for name, number in (await self._names_parked()).items()
        ]

    async def _names_parked(self) -> dict[str, int]:
        """The names of parked jobs, and how many there are of each."""
        until = self.store.open().clock.now() + POSTPONED_FOR
        params = {"queue": self.key, "until": until, "message": NEWER, "most": MAX_SHOWN}
        return dict(await bridge.query(self.store, "postponed_names", params))

    async def _stuck(self, job: int | None) -> list[str]:
        params = {"queue": self.key, "job": job, "most": MAX_SHOWN}
        return [
            f"job {waits} waits for {key}, {_fate_of(state, reason)}: retry that, remove it from "
            "what is waited for, or remove the job that waits"
            for waits, key, state, reason in await bridge.query(
                self.store, "blocked_forever", params
            )
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
        jobs = await self._existing_jobs(parent, type, [number for number, *_ in wanted])
        return {"items": [key for _, key, _ in wanted], "jobs": jobs, "total": total}

    async def _existing_jobs(self, parent: Job, state: str, numbers: Sequence[int]) -> list[Job]:
        """Those of these children that still exist, wherever they are."""
        if not numbers:
            return []
        params = {"job": parent.pk, "state": state, "after": numbers[0] - 1, "most": len(numbers)}
        rows = await bridge.query(self.store, "children_page", params)
        there = [(number, name) for number, name in rows if number <= numbers[-1]]
        return await jobs_in_queues(there, self._in)

    def _in(self, queue_name: str) -> QueueReads:
        return self if queue_name == self.name else QueueReads(queue_name, self.store, None, None)

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
            place = START
            while True:
                params = {"queue": self.key, "first": place[0], "second": place[1], "most": batch}
                rows = await self._read_list("after", name, params)
                for row in rows:
                    yield self.as_job(row)
                if len(rows) < batch:
                    break
                place = place_in_list(name, self.as_job(rows[-1]))

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
        return [self.as_job(row) for row in rows]

    async def read_rows(self, statement: str, params: Mapping[str, Any]) -> Sequence[Any]:
        """The rows that a statement finds."""
        return await bridge.query(self.store, statement, params)

    async def _read_list(self, what: str, name: str, params: Mapping[str, Any]) -> Sequence[Any]:
        return await read_slice(self, f"{what}:{name}", params)

    async def is_paused(self) -> bool:
        """Whether the queue hands out no jobs."""
        return bool((await self._settings()).paused)

    # --- counts ---

    async def get_job_counts(self, *states: str) -> dict[str, int]:
        """How many jobs are in each state, or in those named; never counts, the counts are kept."""
        wanted = [shown_name(state) for state in states] or list(SHOWN_STATES)
        await self._ensure_open()
        rows = await bridge.query(self.store, "counts", {"queue": self.key})
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
                check_int("a priority", priority, -MAX_PRIORITY, MAX_PRIORITY)
                for priority in priorities
            ]
        await self._ensure_open()
        rows = await bridge.query(self.store, "counts_per_priority", {"queue": self.key})
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
        """The workers of this queue, in whatever process; those that are lost, too, as long as
        nobody has taken over what they held."""
        await self._ensure_open()
        rows = await bridge.query(self.store, "workers_of_queue", {"queue": self.key})
        workers: dict[tuple[int, int], WorkerInfo] = {}
        for id, name, names, nonce, pid, host, number, concurrency, started, *more in rows:
            seen, boot, lease, active = more
            heard = max(seen, started)
            info = WorkerInfo(
                id=str(id),
                name=name,
                pid=pid,
                host=host,
                names=None if names is None else tuple(decode(names)),
                concurrency=concurrency,
                active=active,
                started_at=moment_of(started),
                seen_at=moment_of(heard),
                is_lost=is_lost(self.store, nonce, boot, heard, lease),
            )
            # One worker with several assignments has a row for each.
            other = workers.get((nonce, number)) if number else None
            workers[nonce, number or -id] = info if other is None else _both(other, info)
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
            "on_failure": None if settings.on_failure is None else decode(settings.on_failure),
            "version": await self.get_version(),
        }

    async def get_version(self) -> str:
        """The library and its version."""
        return f"bullite:{__version__}"

    async def _settings(self) -> Settings:
        await self._ensure_open()
        rows = await bridge.query(self.store, "settings", {"queue": self.key})
        return Settings(*rows[0])


async def jobs_in_queues(
    there: Sequence[tuple[int, str]], find: Callable[[str], QueueReads]
) -> list[Job]:
    """The jobs of these numbers, each given with the name of its queue, in the order given.

    Opens and reads each queue once. A job that has left its queue meanwhile is left out.
    """
    by_queue: dict[str, list[int]] = {}
    for number, queue_name in there:
        by_queue.setdefault(queue_name, []).append(number)
    jobs: dict[int, Job] = {}
    for queue_name, numbers in by_queue.items():
        queue = find(queue_name)
        await queue.wait_until_ready()
        jobs |= await queue.jobs_numbered(numbers)
    return [jobs[number] for number, _ in there if number in jobs]


def _both(first: WorkerInfo, second: WorkerInfo) -> WorkerInfo:
    """One worker, of two of its assignments."""
    names = None
    if first.names is not None and second.names is not None:
        names = first.names + second.names
    return replace(
        first,
        names=names,
        concurrency=first.concurrency + second.concurrency,
        active=first.active + second.active,
        seen_at=max(first.seen_at, second.seen_at),
        is_lost=first.is_lost and second.is_lost,
    )


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


def finished_list(word: Any) -> tuple[State, str | None]:
    """Where the finished jobs are that a user means by a state or an outcome, and the outcome."""
    plain = plain_word(word) if isinstance(word, str) else word
    if plain in (ERROR, *OUTCOMES):
        return State.FAILED, plain
    name = shown_name(word)
    if name not in (State.COMPLETED, State.FAILED):
        known = ", ".join((State.COMPLETED, State.FAILED, ERROR, *OUTCOMES))
        raise InvalidOption(f"state must be one of {known}, not {word!r}")
    return State(name), None


def page_window(start: Any, end: Any, length: int) -> tuple[int, int] | None:
    """How many to pass over, and how many to read; None if that would be nothing."""
    first, last = max(0, _window(start, length)), _window(end, length)
    return None if first > last or first >= length else (first, last - first + 1)


def _window(index: Any, length: int) -> int:
    """An index from the end as one from the beginning."""
    if isinstance(index, bool) or not isinstance(index, int):
        raise InvalidOptionType(f"start and end must be whole numbers, not {index!r}")
    return index + length if index < 0 else min(index, FARTHEST)


def _fate_of(state: str | None, reason: str | None) -> str:
    if state == State.FAILED:
        return f"which failed ({reason})" if reason else "which failed"
    return "which was removed" if state == State.REMOVED else "which is gone"
