"""Many requests in one transaction: their order, their isolation, their failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.states import (
    BACK_OFF,
    COMPLETE,
    DELETE,
    REMOVE,
    RESTORE,
    RETRY_FINISHED,
    RETURN_UNSTARTED,
    State,
)
from bullite.engine import transaction_runner
from bullite.engine.batching import group
from bullite.engine.replies import SAME_THREAD
from bullite.errors import StoreFull, StoreUnavailable
from bullite.operations.add import AddJobs
from bullite.operations.finish import FinishRuns
from bullite.operations.move import MoveJobs
from bullite.operations.queues import PublishEvent
from bullite.operations.request import Request
from bullite.operations.update import Progress
from tests.support.harness import Held, Store, new_job

RESTORE_COMPLETED = RESTORE[State.COMPLETED]

# --- the plan ------------------------------------------------------------------------------------


class Touching(Request):
    one: int | None = None
    other: int | None = None

    def job_ids(self) -> Sequence[int]:
        return [job for job in (self.one, self.other) if job is not None]


class A(Touching): ...


class B(Touching): ...


class Barrier(Touching):
    barrier = True


class Ordered(Touching):
    keeps_order = True


def test_no_requests_make_no_groups() -> None:
    assert group([]) == []


def test_one_request_makes_one_group() -> None:
    assert group([A(1)]) == [[0]]


def test_requests_of_one_kind_for_different_jobs_share_a_group() -> None:
    assert group([A(1), B(2), A(3), B(4), A()]) == [[0, 2, 4], [1, 3]]


def test_two_requests_of_one_kind_for_one_job_are_two_groups() -> None:
    assert group([A(1), A(1), A(1)]) == [[0], [1], [2]]


def test_a_request_does_not_overtake_one_of_another_kind_for_the_same_job() -> None:
    assert group([A(1), B(2), A(2)]) == [[0], [1], [2]]


def test_a_request_may_join_a_group_that_comes_after_all_requests_for_its_jobs() -> None:
    assert group([A(1), B(2), B(1)]) == [[0], [1, 2]]


def test_a_kind_goes_on_in_its_newest_group() -> None:
    assert group([A(1), A(1), A(2)]) == [[0], [1, 2]]


def test_every_job_a_request_touches_counts() -> None:
    assert group([A(1), B(7, 8), A(3, 8)]) == [[0], [1], [2]]


def test_nothing_passes_a_barrier() -> None:
    assert group([A(1), B(2), Barrier(), A(3), B(4), A(5)]) == [[0], [1], [2], [3, 5], [4]]


def test_requests_that_keep_their_order_share_a_group_even_for_one_job() -> None:
    assert group([Ordered(1), Ordered(1), Ordered(2)]) == [[0, 1, 2]]


def test_but_they_do_not_pass_others_for_the_same_job() -> None:
    assert group([Ordered(1), A(1), Ordered(1)]) == [[0], [1], [2]]
    assert group([A(1), Ordered(2), A(2)]) == [[0], [1], [2]]


def test_a_request_names_every_job_it_touches() -> None:
    verdicts = [RunOutcome(3, 1, COMPLETE), RunOutcome(5, 1, COMPLETE)]
    assert list(FinishRuns(1, verdicts).job_ids()) == [3, 5]
    assert list(MoveJobs(REMOVE, [4, 6]).job_ids()) == [4, 6]
    assert list(Progress(1, 9, 1, "1").job_ids()) == [9]


# --- order ---------------------------------------------------------------------------------------


def complete(store: Store, held: Held) -> FinishRuns:
    return FinishRuns(store.queue, [RunOutcome(held.id, held.token, COMPLETE)])


def test_requests_for_one_job_are_carried_out_in_the_order_they_came(store: Store) -> None:
    job = store.add()
    held = store.worker().claim_one()
    answers = store.ask_together(
        Progress(store.queue, held.id, held.token, "1"),
        complete(store, held),
        Progress(store.queue, held.id, held.token, "2"),
        MoveJobs(REMOVE, [job]),
        MoveJobs(RESTORE_COMPLETED, [job]),
        MoveJobs(RETRY_FINISHED, [job]),
        MoveJobs(REMOVE, [job]),
    )
    assert answers[1].lost == ()
    assert answers[:1] + answers[2:] == [True, False, [job], [job], [job], [job]]
    assert store.row(job).removed_from == "waiting"
    assert store.history(job)[2:] == [
        *("progress", "complete", "remove", "restore_completed", "revive", "remove")
    ]


def test_of_two_settles_for_one_job_in_one_batch_the_first_is_carried_out(store: Store) -> None:
    job = store.add()
    held = store.worker().claim_one()
    back = FinishRuns(store.queue, [RunOutcome(held.id, held.token, RETURN_UNSTARTED)])
    first, second = store.ask_together(back, complete(store, held))
    assert (list(first.lost), list(second.lost)) == ([], [job])
    assert store.state(job) == "waiting"


def test_jobs_are_numbered_in_the_order_their_requests_came(store: Store) -> None:
    answers = store.ask_together(*(AddJobs(store.queue, [new_job()]) for _ in range(20)))
    ids = [id for added in answers for id in added.ids]
    assert ids == sorted(set(ids))


# --- one transaction -----------------------------------------------------------------------------


def test_a_whole_batch_is_one_transaction(store: Store) -> None:
    job, other = store.add(), store.add()
    worker = store.worker()
    held = worker.claim_one()
    worker.wants(5)
    begun = store.home.driver.begun
    begun.clear()
    store.ask_together(
        AddJobs(store.queue, [new_job()]),
        complete(store, held),
        PublishEvent(store.queue, "mine", {}),
        MoveJobs(RETRY_FINISHED, [job]),
        AddJobs(store.queue, [new_job()]),
    )
    assert begun == [True]
    assert {held.id for held in worker.received[1:]} >= {job, other}


def test_nobody_is_answered_before_the_commit(store: Store) -> None:
    store.home.driver.fail_at["commit"] = StoreFull("no room")
    publish = PublishEvent(store.queue, "mine", {})
    answers = store.ask_together(AddJobs(store.queue, [new_job()]), publish)
    assert [type(answer) for answer in answers] == [StoreFull, StoreFull]
    assert store.counts() == {}


# --- isolation -----------------------------------------------------------------------------------

TOO_LARGE = 2**70
LONE_SURROGATE = "\ud800"


@pytest.mark.parametrize(
    "bad",
    [
        new_job(delay=TOO_LARGE),
        new_job(priority=TOO_LARGE),
        new_job(data=f'"{LONE_SURROGATE}"'),
        new_job(LONE_SURROGATE),
        new_job(custom_id=LONE_SURROGATE),
    ],
    ids=["delay", "priority", "data", "name", "custom id"],
)
def test_a_bad_job_fails_its_own_request_only(store: Store, bad: Any) -> None:
    one, refused, two = store.ask_together(
        AddJobs(store.queue, [new_job("one")]),
        AddJobs(store.queue, [new_job("good"), bad]),
        AddJobs(store.queue, [new_job("two")]),
    )
    assert isinstance(refused, Exception)
    assert [store.row(added.ids[0]).name for added in (one, two)] == ["one", "two"]
    assert store.counts() == {"waiting": 2}


@pytest.mark.parametrize("bad", [{"delay": TOO_LARGE}, {"reason": LONE_SURROGATE}], ids=str)
def test_a_bad_verdict_fails_its_own_request_only(store: Store, bad: dict[str, Any]) -> None:
    jobs = store.add_all(new_job(), new_job())
    one, two = store.worker().claim(2)
    settled, refused, added = store.ask_together(
        complete(store, one),
        FinishRuns(store.queue, [RunOutcome(two.id, two.token, BACK_OFF, **bad)]),
        AddJobs(store.queue, [new_job()]),
    )
    assert list(settled.lost) == []
    assert isinstance(refused, Exception)
    assert store.states(*jobs, *added.ids) == ["completed", "active", "waiting"]


def test_a_job_for_a_queue_that_does_not_exist_fails_alone(store: Store) -> None:
    refused, added = store.ask_together(
        AddJobs(999, [new_job()]), AddJobs(store.queue, [new_job()])
    )
    assert isinstance(refused, Exception)
    assert store.state(added.ids[0]) == "waiting"


def test_a_restore_that_meets_a_taken_custom_id_moves_nothing(store: Store) -> None:
    old = store.add(custom_id="x")
    store.move(REMOVE, old)
    new = store.add(custom_id="x")
    refused, removed = store.ask_together(
        MoveJobs(RESTORE[State.WAITING], [old]), MoveJobs(REMOVE, [new])
    )
    assert (refused, removed) == ([], [new])


def test_a_lost_verdict_does_not_harm_the_others_of_its_batch(store: Store) -> None:
    jobs = store.add_all(new_job(), new_job())
    worker = store.worker()
    one, two = worker.claim(2)
    stale = two._replace(token=two.token + 1)
    answers = store.ask_together(
        complete(store, stale), complete(store, one), AddJobs(store.queue, [new_job()])
    )
    assert [list(answer.lost) for answer in answers[:2]] == [[jobs[1]], []]
    assert store.counts() == {"waiting": 1, "active": 1, "completed": 1}


def test_claim_happens_for_an_idle_worker_although_a_request_of_the_batch_failed(
    store: Store,
) -> None:
    worker = store.worker()
    worker.wants(1)
    store.ask_together(
        AddJobs(store.queue, [new_job(delay=TOO_LARGE)]), AddJobs(store.queue, [new_job()])
    )
    store.home.engine.turn()
    assert [held.row.name for held in worker.received] == ["job"]
    assert worker.errors == []


# --- when the database fails ---------------------------------------------------------------------


def test_when_the_disk_is_full_the_whole_batch_fails_once(store: Store) -> None:
    begun = store.home.driver.begun
    begun.clear()
    store.home.driver.fail_at["insert_jobs"] = StoreFull("no room")
    publish = PublishEvent(store.queue, "mine", {})
    answers = store.ask_together(AddJobs(store.queue, [new_job()]), publish)
    assert [type(answer) for answer in answers] == [StoreFull, StoreFull]
    assert begun == [True], "it is not tried again"


def test_after_a_failure_the_engine_goes_on(store: Store) -> None:
    store.home.driver.fail_at["commit"] = StoreUnavailable("gone")
    store.ask_together(AddJobs(store.queue, [new_job()]))
    job = store.add()
    assert store.state(job) == "waiting"
    assert store.counts() == {"waiting": 1}


def test_a_worker_whose_claim_failed_is_told_and_fed_later(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.wants(1)
    store.home.driver.fail_at["claim:waiting"] = StoreUnavailable("gone")
    store.home.engine.turn()
    assert [type(error) for error in worker.errors] == [StoreUnavailable]
    assert store.state(job) == "waiting"
    store.home.engine.turn()
    assert worker.received == [], "the database is left alone for a while"
    store.clock.advance(1_000)
    store.home.engine.turn()
    assert [held.id for held in worker.received] == [job]


def test_claimed_jobs_are_handed_over_even_if_looking_for_results_fails(store: Store) -> None:
    """The claim is committed: jobs that were not handed over would stay active for ever."""
    first, second = store.add(), store.add()
    worker = store.worker()
    held = worker.claim_one()
    store.home.engine.result_waiters.watch(store.watched(first), lambda answer: None, SAME_THREAD)
    store.home.engine.turn()
    worker.wants(1)
    store.home.driver.fail_at["finished_jobs"] = StoreUnavailable("cannot read")
    store.ask_together(complete(store, held))
    assert store.state(second) == "active"
    assert [held.id for held in worker.received] == [first, second]


def test_requests_are_answered_although_looking_around_fails(store: Store) -> None:
    worker = store.worker()
    worker.wants(1)
    store.home.engine.turn()
    store.home.driver.fail_at["has_ready_or_due"] = StoreUnavailable("cannot read")
    store.home.engine.poll_now()
    [answer] = store.ask_together(AddJobs(store.queue, [new_job()]))
    assert len(answer.ids) == 1


# --- moves by hand -------------------------------------------------------------------------------


def test_a_move_by_hand_answers_only_the_jobs_that_moved(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(3)))
    held = store.worker().claim_one()
    assert store.move(REMOVE, *jobs, 999) == jobs[1:]
    assert store.state(held.id) == "active"


def test_a_move_by_hand_may_take_jobs_of_many_states_and_queues(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    jobs = [store.add(), store.add(delay=9), store.home.add(queue=elsewhere, priority=2)]
    assert sorted(store.move(REMOVE, *jobs)) == jobs
    assert store.counts() == store.counts(elsewhere) == {}


def test_a_job_named_twice_in_a_move_by_hand_moves_once(store: Store) -> None:
    job = store.add()
    assert store.move(REMOVE, job, job) == [job]
    assert store.counts() == {}
    assert store.history(job) == ["add", "remove"]


def test_a_running_job_cannot_be_deleted_by_hand(store: Store) -> None:
    job = store.add()
    store.worker().claim_one()
    assert store.move(DELETE, job) == []
    assert store.state(job) == "active"


# --- slowness ------------------------------------------------------------------------------------


def test_a_slow_statement_is_named_in_the_log_once_a_second_at_most(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transaction_runner, "SLOW_STATEMENT", 0.0)
    store.add()
    store.add()
    [warning] = [line for line in caplog.messages if line.startswith("the statement")]
    assert warning.startswith("the statement take_numbers took ")
