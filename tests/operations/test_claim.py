"""Taking jobs: in which order, by whom, and with which token."""

from __future__ import annotations

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.states import COMPLETE, PROMOTE, REMOVE, RESTORE, RETRY_FINISHED, State
from bullite.errors import StoreUnavailable
from bullite.operations.add import AddJobs
from bullite.operations.claim import MAX_PROMOTED, MAX_SORTED
from bullite.operations.update import Progress
from tests.support.harness import LOCK_DURATION, Held, Store, Worker, new_job


def ids(held: list[Held]) -> list[int]:
    return [h.id for h in held]


def names(held: list[Held]) -> list[str]:
    return [h.row.name for h in held]


# --- the order of the line -----------------------------------------------------------------------


def test_first_in_first_out(store: Store) -> None:
    jobs = [store.add() for _ in range(5)]
    assert ids(store.worker().claim(3)) == jobs[:3]


def test_first_in_first_out_across_processes(store: Store) -> None:
    other = store.process()
    jobs = [process.add() for process in (store.home, other, other, store.home)]
    assert ids(store.worker().claim(2) + other.worker().claim(2)) == jobs


def test_a_lower_rank_goes_first_and_equal_ranks_in_the_order_they_came(store: Store) -> None:
    for name, priority in (("d", 9), ("b", 0), ("e", 9), ("a", -5), ("c", 0)):
        store.add(name, priority=priority)
    assert names(store.worker().claim(9)) == ["a", "b", "c", "d", "e"]


def test_in_a_queue_where_high_goes_first_the_rank_is_what_counts(store: Store) -> None:
    ranked = store.home.open_queue("ranked", "high")
    for name, priority in (("c", 0), ("a", 9), ("b", 1), ("d", -1)):
        store.home.add(name, priority=priority, rank=-priority, queue=ranked)
    worker = store.worker(queue=ranked)
    assert names(worker.claim(9)) == ["a", "b", "c", "d"]


def test_last_in_first_out_jobs_go_in_front_of_their_rank(store: Store) -> None:
    store.add("c")
    store.add("b", lifo=True)
    store.add("a", lifo=True)
    store.add("d", priority=1, lifo=True)
    assert names(store.worker().claim(9)) == ["a", "b", "c", "d"]


def test_due_jobs_go_to_the_end_of_the_line_in_the_order_of_their_time(store: Store) -> None:
    store.add("c", delay=300)
    store.add("b", delay=200)
    store.add("b too", delay=200)
    store.clock.advance(100)
    store.add("a")
    store.clock.advance(200)
    assert names(store.worker().claim(9)) == ["a", "b", "b too", "c"]


def test_a_job_that_is_due_in_a_millisecond_is_not_taken(store: Store) -> None:
    job = store.add(delay=100)
    worker = store.worker()
    store.clock.advance(99)
    assert worker.claim() == []
    store.clock.advance(1)
    assert ids(worker.claim()) == [job]


def test_a_due_last_in_first_out_job_goes_to_the_front(store: Store) -> None:
    store.add("second")
    store.add("first", lifo=True, delay=10)
    store.clock.advance(10)
    assert names(store.worker().claim(9)) == ["first", "second"]


def test_a_job_promoted_by_hand_goes_to_the_end_of_the_line(store: Store) -> None:
    early = store.add(delay=1_000)
    later = store.add()
    store.move(PROMOTE, early)
    assert ids(store.worker().claim(9)) == [later, early]


def test_more_due_jobs_than_one_transaction_promotes_keep_their_order(store: Store) -> None:
    jobs = store.add_all(*(new_job(delay=10) for _ in range(MAX_PROMOTED + 3)))
    store.clock.advance(10)
    worker = store.worker()
    worker.wants(MAX_PROMOTED + 3)
    for _ in range(3):
        store.home.engine.turn()
    assert ids(worker.received) == jobs


def test_a_retried_job_goes_to_the_end_of_the_line(store: Store) -> None:
    first, second = store.add(), store.add()
    worker = store.worker()
    worker.retry(worker.claim_one())
    assert ids(worker.claim(9)) == [second, first]


def test_jobs_given_back_keep_their_old_places(store: Store) -> None:
    jobs = [store.add() for _ in range(4)]
    worker = store.worker()
    one, two, _three = worker.claim(3)
    worker.give_back(two, one)
    assert ids(worker.claim(9)) == [jobs[0], jobs[1], jobs[3]]


def test_a_stalled_job_goes_to_the_front_of_the_line(store: Store) -> None:
    doomed = store.process()
    stalled, waiting = store.add(), store.add()
    assert ids(doomed.worker().claim()) == [stalled]
    store.kill(doomed)
    urgent = store.add(lifo=True)
    store.home.recover()
    assert ids(store.worker().claim(9)) == [stalled, urgent, waiting]


def test_stalled_jobs_keep_the_order_they_had(store: Store) -> None:
    doomed = store.process()
    jobs = [store.add() for _ in range(5)]
    doomed.worker().claim(4)
    store.kill(doomed)
    store.home.recover()
    assert ids(store.worker().claim(9)) == jobs


def test_a_stalled_job_does_not_overtake_a_better_rank(store: Store) -> None:
    doomed = store.process()
    store.add("stalled", priority=5)
    doomed.worker().claim()
    store.kill(doomed)
    store.add("better", priority=1)
    store.home.recover()
    assert names(store.worker().claim(9)) == ["better", "stalled"]


def test_a_revived_job_goes_to_the_end_of_the_line(store: Store) -> None:
    old, new = store.add(), store.add()
    worker = store.worker()
    worker.fail(worker.claim_one())
    store.move(RETRY_FINISHED, old)
    assert ids(worker.claim(9)) == [new, old]


def test_a_restored_job_has_its_old_place(store: Store) -> None:
    first, second = store.add(), store.add()
    store.move(REMOVE, first)
    store.move(RESTORE[State.WAITING], first)
    assert ids(store.worker().claim(9)) == [first, second]


def test_jobs_of_another_queue_are_left_alone(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    store.home.add(queue=elsewhere)
    store.home.add(queue=elsewhere, delay=1)
    store.clock.advance(1)
    assert store.worker().claim(9) == []
    assert store.counts(elsewhere) == {"waiting": 1, "delayed": 1}


def test_no_more_jobs_are_taken_than_wanted(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(5)))
    assert len(store.worker().claim(2)) == 2
    assert store.counts() == {"waiting": 3, "active": 2}


def test_a_worker_that_others_gave_up_on_takes_nothing(store: Store) -> None:
    other = store.process()
    worker = other.worker()
    store.add()
    store.clock.advance(LOCK_DURATION + 1)
    store.home.driver.execute(
        "delete_idle_worker", {"worker": worker.id, "expired_before": 2**62, "dead": 1}
    )
    assert worker.claim(9) == []
    assert store.counts() == {"waiting": 1}
    assert len(worker.claim(9) + worker.claim(9)) == 1, "it is registered anew"


# --- what a claim writes -------------------------------------------------------------------------


def test_a_claim_tells_the_worker_what_it_needs(store: Store) -> None:
    job = store.add("mail", data="[1]", custom_id="m", priority=4, attempts=2)
    held = store.worker().claim_one()
    assert held.row == (
        *(job, "mail", "m", 4, 2),
        *(0, 1, 0),  # attempts made, this one started, never stalled
        *(store.clock.now(), None, None),
        *(4, job),  # its place in line
        0,  # nothing else belongs to it
        "[1]",
    )


def test_a_claim_writes_who_holds_the_job_and_until_when(store: Store) -> None:
    job = store.add()
    store.clock.advance(5)
    worker = store.worker(lock_duration=700)
    held = worker.claim_one()
    row = store.row(job)
    assert (row.worker, row.token, row.nonce) == (worker.id, held.token, store.home.nonce)
    assert row.lease_until == store.clock.lease_now() + 700
    assert row.processed_at == store.clock.now()


def test_two_processes_never_hold_the_same_job(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(20)))
    workers = [store.process().worker() for _ in range(2)] + [store.worker()]
    held = [h.id for _ in range(7) for worker in workers for h in worker.claim()]
    assert held == jobs


# --- tokens --------------------------------------------------------------------------------------


def test_over_a_thousand_claims_no_token_comes_twice_and_no_stale_one_is_accepted(
    store: Store,
) -> None:
    job = store.add()
    processes = [store.home, store.process()]
    workers = [process.worker() for process in processes]
    seen: list[tuple[Worker, Held]] = []
    for cycle in range(1_000):
        worker = workers[cycle % 2]
        held = worker.claim_one()
        seen.append((worker, held))
        if cycle < 999:
            worker.give_back(held)
    assert len({(worker.process.nonce, held.token) for worker, held in seen}) == 1_000
    for worker, held in seen[:-1:50] + seen[-3:-1]:
        assert worker.complete(held) == [job]
    last_worker, last = seen[-1]
    assert last_worker.complete(last) == []


def test_a_process_that_opens_the_database_again_makes_new_tokens(store: Store) -> None:
    """Its numbers start anew, as after a crash that lost unsynced claims; its nonce does not."""
    job = store.add()
    first = store.process()
    old = first.worker().claim_one()
    store.kill(first)
    store.home.recover()
    second = store.process()
    worker = second.worker()
    new = worker.claim_one()
    assert new.token == old.token
    assert first.nonce != second.nonce
    assert store.row(job).nonce == second.nonce


def test_a_token_of_a_failed_transaction_is_not_used_again(store: Store) -> None:
    store.add()
    worker = store.worker()
    held = worker.claim_one()
    worker.give_back(held)
    store.home.driver.fail_at["commit"] = StoreUnavailable("the disk is gone")
    with pytest.raises(StoreUnavailable):
        worker.claim()
    store.clock.advance(60_000)
    assert worker.claim_one().token == held.token + 2


# --- by name -------------------------------------------------------------------------------------


def test_a_worker_with_names_takes_only_those(store: Store) -> None:
    worker = store.worker(names=["mail", "fax"])
    for name in ("mail", "call", "fax", "mail"):
        store.add(name)
    assert names(worker.claim(9)) == ["mail", "fax", "mail"]
    assert store.counts() == {"waiting": 1, "active": 3}


def test_a_worker_with_names_takes_them_in_the_order_of_the_whole_line(store: Store) -> None:
    worker = store.worker(names=["a", "b"])
    for name, priority in (("a", 1), ("b", 0), ("a", 0), ("b", -1)):
        store.add(name, priority=priority)
    held = worker.claim(3)
    assert [(h.row.name, h.row.priority) for h in held] == [("b", -1), ("b", 0), ("a", 0)]


def test_a_worker_without_names_takes_from_all_lanes_in_the_right_order(store: Store) -> None:
    store.worker(names=["a"])
    for name, priority in (("c", 0), ("a", 1), ("b", 0), ("a", 0), ("c", -1)):
        store.add(name, priority=priority)
    held = store.worker().claim(4)
    assert [(h.row.name, h.row.priority) for h in held] == [
        *(("c", -1), ("c", 0), ("b", 0), ("a", 0))
    ]


def test_jobs_added_before_the_first_worker_with_names_are_found_by_it(store: Store) -> None:
    for name in ("other", "mine", "other", "mine"):
        store.add(name)
    worker = store.worker(names=["mine"])
    assert names(worker.claim(9)) == ["mine", "mine"]


def test_old_and_new_jobs_of_a_queue_that_turned_by_name_form_one_line(store: Store) -> None:
    old = [store.add("a"), store.add("b")]
    worker = store.worker(names=["a", "b"])
    new = [store.add("a"), store.add("b")]
    nameless = store.worker()
    assert ids(nameless.claim(1) + worker.claim(1) + nameless.claim(9)) == old + new


@pytest.mark.parametrize("more", [1, MAX_SORTED])
def test_a_worker_with_names_finds_its_job_behind_many_old_ones_of_other_names(
    store: Store, more: int
) -> None:
    store.add_all(*(new_job("other") for _ in range(MAX_SORTED + more)))
    mine = store.add("mine")
    worker = store.worker(names=["mine"])
    worker.wants(1)
    for _ in range(5):
        store.home.engine.turn()
    assert ids(worker.received) == [mine]


def test_a_new_job_does_not_overtake_an_old_one_that_has_no_lane_yet(store: Store) -> None:
    store.add_all(*(new_job("other") for _ in range(MAX_SORTED)))
    old = store.add("mine")
    worker = store.worker(names=["mine"])
    new = store.add("mine")
    worker.wants(2)
    for _ in range(5):
        store.home.engine.turn()
    assert ids(worker.received) == [old, new]


def test_delayed_retried_and_stalled_jobs_stay_in_the_lane_of_their_name(store: Store) -> None:
    doomed = store.process()
    worker = store.worker(names=["mine"])
    store.add("other")
    delayed = store.add("mine", delay=10)
    retried = store.add("mine")
    stalled = store.add("mine")
    worker.retry(worker.claim_one())
    assert ids(doomed.worker(names=["mine"]).claim(1)) == [stalled]
    store.kill(doomed)
    store.home.recover()
    store.clock.advance(10)
    assert ids(worker.claim(9)) == [stalled, retried, delayed]


def test_a_job_held_while_the_queue_turned_by_name_is_found_when_it_comes_back(
    store: Store,
) -> None:
    job = store.add("mine")
    early = store.worker()
    held = early.claim_one()
    worker = store.worker(names=["mine"])
    early.give_back(held)
    assert ids(worker.claim()) == [job]


# --- the standing order --------------------------------------------------------------------------


def test_claim_happens_in_the_transaction_that_adds_the_job_if_a_worker_is_idle(
    store: Store,
) -> None:
    worker = store.worker()
    worker.wants(2)
    store.home.engine.turn()
    before = len(store.home.driver.begun)
    job = store.add()
    assert ids(worker.received) == [job]
    assert len(store.home.driver.begun) == before + 1


def test_a_worker_is_fed_in_the_transaction_that_settles_its_last_job(store: Store) -> None:
    store.add_all(new_job(), new_job())
    worker = store.worker()
    held = worker.claim_one()
    worker.wants(1)
    before = len(store.home.driver.begun)
    worker.complete(held)
    assert len(worker.received) == 2
    assert len(store.home.driver.begun) == before + 1


def test_claim_happens_when_a_delayed_job_is_due_if_a_worker_is_idle(store: Store) -> None:
    worker = store.worker()
    worker.wants(1)
    job = store.add(delay=100)
    store.home.engine.turn()
    assert worker.received == []
    store.clock.advance(100)
    store.home.engine.turn()
    assert ids(worker.received) == [job]


@pytest.mark.parametrize("delay", [0, 100])
def test_claim_happens_when_a_job_is_restored_if_a_worker_is_idle(store: Store, delay: int) -> None:
    job = store.add(delay=delay)
    store.move(REMOVE, job)
    worker = store.worker()
    worker.wants(1)
    store.home.engine.turn()
    store.move(RESTORE[State.DELAYED if delay else State.WAITING], job)
    store.clock.advance(delay)
    store.home.engine.turn()
    assert ids(worker.received) == [job]


def test_pause_subscription_stops_claims(store: Store) -> None:
    worker = store.worker()
    worker.wants(1)
    answers: list[object] = []
    store.home.engine.subscriptions.pause(worker.subscription, answers.append)
    store.home.engine.turn()
    assert answers == [None]
    store.add()
    assert worker.received == []


def test_a_batch_that_only_claims_renews_or_reports_progress_need_not_be_durable(
    store: Store,
) -> None:
    store.add()
    worker = store.worker()
    begun = store.home.driver.begun
    begun.clear()
    held = worker.claim_one()
    worker.progress(held)
    store.home.renew()
    assert begun == [False, False, False]


def test_a_batch_that_adds_or_settles_is_durable(store: Store) -> None:
    worker = store.worker()
    begun = store.home.driver.begun
    begun.clear()
    job = store.add()
    assert begun == [True]
    held = worker.claim_one()
    begun.clear()
    worker.complete(held)
    store.move(RETRY_FINISHED, job)
    assert begun == [True, True]


def test_one_durable_request_makes_its_whole_batch_durable(store: Store) -> None:
    store.add()
    worker = store.worker()
    held = worker.claim_one()
    begun = store.home.driver.begun
    begun.clear()
    store.ask_together(
        Progress(store.queue, held.id, held.token, "1"), AddJobs(store.queue, [new_job()])
    )
    assert begun == [True]


def test_a_lease_is_as_long_as_the_worker_asked_for(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.claim_one()
    assert store.row(job).lease_until == store.clock.lease_now() + LOCK_DURATION


def test_a_verdict_is_refused_once_the_job_is_held_by_another_worker_of_the_same_process(
    store: Store,
) -> None:
    job = store.add()
    first, second = store.worker(), store.worker()
    old = first.claim_one()
    first.give_back(old)
    new = second.claim_one()
    assert store.home.settle(RunOutcome(job, old.token, COMPLETE)) == [job]
    assert second.complete(new) == []
