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
"""Jobs read at a time."""

MAX_SCANNED = 20_000
"""Jobs that one call looks at; then it answers with what it has, and a cursor to go on from."""

OUTCOMES = (CANCELLED, EXPIRED, STALLED, TIMED_OUT)
"""How a job can end that may be asked for like a state."""


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
    """What is looked for."""

    name: str | None = None
    tag: str | None = None
    since: int | None = None
    text: str | None = None
    lists: tuple[str, ...] | None = None
    """Of which states; None means any."""
    outcome: str | None = None

    def fits(self, job: JobRecord) -> bool:
        """Whether a job is what is looked for, in every respect."""
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
            # A quote or a line break within a text is written otherwise there.
            written = _as_json(part).casefold()
            if plain in written or in_json in written:
                return True
    return False


def _as_json(part: Any) -> str:
    return encode_plain(part).decode()


def lists_meant(words: Sequence[Any]) -> tuple[Sequence[Any], str | None]:
    """The states whose lists to look in; and if one outcome is meant, that."""
    outcomes = [plain for word in words if (plain := outcome_named(word)) is not None]
    if len(outcomes) > 1 or (outcomes and len(words) > 1):
        raise InvalidOption(f"state: an outcome is looked for alone, not among {words!r}")
    return ([State.FAILED.value], outcomes[0]) if outcomes else (words, None)


def outcome_named(word: Any) -> str | None:
    """The outcome that a user means; None if it is none that may be asked for like a state."""
    plain = plain_word(word) if isinstance(word, str) else None
    return plain if plain in OUTCOMES else None


async def find(
    queue: Searchable[J], criteria: JobFilter, limit: int, cursor: str | None
) -> tuple[list[J], str | None]:
    """The next jobs that fit, and a cursor to go on from if there may be more."""
    jobs: list[J] = []
    looked_at = 0
    sources = _sources(criteria)
    index, place = _read_cursor(cursor, len(sources))
    while index < len(sources):
        statement, place_of = sources[index]
        rows = await read_slice(queue, statement, _params(queue.pk, criteria, statement, place))
        for row in rows:
            job = queue.as_job(row)
            place = place_of(job)
            if criteria.fits(job):
                jobs.append(job)
                if len(jobs) == limit:
                    return jobs, _cursor(index, place)
        looked_at += len(rows)
        if len(rows) < SLICE:
            index, place = index + 1, (FARTHEST, FARTHEST)
        elif looked_at >= MAX_SCANNED:
            return jobs, _cursor(index, place)
    return jobs, None


Place = tuple[int, int]


def place_in_list(name: str, job: JobRecord) -> tuple[int, int]:
    """Where in its list a job stands: what the list is ordered by."""
    fate = job._status
    rank, seq = queue_position(job)
    if name == PRIORITIZED:
        return rank, seq
    if name == State.WAITING:
        return seq, job.pk
    first = {
        State.DELAYED.value: fate.due_at,
        State.ACTIVE.value: fate.processed_at,
        State.WAITING_CHILDREN.value: job.timestamp,
    }.get(name, fate.finished_at)
    return first or 0, job.pk


def _sources(criteria: JobFilter) -> list[tuple[str, Callable[[JobRecord], Place]]]:
    """The indexes to go along, the one that leaves out most."""
    if criteria.tag is not None:
        return [("find_by_tag", _by_date)]
    if criteria.name is not None:
        return [("find_by_name", _by_date)]
    if criteria.lists is not None:
        return [(f"before:{name}", partial(place_in_list, name)) for name in criteria.lists]
    return [("find_by_date", _by_date)]


def _by_date(job: JobRecord) -> Place:
    return job.timestamp, job.pk


def _params(queue: int, criteria: JobFilter, statement: str, place: Place) -> dict[str, Any]:
    params: dict[str, Any] = {"queue": queue, "most": SLICE}
    if statement.startswith("before:"):
        return {**params, "first": place[0], "second": place[1]}
    params |= {"at": place[0], "before": place[1], "since": criteria.since or 0}
    if statement == "find_by_tag":
        params["tag"] = criteria.tag
    elif statement == "find_by_name":
        params["name"] = criteria.name
    return params


async def read_slice(
    queue: Searchable[JobRecord], statement: str, params: Mapping[str, Any]
) -> Sequence[Any]:
    """Rows of jobs: of a list, if the statement is one of its, or of whatever it finds."""
    steps = rows_of_list(queue.pk, statement, params)
    try:
        name, values = next(steps)
        while True:
            rows = await queue.read_rows(name, cast("Mapping[str, Any]", values))
            name, values = steps.send(Result(rows, 0))
    except StopIteration as stop:
        found: Sequence[Any] = stop.value
        return found


def _cursor(index: int, place: Place) -> str:
    return ":".join(map(str, (index, *place)))


def _read_cursor(cursor: Any, sources: int) -> tuple[int, Place]:
    if cursor is None:
        return 0, (FARTHEST, FARTHEST)
    if not isinstance(cursor, str):
        raise InvalidOptionType(f"cursor must be text, not {cursor!r}")
    # Places may be negative: those in front of the line are.
    match = re.fullmatch(r"([0-9])((?::-?[0-9]{1,19}){2})", cursor)
    if match is not None and int(match[1]) < sources:
        first, second = map(int, match[2][1:].split(":"))
        if max(abs(first), abs(second)) <= FARTHEST:
            return int(match[1]), (first, second)
    raise InvalidOption(f"cursor must be one that find gave for the same criteria, not {cursor!r}")
