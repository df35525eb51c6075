"""Group the requests of a batch so that requests of one kind share their statements.

Requests for one job keep their order: a request that touches a job which its own group or a later
group already touches opens a new group. No request is moved across a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..operations.request import Request


def group(requests: Sequence[Request]) -> list[list[int]]:
    """The indexes of `requests`, in groups of one kind, in the order the groups must run."""
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
