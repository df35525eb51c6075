"""The order in which a transaction locks rows, for drivers with several concurrent writers.

Queues come first, then jobs, each by their ids. A transaction that has locked a job and then needs
a queue or more jobs does not wait for their locks. If another transaction has them, it is rolled
back and run again, and locks them first. So no two transactions can deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from functools import cache
from typing import Any, NamedTuple

from ..core.codec import decode, encode_plain
from ..database.driver import NotTogether, OutOfOrder, Params, Result
from ..operations.finish import FinishRuns, locked_in_turns
from ..operations.request import Request

Execute = Callable[[str, Params], Result]

QUEUES = frozenset(("claim_info", "add_info", "lock_queue_limits"))
"""Statements that lock the row of a queue; a turn is a stronger lock than the others."""

KEYS = frozenset(("lock_dedup_keys", "free_keys", "delete_keys"))
"""Statements that lock deduplication keys; those of one group of requests do so in one order."""

LOAD_JOBS = "load_jobs_for_update"
"""The statement that locks jobs and reads their rows."""


@cache
def _locks_nothing(statement: str) -> bool:
    """Return True if a statement locks no queue, job or key. Moves of jobs have a colon."""
    return statement not in QUEUES | KEYS | {LOAD_JOBS} and ":" not in statement


class FirstLocks(NamedTuple):
    """What a transaction locks at its beginning, because its last try could not lock it later."""

    queues: frozenset[int] = frozenset()
    jobs: frozenset[int] = frozenset()
    keyed: frozenset[int] = frozenset()
    """Jobs whose deduplication keys are locked as well."""

    def and_missing(self, error: OutOfOrder) -> FirstLocks:
        """Return these locks, and those that stopped the transaction."""
        return FirstLocks(
            self.queues | error.queues,
            self.jobs | error.jobs | error.keyed,
            self.keyed | error.keyed,
        )


NO_FIRST_LOCKS = FirstLocks()


def first_locks(
    requests: Sequence[Request], groups: Sequence[Sequence[int]], known: FirstLocks
) -> FirstLocks:
    """Return `known`, with all jobs of the requests if several statements lock some of them."""
    jobs = _locked_by_several([[requests[index] for index in group] for group in groups])
    return known._replace(jobs=known.jobs | jobs) if jobs else known


def _locked_by_several(groups: Sequence[Sequence[Any]]) -> Set[int]:
    if len(groups) > 1:
        groups = [group for group in groups if any(request.job_ids() for request in group)]
    if len(groups) > 1:
        return set().union(*[request.job_ids() for group in groups for request in group])
    if groups and type(groups[0][0]) is FinishRuns:
        return locked_in_turns(groups[0])
    return frozenset()


class LockOrder:
    """Executes the statements of one transaction, and lets none wait out of order."""

    __slots__ = (
        *("_claims", "_execute", "_group", "_group_of_keys", "_holds", "_keyed", "_known"),
        *("_shares", "_turns"),
    )

    def __init__(self, execute: Execute, first: FirstLocks) -> None:
        self._execute = execute
        self._shares, self._turns = set[int](), set[int]()
        self._holds = False
        self._group = 0
        self._claims = False
        self._keyed, self._known = set[int](), first.keyed
        self._group_of_keys: int | None = None
        if first is NO_FIRST_LOCKS:
            return
        if first.queues:
            execute("lock_queues", {"queues": _as_json(first.queues)})
            self._turns = set(first.queues)
        if first.jobs:
            execute("lock_jobs", {"jobs": _as_json(first.jobs)})
            self._holds = True
        if first.keyed:
            execute("lock_keys", {"jobs": _as_json(first.keyed)})

    def begin_group(self, claims: bool = False) -> None:
        """Begin another group of requests, or the claims."""
        self._group += 1
        self._claims = claims  # what they move, they have locked without waiting

    def execute(self, statement: str, params: Params) -> Result:
        if _locks_nothing(statement):
            return self._execute(statement, params)
        if statement in QUEUES:
            return self._lock_queue(statement, params)
        if statement in KEYS:
            self._lock_keys(statement, params)
        is_move, is_load = ":" in statement, statement == LOAD_JOBS
        if (is_move or is_load) and not self._claims and self._has_keys_of_others():
            raise NotTogether("jobs are locked after the keys of other requests")
        if is_load:
            return self._lock_jobs(statement, params)
        self._holds = self._holds or is_move
        return self._execute(statement, params)

    def _has_keys_of_others(self) -> bool:
        return self._group_of_keys not in (None, self._group)

    def _lock_keys(self, statement: str, params: Params) -> None:
        """Make sure that the keys of ended jobs are freed together, not one after the other."""
        if self._has_keys_of_others():
            raise NotTogether("two groups of requests lock deduplication keys")
        self._group_of_keys, self._holds = self._group, True
        if statement == "free_keys":
            assert isinstance(params, dict)
            jobs = {int(job) for job in decode(params["jobs"])}
            if self._keyed and not jobs <= self._known:
                raise OutOfOrder(keyed=self._keyed | jobs)
            self._keyed |= jobs

    def _lock_queue(self, statement: str, params: Params) -> Result:
        assert isinstance(params, dict)
        queue: int = params["queue"]
        locked = self._turns if statement == "lock_queue_limits" else self._turns | self._shares
        if not self._holds or queue in locked:
            result = self._execute(statement, params)
        else:
            result = self._execute(f"{statement}_now", params)
            if not result.rows:
                raise OutOfOrder(queues={queue})
        (self._turns if statement == "lock_queue_limits" else self._shares).add(queue)
        return result

    def _lock_jobs(self, statement: str, params: Params) -> Result:
        assert isinstance(params, dict)
        jobs = {int(job) for job in decode(params["jobs"])}
        if not self._holds:
            result = self._execute(statement, params)
        else:
            result = self._execute(f"{statement}_now", params)
            missing = jobs.difference(job for job, *_ in result.rows)
            if missing and self._are_there(missing):
                raise OutOfOrder(jobs=jobs)
        self._holds = True
        return result

    def _are_there(self, jobs: Set[int]) -> bool:
        [[number]] = self._execute("count_jobs", {"jobs": _as_json(jobs)}).rows
        return bool(number)


def _as_json(numbers: Iterable[int]) -> str:
    return encode_plain(sorted(numbers)).decode()
