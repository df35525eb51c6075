"""Coalesce jobs that coroutines add in one turn of the loop: one request, one reply each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ...engine.engine import Engine
from ...engine.replies import PendingRequest
from ...errors import RequestRefused, StoreError
from ...operations.add import Added, AddJobs, StaleSettings


def coalesced(engine: Engine, asks: Sequence[PendingRequest]) -> list[PendingRequest]:
    """The same requests in the same order, neighbours that add a plain job each made one."""
    found: list[PendingRequest] = []
    for terms, neighbours in groupby(asks, _terms):
        group = list(neighbours)
        found += group if terms is None or len(group) == 1 else [_as_one(engine, group, *terms)]
    return found


def _terms(ask: PendingRequest) -> tuple[int, int] | None:
    """What requests must share to become one; None for one that cannot."""
    request = ask.request
    if type(request) is not AddJobs or len(request.jobs) != 1 or request.always:
        return None
    [job] = request.jobs
    is_plain = job.custom_id is None and job.rare_fields is None
    return (request.queue, request.version) if is_plain else None


def _as_one(
    engine: Engine, asks: Sequence[PendingRequest], queue: int, version: int
) -> PendingRequest:
    jobs = [ask.request.jobs[0] for ask in asks]
    return PendingRequest(AddJobs(queue, jobs, version), _Answers(engine, asks), asks[0].target)


class _Answers:
    """Gives everybody the answer that is theirs."""

    __slots__ = ("_asks", "_engine")

    def __init__(self, engine: Engine, asks: Sequence[PendingRequest]) -> None:
        self._engine = engine
        self._asks = asks

    def __call__(self, answer: Any) -> None:
        if isinstance(answer, Added):
            for ask, id in zip(self._asks, answer.ids, strict=True):
                ask.reply(Added((id,), answer.created_at, answer.existing))
        elif isinstance(answer, StaleSettings) or _concerns_all(answer):
            for ask in self._asks:
                ask.reply(answer)
        else:
            # There is no room for all of them, or one is at fault: each for itself.
            self._engine.submit_all(self._asks)


def _concerns_all(answer: Any) -> bool:
    return isinstance(answer, StoreError) and not isinstance(answer, RequestRefused)
