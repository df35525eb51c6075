"""Those who wait for a job to finish."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from ..errors import JobNotFound, StoreError
from ..operations.moving import MoveByHand, as_json
from ..operations.settling import Settle
from .contract import Driver
from .mail import Ask, Reply

log = logging.getLogger("bullite.engine")


class Watchers:
    """Who waits for which job; answers are [state, return value, failed reason]."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._asks: dict[int, list[Ask]] = {}
        self.since = 0
        """The lease time at which somebody last began to wait."""

    def __bool__(self) -> bool:
        return bool(self._asks)

    def add(self, job: int, ask: Ask) -> None:
        self.since = self._driver.clock.lease_now()
        self._asks.setdefault(job, []).append(ask)

    def remove(self, job: int, reply: Reply) -> None:
        """Somebody waits no more."""
        left = [ask for ask in self._asks.pop(job, ()) if ask.reply is not reply]
        if left:
            self._asks[job] = left

    def everyone(self) -> list[Ask]:
        return [ask for asks in self._asks.values() for ask in asks]

    def settled(self, requests: Sequence[Any]) -> list[tuple[Ask, Any]]:
        """The answers for those who wait for a job that these requests, now committed, ended."""
        if not self._asks:
            return []
        ending = [request for request in requests if isinstance(request, Settle | MoveByHand)]
        return self.check(chain.from_iterable(request.keys() for request in ending))

    def check(self, jobs: Iterable[int] | None = None) -> list[tuple[Ask, Any]]:
        """Look at the watched jobs, or at those of them that are named; the answers there are."""
        watched = [job for job in (self._asks if jobs is None else jobs) if job in self._asks]
        if not watched:
            return []
        params = {"jobs": as_json(watched)}
        try:
            finished = self._driver.execute("finished_among", params).rows
            existing = {row[0] for row in self._driver.execute("existing_among", params).rows}
        except StoreError as error:
            log.warning("could not look for results: %s", error)
            return []
        answers: list[tuple[Ask, Any]] = []
        for job, *result in finished:
            answers += [(ask, result) for ask in self._asks.pop(job, ())]
        for job in set(watched) - existing:
            gone = JobNotFound(f"job {job} does not exist any more")
            answers += [(ask, gone) for ask in self._asks.pop(job, ())]
        return answers
