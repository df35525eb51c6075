"""Limits by key: a key that is used up holds up nobody else, and its own jobs keep their order."""

from __future__ import annotations

import pytest

from bullite.core.states import DELETE, REMOVE, RESTORE_WAITING, RETRY_FINISHED
from bullite.operations import rate_limits_by_key
from bullite.operations.cancel_and_expire import Expire
from bullite.operations.queues import Configure, ResetQueue
from bullite.operations.rate_limits import Rate, SetConcurrency, SetRate
from bullite.operations.rate_limits_by_key import EVERY_KEY, SetKeyLimit
from bullite.operations.update import SetPriority
from tests.support.harness import Held, Store, Worker, new_job


def ids(held: list[Held]) -> list[int]:
    return [h.id for h in held]


def limit(store: Store, key: str, most: int | None, duration: int = 1_000) -> Rate | None:
    limiter = None if most is None else Rate(most, duration)
    before: Rate | None = store.ask(SetKeyLimit(store.queue, key, limiter))
    return before


def add(store: Store, *keys: str | None, **options: object) -> list[int]:
    return store.add_all(*(new_job(limit_key=key, **options) for key in keys))  # type: ignore[arg-type]


def aside(store: Store) -> list[int]:
    """The jobs that stand aside."""
    rows = store.database.rows("jobs")
    return [row["id"] for row in rows if row["lane"].startswith(rate_limits_by_key.PARKED_LANE)]


def everything(worker: Worker, want: int = 99) -> list[int]:
    """What it gets in as many looks as it takes."""
    worker.wants(want)
    before = len(worker.received)
    worker.process.engine.poll_now()
    for _ in range(20):
        worker.process.engine.turn()
    worker.wants(0)
    return ids(worker.received[before:])


# --- what may begin ------------------------------------------------------------------------------


def test_a_key_that_is_used_up_does_not_hold_up_others(store: Store) -> None:
    limit(store, "a", 1)
    a1, a2, a3, b, none = add(store, "a", "a", "a", "b", None)
    assert everything(store.worker()) == [a1, b, none]
    assert aside(store) == [a2, a3]


def test_jobs_without_a_key_and_of_keys_without_a_limit_are_not_limited(store: Store) -> None:
    limit(store, "a", 1)
    jobs = add(store, None, "b", None, "b")
    assert everything(store.worker()) == jobs


def test_as_many_as_may_begin_come_back_when_the_window_ends(store: Store) -> None:
    limit(store, "a", 2)
    jobs = add(store, *"aaaaa")
    worker = store.worker()
    assert everything(worker) == jobs[:2]
    store.clock.advance(999)
    assert everything(worker) == []
    store.clock.advance(1)
    assert everything(worker) == jobs[2:4]
    store.clock.advance(1_000)
    assert everything(worker) == jobs[4:]


def test_the_worker_looks_again_when_the_first_window_ends(store: Store) -> None:
    limit(store, "a", 1, 700)
    limit(store, "b", 1, 300)
    add(store, *"aabb")
    worker = store.worker()
    worker.wants(9)
    store.home.engine.turn()
    store.home.engine.turn()
    assert len(worker.received) == 2
    assert store.home.engine._dispatcher.next_in() == 300


def test_a_window_begins_with_the_first_job_of_its_key(store: Store) -> None:
    limit(store, "a", 2)
    worker = store.worker()
    first = add(store, "a")
    assert everything(worker) == first
    store.clock.advance(600)
    second, third = add(store, "a", "a")
    assert everything(worker) == [second]
    store.clock.advance(400)
    assert everything(worker) == [third]


def test_order_holds_inside_a_key_whatever_comes_later(store: Store) -> None:
    limit(store, "a", 1)
    worker = store.worker()
    jobs = add(store, "a", "a", "a")
    taken = everything(worker)
    for _ in range(5):
        jobs += add(store, "a")
        store.clock.advance(1_000)
        taken += everything(worker)
    assert taken == jobs[:6]


def test_jobs_aside_come_before_later_ones_of_their_key_that_are_in_line(store: Store) -> None:
    limit(store, "a", 2)
    worker = store.worker()
    one, two, three, four = add(store, *"aaaa")
    everything(worker)
    store.clock.advance(1_000)
    assert ids(worker.claim(1)) == [three]
    store.move(REMOVE, four)
    later = add(store, "a", "a")
    assert everything(worker) == later[:1]
    assert (one, two) < (three, four)


def test_a_higher_priority_of_the_same_key_goes_first(store: Store) -> None:
    limit(store, "a", 1)
    worker = store.worker()
    _, slow = add(store, "a", "a", priority=5)
    everything(worker)
    [urgent] = add(store, "a", priority=1)
    everything(worker)
    store.clock.advance(1_000)
    assert everything(worker) == [urgent]
    store.clock.advance(1_000)
    assert everything(worker) == [slow]


def test_a_limit_of_every_key_holds_for_each_of_them(store: Store) -> None:
    limit(store, EVERY_KEY, 1)
    a, _, b, _, none, too = add(store, "a", "a", "b", "b", None, None)
    assert everything(store.worker()) == [a, b, none, too]


def test_a_limit_of_its_own_beats_that_of_every_key(store: Store) -> None:
    limit(store, EVERY_KEY, 1)
    limit(store, "a", 2)
    jobs = add(store, *"aaabb")
    assert everything(store.worker()) == [jobs[0], jobs[1], jobs[3]]


def test_all_workers_of_all_processes_share_the_windows(store: Store) -> None:
    limit(store, "a", 3)
    add(store, *"aaaaa")
    assert len(everything(store.worker(), 2)) == 2
    assert len(everything(store.process().worker(), 2)) == 1


def test_limits_of_queue_worker_and_key_hold_together(store: Store) -> None:
    limit(store, "a", 2)
    store.ask(SetRate(store.queue, Rate(3, 1_000)))
    store.ask(SetConcurrency(store.queue, 4))
    jobs = add(store, "a", "a", "a", "b", "b", "b")
    worker = store.worker()
    assert everything(worker) == [jobs[0], jobs[1], jobs[3]]
    store.clock.advance(1_000)
    assert everything(worker) == [jobs[2]]


def test_a_job_that_goes_back_counts_again_when_it_is_taken_again(store: Store) -> None:
    limit(store, "a", 1)
    worker = store.worker()
    add(store, "a")
    worker.release(worker.claim_one())
    assert everything(worker) == []
    store.clock.advance(1_000)
    assert len(everything(worker)) == 1


def test_workers_by_name_find_the_jobs_of_their_names(store: Store) -> None:
    limit(store, "a", 1)
    for name in ("x", "y", "x", "y"):
        store.add(name, limit_key="a")
    some, others = store.worker(names=["x"]), store.worker(names=["y"])
    assert len(everything(some)) == 1
    assert everything(others) == []
    store.clock.advance(1_000)
    assert len(everything(others)) == 1
    store.clock.advance(1_000)
    assert len(everything(some)) == 1


def test_a_worker_for_all_names_does_not_walk_over_those_aside(store: Store) -> None:
    limit(store, "a", 1)
    store.worker(names=["x"]).claim(9)
    jobs = [store.add(name, limit_key="a") for name in ("x", "y", "y")]
    worker = store.worker()
    assert everything(worker) == jobs[:1]
    assert store.read("lanes", queue=store.queue) == []
    store.clock.advance(1_000)
    assert everything(worker) == jobs[1:2]


# --- many ----------------------------------------------------------------------------------------


def test_more_jobs_in_front_than_one_look_sees_hold_up_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits_by_key, "MAX_PARKED", 3)
    limit(store, "a", 1)
    jobs = add(store, *"a" * 50, "b")
    assert everything(store.worker(), 5) == [jobs[0], jobs[-1]]


def test_more_keys_whose_time_has_come_than_one_claim_brings_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits_by_key, "MAX_KEYS", 2)
    limit(store, EVERY_KEY, 1)
    jobs = add(store, *"abcdeabcde")
    worker = store.worker()
    assert everything(worker) == jobs[:5]
    store.clock.advance(1_000)
    assert everything(worker) == jobs[5:]


def test_a_claim_reads_few_jobs_however_many_stand_aside(store: Store) -> None:
    limit(store, "a", 1)
    jobs = add(store, *"a" * 3_000)
    worker = store.worker()
    assert everything(worker) == jobs[:1]
    assert len(aside(store)) == 2_999
    [b] = add(store, "b")
    asked: list[str] = []
    execute = store.home.driver.execute
    store.home.driver.execute = lambda name, params: asked.append(name) or execute(name, params)
    assert ids(worker.claim(1)) == [b]
    store.home.driver.execute = execute
    assert asked.count("next_in_lane") == 1
    assert "jobs_with_limit_key" not in asked


# --- changing limits -----------------------------------------------------------------------------


def test_what_was_set_before_is_told(store: Store) -> None:
    assert limit(store, "a", 1, 500) is None
    assert limit(store, "a", 2, 700) == Rate(1, 500)
    assert limit(store, "a", None) == Rate(2, 700)
    assert limit(store, "a", None) is None


def test_all_come_back_when_the_limit_is_removed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(store, "a", 1, 60_000)
    jobs = add(store, *"aaaaa")
    worker = store.worker()
    everything(worker)
    monkeypatch.setattr(rate_limits_by_key, "MAX_PARKED", 2)
    limit(store, "a", None)
    assert everything(worker) == jobs[1:]


def test_a_higher_limit_holds_at_once(store: Store) -> None:
    limit(store, "a", 1, 60_000)
    jobs = add(store, *"aaaaa")
    worker = store.worker()
    everything(worker)
    limit(store, "a", 3, 60_000)
    assert everything(worker) == jobs[1:3]


def test_workers_that_wait_are_fed_when_a_limit_changes(store: Store) -> None:
    limit(store, "a", 1, 60_000)
    add(store, *"aaa")
    worker = store.worker()
    worker.wants(3)
    store.home.engine.turn()
    limit(store, "a", None)
    store.home.engine.turn()
    assert len(worker.received) == 3


def test_without_the_limit_of_every_key_their_own_remain(store: Store) -> None:
    limit(store, EVERY_KEY, 1, 60_000)
    limit(store, "a", 1, 60_000)
    jobs = add(store, *"aabb")
    worker = store.worker()
    everything(worker)
    limit(store, EVERY_KEY, None)
    assert everything(worker) == [jobs[3]]


# --- nothing is left behind ----------------------------------------------------------------------


def test_keys_that_are_idle_leave_nothing_behind(store: Store) -> None:
    limit(store, EVERY_KEY, 1)
    add(store, *"abcd")
    everything(store.worker())
    assert len(store.database.rows("limits")) == 5
    store.clock.advance(1_000)
    store.home.sweep()
    assert [row["key"] for row in store.database.rows("limits")] == [EVERY_KEY]


def test_a_queue_whose_last_limit_was_removed_is_like_any_other(store: Store) -> None:
    limit(store, "a", 1)
    add(store, "a", "a")
    worker = store.worker()
    everything(worker)
    limit(store, "a", None)
    everything(worker)
    store.clock.advance(1_000)
    store.home.sweep()
    [queue] = store.database.rows("queues")
    assert (queue["by_key"], store.database.rows("limits")) == (0, [])


def test_a_sweep_is_due_where_keys_are_idle(store: Store) -> None:
    limit(store, EVERY_KEY, 1)
    add(store, "a")
    everything(store.worker())
    assert store.read("queues_to_prune", now=store.clock.now()) == []
    store.clock.advance(1_000)
    assert len(store.read("queues_to_prune", now=store.clock.now())) == 1


def test_keys_of_which_jobs_stand_aside_are_not_forgotten(store: Store) -> None:
    limit(store, EVERY_KEY, 1)
    add(store, "a", "a")
    worker = store.worker()
    everything(worker)
    store.clock.advance(1_000)
    store.home.sweep()
    assert len(everything(worker)) == 1


# --- jobs that stand aside are jobs like others --------------------------------------------------


@pytest.fixture
def parked(store: Store) -> int:
    """A job that stands aside, behind one that runs."""
    limit(store, "a", 1, 60_000)
    _, job = add(store, "a", "a")
    everything(store.worker())
    assert aside(store) == [job]
    return job


def test_they_are_counted_and_listed(store: Store, parked: int) -> None:
    assert store.counts() == {"waiting": 1, "active": 1}
    page = store.read("page_up:waiting-by-name", queue=store.queue, skip=0, most=9)
    assert [row[0] for row in page] == [parked]


def test_one_that_is_removed_and_restored_waits_in_line(store: Store, parked: int) -> None:
    store.move(REMOVE, parked)
    assert aside(store) == []
    store.move(RESTORE_WAITING, parked)
    limit(store, "a", None)
    assert everything(store.worker()) == [parked]


def test_one_that_is_deleted_is_gone(store: Store, parked: int) -> None:
    store.move(DELETE, parked)
    assert store.state(parked) is None
    assert aside(store) == []


def test_one_that_expires_leaves_its_lane(store: Store) -> None:
    limit(store, "a", 1, 60_000)
    _, job = add(store, "a", "a", expires=500)
    worker = store.worker()
    everything(worker)
    store.clock.advance(500)
    store.ask(Expire(store.queue))
    assert store.state(job) == "failed"
    store.move(RETRY_FINISHED, job)
    store.clock.advance(60_000)
    assert everything(worker) == [job]


def test_one_whose_priority_changes_keeps_its_new_place(store: Store, parked: int) -> None:
    later = add(store, "a")
    worker = store.worker()
    everything(worker)
    store.ask(SetPriority(parked, 7, is_level=False, lifo=False))
    store.clock.advance(60_000)
    assert everything(worker) == later


def test_turning_the_order_round_turns_theirs(store: Store) -> None:
    limit(store, "a", 1)
    worker = store.worker()
    low, high = (add(store, "a", priority=priority)[0] for priority in (1, 2))
    add(store, "a")
    everything(worker)
    store.ask(Configure(store.queue, {"priority_order": "high"}))
    store.clock.advance(1_000)
    assert everything(worker) == [high]
    store.clock.advance(1_000)
    assert everything(worker) == [low]


def test_a_queue_that_is_as_new_has_no_limits_by_key(store: Store) -> None:
    limit(store, "a", 1)
    limit(store, EVERY_KEY, 1)
    store.ask(ResetQueue(store.queue))
    jobs = add(store, *"aab")
    assert everything(store.worker()) == jobs
    assert store.database.rows("limits") == []


def test_those_aside_come_before_later_ones_also_when_others_that_came_back_are_removed(
    store: Store,
) -> None:
    limit(store, "a", 1)
    worker = store.worker()
    _, two, three = add(store, *"aaa", priority=5)
    everything(worker)
    store.clock.advance(1_000)
    add(store, None)
    worker.claim(1)
    store.move(REMOVE, two)
    add(store, "a", priority=5)
    assert everything(worker) == [three]


def test_when_those_that_came_back_are_removed_the_next_come_a_window_later(store: Store) -> None:
    limit(store, "a", 1)
    worker = store.worker()
    _, two, three = add(store, *"aaa", priority=5)
    everything(worker)
    store.clock.advance(1_000)
    add(store, None)
    worker.claim(1)
    store.move(REMOVE, two)
    store.clock.advance(1_000)
    assert everything(worker) == [three]


# --- verify --------------------------------------------------------------------------------------


def test_a_job_that_nothing_brings_back_is_found(store: Store) -> None:
    limit(store, "a", 1, 60_000)
    _, job = add(store, "a", "a")
    everything(store.worker())
    store.database.write("update bullite_limits set back_at = null")
    assert store.problems() == [
        f"job {job} stands aside for its key, and nothing tells when it may come back"
    ]
    store.database.write("update bullite_limits set back_at = 1 where key = 'a'")


def test_a_job_that_stands_aside_and_does_not_wait_is_found(store: Store) -> None:
    limit(store, "a", 1, 60_000)
    _, job = add(store, "a", "a")
    everything(store.worker())
    store.move(REMOVE, job)
    store.database.write(f"update bullite_jobs set lane = '\x1fa\x1f' where id = {job}")
    assert store.problems() == [f"job {job} is removed and yet stands aside for its key"]
    store.database.write(f"update bullite_jobs set lane = '' where id = {job}")


def test_a_limit_that_no_claim_would_see_is_found(store: Store) -> None:
    limit(store, "a", 1)
    store.database.write("update bullite_queues set by_key = 0")
    [problem] = store.problems()
    assert "has a limit for key a" in problem
    store.database.write("update bullite_queues set by_key = 1")


# --- beside other writers ------------------------------------------------------------------------


def test_two_processes_in_turn_never_take_more_than_the_key_allows(store: Store) -> None:
    limit(store, EVERY_KEY, 2)
    add(store, *"abcabcabcabc")
    workers = [store.worker(), store.process().worker(), store.process().worker()]
    for _ in range(2):
        taken = [job for worker in workers for job in everything(worker, 3)]
        assert len(taken) == 6
        store.clock.advance(1_000)
