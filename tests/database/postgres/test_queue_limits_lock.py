"""Two transactions that count against one limit take turns: together they never pass it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from bullite.errors import QueueFull
from bullite.operations.add import AddJobs, add
from bullite.operations.claim import Claim, claim
from bullite.operations.rate_limits import Rate, SetConcurrency, SetRate
from bullite.operations.rate_limits_by_key import EVERY_KEY, SetKeyLimit
from tests.database.postgres.test_collisions import waiting_for_locks
from tests.support.harness import LOCK_DURATION, OpenTransaction, Process, Store, new_job
from tests.support.processes import wait_until

Limit = Callable[[Store], Any]

LIMITS: dict[str, Limit] = {
    "concurrency": lambda store: store.ask(SetConcurrency(store.queue, 3)),
    "rate": lambda store: store.ask(SetRate(store.queue, Rate(3, 60_000))),
    "key": lambda store: store.ask(SetKeyLimit(store.queue, EVERY_KEY, Rate(3, 60_000))),
}


@contextmanager
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


def claim_two(process: Process, worker: int, open: OpenTransaction, token: int) -> int:
    request = Claim(process.queue, worker, None, 2, 2, LOCK_DURATION, token)
    [claimed] = open.run(claim(open.tx, [request]))
    return len(claimed.rows)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_claim_under_a_limit_waits_for_the_one_before_it(store: Store, limit: str) -> None:
    LIMITS[limit](store)
    store.add_all(*(new_job(limit_key="a") for _ in range(9)))
    other = store.process()
    mine, theirs = store.worker().id, other.worker().id

    def claim_elsewhere() -> int:
        with other.transaction() as open:
            return claim_two(other, theirs, open, 2)

    with beside() as thread:
        with store.home.transaction() as open:
            assert claim_two(store.home, mine, open, 1) == 2
            second: Future[int] = thread.submit(claim_elsewhere)
            wait_until(lambda: waiting_for_locks(store.database))
        assert second.result(10) == 1


def test_a_claim_from_a_queue_without_limits_waits_for_nobody(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(9)))
    other = store.process()
    mine, theirs = store.worker().id, other.worker().id
    with store.home.transaction() as first:
        assert claim_two(store.home, mine, first, 1) == 2
        with other.transaction() as second:
            assert claim_two(other, theirs, second, 2) == 2


def test_an_add_does_not_wait_for_a_claim_under_a_limit(store: Store) -> None:
    store.ask(SetConcurrency(store.queue, 3))
    store.add_all(*(new_job() for _ in range(9)))
    other = store.process()
    mine = store.worker().id
    with store.home.transaction() as open:
        assert claim_two(store.home, mine, open, 1) == 2
        other.add()


@pytest.mark.parametrize(
    "quota", [{"max_waiting": 3}, {"max_rate_count": 3, "max_rate_duration": 9}]
)
def test_an_add_under_a_quota_waits_for_the_one_before_it(
    store: Store, quota: dict[str, int]
) -> None:
    store.home.configure(**quota)
    other = store.process()

    def add_two(process: Process) -> Any:
        with process.transaction() as open:
            request = AddJobs(process.queue, [new_job(), new_job()], process.version(process.queue))
            [answer] = open.run(add(open.tx, [request]))
        return answer

    with beside() as thread:
        with store.home.transaction() as open:
            request = AddJobs(store.queue, [new_job(), new_job()], store.home.version(store.queue))
            [first] = open.run(add(open.tx, [request]))
            assert len(first.ids) == 2
            second: Future[Any] = thread.submit(add_two, other)
            wait_until(lambda: waiting_for_locks(store.database))
        assert isinstance(second.result(10), QueueFull)
    assert store.counts() == {"waiting": 2}
