"""Quotas: a job that exceeds a quota of its queue is not stored, for any producer."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.core.states import DELETE, PROMOTE, RETRY_FINISHED
from bullite.errors import QueueFull
from bullite.operations.add import Added, AddJobs, add_within
from bullite.operations.queues import ResetQueue
from tests.support.harness import Process, Store, new_job


def ask(process: Process, *jobs: Any) -> AddJobs:
    return AddJobs(process.queue, jobs, process.version(process.queue))


def add(store: Store, number: int = 1, **options: Any) -> Any:
    return store.ask(ask(store.home, *(new_job(**options) for _ in range(number))))


def stored(store: Store) -> dict[str, Any]:
    """All but which numbers were handed out."""
    return {table: rows for table, rows in store.everything().items() if table != "sequence"}


def test_no_more_wait_than_the_queue_allows(store: Store) -> None:
    store.home.configure(max_waiting=2)
    add(store, 2)
    with pytest.raises(QueueFull, match=r"'work'.*max_waiting is 2 and 2 jobs"):
        add(store)
    assert store.counts() == {"waiting": 2}


def test_all_that_are_still_to_be_run_count(store: Store) -> None:
    store.home.configure(max_waiting=3)
    add(store)
    add(store, priority=1)
    add(store, delay=1_000)
    with pytest.raises(QueueFull):
        add(store)


def test_those_that_run_or_have_ended_do_not(store: Store) -> None:
    store.home.configure(max_waiting=1)
    worker = store.worker()
    for _ in range(3):
        add(store)
        worker.complete(worker.claim_one())
    add(store)
    worker.claim_one()
    add(store)


def test_of_many_all_are_let_in_or_none(store: Store) -> None:
    store.home.configure(max_waiting=3)
    add(store, 2)
    before = stored(store)
    with pytest.raises(QueueFull, match="2 more were not added"):
        add(store, 2)
    assert stored(store) == before


def test_one_that_is_refused_does_not_keep_its_neighbours_out(store: Store) -> None:
    store.home.configure(max_waiting=2)
    asked = [ask(store.home, *(new_job() for _ in range(number))) for number in (1, 2, 1, 1)]
    answers = store.ask_together(*asked)
    assert [type(answer) for answer in answers] == [Added, QueueFull, Added, QueueFull]
    assert store.counts() == {"waiting": 2}


def test_a_taken_custom_id_does_not_count(store: Store) -> None:
    store.home.configure(max_waiting=1)
    first = add(store, custom_id="x")
    again = add(store, custom_id="x")
    assert again.ids == first.ids


def test_a_custom_id_of_jobs_that_were_refused_is_free(store: Store) -> None:
    store.home.configure(max_waiting=1)
    refused, let_in = store.ask_together(
        ask(store.home, new_job(custom_id="x"), new_job()), ask(store.home, new_job(custom_id="x"))
    )
    assert isinstance(refused, QueueFull)
    assert store.row(let_in.ids[0]).custom_id == "x"
    assert let_in.existing == frozenset()


def test_nothing_is_told_of_jobs_that_were_refused(store: Store) -> None:
    store.home.configure(max_waiting=1)
    add(store, custom_id="x")
    before = store.events()
    with pytest.raises(QueueFull):
        store.ask(ask(store.home, new_job(custom_id="x"), new_job()))
    assert store.events() == before


def test_jobs_that_move_back_are_never_refused(store: Store) -> None:
    store.home.configure(max_waiting=2)
    worker = store.worker()
    add(store, 2, delay=1_000)
    store.clock.advance(1_000)
    one, two = worker.claim(2)
    add(store, 2)
    worker.retry(one)
    worker.fail(two)
    store.move(RETRY_FINISHED, two.id)
    assert store.counts() == {"waiting": 4}


def test_promoted_jobs_are_never_refused(store: Store) -> None:
    store.home.configure(max_waiting=1)
    [job] = add(store, delay=1_000).ids
    assert store.move(PROMOTE, job) == [job]


def test_jobs_that_operations_add_are_never_refused(store: Store) -> None:
    store.home.configure(max_waiting=1, max_payload_bytes=4, max_rate_count=1, max_rate_duration=9)
    add(store)
    with store.home.transaction() as open:
        open.run(add_within(open.tx, store.queue, [new_job(data='"long enough"')]))
    assert store.counts() == {"waiting": 2}


def test_larger_data_than_the_queue_allows_is_refused(store: Store) -> None:
    store.home.configure(max_payload_bytes=10)
    add(store, data='"12345678"')
    with pytest.raises(QueueFull, match=r"max_payload_bytes is 10 .*'job' takes 11"):
        add(store, data='"123456789"')
    with pytest.raises(QueueFull, match="takes 12"):
        add(store, data='"äöüäö"')
    assert store.counts() == {"waiting": 1}


def test_no_more_are_added_in_a_time_than_the_queue_allows(store: Store) -> None:
    store.home.configure(max_rate_count=3, max_rate_duration=1_000)
    add(store, 2)
    store.clock.advance(400)
    with pytest.raises(QueueFull, match=r"max_rate is 3 in 1000 ms and 2 .* in 600 ms"):
        add(store, 2)
    add(store)
    with pytest.raises(QueueFull):
        add(store)
    store.clock.advance(600)
    add(store, 3)


def test_jobs_that_were_refused_do_not_count_as_added(store: Store) -> None:
    store.home.configure(max_rate_count=1, max_rate_duration=1_000, max_payload_bytes=4)
    with pytest.raises(QueueFull):
        add(store, data='"too long"')
    add(store)


def test_quotas_hold_for_producers_of_all_processes(store: Store) -> None:
    store.home.configure(max_waiting=2, max_rate_count=2, max_rate_duration=1_000)
    other = store.process()
    add(store)
    other.ask(ask(other, new_job()))
    for process in (store.home, other):
        with pytest.raises(QueueFull):
            process.ask(ask(process, new_job()))


def test_without_a_quota_anything_is_let_in(store: Store) -> None:
    store.home.configure(max_waiting=1)
    add(store)
    store.home.configure(max_waiting=None)
    add(store, 5)
    assert store.counts() == {"waiting": 6}


def test_a_queue_that_is_as_new_has_no_quotas(store: Store) -> None:
    store.home.configure(max_waiting=1, max_rate_count=1, max_rate_duration=60_000)
    [job] = add(store).ids
    store.move(DELETE, job)
    store.ask(ResetQueue(store.queue))
    add(store, 3)


def test_quotas_are_the_queues_own(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    store.home.configure(max_waiting=0)
    store.home.add_all(new_job(), queue=elsewhere)
    with pytest.raises(QueueFull):
        add(store)
