"""Search the jobs of a queue by name, tag, date, state and text: newest first, in pages."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from ...core.codec import encode_plain
from ...core.job_record import JobRecord, queue_position
from ...core.states import CANCELLED, EXPIRED, PRIORITIZED, STALLED, TIMED_OUT, State, plain_word
from ...database.driver import Result
from ...errors import InvalidOption, InvalidOptionType
from ...operations.job_lists import FARTHEST, rows_of_list

J = TypeVar("J", bound=JobRecord)
J_co = TypeVar("J_co", bound=JobRecord, covariant=True)

SLICE = 500
"""Jobs that one read returns."""

MAX_SCANNED = 20_000
"""Jobs that one call reads; then it returns what it has found, and a cursor."""

OUTCOMES = (CANCELLED, EXPIRED, STALLED, TIMED_OUT)
"""Outcomes that may be given as a state."""


class Searchable(Protocol[J_co]):
    """A queue, as far as `find` needs it."""

    @property
    def pk(self) -> int:
        """The primary key of the queue in its database."""

    def read_rows(self, statement: str, params: Mapping[str, Any]) -> Awaitable[Sequence[Any]]:
        """Return the rows of a statement."""

    def as_job(self, row: Sequence[Any]) -> J_co:
        """Return a job from its row."""


class JobFilter(NamedTuple):
    """Criteria of a search."""

    name: str | None = None
    tag: str | None = None
    since: int | None = None
    text: str | None = None
    lists: tuple[str, ...] | None = None
    """Lists of states; None means any."""
    outcome: str | None = None

    def fits(self, job: JobRecord) -> bool:
        """Return True if a job fits all criteria."""
        return (
            job.state != State.REMOVED
            and (self.name is None or job.name == self.name)
            and (self.tag is None or self.tag in job.tags)
            and (self.since is None or job.timestamp >= self.since)
            and (self.lists is None or job.state in self.lists)
            and (self.outcome is None or job.outcome == self.outcome)
            and (self.text is None or _mentions(job, self.text))
        )


def _mentions(job: JobRecord, text: str) -> bool:
    plain, in_json = text.casefold(), _as_json(text)[1:-1].casefold()
    parts: list[Any] = [job.id, job.name, job.data, job.failed_reason, job.return_value, job.tags]
    for part in parts:
        if isinstance(part, str):
            if plain in part.casefold():
                return True
        elif part is not None:
            # JSON escapes a quote or a line break within a text.
            written = _as_json(part).casefold()
            if plain in written or in_json in written:
                return True
    return False


def _as_json(part: Any) -> str:
    return encode_plain(part).decode()


def lists_meant(words: Sequence[Any]) -> tuple[Sequence[Any], str | None]:
    """Return the states whose lists are searched, and the outcome, if one is given."""
    outcomes = [plain for word in words if (plain := outcome_named(word)) is not None]
    if len(outcomes) > 1 or (outcomes and len(words) > 1):
        raise InvalidOption(f"state: an outcome is looked for alone, not among {words!r}")
    return ([State.FAILED.value], outcomes[0]) if outcomes else (words, None)


def outcome_named(word: Any) -> str | None:
    """Return the outcome that a word means; None if it is none of OUTCOMES."""
    plain = plain_word(word) if isinstance(word, str) else None
    return plain if plain in OUTCOMES else None


async def find(
    queue: Searchable[J], criteria: JobFilter, limit: int, cursor: str | None
) -> tuple[list[J], str | None]:
    """Return the next jobs that fit, and a cursor if there may be more."""
    jobs: list[J] = []
    looked_at = 0
    sources = _sources(criteria)
    index, position = _read_cursor(cursor, len(sources))
    while index < len(sources):
        statement, position_of = sources[index]
        rows = await read_slice(queue, statement, _params(queue.pk, criteria, statement, position))
        for row in rows:
            job = queue.as_job(row)
            position = position_of(job)
            if criteria.fits(job):
                jobs.append(job)
                if len(jobs) == limit:
                    return jobs, _cursor(index, position)
        looked_at += len(rows)
        if len(rows) < SLICE:
            index, position = index + 1, (FARTHEST, FARTHEST)
        elif looked_at >= MAX_SCANNED:
            return jobs, _cursor(index, position)
    return jobs, None


Position = tuple[int, int]


def position_in_list(name: str, job: JobRecord) -> tuple[int, int]:
    """Return the position of a job in a list: the values by which the list is sorted."""
    status = job._status
    rank, seq = queue_position(job)
    if name == PRIORITIZED:
        return rank, seq
    if name == State.WAITING:
        return seq, job.pk
    first = {
        State.DELAYED.value: status.due_at,
        State.ACTIVE.value: status.processed_at,
        State.WAITING_CHILDREN.value: job.timestamp,
    }.get(name, status.finished_at)
    return first or 0, job.pk


def _sources(criteria: JobFilter) -> list[tuple[str, Callable[[JobRecord], Position]]]:
    """Return the statements to search with, and how to get a position: the most selective index."""
    if criteria.tag is not None:
        return [("find_by_tag", _by_date)]
    if criteria.name is not None:
        return [("find_by_name", _by_date)]
    if criteria.lists is not None:
        return [(f"before:{name}", partial(position_in_list, name)) for name in criteria.lists]
    return [("find_by_date", _by_date)]


def _by_date(job: JobRecord) -> Position:
    return job.timestamp, job.pk


def _params(queue: int, criteria: JobFilter, statement: str, position: Position) -> dict[str, Any]:
    params: dict[str, Any] = {"queue": queue, "most": SLICE}
    if statement.startswith("before:"):
        return {**params, "first": position[0], "second": position[1]}
    params |= {"at": position[0], "before": position[1], "since": criteria.since or 0}
    if statement == "find_by_tag":
        params["tag"] = criteria.tag
    elif statement == "find_by_name":
        params["name"] = criteria.name
    return params


async def read_slice(
    queue: Searchable[JobRecord], statement: str, params: Mapping[str, Any]
) -> Sequence[Any]:
    """Return rows of jobs: of a list if the statement reads one, else of the statement."""
    steps = rows_of_list(queue.pk, statement, params)
    try:
        name, values = next(steps)
        while True:
            rows = await queue.read_rows(name, cast("Mapping[str, Any]", values))
            name, values = steps.send(Result(rows, 0))
    except StopIteration as stop:
        found: Sequence[Any] = stop.value
        return found


def _cursor(index: int, position: Position) -> str:
    return ":".join(map(str, (index, *position)))


def _read_cursor(cursor: Any, sources: int) -> tuple[int, Position]:
    if cursor is None:
        return 0, (FARTHEST, FARTHEST)
    if not isinstance(cursor, str):
        raise InvalidOptionType(f"cursor must be text, not {cursor!r}")
    # Positions may be negative: those of jobs that were added or moved to the front are.
    match = re.fullmatch(r"([0-9])((?::-?[0-9]{1,19}){2})", cursor)
    if match is not None and int(match[1]) < sources:
        first, second = map(int, match[2][1:].split(":"))
        if max(abs(first), abs(second)) <= FARTHEST:
            return int(match[1]), (first, second)
    raise InvalidOption(f"cursor must be one that find gave for the same criteria, not {cursor!r}")
