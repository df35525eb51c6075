"""Groups the requests of a batch so that those of one kind share their statements.

Requests for one job keep the order in which they arrived: a request that touches a job which a
later group, or its own, touches already opens a new group. Nothing passes a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import msgspec

TOGETHER, ALONE_BESIDE_OTHERS, ALONE = 0, 1, 2
"""Whether a request shares a transaction with others: it may; it may where there is one writer at a
time; it must not."""


class Part(NamedTuple):
    """Requests that share a transaction."""

    indexes: range
    is_apart: bool
    """Whether it is one request, which shares it with nothing else."""


class Request(msgspec.Struct):
    """Anything that can be asked of the engine.

    A Struct: there are dozens of them, and a dataclass takes ten times as long to make.
    """

    durable: ClassVar[bool] = True
    """Whether its answer may be given only when it is on the disk."""
    barrier: ClassVar[bool] = False
    """Whether nothing that came after it may be carried out before it."""
    awaited: ClassVar[bool] = True
    """Whether somebody may wait for its answer who must have it before jobs begin that it freed."""
    apart: ClassVar[int] = TOGETHER
    """Housekeeping has a transaction of its own, so that nothing waits for it or is undone with it;
    what changes queues and workers has one, because it locks them, which comes before jobs."""
    keeps_order: ClassVar[bool] = False
    """Whether several for one job may share a group, because they are carried out in order."""

    def keys(self) -> Sequence[int]:
        """The jobs it touches."""
        return ()


def split(requests: Sequence[Request], side_by_side: bool) -> list[Part]:
    """What transactions carry `requests` out, in the order given."""
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
    """The indexes of `requests`, in groups of one kind, in the order the groups must run."""
    if len(requests) == 1:
        return [[0]]
    groups: list[list[int]] = []
    open_group: dict[type, int] = {}
    last_group_of_job: dict[int, int] = {}
    for index, request in enumerate(requests):
        kind = type(request)
        keys = request.keys()
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
