"""Workers that come, go and die, and the jobs they leave behind."""

from __future__ import annotations

import logging

import pytest

from bullite.core.decide_outcome import STALLED_TOO_OFTEN
from bullite.core.states import RETRY_FINISHED
from bullite.engine.maintenance import Maintenance
from bullite.engine.subscription import WorkerIntervals
from bullite.operations import workers
from bullite.operations.cancel_and_expire import Cancel
from bullite.operations.workers import RecoverStalled
from tests.support.harness import LOCK_DURATION, Event, Store, new_job

# --- dead workers --------------------------------------------------------------------------------


def test_the_jobs_of_a_dead_process_go_back_at_once(store: Store) -> None:
    doomed = store.process()
    jobs = store.add_all(new_job(), new_job(priority=3))
    doomed.worker().claim(2)
    store.kill(doomed)
    assert store.home.recover() == 2
    assert store.states(*jobs) == ["waiting", "waiting"]
    assert store.counts() == {"waiting": 1, "prioritized": 1}
    assert [store.history(job)[-1] for job in jobs] == ["stall", "stall"]


def test_a_dead_process_is_cleared_off_the_register(store: Store) -> None:
    doomed = store.process()
    worker = doomed.worker()
    store.kill(doomed)
    assert worker.id in store.workers()
    store.home.recover()
    assert store.workers() == []
    assert store.home.chores(RecoverStalled) == []


def test_a_lost_worker_is_logged_by_the_process_that_recovers_its_jobs(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bullite.scheduler")
    doomed, others = store.process(), [store.process() for _ in range(2)]
    store.add()
    worker = doomed.worker()
    worker.claim_one()
    store.kill(doomed)
    seen = [(process, process.chores(RecoverStalled)) for process in others]
    for process, [chore] in seen:
        process.engine._maintenance._done(chore, process.ask(chore))
    lost = f"worker {worker.id} was lost; 1 of its jobs were taken back"
    assert [record.getMessage() for record in caplog.records] == [lost]


def test_a_living_process_keeps_its_jobs(store: Store) -> None:
    job = store.add()
    store.process().worker().claim_one()
    assert store.home.recover() == 0
    assert store.state(job) == "active"


def test_only_the_jobs_of_the_dead_worker_go_back(store: Store) -> None:
    doomed = store.process()
    store.add_all(*(new_job() for _ in range(3)))
    mine = store.worker().claim_one()
    lost = doomed.worker().claim_one()
    theirs = store.process().worker().claim_one()
    store.kill(doomed)
    assert store.home.recover() == 1
    assert store.states(mine.id, lost.id, theirs.id) == ["active", "waiting", "active"]


def test_the_dead_are_recovered_in_the_order_they_came_however_the_database_keeps_them(
    store: Store,
) -> None:
    doomed = [store.process() for _ in range(2)]
    store.add_all(*(new_job() for _ in range(2)))
    held = [process.worker().claim_one().id for process in doomed]
    doomed[0].renew()
    for process in doomed:
        store.kill(process)
    assert store.home.recover() == 2
    assert [again.id for again in store.worker().claim(2)] == held[::-1]


def test_a_process_does_not_take_its_own_workers_for_dead(store: Store) -> None:
    store.add()
    store.worker().claim_one()
    store.clock.advance(10 * LOCK_DURATION)
    assert store.home.chores(RecoverStalled) == []


def test_many_jobs_of_a_dead_worker_go_back_in_pieces_and_in_order(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_RECOVERED", 3)
    doomed = store.process()
    jobs = store.add_all(*(new_job() for _ in range(7)))
    worker = doomed.worker()
    worker.claim(7)
    store.kill(doomed)
    assert [store.home.recover() for _ in range(3)] == [3, 3, 1]
    assert [held.id for held in store.worker().claim(9)] == jobs


def test_a_worker_stays_on_the_register_until_all_its_jobs_are_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_RECOVERED", 1)
    doomed = store.process()
    store.add_all(new_job(), new_job())
    worker = doomed.worker()
    worker.claim(2)
    store.kill(doomed)
    store.home.recover()
    assert store.workers() == [worker.id]
    store.home.recover()
    assert store.workers() == []


def test_two_processes_that_recover_the_same_worker_take_its_jobs_back_once(store: Store) -> None:
    doomed, other = store.process(), store.process()
    job = store.add()
    doomed.worker().claim_one()
    store.kill(doomed)
    [mine], [theirs] = store.home.chores(RecoverStalled), other.chores(RecoverStalled)
    assert (store.ask(mine).jobs, other.ask(theirs).jobs) == (1, 0)
    assert store.row(job).stalled_count == 1


def test_the_scheduler_finds_dead_workers_by_itself(store: Store) -> None:
    doomed = store.process()
    job = store.add()
    doomed.worker().claim_one()
    store.kill(doomed)
    store.worker()
    store.home.engine._maintenance.schedule = Maintenance(store.home.driver)
    store.home.engine.turn()
    assert store.state(job) == "waiting"


# --- stalled too often ---------------------------------------------------------------------------


def stall(store: Store, max_stalled_count: int, stalled_backoff: bool = False) -> None:
    """Have the next job taken by a process that dies of it."""
    doomed = store.process()
    options = {"max_stalled_count": max_stalled_count, "stalled_backoff": stalled_backoff}
    assert doomed.worker(**options).claim(1)
    store.kill(doomed)
    assert store.home.recover() == 1


def test_a_crash_is_no_attempt_made(store: Store) -> None:
    job = store.add()
    stall(store, max_stalled_count=1)
    row = store.row(job)
    assert (row.attempts_made, row.attempts_started, row.stalled_count) == (0, 1, 1)


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_a_job_that_stalls_too_often_is_to_fail_when_it_is_next_taken(
    store: Store, allowed: int
) -> None:
    job = store.add()
    for _ in range(allowed):
        stall(store, max_stalled_count=allowed)
        assert store.row(job).deferred_failure is None
    stall(store, max_stalled_count=allowed)
    assert store.state(job) == "waiting"
    held = store.worker().claim_one()
    assert held.row.deferred_failure == STALLED_TOO_OFTEN
    assert held.row.stalled_count == allowed + 1


def test_the_limit_is_that_of_the_worker_which_takes_its_place(store: Store) -> None:
    job = store.add()
    doomed = store.process()
    doomed.worker(max_stalled_count=5).claim_one()
    store.kill(doomed)
    store.worker(max_stalled_count=0)
    store.worker(queue=store.home.open_queue("elsewhere"))
    store.home.engine._maintenance.schedule = Maintenance(store.home.driver)
    store.home.engine.turn()
    assert store.row(job).deferred_failure == STALLED_TOO_OFTEN


BACKOFF = '{"backoff":{"type":"exponential","delay":1000}}'


def test_a_stalled_job_may_go_through_its_backoff(store: Store) -> None:
    job = store.add(opts=BACKOFF)
    for stalls, delay in ((1, 1000), (2, 2000)):
        stall(store, max_stalled_count=5, stalled_backoff=True)
        row = store.row(job)
        assert (row.state, row.stalled_count, row.attempts_made) == ("delayed", stalls, 0)
        assert row.due_at == store.clock.now() + delay
        assert store.events()[-1] == Event("stall_delayed", job, row.due_at)
        store.clock.advance(delay)
    assert store.worker().claim_one().id == job


def test_a_stalled_job_without_a_backoff_is_next_all_the_same(store: Store) -> None:
    job = store.add()
    stall(store, max_stalled_count=5, stalled_backoff=True)
    assert store.state(job) == "waiting"


def test_a_job_that_stalled_too_often_does_not_wait_for_its_failure(store: Store) -> None:
    job = store.add(opts=BACKOFF)
    stall(store, max_stalled_count=0, stalled_backoff=True)
    assert store.state(job) == "waiting"
    assert store.worker().claim_one().row.deferred_failure == STALLED_TOO_OFTEN


def test_jobs_that_stalled_together_do_not_all_come_back_together(store: Store) -> None:
    opts = '{"backoff":{"type":"fixed","delay":1000,"jitter":1}}'
    jobs = [store.add(opts=opts) for _ in range(5)]
    doomed = store.process()
    doomed.worker(max_stalled_count=5, stalled_backoff=True).claim(5)
    store.kill(doomed)
    store.home.recover()
    assert len({store.row(job).due_at for job in jobs}) == 5


def test_a_job_that_is_to_fail_still_is_after_it_was_given_back(store: Store) -> None:
    store.add()
    stall(store, max_stalled_count=0)
    worker = store.worker()
    worker.give_back(worker.claim_one())
    assert worker.claim_one().row.deferred_failure == STALLED_TOO_OFTEN


def test_a_revived_job_is_not_to_fail_any_more(store: Store) -> None:
    job = store.add()
    stall(store, max_stalled_count=0)
    worker = store.worker()
    worker.fail(worker.claim_one())
    store.move(RETRY_FINISHED, job)
    assert worker.claim_one().row.deferred_failure is None


# --- leases --------------------------------------------------------------------------------------


def test_an_expired_lease_of_a_worker_that_left_is_a_stall(store: Store) -> None:
    job = store.add()
    worker = store.process().worker()
    worker.claim_one()
    worker.leave()
    store.clock.advance(LOCK_DURATION)
    assert store.home.recover() == 0, "not while the lease runs"
    store.clock.advance(1)
    assert store.home.recover() == 1
    assert store.row(job).stalled_count == 1
    assert store.workers() == []


def test_a_process_recovers_its_own_workers_that_left(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.claim_one()
    worker.leave()
    store.clock.advance(LOCK_DURATION + 1)
    assert store.home.recover() == 1
    assert store.state(job) == "waiting"


def test_jobs_of_a_leaving_worker_whose_process_ended_have_not_stalled(store: Store) -> None:
    doomed = store.process()
    jobs = store.add_all(new_job(), new_job(custom_id="mine"), new_job(priority=3))
    worker = doomed.worker(max_stalled_count=0)
    worker.claim(2, ahead=1)
    worker.leave_running()
    worker.run_nothing()
    store.kill(doomed)
    assert store.home.recover() == 3
    assert store.states(*jobs) == ["waiting"] * 3
    assert [store.row(job).stalled_count for job in jobs] == [0, 0, 0]
    assert [store.row(job).attempts_started for job in jobs] == [1, 1, 0]
    assert [store.history(job)[-1] for job in jobs] == ["release", "release", "add"]
    assert [store.attempts(job) for job in jobs] == [[], [], []]
    assert store.counts() == {"waiting": 2, "prioritized": 1}
    assert store.workers() == []


def test_jobs_of_a_leaving_worker_go_back_to_their_old_places(store: Store) -> None:
    doomed = store.process()
    jobs = [store.add() for _ in range(3)]
    worker = doomed.worker()
    worker.claim(2)
    worker.leave_running()
    worker.run_nothing()
    store.kill(doomed)
    store.home.recover()
    assert [held.id for held in store.worker().claim(3)] == jobs


def test_a_cancelled_job_of_a_leaving_worker_whose_process_ended_is_ended(store: Store) -> None:
    doomed = store.process()
    job = store.add()
    worker = doomed.worker()
    worker.claim_one()
    store.ask(Cancel(job, str(job), "not wanted"))
    worker.leave_running()
    worker.run_nothing()
    store.kill(doomed)
    store.home.recover()
    assert store.state(job) == "failed"
    assert store.result(job).outcome == "cancelled"


def test_the_lease_of_a_leaving_worker_is_renewed(store: Store) -> None:
    job = store.add()
    process = store.process()
    worker = process.worker()
    worker.claim_one()
    worker.leave_running()
    for _ in range(5):
        store.clock.advance(LOCK_DURATION // 2)
        process.renew()
        assert worker.as_seen().lease_until == store.clock.lease_now() + LOCK_DURATION
        assert store.home.recover() == 0
    assert store.state(job) == "active"


def test_an_expired_lease_of_a_leaving_worker_is_no_stall(store: Store) -> None:
    job = store.add()
    process = store.process()
    worker = process.worker(renews=False)
    worker.claim_one()
    worker.leave_running()
    store.clock.advance(LOCK_DURATION + 1)
    assert store.home.recover() == 1
    assert (store.state(job), store.row(job).stalled_count) == ("waiting", 0)


def test_a_leaving_worker_is_off_the_register_once_what_it_ran_is_recorded(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    worker.leave_running()
    assert store.workers() == [worker.id]
    worker.run_nothing()
    worker.complete(held)
    store.home.turn()
    assert store.state(job) == "completed"
    assert store.workers() == []


def test_a_leaving_worker_takes_nothing_more(store: Store) -> None:
    jobs = [store.add() for _ in range(2)]
    worker = store.worker()
    worker.claim_one()
    worker.leave_running()
    assert worker.claim(5) == []
    assert store.states(*jobs) == ["active", "waiting"]


def test_a_recovery_decided_before_its_worker_was_told_to_stop_gives_its_jobs_back(
    store: Store,
) -> None:
    doomed = store.process()
    job = store.add()
    worker = doomed.worker()
    worker.claim_one()
    as_it_was = worker.as_seen()
    worker.leave_running()
    worker.run_nothing()
    store.kill(doomed)
    assert store.ask(RecoverStalled(as_it_was, dead=True)).jobs == 1
    assert (store.state(job), store.row(job).stalled_count) == ("waiting", 0)


def test_only_leases_that_ran_out_are_a_stall(store: Store) -> None:
    """A worker takes one job early and one late, and leaves."""
    early, late = store.add(), store.add()
    worker = store.worker()
    worker.claim_one()
    store.clock.advance(LOCK_DURATION - 5)
    worker.claim_one()
    worker.leave()
    store.clock.advance(10)
    assert store.home.recover() == 1
    assert store.states(early, late) == ["waiting", "active"]
    store.clock.advance(LOCK_DURATION)
    assert store.home.recover() == 1
    assert store.states(early, late) == ["waiting", "waiting"]


def test_a_worker_that_left_may_still_settle_what_it_holds(store: Store) -> None:
    worker = store.worker()
    job = store.add()
    held = worker.claim_one()
    worker.leave()
    assert worker.complete(held) == []
    assert store.state(job) == "completed"
    store.clock.advance(LOCK_DURATION + 1)
    assert store.home.recover() == 0
    assert store.workers() == []


def test_a_zombie_cannot_settle_a_job_that_was_taken_from_it(store: Store) -> None:
    job = store.add()
    zombie = store.process().worker()
    old = zombie.claim_one()
    zombie.leave()
    store.clock.advance(LOCK_DURATION + 1)
    store.home.recover()
    before = store.everything()
    assert zombie.complete(old, value="1") == [job], "while it waits"
    assert store.everything() == before
    worker = store.worker()
    new = worker.claim_one()
    before = store.everything()
    assert zombie.complete(old, value="1") == [job], "while another runs it"
    assert zombie.progress(old) is False
    assert store.everything() == before
    assert worker.complete(new, value="2") == []
    assert zombie.fail(old) == [job], "when it is done"
    assert store.result(job).return_value == "2"


def test_a_worker_that_leaves_empty_handed_is_off_the_register_at_once(store: Store) -> None:
    worker = store.worker()
    worker.leave()
    assert store.workers() == []


def test_renewing_keeps_the_leases_of_registered_workers_of_this_process(store: Store) -> None:
    mine, theirs, left = store.worker(), store.process().worker(), store.worker()
    store.add()
    left.claim_one()
    left.leave()
    before = theirs.as_seen().lease_until
    store.clock.advance(100)
    assert store.home.renew() == {mine.id}
    assert mine.as_seen().lease_until == store.clock.lease_now() + LOCK_DURATION
    assert theirs.as_seen().lease_until == left.as_seen().lease_until == before


def test_the_lease_of_a_newcomer_is_renewed_as_often_as_it_asks_for(store: Store) -> None:
    """Its process renews the longer lease of another worker less often."""
    engine = store.home.engine
    engine._maintenance.schedule = Maintenance(store.home.driver)
    store.worker(habits=WorkerIntervals(renew_every=15_000))
    renewed: list[bool] = []
    hasty = store.worker(
        lock_duration=1_000, habits=WorkerIntervals(renew_every=300, renewed=renewed.append)
    )
    for times in range(1, 4):
        store.clock.advance(300)
        engine.turn()
        assert renewed == [True] * times
        assert hasty.as_seen().lease_until == store.clock.lease_now() + 1_000


def test_a_worker_whose_process_left_no_sign_of_life_is_recovered_by_its_lease_and_cleared_away(
    store: Store,
) -> None:
    """Its process closed, or was killed and its traces were deleted: nothing vouches for it."""
    gone = store.process()
    job = store.add()
    gone.worker().claim_one()
    store.vanish(gone)
    assert store.home.recover() == 0, "not while the lease runs"
    store.clock.advance(LOCK_DURATION + 1)
    assert store.home.recover() == 1
    assert store.state(job) == "waiting"
    assert store.workers() == []


def test_the_jobs_of_a_process_that_closed_under_its_workers_go_back_at_once(store: Store) -> None:
    careless = store.process()
    job = store.add()
    careless.worker().claim_one()
    store.quit(careless)
    assert store.home.recover() == 1
    assert store.state(job) == "waiting"


def test_a_worker_that_was_given_up_registers_anew(store: Store) -> None:
    worker = store.worker()
    first = worker.id
    store.ask(workers.DeregisterWorker(first))
    store.home.engine._maintenance.schedule = Maintenance(store.home.driver)
    store.home.engine.turn()
    store.home.engine.turn()
    assert worker.id != first
    assert store.workers() == [worker.id]


def test_worker_ids_are_never_reused(store: Store) -> None:
    first = store.worker()
    first.leave()
    assert store.worker().id > first.id


# --- what was taken away -------------------------------------------------------------------------


def test_a_job_that_was_recovered_is_nobodys(store: Store) -> None:
    """Also before another worker takes it, its old one sees that it has lost it."""
    doomed = store.process()
    jobs = store.add_all(new_job(), new_job())
    doomed.worker().claim(1, ahead=1)
    store.kill(doomed)
    store.home.recover()
    assert [(store.row(job).token, store.row(job).nonce) for job in jobs] == [(None, None)] * 2


def test_a_worker_is_told_which_of_its_jobs_were_taken_away(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(3)))
    process = store.process()
    worker = process.worker()
    held = worker.claim(2, ahead=1)
    as_held = {(one.id, one.token) for one in held}
    lost: list[set[tuple[int, int]]] = []
    worker.subscription.holds, worker.subscription.report_lost = lambda: as_held, lost.append
    process.engine._maintenance.schedule = Maintenance(process.driver)
    process.turn()
    assert lost == []
    store.ask(RecoverStalled(worker.as_seen(), dead=True))
    store.clock.advance(LOCK_DURATION // 2)
    process.turn()
    assert lost == [as_held]


def test_a_job_taken_again_under_another_token_is_taken_away_from_its_old_run(
    store: Store,
) -> None:
    store.add()
    worker = store.worker()
    first = worker.claim_one()
    store.ask(RecoverStalled(worker.as_seen(), dead=True))
    store.worker().claim_one()
    lost: list[set[tuple[int, int]]] = []
    worker.subscription.holds, worker.subscription.report_lost = (
        lambda: {(first.id, first.token)},
        lost.append,
    )
    store.home.engine._maintenance.schedule = Maintenance(store.home.driver)
    store.home.turn()
    assert lost == [{(first.id, first.token)}]
