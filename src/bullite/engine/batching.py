"""Divide a batch: which requests share a transaction, and which of them share their statements.

Requests for one job keep their order: a request that touches a job which its own group or a later
group already touches opens a new group. No request is moved across a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..operations.request import ALONE, ALONE_BESIDE_OTHERS, Request


class Part(NamedTuple):
    """Requests that share a transaction."""

    indexes: range
    is_apart: bool
    """True if it is one request that shares its transaction with no other."""


def split(requests: Sequence[Request], side_by_side: bool) -> list[Part]:
    """Return the transactions that `requests` need, in the order given."""
    limit = ALONE_BESIDE_OTHERS if side_by_side else ALONE
    if all([request.apart < limit for request in requests]):  # noqa: C419
        return [Part(range(len(requests)), False)]
    first = 0
    parts: list[Part] = []
    for index, request in enumerate(requests):
        if request.apart >= limit:
            if first < index:
                parts.append(Part(range(first, index), False))
            parts.append(Part(range(index, index + 1), True))
            first = index + 1
    if first < len(requests):
        parts.append(Part(range(first, len(requests)), False))
    return parts


def group(requests: Sequence[Request]) -> list[list[int]]:
    """Return the indexes of `requests`, in groups of one kind, in the order they must run."""
    if len(requests) == 1:
        return [[0]]
    groups: list[list[int]] = []
    open_group: dict[type, int] = {}
    last_group_of_job: dict[int, int] = {}
    for index, request in enumerate(requests):
        kind = type(request)
        keys = request.job_ids()
        place = open_group.get(kind)
        if place is None or any(
            last_group_of_job.get(key, -1) >= place + request.keeps_order for key in keys
        ):
            place = open_group[kind] = len(groups)
            groups.append([])
        groups[place].append(index)
        last_group_of_job.update(dict.fromkeys(keys, place))
        if request.barrier:
            open_group.clear()
    return groups
