"""What can be known of a dead worker because everybody lives on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bullite.operations.workers import RecoverStalled
from tests.support.databases import SQLiteDatabase
from tests.support.harness import LOCK_DURATION, Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(SQLiteDatabase.make(tmp_path)) as database, open_store(database) as store:
        yield store
        assert store.problems() == []


def test_a_worker_of_an_earlier_boot_is_dead_whatever_its_lease_says(store: Store) -> None:
    job = store.add()
    store.process().worker().claim_one()
    store.clock.boot = "the next boot"
    assert store.home.recover() == 1
    assert store.state(job) == "waiting"


def test_an_expired_lease_is_no_stall_while_its_worker_is_registered_and_alive(
    store: Store,
) -> None:
    job = store.add()
    other = store.process()
    other.worker().claim_one()
    store.clock.advance(10 * LOCK_DURATION)
    assert store.home.recover() == 0
    assert store.state(job) == "active"


def test_a_living_worker_without_jobs_is_looked_after_once_only(store: Store) -> None:
    store.worker()
    store.clock.advance(10 * LOCK_DURATION)
    assert store.process().chores(RecoverStalled) == []
