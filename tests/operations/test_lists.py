"""Lists of jobs: pages from both ends, what follows a place, the oldest."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.core.states import REMOVE
from bullite.operations.job_lists import START
from tests.support.harness import Store, new_job


def page(store: Store, state: str, first: int = 0, most: int = 10, direction: str = "up") -> Any:
    name = f"page_{direction}:{state}"
    return [row[0] for row in store.read(name, queue=store.queue, skip=first, most=most)]


def oldest(store: Store, state: str, before: int, most: int = 10) -> list[int]:
    first, second = START
    rows = store.read(
        f"oldest:{state}",
        queue=store.queue,
        before=before,
        since=before,
        first=first,
        second=second,
        most=most,
    )
    return [row[0] for row in rows]


def finish(store: Store, how: str, number: int) -> list[int]:
    """Jobs that ended one after the other, last first."""
    jobs = store.add_all(*(new_job() for _ in range(number)))
    worker = store.worker()
    for held in reversed(worker.claim(number)):
        getattr(worker, how)(held)
        store.clock.advance(1)
    return jobs


# --- pages ---------------------------------------------------------------------------------------


def test_waiting_jobs_are_listed_in_the_order_they_will_run(store: Store) -> None:
    a, b = store.add(), store.add()
    front = store.add(lifo=True)
    store.add(priority=1)
    assert page(store, "waiting") == [front, a, b]
    assert page(store, "waiting", direction="down") == [b, a, front]


def test_jobs_with_a_priority_have_a_list_of_their_own(store: Store) -> None:
    store.add()
    low, high = store.add(priority=5), store.add(priority=-2)
    assert page(store, "prioritized") == [high, low]


def test_delayed_jobs_are_listed_by_their_time(store: Store) -> None:
    late, soon = store.add(delay=90), store.add(delay=10)
    assert page(store, "delayed") == [soon, late]


def test_running_jobs_are_listed_by_the_time_they_began(store: Store) -> None:
    first, second = store.add(priority=9), store.add(priority=1)
    worker = store.worker()
    worker.claim(1)
    store.clock.advance(5)
    worker.claim(1)
    assert page(store, "active") == [second, first]


@pytest.mark.parametrize(("state", "how"), [("completed", "complete"), ("failed", "fail")])
def test_finished_jobs_are_listed_by_the_time_they_ended(
    store: Store, state: str, how: str
) -> None:
    jobs = finish(store, how, 3)
    assert page(store, state) == jobs[::-1]
    assert page(store, state, direction="down") == jobs


def test_a_page_begins_and_ends_where_it_should(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(7)))
    assert page(store, "waiting", 2, 3) == jobs[2:5]
    assert page(store, "waiting", 6, 3) == jobs[6:]
    assert page(store, "waiting", 1, 2, "down") == [jobs[5], jobs[4]]
    assert page(store, "waiting", 9, 3) == []


def test_pages_from_both_ends_are_each_others_mirror(store: Store) -> None:
    """The jobs share their times: the order must not depend on the direction."""
    jobs = store.add_all(*(new_job(delay=5) for _ in range(9)))
    assert page(store, "delayed") == jobs
    assert page(store, "delayed", direction="down") == jobs[::-1]


def test_removed_jobs_and_those_of_other_queues_are_in_no_list(store: Store) -> None:
    gone = store.add()
    store.move(REMOVE, gone)
    store.home.add(queue=store.home.open_queue("elsewhere"))
    assert page(store, "waiting") == []


def test_where_names_have_lanes_the_list_is_still_one(store: Store) -> None:
    store.worker(names=["a"])
    jobs = [store.add("b"), store.add("a"), store.add("b")]
    ranked = store.add("a", priority=1)
    assert page(store, "waiting-by-name") == jobs
    assert page(store, "prioritized-by-name") == [ranked]


def test_a_listed_job_tells_everything(store: Store) -> None:
    store.add("mail", data='{"n":1}', custom_id="m")
    worker = store.worker()
    worker.retry(worker.claim_one())
    [row] = store.read("page_up:waiting", queue=store.queue, skip=0, most=1)
    assert (row[1], row[2], row[14], row[23]) == ("mail", "m", '{"n":1}', "it broke")
    assert row[-1] == '["where it broke"]'


# --- what follows a place ------------------------------------------------------------------------


def test_a_list_can_be_walked_while_it_changes(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(5)))
    seen: list[int] = []
    first, second = -(2**62), 0
    while rows := store.read(
        "after:waiting", queue=store.queue, first=first, second=second, most=2
    ):
        seen += [row[0] for row in rows]
        first, second = rows[-1][12], rows[-1][0]
        store.move(REMOVE, rows[0][0])
    assert seen == jobs


def test_jobs_of_the_same_time_are_all_walked(store: Store) -> None:
    jobs = store.add_all(*(new_job(delay=5) for _ in range(5)))
    due = store.row(jobs[0]).due_at
    place = {"first": due, "second": jobs[2], "most": 10}
    assert [row[0] for row in store.read("after:delayed", queue=store.queue, **place)] == jobs[3:]


# --- the oldest ----------------------------------------------------------------------------------


def test_the_oldest_are_those_of_their_age_and_before(store: Store) -> None:
    jobs = []
    for _ in range(3):
        jobs.append(store.add())
        store.clock.advance(10)
    assert oldest(store, "waiting", store.row(jobs[1]).created_at) == jobs[:2]
    assert oldest(store, "waiting", store.clock.now(), most=1) == jobs[:1]


def test_finished_jobs_are_as_old_as_their_end(store: Store) -> None:
    jobs = finish(store, "complete", 3)
    assert oldest(store, "completed", store.row(jobs[1]).finished_at) == [jobs[2], jobs[1]]


# --- other looks ---------------------------------------------------------------------------------


def test_jobs_are_counted_by_priority(store: Store) -> None:
    store.add_all(*(new_job(priority=priority) for priority in (0, 2, 2, -1)))
    store.add(priority=2, delay=5)
    counts = store.read("counts_per_priority", queue=store.queue)
    assert sorted(counts) == [(-1, 1), (0, 1), (2, 2)]


def test_a_removed_job_is_found_by_its_number_and_by_its_own_id(store: Store) -> None:
    old = store.add(custom_id="x")
    store.move(REMOVE, old)
    store.clock.advance(1)
    new = store.add(custom_id="x")
    store.move(REMOVE, new)
    by_id = {"queue": store.queue, "number": None, "custom_id": "x"}
    assert store.read("removed_job", **by_id) == [(new, "waiting", store.clock.now())]
    by_number = {"queue": store.queue, "number": old, "custom_id": None}
    assert [row[0] for row in store.read("removed_job", **by_number)] == [old]


def test_the_workers_of_a_queue_are_known_with_what_they_run(store: Store) -> None:
    store.add()
    busy, idle = store.worker(), store.worker()
    busy.claim_one()
    store.worker(queue=store.home.open_queue("elsewhere"))
    rows = store.read("workers_of_queue", queue=store.queue)
    assert [(row[0], row[-1]) for row in rows] == [(busy.id, 1), (idle.id, 0)]
