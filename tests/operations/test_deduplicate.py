"""Deduplication keys: who is left out, who holds a key, when it is free, what is kept for later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bullite.core.deduplication import HOLDING, DeduplicationRule
from bullite.core.job_flags import DEDUPLICATED
from bullite.core.retention import Retention
from bullite.core.states import (
    DELETE,
    DELETE_ACTIVE,
    REMOVE,
    RESCHEDULE,
    RESTORE,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    State,
)
from bullite.database.driver import TransactionAborted
from bullite.operations.add import Added, AddJobs, NewJob, RareFields, add
from bullite.operations.cancel_and_expire import Expire
from bullite.operations.claim import promote_due
from bullite.operations.deduplicate import dump_named, load_named
from bullite.operations.deduplicate_release import FreeKey, FreeKeyOf
from bullite.operations.queues import ResetQueue, SetPaused
from bullite.operations.retention import PruneQueue
from tests.support.harness import Event, Held, Store, new_job

X = DeduplicationRule("x")
WINDOW = DeduplicationRule("x", ttl=1_000)
KEEP = DeduplicationRule("x", keep_last_if_active=True)


def put(store: Store, rule: DeduplicationRule = X, **options: Any) -> int:
    """The job that an add under a key answers."""
    return store.add(deduplication=rule, **options)


def jobs(store: Store) -> list[int]:
    return [row["id"] for row in store.database.rows("jobs", "state <> 'removed'")]


def told(store: Store) -> list[Event]:
    return [event for event in store.events() if event.kind == "deduplicated"]


def holder(store: Store, id: str = "x") -> int | None:
    """The job in the row of a key."""
    rows = store.database.rows("deduplication", f"key = '{id}'")
    return rows[0]["job"] if rows else None


def begin(store: Store, rule: DeduplicationRule = X, **options: Any) -> Held:
    """A job that holds the key and runs."""
    put(store, rule, **options)
    return store.worker().claim_one()


# --- who holds a key -----------------------------------------------------------------------------


def bring_into(store: Store, state: State) -> int:
    """A job that was added under the key, in each state there is."""
    job = put(store, X, delay=50 if state is State.DELAYED else 0)
    if state in (State.ACTIVE, State.COMPLETED, State.FAILED):
        worker = store.worker()
        held = worker.claim_one()
        if state is State.COMPLETED:
            worker.complete(held)
        elif state is State.FAILED:
            worker.fail(held)
    elif state is State.REMOVED:
        store.move(REMOVE, job)
    elif state is State.WAITING_CHILDREN:
        write_state(store, job, "waiting-children")
    return job


def write_state(store: Store, job: int, state: str) -> None:
    store.database.write(f"update bullite_jobs set state = '{state}' where id = {job}")


@pytest.mark.parametrize(
    ("state", "holds"),
    [
        (State.WAITING, True),
        (State.DELAYED, True),
        (State.ACTIVE, True),
        (State.WAITING_CHILDREN, True),
        (State.COMPLETED, False),
        (State.FAILED, False),
        (State.REMOVED, False),
    ],
)
def test_a_job_holds_its_key_in_these_states_and_in_no_other(
    store: Store, state: State, holds: bool
) -> None:
    job = bring_into(store, state)
    assert (put(store) == job) is holds
    assert (state in HOLDING) is holds
    if state is State.WAITING_CHILDREN:
        write_state(store, job, "waiting")


def test_every_state_either_holds_a_key_or_does_not() -> None:
    table = test_a_job_holds_its_key_in_these_states_and_in_no_other.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {state for state, _ in table} == set(State)


def test_an_add_that_is_left_out_answers_the_kept_job_and_is_told(store: Store) -> None:
    first = put(store)
    assert put(store) == first
    assert jobs(store) == [first]
    assert told(store) == [Event("deduplicated", first, ["x", first + 1])]


def test_a_key_taken_by_a_job_with_an_id_of_its_own_is_told_by_that_id(store: Store) -> None:
    put(store, custom_id="a1")
    put(store, custom_id="a2")
    assert told(store) == [Event("deduplicated", "a1", ["x", "a2"])]


def test_a_custom_id_that_is_taken_counts_before_the_key(store: Store) -> None:
    other = store.add(custom_id="a")
    assert put(store, custom_id="a") == other
    assert store.history(other) == ["add", "duplicated"]
    free = put(store)
    assert free != other


def test_an_id_of_its_own_is_free_when_its_job_was_left_out_under_a_key(store: Store) -> None:
    kept = put(store)
    request = AddJobs(
        store.queue,
        [new_job(custom_id="a", deduplication=X), new_job(custom_id="a")],
    )
    added: Added = store.ask(request)
    assert added.ids[0] == kept
    assert store.row(added.ids[1]).custom_id == "a"


def test_the_same_id_in_two_queues_is_two_keys(store: Store) -> None:
    other = store.home.open_queue("other")
    assert put(store) != store.home.add(queue=other, deduplication=X)
    assert len(jobs(store)) == 2


def test_other_ids_are_other_keys(store: Store) -> None:
    assert put(store, DeduplicationRule("x")) != put(store, DeduplicationRule("y"))


def test_jobs_of_one_bulk_are_left_out_like_those_of_many(store: Store) -> None:
    one, two, other, three = store.add_all(
        *(new_job(deduplication=DeduplicationRule(id)) for id in ("x", "x", "y", "x"))
    )
    assert one == two == three != other
    assert jobs(store) == [one, other]
    assert told(store) == [
        Event("deduplicated", one, ["x", one + 1]),
        Event("deduplicated", one, ["x", one + 3]),
    ]


def test_jobs_of_requests_that_arrive_together_are_left_out_too(store: Store) -> None:
    requests = [AddJobs(store.queue, [new_job(deduplication=X)]) for _ in range(3)]
    answers = store.ask_together(*requests)
    assert len({answer.ids[0] for answer in answers}) == 1
    assert len(jobs(store)) == 1


def test_a_request_under_old_settings_takes_no_key(store: Store) -> None:
    old = store.home.version(store.queue)
    store.home.configure(max_events=5_000)
    store.ask_together(
        AddJobs(store.queue, [new_job(deduplication=X)], old),
        AddJobs(store.queue, [new_job()], old + 1),
    )
    assert holder(store) is None


def test_a_plain_job_asks_for_no_key(store: Store) -> None:
    with store.home.transaction() as open:
        steps = list(names_of(add(open.tx, [AddJobs(store.queue, [new_job()])]), open))
    assert not [name for name in steps if "key" in name]


def names_of(operation: Any, open: Any) -> Any:
    """The statements that an operation asks for, each carried out."""
    result = None
    try:
        while True:
            name, params = operation.send(result)
            yield name
            result = open._process.driver.execute(name, params)
    except StopIteration:
        return


# --- when a key is free --------------------------------------------------------------------------


def test_a_try_that_is_followed_by_another_frees_nothing(store: Store) -> None:
    held = begin(store)
    worker = store.worker()
    worker.retry(held)
    assert put(store) == held.id
    worker.back_off(worker.claim_one())
    assert put(store) == held.id


def test_a_job_whose_worker_died_holds_its_key_until_it_has_ended(store: Store) -> None:
    killed_worker = store.process()
    job = put(store)
    killed_worker.worker().claim_one()
    store.kill(killed_worker)
    assert store.home.recover() == 1
    assert put(store) == job
    worker = store.worker()
    worker.fail(worker.claim_one(), outcome="stalled")
    assert put(store) != job


def test_expiry_frees_the_key(store: Store) -> None:
    job = put(store, expires=10)
    store.clock.advance(10)
    assert store.ask(Expire(store.queue)) == 1
    assert put(store) != job


def test_a_job_that_goes_to_the_dead_letters_has_freed_its_key_before(store: Store) -> None:
    store.home.configure(dead_letter="dead")
    held = begin(store)
    store.worker().fail(held)
    assert store.row(held.id).queue != store.queue
    assert holder(store) is None
    assert put(store) != held.id


@pytest.mark.parametrize("state", [State.WAITING, State.DELAYED, State.COMPLETED, State.FAILED])
def test_who_removes_the_holder_frees_its_key_window_or_not(store: Store, state: State) -> None:
    job = put(store, WINDOW, delay=50 if state is State.DELAYED else 0)
    if state in (State.COMPLETED, State.FAILED):
        worker = store.worker()
        held = worker.claim_one()
        worker.complete(held) if state is State.COMPLETED else worker.fail(held)
    assert put(store, WINDOW) == job
    store.move(REMOVE, job)
    assert holder(store) is None
    assert put(store, WINDOW) != job


def test_who_removes_a_job_that_lost_its_key_frees_nothing(store: Store) -> None:
    old = put(store, WINDOW)
    store.clock.advance(1_000)
    new = put(store, WINDOW)
    store.move(REMOVE, old)
    assert put(store, WINDOW) == new


@pytest.mark.parametrize("move", [DELETE, DELETE_ACTIVE], ids=str)
def test_a_job_that_is_deleted_with_its_queue_frees_its_key(store: Store, move: Any) -> None:
    job = put(store, KEEP)
    if move is DELETE_ACTIVE:
        store.worker().claim_one()
        put(store, KEEP)
    store.move(move, job)
    assert holder(store) is None
    assert jobs(store) == []


def test_a_queue_that_is_as_new_has_no_keys(store: Store) -> None:
    held = begin(store, WINDOW)
    store.worker().complete(held, retention=Retention(0))
    store.ask(ResetQueue(store.queue))
    assert holder(store) is None


def test_deduplication_key_is_freed_regardless_of_its_holder(store: Store) -> None:
    job = put(store)
    assert store.ask(FreeKey(store.queue, "x")) is True
    assert store.ask(FreeKey(store.queue, "x")) is False
    assert put(store) != job


def test_a_key_whose_window_has_ended_is_not_held_any_more(store: Store) -> None:
    put(store, WINDOW)
    store.clock.advance(1_000)
    assert store.ask(FreeKey(store.queue, "x")) is False


def test_a_job_frees_its_key_only_if_it_holds_it(store: Store) -> None:
    old = put(store, WINDOW)
    store.clock.advance(1_000)
    new = put(store, WINDOW)
    assert store.ask(FreeKeyOf(old)) is False
    assert put(store, WINDOW) == new
    assert store.ask(FreeKeyOf(new)) is True
    assert put(store, WINDOW) != new


# --- jobs that come back -------------------------------------------------------------------------


def test_a_restored_job_takes_its_key_again(store: Store) -> None:
    job = put(store)
    store.move(REMOVE, job)
    assert store.move(RESTORE[State.WAITING], job) == [job]
    assert put(store) == job


def test_a_restored_job_whose_key_was_taken_meanwhile_lives_without(store: Store) -> None:
    old = put(store)
    store.move(REMOVE, old)
    new = put(store)
    store.move(RESTORE[State.WAITING], old)
    assert store.states(old, new) == ["waiting", "waiting"]
    store.move(REMOVE, old)
    assert put(store) == new


@pytest.mark.parametrize("move", [RETRY_FINISHED, RETRY_FINISHED_DELAYED], ids=str)
def test_a_job_that_runs_again_takes_its_key_again(store: Store, move: Any) -> None:
    job = bring_into(store, State.FAILED)
    store.move(move, job, delay=5)
    assert put(store) == job


def test_a_job_that_runs_again_while_another_holds_its_key_runs_without(store: Store) -> None:
    old = bring_into(store, State.COMPLETED)
    new = put(store)
    store.move(RETRY_FINISHED, old)
    assert store.states(old, new) == ["waiting", "waiting"]
    assert put(store) == new
    worker = store.worker()
    worker.complete(*[held for held in worker.claim(2) if held.id == old])
    assert put(store) == new


def test_jobs_of_one_key_that_come_back_together_are_held_by_one(store: Store) -> None:
    first = put(store)
    store.move(REMOVE, first)
    second = put(store)
    store.move(REMOVE, second)
    assert store.move(RESTORE[State.WAITING], first, second) == [first, second]
    assert holder(store) == first


def test_a_completed_job_that_is_restored_holds_nothing_without_a_window(store: Store) -> None:
    job = bring_into(store, State.COMPLETED)
    store.move(REMOVE, job)
    store.move(RESTORE[State.COMPLETED], job)
    assert holder(store) is None


def test_a_job_that_comes_back_has_what_is_left_of_its_window(store: Store) -> None:
    job = put(store, WINDOW)
    store.clock.advance(400)
    store.move(REMOVE, job)
    store.move(RESTORE[State.WAITING], job)
    store.clock.advance(599)
    assert put(store, WINDOW) == job
    store.clock.advance(1)
    assert put(store, WINDOW) != job


def test_a_dead_letter_that_goes_home_takes_its_key_there(store: Store) -> None:
    store.home.configure(dead_letter="dead")
    held = begin(store)
    store.worker().fail(held)
    store.move(RETRY_FINISHED, held.id)
    assert put(store) == held.id


# --- windows -------------------------------------------------------------------------------------


def test_the_window_counts_from_the_first_add(store: Store) -> None:
    first = put(store, WINDOW)
    store.clock.advance(999)
    assert put(store, WINDOW) == first
    store.clock.advance(1)
    assert put(store, WINDOW) != first


@pytest.mark.parametrize("keep", [None, Retention(0)], ids=["stays", "is deleted"])
def test_the_window_outlives_a_job_that_has_ended_and(store: Store, keep: Retention | None) -> None:
    held = begin(store, WINDOW)
    store.worker().complete(held, retention=keep)
    assert put(store, WINDOW) == held.id
    store.clock.advance(1_000)
    assert put(store, WINDOW) != held.id


def test_a_window_that_has_ended_lets_a_second_job_in_beside_the_first(store: Store) -> None:
    first = begin(store, WINDOW).id
    store.clock.advance(1_000)
    second = put(store, WINDOW)
    assert store.states(first, second) == ["active", "waiting"]


def test_who_extends_begins_the_window_anew(store: Store) -> None:
    rule = WINDOW._replace(extend=True)
    first = put(store, rule, data='"first"')
    for _ in range(3):
        store.clock.advance(999)
        assert put(store, rule, data='"later"') == first
    assert store.row(first, "payloads", "job").data == '"first"'
    store.clock.advance(1_000)
    assert put(store, rule) != first


def test_who_extends_gives_no_window_to_a_key_without_one(store: Store) -> None:
    first = put(store)
    put(store, WINDOW._replace(extend=True))
    store.clock.advance(1_000)
    assert put(store) == first


def test_windows_that_have_ended_are_swept(store: Store) -> None:
    put(store, WINDOW)
    put(store, DeduplicationRule("y"))
    assert store.home.chores(PruneQueue) == []
    store.clock.advance(1_000)
    assert store.home.do_chores(PruneQueue) == 1
    assert (holder(store, "x"), holder(store, "y") is None) == (None, False)


# --- replacing -----------------------------------------------------------------------------------

REPLACE = DeduplicationRule("x", replace=True)


def test_a_delayed_holder_is_replaced_by_the_new_job(store: Store) -> None:
    old = put(store, REPLACE, delay=500)
    new = put(store, REPLACE, delay=500)
    assert store.states(old, new) == ["removed", "delayed"]
    assert told(store) == [Event("deduplicated", new, ["x", old])]
    assert [e for e in store.events() if e.kind == "remove"] == [Event("remove", old, "delayed")]
    assert put(store) == new


def test_a_replaced_job_can_be_restored_and_has_no_key_then(store: Store) -> None:
    old = put(store, REPLACE, delay=500)
    new = put(store, REPLACE)
    assert store.move(RESTORE[State.DELAYED], old) == [old]
    assert holder(store) == new


@pytest.mark.parametrize("state", [State.WAITING, State.ACTIVE])
def test_a_holder_that_is_not_delayed_is_not_replaced_and_nobody_is_told(
    store: Store, state: State
) -> None:
    job = bring_into(store, state)
    assert put(store, REPLACE) == job
    assert told(store) == []


def test_the_old_window_runs_on_when_its_job_is_replaced(store: Store) -> None:
    rule = WINDOW._replace(replace=True)
    put(store, rule, delay=5_000)
    store.clock.advance(600)
    second = put(store, rule, delay=5_000)
    store.clock.advance(399)
    third = put(store, rule, delay=5_000)
    assert third != second
    store.clock.advance(1)
    assert put(store, rule, delay=5_000) != third
    assert store.state(third) == "delayed"


def test_of_a_burst_only_the_last_remains_and_the_window_ends_with_its_delay(store: Store) -> None:
    rule = WINDOW._replace(extend=True, replace=True)
    for n in range(10):
        last = put(store, rule, delay=1_000, data=str(n))
        store.clock.advance(25)
    assert jobs(store) == [last]
    assert len(told(store)) == 9
    store.clock.advance(975)
    held = store.worker().claim_one()
    assert (held.id, held.row.data) == (last, "9")
    assert put(store, rule) != last


def test_in_one_bulk_the_last_replaces_those_before_it(store: Store) -> None:
    added = store.add_all(*(new_job(deduplication=REPLACE, delay=9) for _ in range(3)))
    assert store.states(*added) == ["removed", "removed", "delayed"]
    assert [event.detail for event in told(store)] == [["x", added[0]], ["x", added[1]]]


def test_a_replaced_job_that_waits_for_its_next_try_takes_what_it_kept_along(store: Store) -> None:
    held = begin(store, KEEP)
    put(store, KEEP, data='"kept"')
    store.worker().back_off(held)
    new = put(store, KEEP._replace(replace=True))
    assert jobs(store) == [new]


def test_a_holder_that_others_move_at_this_moment_is_looked_at_again(store: Store) -> None:
    put(store, REPLACE, delay=1)
    store.clock.advance(1)
    request = AddJobs(store.queue, [new_job(deduplication=REPLACE)])
    with pytest.raises(TransactionAborted), store.home.transaction() as open:
        steps = open.start(add(open.tx, [request])).until("key_holders")
        open.run(promote_due(open.tx, store.queue))
        steps.finish()


# --- keeping the last one ------------------------------------------------------------------------


def test_what_is_added_while_the_holder_runs_is_kept_until_it_has_ended(store: Store) -> None:
    held = begin(store, KEEP)
    assert put(store, KEEP, data='"second"') == held.id
    assert told(store) == [Event("deduplicated", held.id, ["x", held.id + 1])]
    worker = store.worker()
    worker.complete(held)
    [new] = worker.claim(5)
    assert (new.id > held.id + 1, new.row.data) == (True, '"second"')
    assert put(store, X) == new.id


def test_only_the_newest_is_kept(store: Store) -> None:
    held = begin(store, KEEP)
    for n in (2, 3):
        put(store, KEEP, data=str(n))
    worker = store.worker()
    worker.complete(held)
    assert [job.row.data for job in worker.claim(5)] == ["3"]


def test_a_final_failure_is_an_end_too(store: Store) -> None:
    held = begin(store, KEEP)
    put(store, KEEP, data='"second"')
    worker = store.worker()
    worker.fail(held)
    assert worker.claim_one().row.data == '"second"'


def test_a_failure_that_is_followed_by_another_try_is_no_end(store: Store) -> None:
    held = begin(store, KEEP)
    put(store, KEEP, data='"second"')
    worker = store.worker()
    worker.retry(held)
    [again] = worker.claim(5)
    assert again.id == held.id


def test_once_one_is_kept_the_newest_is_also_while_the_holder_waits(store: Store) -> None:
    held = begin(store, KEEP)
    put(store, KEEP, data="2")
    worker = store.worker()
    worker.retry(held)
    put(store, KEEP, data="3")
    worker.complete(worker.claim_one())
    assert worker.claim_one().row.data == "3"


@pytest.mark.parametrize("delay", [0, 500])
def test_a_holder_that_has_not_begun_keeps_nothing(store: Store, delay: int) -> None:
    first = put(store, KEEP, delay=delay)
    assert put(store, KEEP) == first
    store.clock.advance(delay)
    worker = store.worker()
    worker.complete(worker.claim_one())
    assert worker.claim(5) == []


def test_a_window_counts_for_nothing_while_the_holder_lives_nor_after(store: Store) -> None:
    rule = KEEP._replace(ttl=200)
    held = begin(store, rule)
    store.clock.advance(300)
    assert put(store, rule) == held.id
    worker = store.worker()
    worker.complete(held)
    worker.complete(worker.claim_one())
    assert holder(store) is None


def test_a_key_with_a_window_that_keeps_a_job_has_no_window_any_more(store: Store) -> None:
    held = begin(store, WINDOW)
    put(store, KEEP, data='"kept"')
    store.clock.advance(5_000)
    assert put(store, WINDOW) == held.id
    worker = store.worker()
    worker.complete(held)
    assert worker.claim_one().row.data == '"kept"'


def test_the_kept_job_is_all_that_was_asked_for(store: Store) -> None:
    held = begin(store, KEEP)
    put(
        store,
        KEEP,
        name="other",
        custom_id="mine",
        priority=7,
        delay=1_000,
        attempts=5,
        lifo=True,
        data='{"n":2}',
        expires=9_000,
    )
    store.clock.advance(50)
    store.worker().complete(held)
    [row] = store.database.rows("jobs", "custom_id = 'mine'")
    assert {name: row[name] for name in ("name", "state", "priority", "attempts", "lifo")} == {
        "name": "other",
        "state": "delayed",
        "priority": 7,
        "attempts": 5,
        "lifo": 1,
    }
    now = store.clock.now()
    assert (row["due_at"], row["expires_at"]) == (now + 1_000, now + 9_000)
    assert row["traits"] & DEDUPLICATED
    assert holder(store) == row["id"]


def test_a_kept_job_whose_id_was_taken_meanwhile_is_a_duplicate(store: Store) -> None:
    held = begin(store, KEEP)
    put(store, KEEP, custom_id="mine")
    other = store.add(custom_id="mine")
    store.worker().complete(held)
    assert store.history(other) == ["add", "duplicated"]
    assert holder(store) is None


def test_a_kept_job_follows_the_order_that_its_queue_has_when_it_is_made(store: Store) -> None:
    held = begin(store, KEEP)
    put(store, KEEP, priority=7, rank=7)
    store.home.configure(priority_order="high")
    store.worker().complete(held)
    assert store.row(holder(store) or 0).rank == -7


def test_in_a_paused_queue_the_kept_job_is_made_and_waits(store: Store) -> None:
    held = begin(store, KEEP)
    put(store, KEEP)
    store.ask(SetPaused(store.queue, True))
    worker = store.worker()
    worker.complete(held)
    assert store.counts() == {"waiting": 1, "completed": 1}
    assert worker.claim(1) == []
    store.ask(SetPaused(store.queue, False))
    assert len(worker.claim(1)) == 1


def test_the_kept_job_is_not_lost_with_the_worker(store: Store) -> None:
    killed_worker = store.process()
    job = put(store, KEEP)
    killed_worker.worker().claim_one()
    put(store, KEEP, data='"kept"')
    store.kill(killed_worker)
    store.home.recover()
    worker = store.worker()
    [again] = worker.claim(5)
    assert again.id == job
    worker.complete(again)
    assert worker.claim_one().row.data == '"kept"'


def test_the_kept_job_is_made_when_the_holder_is_removed(store: Store) -> None:
    held = begin(store, KEEP)
    put(store, KEEP, data='"kept"')
    worker = store.worker()
    worker.release(held)
    store.move(REMOVE, held.id)
    assert worker.claim_one().row.data == '"kept"'


def test_the_kept_job_is_made_when_the_key_is_freed_by_hand(store: Store) -> None:
    held = begin(store, KEEP)
    put(store, KEEP, data='"kept"')
    assert store.ask(FreeKey(store.queue, "x")) is True
    worker = store.worker()
    assert worker.claim_one().row.data == '"kept"'
    worker.complete(held)
    assert holder(store) not in (None, held.id)


def test_a_holder_whose_time_was_changed_still_holds(store: Store) -> None:
    job = put(store, X, delay=100)
    store.move(RESCHEDULE, job, delay=900)
    assert put(store) == job


# --- a job as text -------------------------------------------------------------------------------


def test_broken_promises_about_keys_are_found(store: Store) -> None:
    job, other = put(store), store.add()
    store.database.write(f"update bullite_deduplication set job = {other}")
    assert store.problems() == [f"deduplication key x is taken by job {other}, which has none"]
    store.database.write(f"update bullite_deduplication set job = {job}, until = 5, next = '{{}}'")
    assert store.problems() == ["deduplication key x keeps a job behind a window"]
    store.database.write("update bullite_deduplication set job = 99, until = null, next = null")
    assert store.problems() == ["deduplication key x is taken by job 99, which has ended"]
    store.database.write("delete from bullite_deduplication")


def test_a_job_that_is_kept_comes_back_as_it_was() -> None:
    rule = DeduplicationRule("x", 5, True, False, True)
    job = new_job(custom_id="a", deduplication=rule, run_at=7)
    assert load_named(NewJob, decoded(dump_named(job))) == job
    plain = job._replace(rare_fields=None)
    assert load_named(NewJob, decoded(dump_named(plain))) == plain


def test_a_job_that_is_kept_may_lack_what_came_later_and_have_what_is_gone() -> None:
    told = decoded(dump_named(new_job(deduplication=X)))
    del told["extras"]["traits"]
    told["extras"]["long gone"] = 1
    told["unheard of"] = 2
    job = load_named(NewJob, told)
    assert job.rare_fields == RareFields(deduplication=X)


def decoded(text: str) -> Any:
    return json.loads(text)
