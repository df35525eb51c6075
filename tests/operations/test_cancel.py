"""Cancelling: who waits ends at once, who runs ends with the run, unless that completes."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import pytest

from bullite.core.decide_outcome import STALLED_TOO_OFTEN, RunOutcome
from bullite.core.deduplication import DeduplicationRule
from bullite.core.event_log import unfold
from bullite.core.job_flags import CANCELLED as MARK
from bullite.core.retention import Retention
from bullite.core.states import (
    BACK_OFF,
    CANCELLED,
    COMPLETE,
    DELAY,
    DELETE,
    FAIL,
    RELEASE,
    REMOVE,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    RETRY_NOW,
    RETURN_UNSTARTED,
    Move,
)
from bullite.database.driver import Conflict
from bullite.engine.replies import SAME_THREAD
from bullite.engine.subscription import CancelRunning
from bullite.errors import BulliteError, IllegalMove, JobCancelled, JobNotFound
from bullite.operations.after_failure import RetryFailedDue
from bullite.operations.cancel_and_expire import Cancel, Expire, expire_due
from bullite.operations.cancel_and_expire import cancel as cancel_in
from bullite.operations.children import AwaitChildren
from bullite.operations.finish import FinishResult, FinishRuns
from bullite.operations.flow_graph import FlowRef
from bullite.operations.queues import Configure
from bullite.operations.steps import Suspend
from tests.operations.test_dependencies import BLOCKED, child, dependent, family, links
from tests.operations.test_interleaving import Make, claiming, interleave, recovering, settling
from tests.operations.test_schedulers import the_pending, tick_of, upsert
from tests.support.databases import PATIENCE
from tests.support.harness import QUEUE, Event, Held, Process, Store, Worker, new_job

T = TypeVar("T")

REASON = "not wanted any more"
X = DeduplicationRule("x")

FAILING = (FAIL, BACK_OFF, RETRY_NOW)
GIVING_UP = (RELEASE, RETURN_UNSTARTED, DELAY)


def cancel(store: Store, job: int, reason: str = REASON, *, by: Process | None = None) -> bool:
    """Whether it has ended; raises what the store answers instead."""
    answer = (by or store.home).ask(Cancel(job, str(job), reason))
    if isinstance(answer, BulliteError):
        raise answer
    assert isinstance(answer, bool)
    return answer


def cancelled_run(store: Store, **options: Any) -> tuple[Worker, Held]:
    """A job that runs and is cancelled."""
    job = store.add(**options)
    worker = store.worker()
    held = worker.claim_one()
    assert cancel(store, job) is False
    return worker, held


def end(store: Store, job: int) -> tuple[str | None, str, str]:
    """Where a job is, how it ended and why."""
    result = store.result(job)
    return store.state(job), result.outcome, result.failed_reason


ENDED = ("failed", CANCELLED, REASON)


def watch(store: Store, job: int) -> list[Any]:
    told: list[Any] = []
    store.home.engine.result_waiters.watch(store.watched(job), told.append, SAME_THREAD)
    store.home.engine.turn()
    return told


def stops(worker: Worker) -> list[CancelRunning]:
    """What the worker is told to stop when its engine next turns."""
    worker.stopped.clear()
    worker.process.engine.turn()
    return list(worker.stopped)


# --- jobs that wait ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"priority": 3}, {"delay": 100}], ids=["waiting", "prioritized", "delayed"]
)
def test_a_job_that_waits_ends_at_once(store: Store, options: dict[str, Any]) -> None:
    job = store.add(**options)
    store.clock.advance(7)
    assert cancel(store, job) is True
    assert end(store, job) == ENDED
    assert store.counts() == {"failed": 1}
    row = store.row(job)
    assert (row.finished_at, row.due_at) == (store.clock.now(), None)


def test_a_parent_that_waits_for_its_children_ends_at_once(store: Store) -> None:
    parent, first = family(store, child())
    assert cancel(store, parent) is True
    assert end(store, parent) == ENDED
    assert store.counts() == {"failed": 1, "waiting": 1}
    worker = store.worker()
    assert worker.complete(worker.claim_one()) == []
    assert store.states(parent, first) == ["failed", "completed"]


def test_it_tells_where_it_was_cancelled(store: Store) -> None:
    waiting, delayed = store.add(), store.add(delay=100, custom_id="late")
    parent, _ = family(store, child())
    for job in (waiting, delayed, parent):
        cancel(store, job)
    assert [event for event in store.events() if event.kind == "cancel"] == [
        Event("cancel", waiting, ["waiting", REASON]),
        Event("cancel", "late", ["delayed", REASON, delayed]),
        Event("cancel", parent, [BLOCKED, REASON]),
    ]


def test_listeners_hear_that_it_failed_by_being_cancelled(store: Store) -> None:
    job = store.add(delay=100)
    cancel(store, job)
    [row] = [row for row in store.event_rows() if row.kind == "cancel"]
    [event] = unfold(row.id, row.at, row.kind, json.loads(row.jobs))
    assert event.name == "failed"
    assert event.payload == {
        "job_id": str(job),
        "failed_reason": REASON,
        "prev": "delayed",
        "final": True,
        "outcome": CANCELLED,
    }


def test_a_job_that_was_cancelled_while_it_waited_is_no_attempt(store: Store) -> None:
    job = store.add()
    cancel(store, job)
    row = store.row(job)
    assert (row.attempts_made, row.attempts_started) == (0, 0)
    assert store.attempts(job) == []


def test_a_cancelled_job_is_never_handed_out(store: Store) -> None:
    job, delayed, good = store.add(), store.add(delay=5), store.add()
    cancel(store, job)
    cancel(store, delayed)
    store.clock.advance(5)
    assert [held.id for held in store.worker().claim(3)] == [good]


def test_a_job_that_backs_off_can_be_cancelled(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.back_off(worker.claim_one())
    assert cancel(store, job) is True
    assert end(store, job) == ENDED
    assert [attempt.outcome for attempt in store.attempts(job)] == ["error"]


def test_a_job_that_is_about_to_fail_for_its_child_is_cancelled_for_its_own_reason(
    store: Store,
) -> None:
    parent, _ = family(store, child("fail"))
    worker = store.worker()
    worker.fail(worker.claim_one())
    assert store.row(parent).deferred_failure is not None
    assert cancel(store, parent) is True
    assert end(store, parent) == ENDED


# --- what belongs to it --------------------------------------------------------------------------


def test_the_parent_of_a_cancelled_child_is_told(store: Store) -> None:
    parent, first = family(store, child("fail"))
    cancel(store, first)
    assert links(store, parent) == {first: ("failed", REASON)}
    assert store.state(parent) == "waiting"
    assert store.row(parent).deferred_failure == f"child work:{first} failed"


def test_those_that_depend_on_a_cancelled_job_are_told(store: Store) -> None:
    job = store.add()
    [doomed] = store.grow(dependent(job, on_failure="fail"))
    [free] = store.grow(dependent(job, on_failure="run"))
    cancel(store, job)
    assert store.states(doomed, free) == ["waiting", "waiting"]
    assert [store.row(one).deferred_failure is None for one in (doomed, free)] == [False, True]


def test_the_parent_of_a_child_that_is_cancelled_while_it_runs_is_told_when_that_ends(
    store: Store,
) -> None:
    parent, first = family(store, child("fail"))
    worker = store.worker()
    held = worker.claim_one()
    cancel(store, first)
    assert store.state(parent) == BLOCKED
    worker.retry(held)
    assert store.state(parent) == "waiting"
    assert links(store, parent) == {first: ("failed", REASON)}


def test_the_deduplication_key_of_a_cancelled_job_is_free(store: Store) -> None:
    job = store.add(deduplication=X)
    assert store.add(deduplication=X) == job
    cancel(store, job)
    assert store.add(deduplication=X) != job


def test_the_key_of_a_job_that_is_cancelled_while_it_runs_is_free_when_that_ends(
    store: Store,
) -> None:
    worker, held = cancelled_run(store, deduplication=X)
    assert store.add(deduplication=X) == held.id
    worker.back_off(held)
    assert store.add(deduplication=X) != held.id


def test_the_scheduler_of_a_cancelled_job_makes_the_next_tick(store: Store) -> None:
    job = upsert(store)
    tick = tick_of(store.row(job))
    cancel(store, job)
    assert store.state(job) == "failed"
    assert tick_of(the_pending(store)) > tick


def test_a_cancelled_run_of_a_scheduler_makes_no_second_chain(store: Store) -> None:
    job = upsert(store)
    worker = store.worker()
    held = worker.claim_one()
    following = the_pending(store)
    cancel(store, job)
    worker.release(held)
    assert end(store, job) == ENDED
    assert the_pending(store).id == following.id


def test_a_cancelled_job_that_is_to_be_removed_when_it_fails_is_gone(store: Store) -> None:
    job = store.add(opts='{"remove_on_fail":true}')
    assert cancel(store, job) is True
    assert store.state(job) is None
    assert store.counts() == {}


@pytest.mark.parametrize("move", [*FAILING, *GIVING_UP], ids=str)
def test_so_is_one_that_was_cancelled_while_it_ran(store: Store, move: Move) -> None:
    worker, held = cancelled_run(store, opts='{"remove_on_fail":true}')
    keep = Retention(0) if move is FAIL else None
    assert worker.settle(move, held, delay=5, reason="it broke", retention=keep) == []
    assert store.state(held.id) is None
    assert store.counts() == {}


def test_a_cancelled_job_is_no_dead_letter(store: Store) -> None:
    store.home.configure(dead_letter="dead")
    waiting = store.add()
    cancel(store, waiting)
    worker, held = cancelled_run(store)
    worker.fail(held)
    other = store.add()
    worker.fail(worker.claim_one())
    queues = [store.row(job).queue for job in (waiting, held.id, other)]
    assert [queue == store.queue for queue in queues] == [True, True, False]


def test_nobody_is_sent_a_notice_of_a_cancelled_job(store: Store) -> None:
    store.ask(Configure(store.queue, {"on_failure": '{"queue":"ops","name":"alert"}'}))
    waiting = store.add()
    cancel(store, waiting)
    worker, held = cancelled_run(store)
    worker.fail(held)
    assert store.states(waiting, held.id) == ["failed", "failed"]
    assert len(store.database.rows("jobs")) == 2
    store.add()
    worker.fail(worker.claim_one())
    assert len(store.database.rows("jobs")) == 4  # any other failure is told


def test_a_cancelled_job_is_not_tried_again_by_itself(store: Store) -> None:
    store.home.configure(retry_failed_after=10, retry_failed_times=5)
    waiting = store.add()
    cancel(store, waiting)
    worker, held = cancelled_run(store)
    worker.fail(held)
    store.clock.advance(20)
    assert store.ask(RetryFailedDue(store.queue)) == 0
    assert store.states(waiting, held.id) == ["failed", "failed"]
    store.add()
    worker.fail(worker.claim_one())
    store.clock.advance(20)
    assert store.ask(RetryFailedDue(store.queue)) == 1  # any other failure is


# --- what cannot be cancelled --------------------------------------------------------------------


@pytest.mark.parametrize("move", [COMPLETE, FAIL], ids=str)
def test_a_finished_job_cannot_be_cancelled(store: Store, move: Move) -> None:
    job = store.add()
    worker = store.worker()
    worker.settle(move, worker.claim_one())
    before = store.everything()
    with pytest.raises(IllegalMove, match=f"job {job} is {move.target} already"):
        cancel(store, job)
    assert store.everything() == before


def test_a_cancelled_job_cannot_be_cancelled_again(store: Store) -> None:
    job = store.add()
    cancel(store, job)
    with pytest.raises(IllegalMove):
        cancel(store, job, "another reason")
    assert end(store, job) == ENDED


@pytest.mark.parametrize("move", [REMOVE, DELETE], ids=str)
def test_a_job_that_is_gone_cannot_be_cancelled(store: Store, move: Move) -> None:
    job = store.add()
    store.move(move, job)
    before = store.everything()
    with pytest.raises(JobNotFound, match=f"job {job} "):
        cancel(store, job)
    assert store.everything() == before


def test_a_job_that_never_was_cannot_be_cancelled(store: Store) -> None:
    with pytest.raises(JobNotFound, match="job 12345 does not exist"):
        cancel(store, 12345)


def test_one_that_cannot_be_cancelled_does_not_keep_its_neighbours_from_it(store: Store) -> None:
    job, other = store.add(), store.add()
    wanted = [Cancel(number, str(number), REASON) for number in (job, 12345, other)]
    answers = store.ask_together(*wanted)
    assert [type(answer) for answer in answers] == [bool, JobNotFound, bool]
    assert store.counts() == {"failed": 2}


# --- jobs that run -------------------------------------------------------------------------------


def test_a_job_that_runs_stays_with_its_worker(store: Store) -> None:
    _, held = cancelled_run(store)
    row = store.row(held.id)
    assert (row.state, row.token, row.traits) == ("active", held.token, MARK)
    assert row.deferred_failure == REASON
    assert store.counts() == {"active": 1}


def test_the_worker_of_a_cancelled_job_is_told_to_stop_it(store: Store) -> None:
    worker, held = cancelled_run(store)
    assert stops(worker) == [CancelRunning(held.id, held.token, REASON)]


def test_only_the_worker_that_runs_it_is_told(store: Store) -> None:
    idle, other = store.worker(), store.process().worker()
    store.add()
    unrelated_process = other.claim_one()
    _, held = cancelled_run(store)
    assert held.id != unrelated_process.id
    assert stops(idle) == stops(other) == []


def test_a_worker_of_another_process_is_told_when_its_engine_looks(store: Store) -> None:
    worker = store.process().worker()
    job = store.add()
    held = worker.claim_one()
    cancel(store, job)
    store.clock.advance(500)
    assert stops(worker) == [CancelRunning(job, held.token, REASON)]


def test_nobody_is_told_to_stop_a_job_that_has_ended(store: Store) -> None:
    worker, held = cancelled_run(store)
    worker.fail(held)
    worker.stopped.clear()
    store.add()
    worker.claim_one()
    store.clock.advance(500)
    assert stops(worker) == []


def test_the_first_of_two_cancellations_says_why(store: Store) -> None:
    worker, held = cancelled_run(store)
    assert cancel(store, held.id, "another reason") is False
    worker.fail(held)
    assert end(store, held.id) == ENDED


def test_a_cancelled_run_that_completes_has_completed(store: Store) -> None:
    worker, held = cancelled_run(store)
    assert worker.complete(held, value="7") == []
    assert store.state(held.id) == "completed"
    assert store.result(held.id).return_value == "7"
    assert store.counts() == {"completed": 1}


@pytest.mark.parametrize("move", FAILING, ids=str)
def test_a_cancelled_run_that_fails_is_cancelled(store: Store, move: Move) -> None:
    worker, held = cancelled_run(store)
    assert worker.settle(move, held, delay=5, reason="it broke", stack="where it broke") == []
    assert end(store, held.id) == ENDED
    assert store.counts() == {"failed": 1}
    row = store.row(held.id)
    assert (row.attempts_made, row.due_at, row.finished_at) == (1, None, store.clock.now())


@pytest.mark.parametrize("move", FAILING, ids=str)
def test_the_history_tells_of_the_cancelled_run(store: Store, move: Move) -> None:
    worker, held = cancelled_run(store)
    worker.settle(move, held, delay=5, reason="it broke", stack="where it broke")
    [attempt] = store.attempts(held.id)
    told = (attempt.outcome, attempt.error, attempt.stack)
    assert told == (CANCELLED, REASON, "where it broke")


@pytest.mark.parametrize("move", FAILING, ids=str)
def test_a_cancelled_run_that_fails_tells_so(store: Store, move: Move) -> None:
    worker, held = cancelled_run(store)
    worker.settle(move, held, delay=5, reason="it broke")
    told = [event for event in store.events() if event.kind in ("fail", "back_off", "retry")]
    assert told == [Event("fail", held.id, [REASON, 1, CANCELLED])]


@pytest.mark.parametrize("move", FAILING, ids=str)
def test_its_worker_learns_that_it_was_cancelled(store: Store, move: Move) -> None:
    _, held = cancelled_run(store)
    settled: FinishResult = store.ask(
        FinishRuns(store.queue, [RunOutcome(held.id, held.token, move, delay=5, reason="it broke")])
    )
    assert [type(error) for error in settled.overridden.values()] == [JobCancelled]
    assert str(settled.overridden[held.id]) == REASON


@pytest.mark.parametrize("move", GIVING_UP, ids=str)
def test_a_cancelled_job_that_its_worker_gives_up_ends_at_once(store: Store, move: Move) -> None:
    worker, held = cancelled_run(store)
    assert worker.settle(move, held, delay=5) == []
    assert end(store, held.id) == ENDED
    assert store.counts() == {"failed": 1}
    assert store.row(held.id).due_at is None
    store.clock.advance(5)
    assert worker.claim(1) == []


def with_child_at_run_time(store: Store) -> tuple[Worker, Held, int]:
    job = store.add("parent")
    worker = store.worker()
    held = worker.claim_one()
    [first] = store.grow(child("fail")._replace(parent=FlowRef(QUEUE, str(job))))
    return worker, held, first


def test_a_cancelled_job_that_would_wait_for_its_children_ends_at_once(store: Store) -> None:
    _, held, first = with_child_at_run_time(store)
    cancel(store, held.id)
    assert store.ask(AwaitChildren(held.id, held.token)) is True
    assert end(store, held.id) == ENDED
    assert store.counts() == {"failed": 1, "waiting": 1}
    assert store.state(first) == "waiting"


def test_a_cancelled_job_whose_children_do_not_let_it_complete_is_cancelled(store: Store) -> None:
    worker, held, _ = with_child_at_run_time(store)
    cancel(store, held.id)
    assert worker.complete(held, value="7") == []
    assert end(store, held.id) == ENDED


def test_a_cancelled_job_that_would_sleep_ends_at_once(store: Store) -> None:
    _, held = cancelled_run(store)
    store.ask(Suspend(store.queue, held.id, held.token, "sleep", "nap", 0, 0, 1_000))
    assert end(store, held.id) == ENDED
    assert store.counts() == {"failed": 1}


def test_one_cancelled_job_of_many_does_not_disturb_the_others(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(6)))
    worker = store.worker()
    held = worker.claim(6)
    cancel(store, jobs[2])
    verdicts = [
        RunOutcome(h.id, h.token, move, delay=9, reason="it broke", value="1")
        for h, move in zip(
            held, (COMPLETE, FAIL, RETRY_NOW, RETRY_NOW, BACK_OFF, RELEASE), strict=True
        )
    ]
    assert store.home.settle(*verdicts) == []
    assert store.states(*jobs) == [
        *("completed", "failed", "failed", "waiting", "delayed", "waiting"),
    ]
    assert [store.result(job).outcome for job in jobs[1:3]] == ["error", CANCELLED]


def test_many_jobs_of_one_claim_are_cancelled_together(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(4)))
    worker = store.worker()
    held = worker.claim(4)
    for job in jobs[:3]:
        cancel(store, job)
    assert worker.retry(*held) == []
    assert store.states(*jobs) == [*["failed"] * 3, "waiting"]


@pytest.mark.parametrize("move", [COMPLETE, *FAILING, *GIVING_UP], ids=str)
def test_a_verdict_on_a_cancelled_job_that_is_sent_again_is_recognised(
    store: Store, move: Move
) -> None:
    worker, held = cancelled_run(store)
    assert worker.settle(move, held, delay=10, reason="it broke") == []
    before = store.everything()
    assert worker.settle(move, held, delay=10, reason="it broke", again=True) == []
    assert store.everything() == before


def test_a_verdict_sent_again_that_had_not_arrived_minds_the_cancellation(store: Store) -> None:
    worker, held = cancelled_run(store)
    assert worker.settle(RETRY_NOW, held, reason="it broke", again=True) == []
    assert end(store, held.id) == ENDED


def test_a_completion_of_a_cancelled_job_that_had_failed_is_a_lost_lock(store: Store) -> None:
    worker, held = cancelled_run(store)
    worker.fail(held)
    assert worker.complete(held, again=True) == [held.id]
    assert end(store, held.id) == ENDED


# --- jobs whose worker dies ----------------------------------------------------------------------


def cancelled_and_orphaned(store: Store, ahead: bool = False, **settings: Any) -> int:
    """A job that was cancelled and whose worker has died since."""
    process = store.process()
    worker = process.worker(**settings)
    if ahead:
        store.add("other")
    job = store.add("orphan", opts='{"backoff":{"type":"fixed","delay":100}}')
    held = worker.claim(1, ahead=int(ahead))
    assert held[-1].id == job
    assert cancel(store, job) is False
    store.kill(process)
    return job


@pytest.mark.parametrize("stalled_backoff", [False, True])
def test_a_cancelled_job_whose_worker_dies_is_cancelled(
    store: Store, stalled_backoff: bool
) -> None:
    job = cancelled_and_orphaned(store, stalled_backoff=stalled_backoff)
    assert store.home.recover() == 1
    assert end(store, job) == ENDED
    assert store.counts() == {"failed": 1}
    store.clock.advance(1_000)
    assert store.worker().claim(1) == []


def test_a_cancelled_job_that_was_only_fetched_ahead_by_a_worker_that_dies_is_cancelled(
    store: Store,
) -> None:
    job = cancelled_and_orphaned(store, ahead=True)
    assert store.home.recover() == 2
    assert end(store, job) == ENDED
    assert store.row(job).attempts_started == 0
    assert [held.row.name for held in store.worker().claim(2)] == ["other"]


def test_a_cancelled_job_that_stalls_too_often_is_cancelled_all_the_same(store: Store) -> None:
    job = cancelled_and_orphaned(store, max_stalled_count=0)
    store.home.recover()
    assert end(store, job) == ENDED


def test_a_job_that_is_not_cancelled_still_stalls(store: Store) -> None:
    process = store.process()
    worker = process.worker(max_stalled_count=0)
    job, other = store.add(), store.add()
    worker.claim(2)
    cancel(store, other)
    store.kill(process)
    store.home.recover()
    assert store.states(job, other) == ["waiting", "failed"]
    assert store.row(job).deferred_failure == STALLED_TOO_OFTEN


# --- and then it is wanted after all -------------------------------------------------------------


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("move", [RETRY_FINISHED, RETRY_FINISHED_DELAYED], ids=str)
def test_a_cancelled_job_that_is_retried_by_hand_runs_as_if_nothing_had_been(
    store: Store, move: Move, runs: bool
) -> None:
    if runs:
        worker, held = cancelled_run(store)
        worker.fail(held)
        job = held.id
    else:
        worker, job = store.worker(), store.add()
        cancel(store, job)
    assert store.move(move, job, delay=1) == [job]
    store.clock.advance(1)
    again = worker.claim_one()
    assert (again.id, again.row.deferred_failure, again.row.traits) == (job, None, 0)
    worker.back_off(again, delay=50)
    assert store.state(job) == "delayed"
    store.clock.advance(50)
    last = worker.claim_one()
    worker.stopped.clear()
    store.clock.advance(500)
    assert stops(worker) == []
    worker.fail(last)
    assert end(store, job) == ("failed", "error", "it broke")


def test_a_cancelled_job_that_completed_can_be_retried_and_back_off(store: Store) -> None:
    worker, held = cancelled_run(store)
    worker.complete(held)
    store.move(RETRY_FINISHED, held.id)
    worker.back_off(worker.claim_one())
    assert store.state(held.id) == "delayed"


# --- those who wait for it -----------------------------------------------------------------------


def test_who_waits_for_a_job_hears_at_once_that_it_is_cancelled(store: Store) -> None:
    job = store.add()
    told = watch(store, job)
    cancel(store, job)
    assert told == [["failed", None, REASON]]


def test_who_waits_for_a_job_that_is_gone_with_its_cancellation_hears_of_it(store: Store) -> None:
    job = store.add(opts='{"remove_on_fail":true}')
    told = watch(store, job)
    cancel(store, job)
    assert told == [["failed", None, REASON]]


@pytest.mark.parametrize("custom_id", [None, "mine"])
def test_the_end_of_a_job_that_another_process_cancelled_is_in_the_log(
    store: Store, custom_id: str | None
) -> None:
    job = store.add(opts='{"remove_on_fail":true}', custom_id=custom_id)
    told = watch(store, job)
    cancel(store, job, by=store.process())
    store.home.engine.poll_now()
    store.home.turn()
    assert told == [["failed", None, REASON]]


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("opts", [None, '{"remove_on_fail":true}'])
@pytest.mark.parametrize("move", [*FAILING, *GIVING_UP], ids=str)
def test_who_waits_for_a_job_that_runs_hears_of_its_end_with_the_reason_of_the_cancellation(
    store: Store, move: Move, opts: str | None, by_hand: bool
) -> None:
    worker, held = cancelled_run(store, opts=opts)
    told = watch(store, held.id)
    assert told == []
    keep = Retention(0) if opts is not None and move is FAIL else None
    worker.settle(move, held, delay=5, reason="it broke", retention=keep, manual=by_hand)
    assert told == [["failed", None, REASON]]


def test_who_waits_for_a_job_that_completes_all_the_same_gets_its_result(store: Store) -> None:
    worker, held = cancelled_run(store)
    told = watch(store, held.id)
    worker.complete(held, value="7")
    assert told == [["completed", "7", None]]


# --- somebody else comes between -----------------------------------------------------------------


def cancelling(job: int) -> Make:
    return lambda tx: cancel_in(tx, [Cancel(job, str(job), REASON)])


def expiring(store: Store) -> Make:
    return lambda tx: expire_due(tx, store.queue)


def test_cancel_and_claim(store: Store) -> None:
    """What looked like waiting runs by now: it must not end under its worker."""
    job = store.add()
    worker = store.worker()
    with pytest.raises(Conflict):
        interleave(
            store.home, cancelling(job), "load_jobs_for_update", claiming(worker), by=store.home
        )
    assert store.state(job) == "waiting"


def test_claim_and_cancel(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    with pytest.raises(Conflict):
        interleave(store.home, claiming(worker), "next_in_lane", cancelling(job), by=store.home)
    assert store.state(job) == "waiting"


@pytest.mark.parametrize("move", [COMPLETE, *FAILING], ids=str)
def test_settle_and_cancel(store: Store, move: Move) -> None:
    job = store.add()
    held = store.worker().claim_one()
    with pytest.raises(Conflict):
        interleave(
            store.home,
            settling(store, held, move),
            "load_jobs_for_update",
            cancelling(job),
            by=store.home,
        )
    assert store.state(job) == "active"


@pytest.mark.parametrize("move", GIVING_UP, ids=str)
def test_giving_up_and_cancel(store: Store, move: Move) -> None:
    """These look once more when they have moved the job, and see the mark."""
    job = store.add()
    held = store.worker().claim_one()
    interleave(
        store.home,
        settling(store, held, move),
        "load_jobs_for_update",
        cancelling(job),
        by=store.home,
    )
    assert end(store, job) == ENDED


def test_cancel_and_expire(store: Store) -> None:
    job = store.add(expires=5)
    store.clock.advance(5)
    with pytest.raises(Conflict):
        interleave(
            store.home, cancelling(job), "load_jobs_for_update", expiring(store), by=store.home
        )
    assert store.state(job) == "waiting"


def test_expire_and_cancel(store: Store) -> None:
    job = store.add(expires=5)
    store.clock.advance(5)
    with pytest.raises(Conflict):
        interleave(store.home, expiring(store), "expired", cancelling(job), by=store.home)
    assert store.state(job) == "waiting"


def test_cancel_and_cancel(store: Store) -> None:
    job = store.add()
    with pytest.raises(Conflict):
        interleave(
            store.home, cancelling(job), "load_jobs_for_update", cancelling(job), by=store.home
        )
    assert store.state(job) == "waiting"


# --- two processes at one moment -----------------------------------------------------------------


def beside(first: Process, make: Make, until: str, second: Callable[[], T]) -> tuple[Any, T]:
    """What both answer when `second` begins after the statement `until` of the first.

    A look locks what it has found, so the second waits or passes over it; how far it has come when
    the first goes on makes no difference.
    """
    with ThreadPoolExecutor(1) as pool:
        with first.transaction(careful=True) as open:
            steps = open.start(make(open.tx)).until(until)
            under_way = pool.submit(second)
            wait([under_way], timeout=0.05)
            answer = steps.finish()
        return answer, under_way.result(PATIENCE)


def outcome_of(call: Callable[[], Any]) -> Callable[[], Any]:
    def outcome() -> Any:
        try:
            return call()
        except BulliteError as error:
            return type(error)

    return outcome


def test_a_run_that_completes_while_it_is_being_cancelled_has_completed(store: Store) -> None:
    job = store.add()
    worker = store.process().worker()
    held = worker.claim_one()
    answers = beside(
        store.home,
        cancelling(job),
        "load_jobs_for_update",
        lambda: worker.complete(held, value="1"),
    )
    assert answers == ([False], [])
    assert store.state(job) == "completed"


@pytest.mark.parametrize("move", [*FAILING, *GIVING_UP], ids=str)
def test_a_run_that_ends_otherwise_while_it_is_being_cancelled_is_cancelled(
    store: Store, move: Move
) -> None:
    job = store.add()
    worker = store.process().worker()
    held = worker.claim_one()
    answers = beside(
        store.home,
        cancelling(job),
        "load_jobs_for_update",
        lambda: worker.settle(move, held, delay=5),
    )
    assert answers == ([False], [])
    assert end(store, job) == ENDED


def test_a_job_that_is_cancelled_while_its_completion_is_written_cannot_be(store: Store) -> None:
    job = store.add()
    other = store.process()
    held = other.worker().claim_one()
    _, answer = beside(
        other,
        settling(store, held),
        "load_jobs_for_update",
        outcome_of(lambda: cancel(store, job)),
    )
    assert answer is IllegalMove
    assert store.state(job) == "completed"


def test_a_job_that_is_being_cancelled_is_not_claimed(store: Store) -> None:
    job = store.add()
    worker = store.process().worker()
    answers = beside(store.home, cancelling(job), "load_jobs_for_update", lambda: worker.claim(1))
    assert answers == ([True], [])
    assert end(store, job) == ENDED


def test_a_job_that_is_cancelled_while_it_is_claimed_runs_and_is_told(store: Store) -> None:
    job = store.add()
    other = store.process()
    worker = other.worker()
    _, ended = beside(other, claiming(worker), "next_in_lane", lambda: cancel(store, job))
    assert ended is False
    assert (store.state(job), store.row(job).deferred_failure) == ("active", REASON)


def test_a_job_that_expires_while_it_is_being_cancelled_is_cancelled(store: Store) -> None:
    job = store.add(expires=5)
    store.clock.advance(5)
    other = store.process()
    answers = beside(
        store.home, cancelling(job), "load_jobs_for_update", lambda: other.ask(Expire(store.queue))
    )
    assert answers == ([True], 0)
    assert end(store, job) == ENDED


def test_a_job_that_is_cancelled_while_it_expires_has_expired(store: Store) -> None:
    job = store.add(expires=5)
    store.clock.advance(5)
    other = store.process()
    _, answer = beside(other, expiring(store), "expired", outcome_of(lambda: cancel(store, job)))
    assert answer is IllegalMove
    assert store.result(job).outcome == "expired"


def test_a_job_that_is_cancelled_while_it_is_taken_back_ends_at_once(store: Store) -> None:
    job = store.add()
    process, other = store.process(), store.process()
    worker = process.worker()
    worker.claim_one()
    taking_back = recovering(worker)
    store.kill(process)
    _, ended = beside(other, taking_back, "held_by_worker", lambda: cancel(store, job))
    assert ended is True
    assert end(store, job) == ENDED


def test_a_job_that_is_taken_back_while_it_is_being_cancelled_is_cancelled(store: Store) -> None:
    job = store.add()
    process, other = store.process(), store.process()
    process.worker().claim_one()
    store.kill(process)
    answer, _ = beside(store.home, cancelling(job), "load_jobs_for_update", other.recover)
    assert answer == [False]
    other.recover()  # it may have been passed over
    assert end(store, job) == ENDED
