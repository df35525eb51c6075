"""How many jobs may begin: global concurrency, rate limits of workers, of queues and by hand."""

from __future__ import annotations

import pytest

from bullite.core.states import DELETE_ACTIVE, REMOVE
from bullite.operations.move import MoveJobs
from bullite.operations.queues import ResetQueue, SetPaused
from bullite.operations.rate_limits import BlockQueue, Rate, SetConcurrency, SetRate
from tests.support.harness import Held, Store, Worker, new_job


def ids(held: list[Held]) -> list[int]:
    return [h.id for h in held]


def add(store: Store, number: int) -> list[int]:
    return store.add_all(*(new_job() for _ in range(number)))


def at_most(store: Store, concurrency: int | None) -> int | None:
    before: int | None = store.ask(SetConcurrency(store.queue, concurrency))
    return before


def rate(store: Store, limiter: Rate | None) -> Rate | None:
    before: Rate | None = store.ask(SetRate(store.queue, limiter))
    return before


def turn(store: Store) -> None:
    store.home.engine.turn()


# --- global concurrency --------------------------------------------------------------------------


def test_no_more_run_than_the_global_concurrency_allows(store: Store) -> None:
    jobs = add(store, 5)
    at_most(store, 2)
    assert ids(store.worker().claim(9)) == jobs[:2]


def test_it_holds_over_all_workers_of_all_processes(store: Store) -> None:
    add(store, 5)
    at_most(store, 3)
    assert len(store.worker().claim(2)) == 2
    assert len(store.process().worker().claim(2)) == 1
    assert store.worker().claim(2) == []


def test_what_held_before_is_told(store: Store) -> None:
    assert at_most(store, 3) is None
    assert at_most(store, 4) == 3
    assert at_most(store, None) == 4


def test_it_is_counted_from_the_jobs_that_run_and_not_kept(store: Store) -> None:
    add(store, 5)
    at_most(store, 1)
    store.database.write("update bullite_queues set concurrency = 2")
    worker = store.worker()
    assert len(worker.claim(9)) == 2
    store.database.write("update bullite_queues set concurrency = 1")
    assert worker.claim(9) == []


def test_a_lower_one_stops_nobody_but_lets_nobody_begin(store: Store) -> None:
    add(store, 5)
    worker = store.worker()
    held = worker.claim(3)
    at_most(store, 2)
    worker.complete(held[0])
    assert worker.claim(9) == []
    worker.complete(held[1])
    assert len(worker.claim(9)) == 1


def test_a_higher_one_holds_from_then_on(store: Store) -> None:
    add(store, 5)
    at_most(store, 1)
    worker = store.worker()
    worker.wants(5)
    turn(store)
    assert len(worker.received) == 1
    at_most(store, 3)
    assert len(worker.received) == 3


def test_without_it_workers_take_what_they_want(store: Store) -> None:
    add(store, 5)
    at_most(store, 1)
    worker = store.worker()
    worker.wants(5)
    turn(store)
    at_most(store, None)
    assert len(worker.received) == 5


WAYS_OUT = {
    "complete": lambda worker, held: worker.complete(held),
    "fail": lambda worker, held: worker.fail(held),
    "back off": lambda worker, held: worker.back_off(held, delay=60_000),
    "retry": lambda worker, held: worker.retry(held),
    "delay": lambda worker, held: worker.delay(held, delay=60_000),
    "release": lambda worker, held: worker.release(held),
    "give back": lambda worker, held: worker.give_back(held),
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_slot_that_is_freed_is_taken_by_a_worker_of_this_process(store: Store, way: str) -> None:
    add(store, 3)
    at_most(store, 1)
    runs, waits = store.worker(), store.worker()
    held = runs.claim_one()
    waits.wants(1)
    turn(store)
    assert waits.received == []
    WAYS_OUT[way](runs, held)
    turn(store)
    assert len(waits.received) == 1


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_slot_that_is_freed_wakes_somebody_elsewhere(
    store: Store, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    add(store, 3)
    at_most(store, 1)
    worker, other = store.worker(), store.process().worker()
    held = worker.claim_one()
    other.wants(1)
    other.process.engine.turn()
    monkeypatch.setattr(
        store.home.driver, "queue_notification", lambda queue, names, most: woken.append(most)
    )
    WAYS_OUT[way](worker, held)
    assert sum(woken) >= 1


def test_a_slot_that_is_taken_again_at_once_wakes_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    add(store, 9)
    at_most(store, 1)
    worker = store.worker()
    worker.wants(1)
    turn(store)
    monkeypatch.setattr(
        store.home.driver, "queue_notification", lambda queue, names, most: woken.append(most)
    )
    worker.subscription.remove_held(1, store.clock.lease_now())
    worker.complete(worker.received[0])
    assert len(worker.received) == 2
    assert woken == []


def test_a_run_that_ends_in_a_queue_without_it_wakes_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    add(store, 2)
    worker = store.worker()
    held = worker.claim_one()
    monkeypatch.setattr(
        store.home.driver, "queue_notification", lambda queue, names, most: woken.append(most)
    )
    worker.complete(held)
    assert woken == []


def test_the_slot_of_a_worker_that_died_is_free_when_its_jobs_are_taken_back(store: Store) -> None:
    doomed = store.process()
    add(store, 2)
    at_most(store, 1)
    doomed.worker().claim_one()
    survivor = store.worker()
    assert survivor.claim(1) == []
    survivor.wants(1)
    store.kill(doomed)
    store.home.recover()
    turn(store)
    assert len(survivor.received) == 1


def test_the_slot_of_a_stalled_job_that_backs_off_is_free(store: Store) -> None:
    doomed = store.process()
    store.add(opts='{"backoff":{"type":"fixed","delay":60000}}')
    second = store.add()
    at_most(store, 1)
    doomed.worker(stalled_backoff=True).claim_one()
    survivor = store.worker()
    survivor.wants(1)
    turn(store)
    store.kill(doomed)
    store.home.recover()
    turn(store)
    assert ids(survivor.received) == [second]


def test_a_job_that_is_torn_away_frees_its_slot(store: Store) -> None:
    first, second = add(store, 2)
    at_most(store, 1)
    worker = store.worker()
    worker.claim_one()
    store.ask(MoveJobs(DELETE_ACTIVE, [first]))
    assert ids(worker.claim(1)) == [second]


def test_order_holds_when_one_runs_at_a_time(store: Store) -> None:
    jobs = add(store, 6)
    at_most(store, 1)
    workers = [store.worker(), store.process().worker()]
    order = []
    for turn_of in range(6):
        worker = workers[turn_of % 2]
        [held] = worker.claim(3)
        order.append(held.id)
        worker.complete(held)
    assert order == jobs


def test_a_removed_job_is_no_running_job(store: Store) -> None:
    first, second = add(store, 2)
    at_most(store, 1)
    store.move(REMOVE, first)
    assert ids(store.worker().claim(1)) == [second]


def test_queues_have_limits_of_their_own(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    at_most(store, 1)
    store.home.add_all(*(new_job() for _ in range(3)), queue=elsewhere)
    assert len(store.worker(queue=elsewhere).claim(3)) == 3


# --- a window ------------------------------------------------------------------------------------


def test_no_more_begin_in_a_window_than_the_limiter_allows(store: Store) -> None:
    jobs = add(store, 5)
    worker = store.worker(limiter=Rate(2, 1_000))
    assert ids(worker.claim(9)) == jobs[:2]
    store.clock.advance(999)
    assert worker.claim(9) == []
    store.clock.advance(1)
    assert ids(worker.claim(9)) == jobs[2:4]
    assert worker.claim(9) == []


def test_a_window_begins_with_the_first_job_that_is_taken(store: Store) -> None:
    worker = store.worker(limiter=Rate(2, 1_000))
    worker.claim(9)
    store.clock.advance(600)
    jobs = add(store, 1)
    assert ids(worker.claim(9)) == jobs
    store.clock.advance(600)
    more = add(store, 2)
    assert ids(worker.claim(9)) == more[:1]
    store.clock.advance(400)
    assert ids(worker.claim(9)) == more[1:]


def test_what_is_taken_counts_whether_it_ends_or_not(store: Store) -> None:
    add(store, 5)
    worker = store.worker(limiter=Rate(1, 1_000))
    worker.claim_one()
    store.clock.advance(1_000)
    assert len(worker.claim(9)) == 1


def test_the_time_that_a_job_takes_is_not_added(store: Store) -> None:
    add(store, 5)
    worker = store.worker(limiter=Rate(1, 1_000))
    held = worker.claim_one()
    store.clock.advance(900)
    worker.complete(held)
    store.clock.advance(100)
    assert len(worker.claim(9)) == 1


def test_workers_of_all_processes_share_the_window(store: Store) -> None:
    add(store, 9)
    limiter = Rate(3, 1_000)
    first, second = store.worker(limiter=limiter), store.process().worker(limiter=limiter)
    assert len(first.claim(2)) == 2
    assert len(second.claim(2)) == 1
    assert first.claim(2) == second.claim(2) == []


def test_a_worker_without_a_limiter_is_not_held_up_by_that_of_another(store: Store) -> None:
    add(store, 5)
    store.worker(limiter=Rate(1, 1_000)).claim(9)
    assert len(store.worker().claim(3)) == 3


def test_the_window_outlives_the_worker_that_used_it(store: Store) -> None:
    doomed = store.process()
    add(store, 3)
    limiter = Rate(1, 1_000)
    doomed.worker(limiter=limiter).claim_one()
    store.kill(doomed)
    store.home.recover()
    worker = store.worker(limiter=limiter)
    assert worker.claim(9) == []
    store.clock.advance(1_000)
    assert len(worker.claim(9)) == 1


def test_limited_jobs_wait(store: Store) -> None:
    add(store, 3)
    store.worker(limiter=Rate(1, 1_000)).claim(9)
    assert store.counts() == {"waiting": 2, "active": 1}


def test_a_worker_that_is_limited_looks_again_when_the_window_ends(store: Store) -> None:
    add(store, 2)
    worker = store.worker(limiter=Rate(1, 1_000))
    worker.wants(2)
    turn(store)
    assert store.home.engine._dispatcher.next_in() == 1_000
    store.clock.advance(1_000)
    turn(store)
    assert len(worker.received) == 2


def test_it_looks_again_sooner_if_it_wants_to(store: Store) -> None:
    add(store, 2)
    worker = store.worker(limiter=Rate(1, 1_000), longest_rest=300)
    worker.wants(2)
    turn(store)
    assert store.home.engine._dispatcher.next_in() == 300


def test_delayed_jobs_are_promoted_though_nothing_may_begin(store: Store) -> None:
    store.add_all(new_job(), new_job(), new_job(delay=400))
    worker = store.worker(limiter=Rate(1, 1_000))
    worker.wants(2)
    turn(store)
    assert store.home.engine._dispatcher.next_in() == 400
    store.clock.advance(400)
    turn(store)
    assert store.counts() == {"waiting": 2, "active": 1}


def test_priorities_hold_under_a_limit(store: Store) -> None:
    names = {"c": 3, "a": 1, "b": 2}
    for name, priority in names.items():
        store.add(name, priority=priority)
    worker = store.worker(limiter=Rate(1, 10))
    order = []
    for _ in names:
        order += [held.row.name for held in worker.claim(9)]
        store.clock.advance(10)
    assert order == ["a", "b", "c"]


def test_workers_by_name_share_the_window(store: Store) -> None:
    for name in ("a", "b", "a", "b"):
        store.add(name)
    limiter = Rate(1, 1_000)
    some, others = (store.worker(names=[n], limiter=limiter) for n in ("a", "b"))
    assert len(some.claim(9)) == 1
    assert others.claim(9) == []
    store.clock.advance(1_000)
    assert [held.row.name for held in others.claim(9)] == ["b"]


def test_a_job_asked_for_by_hand_counts(store: Store) -> None:
    add(store, 3)
    worker = store.worker(limiter=Rate(1, 1_000), by_hand=True)
    answers: list[int] = []
    for _ in range(2):
        store.home.engine.subscriptions.claim_one(
            worker.subscription, lambda claimed: answers.append(len(claimed.rows)), _Box()
        )
        turn(store)
    assert answers == [1, 0]


class _Box:
    def deliver(self, answers) -> None:
        for reply, answer in answers:
            reply(answer)

    def alive(self) -> bool:
        return True


def test_nothing_is_fetched_ahead_under_a_limit(store: Store) -> None:
    add(store, 9)
    worker = store.worker()
    rate(store, Rate(5, 1_000))
    assert len(worker.claim(2, ahead=5)) == 2
    assert [list(row) for row in store.read("count_prefetched", queue=store.queue)] == [[0]]
    assert worker.claim(0, ahead=5) == []


@pytest.mark.parametrize(
    "limit",
    [
        lambda store: at_most(store, 1),
        lambda store: rate(store, Rate(1, 1_000)),
        lambda store: store.ask(BlockQueue(store.queue, 1_000)),
    ],
    ids=["concurrency", "rate", "by hand"],
)
def test_what_was_fetched_ahead_is_given_back_when_a_limit_comes(store: Store, limit) -> None:
    add(store, 9)
    worker = store.worker()
    worker.claim(1, ahead=4)
    limit(store)
    assert worker.unloaded == 1


def test_a_worker_elsewhere_learns_of_a_limit_when_it_next_looks(store: Store) -> None:
    add(store, 9)
    worker = store.process().worker()
    worker.claim(1, ahead=4)
    at_most(store, 1)
    worker.subscription.concurrency, worker.subscription.prefetched = 1, 5
    worker.process.engine.poll_now()
    worker.process.engine.turn()
    assert worker.unloaded == 1


# --- of a queue ----------------------------------------------------------------------------------


def test_the_limit_of_a_queue_holds_for_all_workers(store: Store) -> None:
    add(store, 9)
    assert rate(store, Rate(2, 1_000)) is None
    assert len(store.worker().claim(9)) == 2
    assert store.process().worker().claim(9) == []


def test_its_maximum_beats_that_of_a_worker(store: Store) -> None:
    add(store, 9)
    rate(store, Rate(2, 1_000))
    assert len(store.worker(limiter=Rate(5, 1_000)).claim(9)) == 2


def test_the_duration_of_a_worker_beats_its_own(store: Store) -> None:
    add(store, 9)
    rate(store, Rate(2, 1_000))
    worker = store.worker(limiter=Rate(5, 300))
    worker.claim(9)
    store.clock.advance(300)
    assert len(worker.claim(9)) == 2


def test_workers_that_wait_are_fed_when_it_is_removed(store: Store) -> None:
    add(store, 9)
    rate(store, Rate(1, 60_000))
    worker = store.worker()
    worker.wants(9)
    turn(store)
    assert rate(store, None) == Rate(1, 60_000)
    assert len(worker.received) == 9


def test_both_limits_hold_together(store: Store) -> None:
    add(store, 9)
    at_most(store, 3)
    rate(store, Rate(2, 1_000))
    worker = store.worker()
    assert len(worker.claim(9)) == 2
    store.clock.advance(1_000)
    assert len(worker.claim(9)) == 1


def test_a_paused_queue_uses_no_window(store: Store) -> None:
    add(store, 2)
    rate(store, Rate(1, 1_000))
    store.ask(SetPaused(store.queue, True))
    worker = store.worker()
    assert worker.claim(9) == []
    store.ask(SetPaused(store.queue, False))
    assert len(worker.claim(9)) == 1


# --- by hand -------------------------------------------------------------------------------------


def test_a_window_used_up_by_hand_stops_every_worker(store: Store) -> None:
    add(store, 3)
    assert store.ask(BlockQueue(store.queue, 1_000)) is False
    limited = store.worker(limiter=Rate(9, 10))
    other = store.process().worker()
    assert limited.claim(9) == other.claim(9) == []
    store.clock.advance(1_000)
    assert len(other.claim(1)) == 1
    assert len(limited.claim(9)) == 2


def test_a_window_ended_by_hand_lets_jobs_flow_at_once(store: Store) -> None:
    add(store, 3)
    store.ask(BlockQueue(store.queue, 60_000))
    worker = store.worker()
    worker.wants(3)
    turn(store)
    assert store.ask(BlockQueue(store.queue, None)) is True
    assert len(worker.received) == 3
    assert store.ask(BlockQueue(store.queue, None)) is False


def test_a_shorter_window_by_hand_takes_the_place_of_a_longer_one(store: Store) -> None:
    add(store, 1)
    worker = store.worker()
    store.ask(BlockQueue(store.queue, 60_000))
    worker.wants(1)
    turn(store)
    store.ask(BlockQueue(store.queue, 100))
    store.clock.advance(100)
    turn(store)
    assert len(worker.received) == 1


def test_a_released_job_goes_back_to_its_place_and_tells_for_how_long(store: Store) -> None:
    jobs = add(store, 3)
    worker = store.worker()
    held = worker.claim_one()
    store.ask(BlockQueue(store.queue, 250))
    worker.release(held)
    assert worker.claim(9) == []
    assert (store.row(held.id).attempts_made, store.row(held.id).attempts_started) == (0, 1)
    store.clock.advance(250)
    assert ids(worker.claim(9)) == jobs


# --- around --------------------------------------------------------------------------------------


def test_a_queue_that_is_as_new_has_no_limits(store: Store) -> None:
    at_most(store, 1)
    rate(store, Rate(1, 1_000))
    store.ask(BlockQueue(store.queue, 60_000))
    store.ask(ResetQueue(store.queue))
    add(store, 3)
    assert len(store.worker().claim(9)) == 3


def test_a_queue_without_limits_runs_the_statements_it_always_did(store: Store) -> None:
    add(store, 3)
    worker = store.worker()
    asked = statements_of(store, lambda: worker.claim(2))
    assert asked[:2] == ["claim_info", "next_in_lane"]
    assert not {"lock_queue_limits", "count_active", "key_windows", "set_window"} & set(asked)


def statements_of(store: Store, act) -> list[str]:
    asked: list[str] = []
    execute = store.home.driver.execute
    store.home.driver.execute = lambda name, params: asked.append(name) or execute(name, params)
    try:
        act()
    finally:
        store.home.driver.execute = execute
    return [name for name in asked if name != "has_ready_or_due"]


def test_an_add_to_a_queue_without_quotas_runs_the_statements_it_always_did(store: Store) -> None:
    asked = statements_of(store, lambda: add(store, 1))
    assert set(asked) == {
        *("take_numbers", "add_info", "insert_jobs", "insert_payloads"),
        *("change_counts", "insert_events"),
    }


def fed(worker: Worker) -> int:
    return len(worker.received)


def test_two_workers_of_a_process_share_what_is_left(store: Store) -> None:
    add(store, 9)
    at_most(store, 3)
    first, second = store.worker(), store.worker()
    for worker in (first, second):
        worker.wants(2)
    turn(store)
    assert sorted([fed(first), fed(second)]) == [1, 2]
