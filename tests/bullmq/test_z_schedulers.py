"""Lines about job schedulers from area Z of the catalogue."""

from __future__ import annotations

import pytest

from bullite.errors import SchedulerSlotsTaken
from bullite.operations.schedulers import RemoveScheduler
from tests.operations.test_schedulers import (
    EVERY,
    ask,
    occupy,
    pending,
    plan,
    run,
    stall,
    the_pending,
    tick_of,
    upsert,
)
from tests.support.harness import Store


def test_Z_015_a_job_whose_scheduler_was_removed_fails_of_stalling(store: Store) -> None:
    upsert(store)
    stall(store, 1)
    store.ask(RemoveScheduler(store.queue, "s"))
    job = stall(store, 1)
    assert store.row(job).deferred_failure == "job stalled more than allowable limit"


def test_Z_016_a_job_that_stalled_makes_no_second_successor(store: Store) -> None:
    upsert(store)
    job = stall(store, 1)
    assert run(store.worker()).id == job
    assert len(pending(store)) == 1


def test_Z_017_so_many_slots_in_a_row_may_be_taken_and_no_more(store: Store) -> None:
    now = store.clock.now()
    occupy(store, 33)
    with pytest.raises(SchedulerSlotsTaken, match="current and next time slots already have jobs"):
        ask(store.home, plan())
    store.clock.advance(EVERY)
    upsert(store)
    assert tick_of(the_pending(store)) == now + 33 * EVERY
