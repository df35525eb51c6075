"""What is due by the clock has transactions of its own, between those of results and claims."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.states import COMPLETE
from bullite.database.driver import Params, Result, Step, TransactionAborted
from bullite.engine.engine import Engine
from bullite.engine.maintenance import Maintenance
from bullite.engine.maintenance_runner import MAX_POSTPONED
from bullite.errors import StoreBusy
from bullite.operations import retention
from bullite.operations.add import AddJobs
from bullite.operations.claim import Promote
from bullite.operations.finish import FinishRuns
from bullite.operations.queues import Configure
from tests.support.harness import Held, Process, Store, new_job

LATE = 20_000
"""Ms after which everything is due."""


@pytest.fixture
def store(store: Store) -> Store:
    """A store whose first process looks after it."""
    store.home.engine._maintenance.schedule = Maintenance(store.home.driver)
    return store


@contextmanager
def transactions_of(process: Process) -> Iterator[list[list[str]]]:
    """The statements of each transaction, while the block lasts."""
    driver, transactions = process.driver, list[list[str]]()
    begin, execute = driver.begin, driver.execute

    def beginning(durable: bool, foreseen: Sequence[Step] = ()) -> None:
        transactions.append([])
        begin(durable, foreseen)

    def executing(statement: str, params: Params) -> Result:
        if transactions:
            transactions[-1].append(statement)
        return execute(statement, params)

    driver.begin, driver.execute = beginning, executing
    yield transactions
    driver.begin, driver.execute = begin, execute


def completion(store: Store, held: Held) -> FinishRuns:
    return FinishRuns(store.queue, [RunOutcome(held.id, held.token, COMPLETE)])


def answer_to(process: Process, request: Any, turns: int) -> list[Any]:
    """The answer to a request after so many turns of the engine, if it is there by then."""
    answers: list[Any] = []
    process.engine.submit(request, answers.append)
    for _ in range(turns):
        Engine.turn(process.engine)
    return answers


def of(statement: str, transactions: Sequence[Sequence[str]]) -> list[set[str]]:
    return [set(statements) for statements in transactions if statement in statements]


def test_results_and_claims_share_no_transaction_with_what_is_due_by_the_clock(store):
    worker = store.worker()
    store.add()
    held = worker.claim_one()
    store.add(delay=1_000)
    store.clock.advance(LATE)

    with transactions_of(store.home) as transactions:
        worker.wants(1)
        worker.complete(held)

    results = of("complete:active:same_token", transactions)
    claims = of("claim_info", transactions)
    chores = of("renew_workers", transactions) + of("lock_minute", transactions)
    assert len(results) == 1
    assert len(chores) == 2
    assert all(chore.isdisjoint({"claim_info", "complete:active:same_token"}) for chore in chores)
    assert all("renew_workers" not in claim for claim in claims)


def test_what_housekeeping_makes_ready_is_claimed_in_another_transaction(store):
    worker = store.worker()
    worker.wants(1)
    store.home.engine.poll_now()
    store.home.turn()
    job = store.process().add(delay=1_000)  # here nobody waits for its time
    store.clock.advance(LATE)

    with transactions_of(store.home) as transactions:
        store.home.turn()
        store.home.turn()

    assert [held.id for held in worker.received] == [job]
    [promotion] = of("promote:delayed", transactions)
    assert promotion.isdisjoint({"claim_info", "claim:waiting"})


def test_a_result_is_recorded_although_what_is_due_by_the_clock_fails(store):
    worker = store.worker()
    store.add()
    held = worker.claim_one()
    store.add(delay=1_000)
    store.clock.advance(LATE)
    store.home.driver.fail_at["renew_workers"] = StoreBusy("it is locked")

    assert worker.complete(held) == []

    assert store.state(held.id) == "completed"
    assert store.home.driver.fail_at == {}, "it did fail"


def test_a_result_is_not_recorded_again_when_what_is_due_by_the_clock_is_undone(store):
    worker = store.worker()
    store.add()
    held = worker.claim_one()
    store.clock.advance(LATE)
    store.home.driver.fail_at["renew_workers"] = TransactionAborted("to let others go on")

    with transactions_of(store.home) as transactions:
        worker.complete(held)

    assert len(of("complete:active:same_token", transactions)) == 1
    assert len(of("renew_workers", transactions)) == 2, "it is tried again"


def test_housekeeping_that_is_undone_again_and_again_is_left_for_the_next_time(store):
    store.worker()
    store.clock.advance(LATE)
    for _ in range(10 + MAX_POSTPONED):
        store.home.driver.fail_at["renew_workers"] = TransactionAborted("to let others go on")
        Engine.turn(store.home.engine)

    assert store.home.engine._maintenance._backlog == deque()
    assert store.state(store.add()) == "waiting"


def test_results_and_claims_come_between_the_pieces_of_a_sweep(store, monkeypatch):
    monkeypatch.setattr(retention, "MAX_PRUNED", 1)
    worker = store.worker()
    store.add_all(*[new_job() for _ in range(8)])
    held = worker.claim(8)
    worker.complete(*held[:-1])
    store.ask(Configure(store.queue, {"keep_completed_count": 1, "max_events": 100}))
    store.clock.advance(LATE)
    answer_to(store.home, Promote(store.queue), turns=6)  # by then it sweeps

    before = store.counts()["completed"]
    answers = answer_to(store.home, completion(store, held[-1]), turns=1)

    assert len(answers) == 1, "it is answered at once"
    assert store.counts()["completed"] in (before, before + 1), "a piece at most was swept"
    assert store.counts()["completed"] > 1, "and there is more to sweep"
    store.home.engine.turn()
    assert store.counts()["completed"] == 1


def test_housekeeping_that_is_left_is_not_put_in_twice(store):
    store.worker()
    for _ in range(3):
        store.clock.advance(LATE)
        Engine.turn(store.home.engine)

    kinds = [type(task.pending.request) for task in store.home.engine._maintenance._backlog]
    assert len(kinds) == len(set(kinds))


@pytest.mark.parametrize("kind", ["add", "complete"])
def test_what_callers_ask_for_is_answered_in_one_turn_beside_housekeeping(store, kind):
    worker = store.worker()
    store.add()
    held = worker.claim_one()
    store.clock.advance(LATE)
    request = AddJobs(store.queue, [new_job()]) if kind == "add" else completion(store, held)

    assert len(answer_to(store.home, request, turns=1)) == 1
