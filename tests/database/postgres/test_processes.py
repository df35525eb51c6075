"""What is known of processes: as little as is needed, and no longer than it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bullite.database.postgres import driver as driver_module
from bullite.database.postgres.driver import PostgresDriver
from bullite.errors import StoreUnavailable
from bullite.operations.locks import TakeLock
from tests.support.harness import Process, Store, open_store
from tests.support.postgres_database import PostgresDatabase


@pytest.fixture
def store(database: PostgresDatabase) -> Iterator[Store]:
    with open_store(database) as store:
        yield store
        assert store.problems() == []


def known(database: PostgresDatabase) -> set[int]:
    return {row["nonce"] for row in database.rows("processes")}


def killed(store: Store, database: PostgresDatabase) -> Process:
    """A process that added a job and was killed."""
    process = store.process()
    process.add()
    store.vanish(process)
    database.write(f"update bullite_processes set seen_at = {store.clock.now()}")
    return process


def test_only_the_processes_asked_about_are_read(store, database):
    for nonce in range(10, 40):
        database.write(f"insert into bullite_processes values ({nonce}, 1, 1)")

    found = store.home.driver.execute("processes", {"nonces": "[11, 12, 99]"})

    assert sorted(found.rows) == [(11, 1), (12, 1)]


def test_a_process_that_was_killed_is_forgotten_when_nothing_needs_it(store, database):
    dead = killed(store, database)
    store.home.driver.remove_stale_files(())
    assert dead.nonce in known(database), "it may want to know what became of a commit"

    store.clock.advance(driver_module.SURELY_GONE + 1)
    store.home.driver.remove_stale_files(())

    assert dead.nonce not in known(database)


def test_a_silent_process_is_kept_while_it_has_a_worker(store, database):
    """A process without a row counts as dead, and the lease of this worker has not expired."""
    silent = store.process()
    silent.worker(lock_duration=24 * 3600 * 1000, renews=False)
    store.clock.advance(driver_module.SURELY_GONE + 1)

    store.home.driver.remove_stale_files(())

    assert silent.nonce in known(database)
    assert store.home.recover() == 0


def test_a_silent_process_is_kept_while_it_has_a_named_lock(store, database):
    silent = store.process()
    silent.ask(TakeLock("a lock", 24 * 3600 * 1000, store.clock.boot))
    store.clock.advance(driver_module.SURELY_GONE + 1)

    store.home.driver.remove_stale_files(())

    assert silent.nonce in known(database)


# --- a commit whose answer was lost, of a process that was forgotten -----------------------------


def lose_the_answer(process: Process, database: PostgresDatabase, begun_ago: int) -> bool:
    """Ask what became of the last transaction, when nothing is known of its process any more."""
    driver: PostgresDriver = process.driver._driver
    database.write(f"delete from bullite_processes where nonce = {driver.nonce}")
    driver._began_at -= begun_ago
    return driver._was_committed(driver_module.errors.AdminShutdown("its answer was lost"))


def test_a_transaction_of_an_unknown_process_was_not_committed_if_it_is_young(store, database):
    store.add()
    assert not lose_the_answer(store.home, database, begun_ago=0)


def test_what_became_of_an_old_commit_of_a_forgotten_process_is_not_known(store, database):
    store.add()
    with pytest.raises(StoreUnavailable, match="is not known"):
        lose_the_answer(store.home, database, begun_ago=driver_module.SURELY_GONE)
