"""Moves of the jobs of a list, a piece at a time."""

from __future__ import annotations

from typing import Any

from bullite.core.checks import MAX_TIME
from bullite.core.states import PROMOTE, REMOVE
from bullite.operations.job_lists import START
from bullite.operations.move import Moved, MoveListed
from tests.support.harness import Store, new_job


def move(store: Store, **options: Any) -> Moved:
    request: dict[str, Any] = {
        "queue": store.queue,
        "list": "waiting",
        "move": REMOVE,
        "most": 10,
        "before": MAX_TIME,
        "after": START,
        "since": MAX_TIME,
    }
    moved: Moved = store.ask(MoveListed(**{**request, **options}))
    return moved


def test_a_piece_of_a_list_is_moved_in_its_order(store: Store) -> None:
    jobs = store.add_all(*(new_job(custom_id=f"id {n}") for n in range(5)))
    first = move(store, most=3)
    assert first.ids == ["id 0", "id 1", "id 2"]
    second = move(store, most=3, after=first.after)
    assert (second.ids, second.after) == (["id 3", "id 4"], None)
    assert set(store.states(*jobs)) == {"removed"}


def test_the_next_piece_begins_after_the_last(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(4)))
    after = move(store, most=2).after
    store.add(lifo=True)  # comes to the front, where the list was moved already
    assert move(store, after=after).ids == [str(job) for job in jobs[2:]]


def test_a_job_that_was_let_run_since_is_not_moved_a_second_time(store: Store) -> None:
    since = store.clock.now()
    old = store.add(delay=50)
    store.clock.advance(1)
    new = store.add(delay=50)
    assert move(store, list="delayed", move=PROMOTE, since=since).ids == [str(old)]
    assert store.state(new) == "delayed"


def test_a_job_that_is_taken_out_may_have_come_since(store: Store) -> None:
    since = store.clock.now()
    store.clock.advance(1)
    job = store.add()
    assert move(store, since=since).ids == [str(job)]


def test_a_job_that_is_too_young_is_not_moved(store: Store) -> None:
    old = store.add()
    before = store.clock.now()
    store.clock.advance(1)
    store.add()
    assert move(store, before=before).ids == [str(old)]


def test_jobs_in_the_lanes_of_their_names_are_moved_as_well(store: Store) -> None:
    store.worker(names=["a"])
    jobs = [store.add(name) for name in "bab"]
    assert move(store).ids == [str(job) for job in jobs]
