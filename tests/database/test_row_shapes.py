"""The columns of statements are the fields of the types that their rows become, in their order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import pytest

from bullite.core import job_record
from bullite.core.deduplication import KeyHolder
from bullite.core.job_record import JobRow, JobStatusRow
from bullite.database.driver import WorkerRow
from bullite.database.postgres.statements import SOURCE
from bullite.database.sqlite.statements import STATEMENTS
from bullite.database.statements import Statement
from bullite.operations.add_flow import _Ended
from bullite.operations.cancel_and_expire import UnstartedJob
from bullite.operations.claim import ClaimInfo
from bullite.operations.dependencies import Link
from bullite.operations.queues import OpenedQueue, QueueAddInfo, Settings
from bullite.operations.quotas import Quotas
from bullite.operations.rate_limits import QueueLimits
from bullite.operations.rate_limits_by_key import RateWindow
from bullite.operations.scheduler_ticks import Scheduler
from bullite.operations.transitions import LockedJob
from bullite.operations.workers import HeldJob

ALL_OF_A_JOB = (*JobRow._fields, *JobStatusRow._fields)

SHAPES: Mapping[str, Sequence[str]] = {
    "next_in_lane": JobRow._fields,
    "claimable_jobs": JobRow._fields,
    "page_up:completed": ALL_OF_A_JOB,
    "before:failed": ALL_OF_A_JOB,
    "settings": Settings._fields,
    "queue_named": OpenedQueue._fields,
    "add_info": QueueAddInfo._fields,
    "claim_info": (*ClaimInfo._fields[: ClaimInfo._fields.index("limits")], *QueueLimits._fields),
    "limits": QueueLimits._fields,
    "quotas": Quotas._fields,
    "keys_to_unpark": RateWindow._fields,
    "load_jobs_for_update": LockedJob._fields,
    "held_by_worker": HeldJob._fields,
    "expired": UnstartedJob._fields,
    "links_from": Link._fields,
    "finished_jobs": ("job", *_Ended._fields),
    "key_holders": ("key", *KeyHolder._fields),
    "schedulers_of_jobs": Scheduler._fields,
    "workers": WorkerRow._fields,
}
STORED = {
    "job": ("id",),
    "prefetched": ("ahead",),
    "flags": ("traits",),
    "unpark_at": ("back_at",),
    "value": ("return_value",),
    "reason": ("failed_reason",),
    "max": ("rate_max",),
    "max_rate": ("max_rate_count",),
    "duration": ("rate_duration",),
    "until": ("rate_until", "adds_until"),
    "used": ("rate_used", "adds_used"),
}
"""Fields whose columns have other names."""


def columns_of(text: str) -> list[str | None]:
    """The names of the columns that a query returns; None for an expression without a name."""
    found = re.search(r"json_group_array\(json_array\(", text)
    if found is None:
        start = next(end for end in _top_level(text, r"\bselect\s+"))
        text = text[start:]
        text = text[: next(_top_level(text, r"\sfrom\b"))]
        text = re.sub(r"\sfrom$", "", text)
    else:
        text = text[found.end() :]
        text = text[: next(_top_level(text, r"\)", depth=-1)) - 1]
    ends = [0, *_top_level(text, ","), len(text) + 1]
    parts = (text[a : b - 1] for a, b in pairwise(ends))
    return [_name(part.strip()) for part in parts]


def _name(column: str) -> str | None:
    named = re.fullmatch(r"(?:.*\bas\s+|[a-z_]+\.)?([a-z_]+)", column, re.DOTALL)
    return None if named is None else named[1]


def _top_level(text: str, pattern: str, depth: int = 0) -> Iterator[int]:
    """Where matches of a pattern end that are in no brackets."""
    depths = [0]
    for letter in text:
        depths.append(depths[-1] + {"(": 1, ")": -1}.get(letter, 0))
    for match in re.finditer(pattern, text):
        if depths[match.end()] == depth:
            yield match.end()


@pytest.mark.parametrize("statements", [STATEMENTS, SOURCE], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("statement", SHAPES)
def test_columns_of_a_statement_are_the_fields_of_its_rows(
    statement: str, statements: Mapping[str, Statement]
) -> None:
    columns = columns_of(statements[statement].text)
    fields = SHAPES[statement]
    assert len(columns) == len(fields)
    for column, field in zip(columns, fields, strict=True):
        assert column in (None, field, *STORED.get(field, ()))


@pytest.mark.parametrize("statements", [STATEMENTS, SOURCE], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("statement", ["next_in_lane", "claimable_jobs", "settings"])
def test_columns_of_jobs_and_settings_all_have_names(
    statement: str, statements: Mapping[str, Statement]
) -> None:
    assert None not in columns_of(statements[statement].text)


def test_positions_in_a_row_of_a_job_have_the_names_of_the_columns() -> None:
    positions = {
        name.lower(): place
        for name, place in vars(job_record).items()
        if name.isupper() and type(place) is int
    }
    positions["traits"] = positions.pop("flags")
    assert positions == {field: place for place, field in enumerate(JobRow._fields)}
