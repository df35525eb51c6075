"""Those who wait for a job to finish."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..codec import decode
from ..errors import JobNotFound, StoreError
from ..operations.by_hand import MoveByHand, MoveOne
from ..operations.cancelling import Cancel
from ..operations.families import AwaitChildren
from ..operations.moving import as_json
from ..operations.settling import Settle, Settled
from ..operations.stepping import Pause
from ..seldom import Seldom
from ..states import CANCEL, COMPLETE, EXPIRE, FAIL, State
from .contract import Driver
from .mail import Ask, Reply

log = logging.getLogger("bullite.engine")


_MOVING = AwaitChildren | Cancel | MoveByHand | MoveOne | Pause
"""Requests that may end a job, and do not tell how."""


class Watched(NamedTuple):
    """A job that somebody waits for."""

    job: int
    queue: int
    id: str


class Watchers:
    """Who waits for which job; answers are [state, return value, failed reason]."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._seldom = Seldom(log)
        self._asks: dict[int, list[Ask]] = {}
        self._watched: dict[int, Watched] = {}
        self.since = 0
        """The lease time at which somebody last began to wait."""

    def __bool__(self) -> bool:
        return bool(self._asks)

    def add(self, watched: Watched, ask: Ask) -> None:
        self.since = self._driver.clock.lease_now()
        self._watched[watched.job] = watched
        self._asks.setdefault(watched.job, []).append(ask)

    def remove(self, job: int, reply: Reply) -> None:
        """Somebody waits no more."""
        left = [ask for ask in self._asks.pop(job, []) if ask.reply is not reply]
        if left:
            self._asks[job] = left
        else:
            self._watched.pop(job, None)

    def everyone(self) -> list[Ask]:
        return [ask for asks in self._asks.values() for ask in asks]

    def settled(self, requests: Sequence[Any], answers: Sequence[Any]) -> list[tuple[Ask, Any]]:
        """The answers for those who wait for a job that these requests, now committed, ended."""
        if not self._asks:
            return []
        told: list[tuple[Ask, Any]] = []
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(request, Settle):
                told += self._ended(request, answer)
        moved = [request for request in requests if isinstance(request, _MOVING)]
        return told + self.check(chain.from_iterable(request.keys() for request in moved))

    def _ended(self, settle: Settle, settled: Settled) -> list[tuple[Ask, Any]]:
        """From the verdicts themselves: the job may be gone already.

        Any but a completion may have ended one that was cancelled: that is looked for.
        """
        mine = [verdict for verdict in settle.verdicts if verdict.job in self._asks]
        ended = [
            verdict
            for verdict in mine
            if verdict.move is COMPLETE or (verdict.move is FAIL and not verdict.by_hand)
            if verdict.job not in settled.lost and verdict.job not in settled.spoilt
        ]
        told = [
            (ask, [verdict.move.target, verdict.value, verdict.reason])
            for verdict in ended
            for ask in self._pop(verdict.job)
        ]
        return told + self.check({verdict.job for verdict in mine})

    def check(self, jobs: Iterable[int] | None = None) -> list[tuple[Ask, Any]]:
        """Look at the watched jobs, or at those of them that are named; the answers there are."""
        watched = [job for job in (self._asks if jobs is None else jobs) if job in self._asks]
        if not watched:
            return []
        params = {"jobs": as_json(watched)}
        try:
            finished = self._driver.execute("finished_among", params).rows
            existing = {row[0] for row in self._driver.execute("existing_among", params).rows}
            if finished or len(existing) < len(watched):
                self._driver.sync()  # somebody else may have committed that just now
        except StoreError as error:
            self._seldom.warning("could not look for results: %s", error)
            return []
        answers: list[tuple[Ask, Any]] = []
        for job, *result in finished:
            answers += [(ask, result) for ask in self._pop(job)]
        for job in set(watched) - existing:
            end = self._end_in_log(self._watched[job])
            answers += [(ask, end) for ask in self._pop(job)]
        return answers

    def _pop(self, job: int) -> Sequence[Ask]:
        """Those who wait for a job that ended."""
        self._watched.pop(job, None)
        return self._asks.pop(job, ())

    def _end_in_log(self, watched: Watched) -> Any:
        """How a job that is gone ended, if the event log still knows; else that it is gone."""
        gone = JobNotFound(f"job {watched.id} does not exist any more")
        params = {"queue": watched.queue, "job": watched.job}
        rows = self._driver.execute("end_in_log", params).rows
        if not rows:
            return gone
        kind, entry = rows[0]
        is_list = isinstance(entry, str) and entry.startswith("[")
        detail: list[Any] = decode(entry)[1:] if is_list else [None]
        if kind == FAIL.name:
            return [FAIL.target, None, detail[0][0]]
        if kind in (EXPIRE.name, CANCEL.name):
            return [State.FAILED, None, detail[0][1]]
        if detail[1:2] == [1]:
            return gone  # its result was too long for the log
        return [COMPLETE.target, as_json(detail[0]), None]
