"""Adding jobs: what is stored, which ids are given, which custom ids are taken."""

from __future__ import annotations

import pytest

from bullite.core.states import DELETE, REMOVE, RESTORE, RETRY_FINISHED, State
from bullite.operations.add import AddJobs
from bullite.operations.move import MoveJobs
from bullite.operations.queues import OpenQueue
from tests.support.harness import Store, new_job


def test_a_job_is_stored_as_it_was_given(store: Store) -> None:
    job = store.add("mail", data='{"to":1}', priority=3, delay=0, attempts=7, custom_id="m-1")
    row = store.row(job)
    assert (row.name, row.priority, row.attempts, row.custom_id) == ("mail", 3, 7, "m-1")
    assert (row.attempts_made, row.attempts_started, row.stalled_count) == (0, 0, 0)
    assert store.row(job, "payloads", key="job").data == '{"to":1}'


@pytest.mark.parametrize(
    "data", ['"ü€😀"', '"a\\u0000b\\u001e"', '""', "[]", '"' + "x" * 100_000 + '"']
)
def test_the_data_comes_back_as_it_went_in(store: Store, data: str) -> None:
    store.add("before", data="1")
    store.add("it", data=data)
    store.add("after", data="2")
    held = store.worker().claim(3)
    assert [h.row.data for h in held] == ["1", data, "2"]


def test_a_delayed_job_is_due_after_its_delay(store: Store) -> None:
    job = store.add(delay=500)
    assert store.row(job).due_at == store.clock.now() + 500


def test_jobs_are_numbered_in_the_order_they_were_added(store: Store) -> None:
    jobs = store.add_all(*(new_job(f"job {n}") for n in range(250)))
    assert jobs == sorted(set(jobs))
    assert [store.row(job).name for job in jobs] == [f"job {n}" for n in range(250)]


def test_an_empty_request_adds_nothing(store: Store) -> None:
    assert store.add_all() == []
    assert store.counts() == {}


def test_ids_are_never_reused_even_after_deletion(store: Store) -> None:
    worker = store.worker()
    seen: set[int] = set()
    for _ in range(5):
        job = store.add()
        assert job not in seen
        seen.add(job)
        worker.complete(worker.claim_one())
        store.move(DELETE, job)
        assert store.state(job) is None


def test_ids_are_unique_over_queues_and_processes(store: Store) -> None:
    other = store.process()
    elsewhere = store.home.open_queue("elsewhere")
    jobs = [store.add(), other.add(), store.home.add(queue=elsewhere), other.add(queue=elsewhere)]
    assert len(set(jobs)) == 4


# --- custom ids ----------------------------------------------------------------------------------


def test_a_custom_id_that_is_taken_leads_to_the_job_that_has_it(store: Store) -> None:
    job = store.add("first", custom_id="x")
    added = store.ask(AddJobs(store.queue, [new_job("second", custom_id="x")]))
    assert (list(added.ids), added.existing) == ([job], {job})
    assert store.row(job).name == "first"
    assert store.counts() == {"waiting": 1}
    assert store.history(job) == ["add", "duplicated"]


def test_a_custom_id_twice_in_one_request_stands_for_one_job(store: Store) -> None:
    first, other, again = store.add_all(
        new_job(custom_id="x"), new_job(custom_id="y"), new_job(custom_id="x")
    )
    assert first == again != other
    assert store.counts() == {"waiting": 2}


def test_a_custom_id_in_two_requests_of_one_batch_stands_for_one_job(store: Store) -> None:
    store.home.driver.begun.clear()
    one, two, three = store.ask_together(
        AddJobs(store.queue, [new_job(), new_job(custom_id="x")]),
        AddJobs(store.queue, [new_job(custom_id="x"), new_job(custom_id="y")]),
        AddJobs(store.queue, [new_job(custom_id="y"), new_job(custom_id="x")]),
    )
    assert one.ids[1] == two.ids[0] == three.ids[1]
    assert two.ids[1] == three.ids[0]
    assert (one.existing, two.existing) == (set(), {one.ids[1]})
    assert three.existing == {one.ids[1], two.ids[1]}
    assert store.counts() == {"waiting": 3}
    assert len(store.home.driver.begun) == 1, "and it is known at the first try"


def test_jobs_with_and_without_custom_ids_are_answered_in_order(store: Store) -> None:
    taken = store.add(custom_id="taken")
    added = store.ask(
        AddJobs(store.queue, [new_job("a"), new_job(custom_id="taken"), new_job("b")])
    )
    a, found, b = added.ids
    assert (store.row(a).name, found, store.row(b).name) == ("a", taken, "b")


def test_a_custom_id_belongs_to_its_queue(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    one, two = store.ask_together(
        AddJobs(store.queue, [new_job(custom_id="x")]), AddJobs(elsewhere, [new_job(custom_id="x")])
    )
    assert list(one.ids) != list(two.ids)
    assert store.counts() == store.counts(elsewhere) == {"waiting": 1}


def test_a_custom_id_is_taken_in_every_state_until_the_job_is_gone(store: Store) -> None:
    job = store.add(custom_id="x")
    worker = store.worker()
    held = worker.claim_one()
    assert store.add(custom_id="x") == job
    worker.complete(held)
    assert store.add(custom_id="x") == job
    store.move(RETRY_FINISHED, job)
    assert store.add(custom_id="x") == job
    assert store.counts() == {"waiting": 1}


def test_removing_a_job_frees_its_custom_id(store: Store) -> None:
    old = store.add(custom_id="x")
    store.move(REMOVE, old)
    new = store.add(custom_id="x")
    assert new != old
    assert store.states(old, new) == ["removed", "waiting"]


def test_deleting_a_job_frees_its_custom_id(store: Store) -> None:
    old = store.add(custom_id="x")
    worker = store.worker()
    worker.complete(worker.claim_one())
    store.move(DELETE, old)
    assert store.add(custom_id="x") != old


def test_a_removed_job_is_not_restored_once_its_custom_id_is_taken_again(store: Store) -> None:
    old = store.add(custom_id="x")
    store.move(REMOVE, old)
    new = store.add(custom_id="x")
    assert store.move(RESTORE[State.WAITING], old) == []
    assert store.states(old, new) == ["removed", "waiting"]


def test_a_custom_id_freed_earlier_in_the_same_batch_can_be_taken(store: Store) -> None:
    old = store.add(custom_id="x")
    _, removed, second = store.ask_together(
        AddJobs(store.queue, [new_job()]),
        MoveJobs(REMOVE, [old]),
        AddJobs(store.queue, [new_job(custom_id="x")]),
    )
    assert removed == [old]
    assert list(second.ids) != [old], "the producer was given a job that was removed before"
    assert store.state(second.ids[0]) == "waiting"


# --- queues --------------------------------------------------------------------------------------


def test_a_queue_is_found_again_with_the_order_it_was_made_with(store: Store) -> None:
    made = store.ask(OpenQueue("ranked", "high"))
    assert made[1] == "high"
    assert store.ask(OpenQueue("ranked", None)) == made
    assert store.process().ask(OpenQueue("ranked", "low")) == made


def test_a_queue_opened_twice_in_one_batch_is_one_queue(store: Store) -> None:
    one, two = store.ask_together(OpenQueue("new", None), OpenQueue("new", None))
    assert one == two


# --- times ---------------------------------------------------------------------------------------


def test_a_job_may_have_been_made_at_another_time(store: Store) -> None:
    now = store.clock.now()
    job = store.add(timestamp=now - 5_000)
    row = store.row(job)
    assert (row.created_at, row.updated_at) == (now - 5_000, now)


def test_a_delay_counts_from_the_time_the_job_was_made(store: Store) -> None:
    made = store.clock.now() - 400
    job = store.add(timestamp=made, delay=1_000)
    assert store.row(job).due_at == made + 1_000


def test_a_delay_that_is_over_already_is_due_at_once(store: Store) -> None:
    job = store.add(timestamp=store.clock.now() - 400, delay=100)
    assert store.worker().claim_one().id == job


def test_a_time_to_run_at_beats_a_delay(store: Store) -> None:
    at = store.clock.now() + 70
    job = store.add(run_at=at, delay=5_000)
    row = store.row(job)
    assert (row.state, row.due_at) == ("delayed", at)
    assert store.counts() == {"delayed": 1}


@pytest.mark.parametrize("ago", [0, 1, 10_000])
def test_a_time_that_has_come_is_now(store: Store, ago: int) -> None:
    job = store.add(run_at=store.clock.now() - ago)
    assert (store.row(job).state, store.row(job).due_at) == ("waiting", None)


def test_a_job_expires_so_long_after_it_was_added(store: Store) -> None:
    job = store.add(expires=50, timestamp=store.clock.now() - 5_000)
    assert store.row(job).expires_at == store.clock.now() + 50
    assert store.row(store.add()).expires_at is None


def test_the_next_due_time_of_a_batch_is_that_of_its_first_job(store: Store) -> None:
    worker = store.worker()
    worker.wants(5)
    store.home.engine.turn()
    late, soon = store.add_all(new_job(delay=500), new_job(delay=20))
    store.clock.advance(20)
    store.home.engine.turn()
    assert [held.id for held in worker.received] == [soon]
    assert store.state(late) == "delayed"
