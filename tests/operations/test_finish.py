"""Ending runs: what is written, what counts as an attempt, who is refused."""

from __future__ import annotations

import json

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.event_log import MAX_COPIED_LENGTH
from bullite.core.states import (
    BACK_OFF,
    COMPLETE,
    DELAY,
    DELETE,
    FAIL,
    RELEASE,
    REMOVE,
    RETRY_FINISHED,
    RETRY_NOW,
    RETURN_UNSTARTED,
    Move,
)
from bullite.engine.replies import SAME_THREAD
from bullite.errors import JobNotFound
from bullite.operations.update import Progress
from tests.support.harness import Event, Store, new_job

SETTLING = (COMPLETE, FAIL, BACK_OFF, DELAY, RETRY_NOW, RELEASE, RETURN_UNSTARTED)

# --- what is written -----------------------------------------------------------------------------


def test_a_completed_job_has_its_result_and_its_time(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    store.clock.advance(30)
    assert worker.complete(held, value='{"sum":3}') == []
    assert store.result(job).return_value == '{"sum":3}'
    assert store.row(job).finished_at == store.clock.now()
    assert store.row(job).lease_until is None
    assert store.events()[-2] == Event("complete", job, {"sum": 3})


def test_a_failed_job_has_its_reason_and_its_stack(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    store.clock.advance(30)
    worker.fail(held, reason="no paper")
    assert store.result(job).failed_reason == "no paper"
    assert [attempt.stack for attempt in store.attempts(job)] == ["where it broke"]
    assert store.row(job).finished_at == store.clock.now()
    assert store.events()[-2] == Event("fail", job, ["no paper", 1, "error"])


def test_a_job_that_backs_off_is_due_after_its_delay_and_keeps_its_reason(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    store.clock.advance(3)
    worker.back_off(worker.claim_one(), delay=400)
    row = store.row(job)
    assert (row.state, row.due_at, row.delay) == ("delayed", store.clock.now() + 400, 400)
    assert store.result(job).failed_reason == "it broke"
    assert store.events()[-2] == Event("back_off", job, ["it broke", 1, store.clock.now() + 400])


def test_jobs_that_back_off_together_each_have_their_own_delay(store: Store) -> None:
    jobs = store.add_all(new_job(), new_job())
    worker = store.worker()
    held = worker.claim(2)
    store.home.settle(*(RunOutcome(h.id, h.token, BACK_OFF, 100 * h.id) for h in held))
    now = store.clock.now()
    assert [store.row(job).due_at for job in jobs] == [now + 100 * job for job in jobs]


def test_a_later_success_keeps_the_reason_of_the_failure_beside_its_value(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.retry(worker.claim_one())
    assert store.result(job).failed_reason == "it broke"
    worker.complete(worker.claim_one(), value="1")
    result = store.result(job)
    assert (result.return_value, result.failed_reason) == ("1", "it broke")


def test_a_result_too_long_for_the_event_log_is_stored_with_the_job_only(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    value = '"' + "x" * MAX_COPIED_LENGTH + '"'
    worker.complete(worker.claim_one(), value=value)
    assert store.result(job).return_value == value
    assert json.loads(store.event_rows()[-2].jobs) == [[job, None, 1]]


def test_one_request_may_settle_many_jobs_in_different_ways(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(7)))
    held = store.worker().claim(7)
    moves = (COMPLETE, FAIL, BACK_OFF, DELAY, RETRY_NOW, RELEASE, RETURN_UNSTARTED)
    verdicts = [
        RunOutcome(h.id, h.token, move, delay=9) for h, move in zip(held, moves, strict=True)
    ]
    assert store.home.settle(*verdicts) == []
    assert store.states(*jobs) == ["completed", "failed", *["delayed"] * 2, *["waiting"] * 3]
    assert store.counts() == {"completed": 1, "failed": 1, "delayed": 2, "waiting": 3}


def test_jobs_of_several_claims_are_settled_together(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(3)))
    worker = store.worker()
    held = [*worker.claim(2), *worker.claim(1)]
    assert held[0].token != held[2].token
    assert store.home.settle(*(RunOutcome(h.id, h.token, COMPLETE) for h in held)) == []
    assert store.states(*jobs) == ["completed"] * 3


def test_jobs_of_one_claim_are_settled_under_the_number_of_that_claim_only(store: Store) -> None:
    jobs = store.add_all(new_job(), new_job())
    worker = store.worker()
    held = worker.claim(2)
    late = [RunOutcome(h.id, h.token, COMPLETE) for h in held]
    for one in held:
        worker.release(one)
    again = worker.claim(2)
    assert store.home.settle(*late) == list(jobs)
    assert store.states(*jobs) == ["active"] * 2
    assert store.home.settle(*(RunOutcome(h.id, h.token, COMPLETE) for h in again)) == []


# --- attempts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("move", "made"),
    [
        (COMPLETE, 1),
        (FAIL, 1),
        (BACK_OFF, 1),
        (RETRY_NOW, 1),
        (DELAY, 0),
        (RELEASE, 0),
        (RETURN_UNSTARTED, 0),
    ],
    ids=str,
)
def test_a_run_that_ends_by_success_or_failure_is_an_attempt_made(
    store: Store, move: Move, made: int
) -> None:
    job = store.add()
    worker = store.worker()
    worker.settle(move, worker.claim_one(), delay=5)
    row = store.row(job)
    assert (row.attempts_made, row.attempts_started, row.stalled_count) == (made, 1, 0)


def test_every_claim_is_an_attempt_started(store: Store) -> None:
    store.add()
    worker = store.worker()
    for started in (1, 2, 3):
        held = worker.claim_one()
        assert (held.row.attempts_started, held.row.attempts_made) == (started, 0)
        worker.give_back(held)


def test_a_retried_job_goes_behind_those_whose_time_came_while_it_ran(store: Store) -> None:
    job, due = store.add(), store.add(delay=10)
    worker = store.worker()
    held = worker.claim_one()
    store.clock.advance(10)
    worker.retry(held)
    assert [held.id for held in worker.claim(2)] == [due, job]


def test_a_retried_job_that_is_last_in_first_out_goes_to_the_front(store: Store) -> None:
    job = store.add(lifo=True)
    worker = store.worker()
    held = worker.claim_one()
    other = store.add()
    worker.retry(held)
    assert [held.id for held in worker.claim(2)] == [job, other]


def test_a_worker_is_told_how_many_attempts_were_made(store: Store) -> None:
    store.add()
    worker = store.worker()
    worker.retry(worker.claim_one())
    worker.retry(worker.claim_one())
    assert worker.claim_one().row.attempts_made == 2


def test_a_revived_job_keeps_its_attempts_and_loses_its_result(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.fail(worker.claim_one())
    store.move(RETRY_FINISHED, job)
    row, result = store.row(job), store.result(job)
    assert (row.attempts_made, row.finished_at) == (1, None)
    assert (result.failed_reason, result.outcome) == (None, None)


# --- refused -------------------------------------------------------------------------------------


def test_only_the_lost_jobs_of_a_request_are_refused(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(3)))
    worker = store.worker()
    one, two, three = worker.claim(3)
    stale = two._replace(token=two.token - 1)
    assert worker.complete(one, stale, three) == [jobs[1]]
    assert store.states(*jobs) == ["completed", "active", "completed"]
    assert store.counts() == {"completed": 2, "active": 1}


def test_a_lost_job_writes_no_result_and_no_event(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    before = store.everything()
    assert worker.complete(held._replace(token=held.token + 1), value="1") == [job]
    assert store.everything() == before


def test_a_second_completion_is_a_lost_lock(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    worker.complete(held, value="1")
    before = store.everything()
    assert worker.complete(held, value="2") == [job]
    assert store.everything() == before


@pytest.mark.parametrize("move", SETTLING, ids=str)
def test_a_verdict_sent_again_because_its_answer_got_lost_is_recognised(
    store: Store, move: Move
) -> None:
    store.add()
    worker = store.worker()
    held = worker.claim_one()
    assert worker.settle(move, held, delay=10, value="1") == []
    before = store.everything()
    assert worker.settle(move, held, delay=10, value="1", again=True) == []
    assert store.everything() == before


def test_a_verdict_sent_again_that_had_not_arrived_is_carried_out(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    assert worker.complete(worker.claim_one(), value="1", again=True) == []
    assert store.state(job) == "completed"
    assert store.counts() == {"completed": 1}


def test_a_verdict_sent_again_after_the_job_was_lost_is_a_lost_lock(store: Store) -> None:
    job = store.add()
    first, second = store.worker(), store.process().worker()
    old = first.claim_one()
    first.give_back(old)
    new = second.claim_one()
    assert first.complete(old, again=True) == [job]
    second.complete(new)
    assert first.complete(old, again=True) == [job]


def test_a_different_verdict_for_a_finished_job_is_a_lost_lock_however_often_it_is_sent(
    store: Store,
) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    worker.complete(held)
    assert worker.settle(FAIL, held, again=True) == [job]
    assert store.state(job) == "completed"


@pytest.mark.parametrize("move", [REMOVE, DELETE], ids=str)
def test_a_verdict_for_a_job_that_is_gone_is_a_lost_lock(store: Store, move: Move) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    worker.complete(held)
    store.move(move, job)
    before = store.everything()
    assert worker.complete(held) == [job]
    assert worker.complete(held, again=True) == [job]
    assert store.everything() == before


def test_a_verdict_that_comes_twice_in_one_request_is_carried_out_once(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    worker.complete(held, held)
    assert store.counts() == {"completed": 1}
    assert store.history(job) == ["add", "claim", "complete"]


def test_a_stale_and_a_fresh_verdict_for_one_job_in_one_request_are_told_apart(
    store: Store,
) -> None:
    """A worker that lost a job and then took it again may end both runs at the same moment."""
    job = store.add()
    worker = store.worker()
    old = worker.claim_one()
    worker.give_back(old)
    new = worker.claim_one()
    worker.complete(old, new, value="1")
    assert store.counts() == {"completed": 1}
    assert store.history(job) == ["add", "claim", "claim", "complete"]


# --- progress ------------------------------------------------------------------------------------


def test_the_holder_of_a_job_reports_progress(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    assert worker.progress(held, '{"done":5}') is True
    assert store.result(job).progress == '{"done":5}'
    assert store.events()[-1] == Event("progress", job, {"done": 5})


def test_progress_survives_the_result_and_the_result_survives_progress(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.retry(worker.claim_one())
    held = worker.claim_one()
    worker.progress(held, "50")
    assert store.result(job).failed_reason == "it broke"
    worker.complete(held, value="1")
    assert (store.result(job).progress, store.result(job).return_value) == ("50", "1")


def test_progress_with_the_wrong_number_is_refused(store: Store) -> None:
    store.add()
    worker = store.worker()
    held = worker.claim_one()
    before = store.everything()
    assert worker.progress(held._replace(token=held.token + 1)) is False
    assert store.everything() == before


def test_progress_of_another_process_with_the_same_number_is_refused(store: Store) -> None:
    store.add()
    held = store.worker().claim_one()
    before = store.everything()
    assert store.process().ask(Progress(store.queue, held.id, held.token, "9")) is False
    assert store.everything() == before


def test_progress_of_a_job_that_is_no_longer_active_is_refused(store: Store) -> None:
    store.add()
    worker = store.worker()
    held = worker.claim_one()
    worker.complete(held)
    before = store.everything()
    assert worker.progress(held) is False
    assert store.everything() == before


def test_of_many_reports_in_one_batch_only_the_stale_one_is_refused(store: Store) -> None:
    store.add_all(new_job(), new_job())
    one, two = store.worker().claim(2)
    answers = store.ask_together(
        Progress(store.queue, one.id, one.token, "1"),
        Progress(store.queue, two.id, two.token + 1, "2"),
        Progress(store.queue, one.id, one.token, "3"),
    )
    assert answers == [True, False, True]
    assert store.result(one.id).progress == "3"
    assert store.result(two.id) is None


# --- waiting for a result ------------------------------------------------------------------------


def test_who_waits_for_a_job_is_told_in_the_batch_that_finishes_it(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    told: list[object] = []
    store.home.engine.result_waiters.watch(store.watched(job), told.append, SAME_THREAD)
    held = worker.claim_one()
    assert told == []
    worker.complete(held, value="7")
    assert told == [["completed", "7", None]]


def test_who_waits_for_a_job_of_another_process_is_told_on_the_next_look(store: Store) -> None:
    job = store.add()
    told: list[object] = []
    store.home.engine.result_waiters.watch(store.watched(job), told.append, SAME_THREAD)
    store.home.engine.turn()
    worker = store.process().worker()
    worker.fail(worker.claim_one(), reason="no")
    store.home.engine.poll_now()
    store.home.engine.turn()
    assert told == [["failed", None, "no"]]


def test_who_waits_for_a_job_that_is_removed_is_told_that_it_is_gone(store: Store) -> None:
    job = store.add()
    told: list[object] = []
    store.home.engine.result_waiters.watch(store.watched(job), told.append, SAME_THREAD)
    store.move(REMOVE, job)
    store.home.engine.poll_now()
    store.home.engine.turn()
    assert [type(answer) for answer in told] == [JobNotFound]
