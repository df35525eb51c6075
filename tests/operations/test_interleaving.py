"""Something happens between what an operation sees and what it does: the guards must refuse.

On a database with one writer at a time this cannot happen, on others it can; and a rule that only
holds because nobody else can write is no rule. Each test runs one operation up to a statement, lets
another one do all of its work, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.states import (
    COMPLETE,
    DELETE,
    FAIL,
    PROMOTE,
    REMOVE,
    RESTORE,
    RETRY_FINISHED,
    RETRY_NOW,
    RETURN_UNSTARTED,
    Move,
    State,
)
from bullite.database.driver import Conflict
from bullite.operations.claim import Claim, claim, promote_due
from bullite.operations.finish import FinishRuns, finish_runs
from bullite.operations.move import MoveJobs, move_jobs
from bullite.operations.retention import PruneQueue, prune_queues
from bullite.operations.transaction import Operation, Transaction
from bullite.operations.update import ExtendLease, Progress, extend_leases, record_progress
from bullite.operations.workers import RecoverStalled, recover_stalled
from tests.support.harness import LOCK_DURATION, Held, Process, Store, Worker

RESTORE_WAITING = RESTORE[State.WAITING]
Make = Callable[[Transaction], Operation[Any]]


def interleave(process: Process, first: Make, until: str, second: Make, by: Process) -> Any:
    """What `first` answers when all of `second` happens after its statement `until`."""
    with process.transaction(careful=True) as open:
        steps = open.start(first(open.tx)).until(until)
        try:
            open.run(second(open.tx_of(by, careful=True)))
        except Conflict as conflict:
            raise AssertionError("what comes between must happen") from conflict
        return steps.finish()


# --- the operations, as one process would run them -----------------------------------------------


def settling(store: Store, held: Held, move: Move = COMPLETE) -> Make:
    verdict = RunOutcome(held.id, held.token, move)
    return lambda tx: finish_runs(tx, [FinishRuns(store.queue, [verdict])])


def moving(move: Move, job: int) -> Make:
    return lambda tx: move_jobs(tx, [MoveJobs(move, [job])])


def recovering(worker: Worker, dead: bool = True) -> Make:
    request = RecoverStalled(worker.as_seen(), dead)
    return lambda tx: recover_stalled(tx, [request])


def claiming(worker: Worker, token: int = 77) -> Make:
    queue = worker.process.queue
    request = Claim(queue, worker.id, None, 1, 1, LOCK_DURATION, token)
    return lambda tx: claim(tx, [request])


def promoting(store: Store) -> Make:
    return lambda tx: promote_due(tx, store.queue)


def sweeping(store: Store) -> Make:
    store.home.configure(keep_completed_age=10, trash_age=10)
    return lambda tx: prune_queues(tx, [PruneQueue(store.queue)])


def then(*makes: Make) -> Make:
    """One after the other."""

    def run(tx: Transaction) -> Operation[None]:
        for make in makes:
            yield from make(tx)

    return run


# --- settling ------------------------------------------------------------------------------------


def test_settle_and_settle(store: Store) -> None:
    store.add()
    held = store.worker().claim_one()
    with pytest.raises(Conflict):
        interleave(
            store.home,
            settling(store, held),
            "load_jobs_for_update",
            settling(store, held, FAIL),
            by=store.home,
        )
    assert store.state(held.id) == "active"


@pytest.mark.parametrize("move", [COMPLETE, FAIL, RETRY_NOW, RETURN_UNSTARTED], ids=str)
def test_settle_and_recover(store: Store, move: Move) -> None:
    store.add()
    other = store.process()
    worker = other.worker()
    held = worker.claim_one()
    with pytest.raises(Conflict):
        interleave(
            other,
            settling(store, held, move),
            "load_jobs_for_update",
            recovering(worker),
            by=store.home,
        )


@pytest.mark.parametrize("move", [COMPLETE, FAIL, RETRY_NOW, RETURN_UNSTARTED], ids=str)
def test_recover_and_settle(store: Store, move: Move) -> None:
    store.add()
    other = store.process()
    worker = other.worker()
    held = worker.claim_one()
    with pytest.raises(Conflict):
        interleave(
            store.home, recovering(worker), "held_by_worker", settling(store, held, move), by=other
        )


def test_settle_and_a_new_claim_by_the_same_process(store: Store) -> None:
    """Only the number of the token tells the old run from the new one."""
    store.add()
    worker = store.worker()
    held = worker.claim_one()
    with pytest.raises(Conflict):
        interleave(
            store.home,
            settling(store, held),
            "load_jobs_for_update",
            then(settling(store, held, RETURN_UNSTARTED), claiming(worker)),
            by=store.home,
        )


def test_settle_and_a_new_claim_by_another_process_with_the_same_number(store: Store) -> None:
    """Only the nonce of the token tells the old run from the new one."""
    store.add()
    worker, other_process = store.worker(), store.process().worker()
    held = worker.claim_one()

    def steal(tx: Transaction) -> Operation[None]:
        yield from recovering(worker)(tx)
        yield from claiming(other_process, token=held.token)(tx)

    with pytest.raises(Conflict):
        interleave(
            store.home,
            settling(store, held),
            "load_jobs_for_update",
            steal,
            by=other_process.process,
        )


def test_progress_and_recover(store: Store) -> None:
    """Progress is written with its guard in one statement: it is before or after, never between."""
    job = store.add()
    other = store.process()
    worker = other.worker()
    held = worker.claim_one()
    with other.transaction() as open:
        open.run(recovering(worker)(open.tx_of(store.home)))
        report = Progress(store.queue, held.id, held.token, "50")
        assert open.run(record_progress(open.tx, [report])) == [False]
    assert store.result(job) is None


def test_extend_lease_does_not_change_the_lease_of_a_new_claim(store: Store) -> None:
    """The job has a new claim: a stale claim token must not set its lease."""
    store.add()
    worker, other_process = store.worker(), store.process().worker()
    held = worker.claim_one()

    def steal(tx: Transaction) -> Operation[None]:
        yield from recovering(worker)(tx)
        yield from claiming(other_process, token=held.token)(tx)

    def extend(tx: Transaction) -> Operation[Any]:
        return extend_leases(tx, [ExtendLease(held.id, held.token, 10 * LOCK_DURATION)])

    interleave(store.home, extend, "load_jobs_for_update", steal, by=other_process.process)
    assert store.row(held.id).lease_until == store.clock.lease_now() + LOCK_DURATION


# --- recovering ----------------------------------------------------------------------------------


def test_recover_and_recover(store: Store) -> None:
    store.add()
    worker = store.process().worker()
    worker.claim_one()
    with pytest.raises(Conflict):
        interleave(
            store.home, recovering(worker), "held_by_worker", recovering(worker), by=store.home
        )


def test_recover_and_a_new_claim_by_the_same_worker(store: Store) -> None:
    """The job is active again, in the same hands, with another token: it must not be taken back."""
    store.add()
    other = store.process()
    worker = other.worker()
    held = worker.claim_one()
    with pytest.raises(Conflict):
        interleave(
            store.home,
            recovering(worker),
            "held_by_worker",
            then(settling(store, held, RETURN_UNSTARTED), claiming(worker)),
            by=other,
        )


def test_recover_and_a_new_claim_by_another_worker(store: Store) -> None:
    store.add()
    other, third = store.process(), store.process()
    worker, next_worker = other.worker(), third.worker()
    held = worker.claim_one()

    def steal(tx: Transaction) -> Operation[None]:
        yield from recovering(worker)(tx)
        yield from claiming(next_worker, token=held.token)(tx)

    with pytest.raises(Conflict):
        interleave(store.home, recovering(worker), "held_by_worker", steal, by=third)


def test_a_recovery_decided_before_its_worker_renewed_leaves_its_jobs_alone(store: Store) -> None:
    """The look at the workers happens before the transaction: the lease must be read again."""
    job = store.add()
    worker = store.process().worker()
    worker.claim_one()
    store.clock.advance(LOCK_DURATION + 1)
    stale = RecoverStalled(worker.as_seen(), dead=False)
    worker.process.renew()
    assert store.ask(stale).jobs == 0
    assert store.state(job) == "active"


# --- claiming ------------------------------------------------------------------------------------


def test_claim_and_claim(store: Store) -> None:
    store.add()
    worker, other = store.worker(), store.process().worker()
    with pytest.raises(Conflict):
        interleave(store.home, claiming(worker), "next_in_lane", claiming(other), by=other.process)


def test_claim_and_remove(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    with pytest.raises(Conflict):
        interleave(store.home, claiming(worker), "next_in_lane", moving(REMOVE, job), by=store.home)


def test_remove_and_claim(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    with pytest.raises(Conflict):
        interleave(
            store.home, moving(REMOVE, job), "load_jobs_for_update", claiming(worker), by=store.home
        )


def test_claim_and_promote(store: Store) -> None:
    store.add(delay=1)
    store.clock.advance(1)
    worker = store.worker()
    with pytest.raises(Conflict):
        interleave(store.home, claiming(worker), "due", promoting(store), by=store.process())


# --- moves without a token -----------------------------------------------------------------------


def test_promote_and_promote(store: Store) -> None:
    store.add(delay=1)
    store.clock.advance(1)
    with pytest.raises(Conflict):
        interleave(store.home, promoting(store), "due", promoting(store), by=store.home)


def test_promote_by_hand_and_promote_by_hand(store: Store) -> None:
    job = store.add(delay=1)
    with pytest.raises(Conflict):
        interleave(
            store.home,
            moving(PROMOTE, job),
            "load_jobs_for_update",
            moving(PROMOTE, job),
            by=store.home,
        )


def test_remove_and_promote(store: Store) -> None:
    job = store.add(delay=1)
    store.clock.advance(1)
    with pytest.raises(Conflict):
        interleave(
            store.home, moving(REMOVE, job), "load_jobs_for_update", promoting(store), by=store.home
        )


def test_promote_and_remove(store: Store) -> None:
    job = store.add(delay=1)
    store.clock.advance(1)
    with pytest.raises(Conflict):
        interleave(store.home, promoting(store), "due", moving(REMOVE, job), by=store.home)


def test_restore_and_restore(store: Store) -> None:
    job = store.add()
    store.move(REMOVE, job)
    restoring = moving(RESTORE_WAITING, job)
    with pytest.raises(Conflict):
        interleave(store.home, restoring, "load_jobs_for_update", restoring, by=store.home)


def test_restore_and_a_removal_from_somewhere_else(store: Store) -> None:
    """The job is removed again, but now from failed: it must not be restored to waiting."""
    job = store.add()
    worker = store.worker()
    store.move(REMOVE, job)

    def run_and_remove(tx: Transaction) -> Operation[None]:
        yield from moving(RESTORE_WAITING, job)(tx)
        yield from claiming(worker, token=5)(tx)
        yield from finish_runs(tx, [FinishRuns(store.queue, [RunOutcome(job, 5, FAIL)])])
        yield from moving(REMOVE, job)(tx)

    with pytest.raises(Conflict):
        interleave(
            store.home,
            moving(RESTORE_WAITING, job),
            "load_jobs_for_update",
            run_and_remove,
            by=store.home,
        )


def finished(store: Store) -> int:
    job = store.add()
    worker = store.worker()
    worker.complete(worker.claim_one())
    return job


def test_delete_and_revive(store: Store) -> None:
    job = finished(store)
    with pytest.raises(Conflict):
        interleave(
            store.home,
            moving(DELETE, job),
            "load_jobs_for_update",
            moving(RETRY_FINISHED, job),
            by=store.home,
        )
    assert store.state(job) == "completed"


def test_revive_and_delete(store: Store) -> None:
    job = finished(store)
    with pytest.raises(Conflict):
        interleave(
            store.home,
            moving(RETRY_FINISHED, job),
            "load_jobs_for_update",
            moving(DELETE, job),
            by=store.home,
        )


def test_revive_and_revive(store: Store) -> None:
    job = finished(store)
    with pytest.raises(Conflict):
        interleave(
            store.home,
            moving(RETRY_FINISHED, job),
            "load_jobs_for_update",
            moving(RETRY_FINISHED, job),
            by=store.home,
        )


def test_sweep_and_revive(store: Store) -> None:
    job = finished(store)
    store.clock.advance(1_000)
    with pytest.raises(Conflict):
        interleave(
            store.home,
            sweeping(store),
            "take_oldest:completed",
            moving(RETRY_FINISHED, job),
            by=store.home,
        )


def test_sweep_and_restore(store: Store) -> None:
    job = store.add()
    store.move(REMOVE, job)
    store.clock.advance(1_000)
    with pytest.raises(Conflict):
        interleave(
            store.home,
            sweeping(store),
            "trash_to_delete",
            moving(RESTORE_WAITING, job),
            by=store.home,
        )


# --- what the engine makes of it -----------------------------------------------------------------


def test_a_conflict_in_a_batch_is_settled_by_looking_again(store: Store) -> None:
    """The first try assumes that all is held; the second looks at each job before it moves it."""
    store.add()
    worker, other_process = store.worker(), store.process().worker()
    old = worker.claim_one()
    worker.give_back(old)
    new = other_process.claim_one()
    begun = store.home.driver.begun
    begun.clear()
    assert worker.complete(old) == [old.id]
    assert len(begun) == 2
    assert other_process.complete(new) == []
