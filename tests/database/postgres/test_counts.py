"""Counts: each process keeps what it changed in a row of its own; the truth is the sum."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bullite.database.postgres import driver as driver_module
from tests.support.harness import Store, new_job, open_store
from tests.support.postgres_database import PostgresDatabase

COLUMNS = (
    *("waiting", "prioritized", "delayed", "active"),
    *("waiting_children", "completed", "failed"),
)


@pytest.fixture
def store(database: PostgresDatabase) -> Iterator[Store]:
    with open_store(database) as store:
        yield store
        assert store.problems() == []


def kept(database: PostgresDatabase) -> dict[int, dict[str, int]]:
    """What every process has counted, by its number."""
    return {
        row["nonce"]: {column: row[column] for column in COLUMNS if row[column]}
        for row in database.rows("counts")
    }


def fall_silent(store: Store) -> None:
    store.clock.advance(driver_module.SILENT + 1)


def test_two_processes_count_side_by_side(store, database):
    other = store.process()
    store.home.add_all(*[new_job() for _ in range(3)])
    other.add_all(*[new_job() for _ in range(2)])

    assert kept(database) == {store.home.nonce: {"waiting": 3}, other.nonce: {"waiting": 2}}
    assert store.counts()["waiting"] == 5


def test_what_one_process_added_another_may_take_away(store, database):
    other = store.process()
    store.home.add()
    worker = other.worker()
    worker.complete(worker.claim_one())

    assert kept(database) == {
        store.home.nonce: {"waiting": 1},
        other.nonce: {"waiting": -1, "completed": 1},
    }
    assert store.counts() == {"completed": 1}


def test_rows_of_silent_processes_are_folded_and_the_sum_stays(store, database):
    silent = store.process()
    silent.add_all(*[new_job() for _ in range(4)])
    before = store.counts()
    fall_silent(store)
    store.home.add()

    store.home.driver.remove_stale_files(())

    assert kept(database) == {0: {"waiting": 4}, store.home.nonce: {"waiting": 1}}
    assert store.counts()["waiting"] == before["waiting"] + 1


def test_rows_of_processes_that_are_gone_are_folded(store, database):
    gone = store.process()
    gone.add()
    gone.close()
    fall_silent(store)
    store.home.add()

    store.home.driver.remove_stale_files(())

    assert kept(database) == {0: {"waiting": 1}, store.home.nonce: {"waiting": 1}}


def test_rows_of_processes_that_are_heard_of_are_left_alone(store, database):
    other = store.process()
    other.add()
    before = kept(database)

    store.home.driver.remove_stale_files(())

    assert kept(database) == before


def test_folding_again_adds_to_what_was_folded(store, database):
    for _ in range(3):
        process = store.process()
        process.add()
        fall_silent(store)
        store.home.renew()
        store.home.driver.remove_stale_files(())

    assert kept(database)[0] == {"waiting": 3}
    assert len([nonce for nonce in kept(database) if nonce != store.home.nonce]) == 1


def test_a_process_that_was_silent_counts_on(store, database):
    silent = store.process()
    silent.add()
    fall_silent(store)
    store.home.driver.remove_stale_files(())

    silent.add()

    assert kept(database)[silent.nonce] == {"waiting": 1}
    assert store.counts()["waiting"] == 2


def test_verifying_finds_a_wrong_count(database):
    with open_store(database) as store:
        store.home.add()
        database.write("update bullite_counts set waiting = waiting + 1")

        assert store.problems() == ["queue work: waiting is kept as 2 but counts 1"]


def test_verifying_finds_a_count_that_is_missing(database):
    with open_store(database) as store:
        store.home.add(delay=1_000)
        database.write("delete from bullite_counts")

        assert store.problems() == [
            "queue work: delayed is kept as 0 but counts 1",
            "queue work: the events of its log are kept as 0 but count 2",
        ]


def test_verifying_finds_a_wrong_count_in_what_was_folded(store, database):
    process = store.process()
    process.add(priority=3)
    process.close()
    fall_silent(store)
    store.home.driver.remove_stale_files(())
    database.write("update bullite_counts set prioritized = prioritized - 1 where nonce = 0")

    assert store.problems() == ["queue work: prioritized is kept as 0 but counts 1"]
    database.write("update bullite_counts set prioritized = prioritized + 1 where nonce = 0")


def test_many_who_fold_at_once_fold_everything_once(store, database):
    for _ in range(10):
        process = store.process()
        process.add()
    fall_silent(store)
    folding = [store.process() for _ in range(4)]
    threads = [
        threading.Thread(target=process.driver.remove_stale_files, args=[()]) for process in folding
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(row.get("waiting", 0) for row in kept(database).values()) == 10
