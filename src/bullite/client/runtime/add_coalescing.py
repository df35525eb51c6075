"""Coalesce jobs that coroutines add in one turn of the loop: one request, one reply each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ...engine.engine import Engine
from ...engine.replies import PendingRequest
from ...errors import RequestRefused, StoreError
from ...operations.add import Added, AddJobs, StaleSettings


def coalesced(engine: Engine, requests: Sequence[PendingRequest]) -> list[PendingRequest]:
    """Return the requests in their order, with neighbours that add one plain job each as one."""
    found: list[PendingRequest] = []
    for key, neighbours in groupby(requests, _key):
        group = list(neighbours)
        found += group if key is None or len(group) == 1 else [_as_one(engine, group, *key)]
    return found


def _key(pending: PendingRequest) -> tuple[int, int] | None:
    """Return what requests must share to become one; None for one that cannot."""
    request = pending.request
    if type(request) is not AddJobs or len(request.jobs) != 1 or request.always:
        return None
    [job] = request.jobs
    is_plain = job.custom_id is None and job.rare_fields is None
    return (request.queue, request.version) if is_plain else None


def _as_one(
    engine: Engine, requests: Sequence[PendingRequest], queue: int, version: int
) -> PendingRequest:
    jobs = [pending.request.jobs[0] for pending in requests]
    reply = _SplitReply(engine, requests)
    return PendingRequest(AddJobs(queue, jobs, version), reply, requests[0].target)


class _SplitReply:
    """Gives each request its part of the common reply."""

    __slots__ = ("_engine", "_requests")

    def __init__(self, engine: Engine, requests: Sequence[PendingRequest]) -> None:
        self._engine = engine
        self._requests = requests

    def __call__(self, answer: Any) -> None:
        if isinstance(answer, Added):
            for pending, id in zip(self._requests, answer.ids, strict=True):
                pending.reply(Added((id,), answer.created_at, answer.existing))
        elif isinstance(answer, StaleSettings) or _concerns_all(answer):
            for pending in self._requests:
                pending.reply(answer)
        else:
            # A quota has no room for all of them, or one is at fault: submit each by itself.
            self._engine.submit_all(self._requests)


def _concerns_all(answer: Any) -> bool:
    return isinstance(answer, StoreError) and not isinstance(answer, RequestRefused)
