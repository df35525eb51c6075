"""Hearing what this process does, and doing the chores where no worker lives."""

from __future__ import annotations

from typing import Any

from bullite.engine.maintenance import Maintenance
from bullite.engine.replies import SAME_THREAD
from bullite.engine.subscription import WorkerIntervals
from bullite.operations.add import AddJobs
from bullite.operations.queues import PublishEvent
from bullite.operations.workers import RecoverStalled
from tests.support.harness import Process, Store, new_job


def follow(process: Process, queue: int, kinds: frozenset[str] | None = None) -> list[Any]:
    heard: list[Any] = []
    process.engine.followers.follow(queue, heard.append, SAME_THREAD, kinds)
    process.engine.turn()
    return heard


def kinds_of(heard: list[Any]) -> list[str]:
    return [entry.kind for batch in heard for entry in batch]


def test_a_follower_hears_what_this_process_logs_of_its_queue(store: Store) -> None:
    heard = follow(store.home, store.queue)
    job = store.add("mail")
    worker = store.worker()
    worker.complete(worker.claim_one())
    assert kinds_of(heard) == ["add", "claim", "complete", "drained"]
    assert heard[0][0].events == [(job, "mail")]


def test_a_follower_hears_only_of_its_queue(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    heard = follow(store.home, elsewhere)
    store.add()
    assert heard == []
    store.ask_together(AddJobs(store.queue, [new_job()]), AddJobs(elsewhere, [new_job()]))
    assert [entry.queue for batch in heard for entry in batch] == [elsewhere]


def test_a_follower_may_want_some_kinds_only(store: Store) -> None:
    heard = follow(store.home, store.queue, frozenset({"claim"}))
    store.add()
    store.worker().claim_one()
    assert kinds_of(heard) == ["claim"]


def test_a_follower_hears_nothing_of_a_batch_that_was_rolled_back(store: Store) -> None:
    heard = follow(store.home, store.queue)
    store.ask_together(AddJobs(store.queue, [new_job(delay=2**70)]))
    assert heard == []


def test_a_follower_does_not_hear_other_processes(store: Store) -> None:
    heard = follow(store.home, store.queue)
    store.process().add()
    assert heard == []


def test_who_follows_no_more_hears_no_more(store: Store) -> None:
    heard: list[Any] = []
    other = follow(store.home, store.queue)
    reply = heard.append
    store.home.engine.followers.follow(store.queue, reply, SAME_THREAD)
    store.home.engine.followers.unfollow(reply)
    store.ask(PublishEvent(store.queue, "tick", {}))
    assert (heard, kinds_of(other)) == ([], ["custom"])


def test_a_follower_hears_before_the_caller_is_answered(store: Store) -> None:
    order: list[str] = []
    store.home.engine.followers.follow(
        store.queue, lambda logged: order.append("heard"), SAME_THREAD
    )
    store.home.engine.submit(
        AddJobs(store.queue, [new_job()]), lambda answer: order.append("answered")
    )
    store.home.engine.turn()
    assert order == ["heard", "answered"]


# --- chores --------------------------------------------------------------------------------------


def test_without_a_worker_the_chores_are_left_to_others(store: Store) -> None:
    job = store.add(delay=5)
    store.clock.advance(5)
    store.home.engine._maintenance.schedule = Maintenance(store.home.driver)
    store.home.engine.turn()
    assert store.state(job) == "delayed"


def test_a_caretaker_has_the_chores_done_without_a_worker(store: Store) -> None:
    job = store.add(delay=5)
    store.clock.advance(5)
    store.home.engine._maintenance.schedule = Maintenance(store.home.driver)
    store.home.engine.change_maintenance_users(+1)
    store.home.engine.turn()
    assert store.state(job) == "waiting"


def test_when_the_last_caretaker_has_gone_they_are_left_to_others_again(store: Store) -> None:
    store.home.engine._maintenance.schedule = Maintenance(store.home.driver)
    for more in (+1, +1, -1, -1):
        store.home.engine.change_maintenance_users(more)
    job = store.add(delay=5)
    store.clock.advance(5)
    store.home.engine.turn()
    assert store.state(job) == "delayed"


def lose_a_job(store: Store) -> None:
    doomed = store.process()
    store.add()
    doomed.worker().claim_one()
    store.kill(doomed)


def recoveries(store: Store) -> bool:
    """Whether the engine takes back the jobs of dead workers when it next does its chores."""
    chores = store.home.engine._maintenance.schedule
    due = Maintenance(store.home.driver, recovers=chores.recovers).due(store.clock.lease_now())
    return any(isinstance(chore, RecoverStalled) for chore in due)


def test_workers_that_do_not_check_for_stalled_jobs_leave_them_to_others(store: Store) -> None:
    lose_a_job(store)
    store.worker(habits=WorkerIntervals(checks_stalled=False))
    assert not recoveries(store)


def test_one_worker_that_checks_is_enough(store: Store) -> None:
    lose_a_job(store)
    store.worker(habits=WorkerIntervals(checks_stalled=False))
    store.worker()
    assert recoveries(store)


def test_a_caretaker_checks_while_it_is_there(store: Store) -> None:
    lose_a_job(store)
    store.worker(habits=WorkerIntervals(checks_stalled=False))
    store.home.engine.change_maintenance_users(+1)
    store.home.engine.turn()
    assert recoveries(store)
    store.home.engine.change_maintenance_users(-1)
    store.home.engine.turn()
    assert not recoveries(store)


def test_the_strictest_habits_of_a_process_count(store: Store) -> None:
    store.worker(habits=WorkerIntervals(maintenance_interval=500, renew_every=9_000))
    store.worker(
        habits=WorkerIntervals(maintenance_interval=900, stalled_interval=100, renew_every=7_000)
    )
    chores = store.home.engine._maintenance.schedule
    assert (chores.maintenance_interval, chores.renew_every) == (100, 7_000)


def test_a_worker_is_told_whether_its_lease_was_renewed(store: Store) -> None:
    kept: list[bool] = []
    store.worker(habits=WorkerIntervals(renewed=kept.append))
    store.home.engine._maintenance.schedule = Maintenance(store.home.driver)
    store.home.engine.turn()
    assert kept == [True]
