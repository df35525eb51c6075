"""Opening of databases by several threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bullite import Store
from bullite.client.runtime.blocking import BlockingFuture
from bullite.database.sqlite.driver import SQLiteDriver
from bullite.engine.engine import Engine
from bullite.errors import StoreBusy, StoreClosed

PATIENCE = 20.0


class Gate:
    """Lets the opening of one database wait until a test allows it to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.allowed = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.drivers: list[SQLiteDriver] = []
        open_driver = SQLiteDriver.open

        def opened(driver: SQLiteDriver) -> None:
            if driver.path.name == "slow.db":
                self.drivers.append(driver)
                self.reached.set()
                assert self.allowed.wait(PATIENCE)
                if self.error is not None:
                    raise self.error
            open_driver(driver)

        monkeypatch.setattr(SQLiteDriver, "open", opened)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@pytest.fixture
def threads(gate: Gate) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool
        gate.allowed.set()  # whatever became of the test: let all threads end


@pytest.fixture
def waiters(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Is released by each thread that begins to wait for what another thread does."""
    waiting = threading.Semaphore(0)
    result = BlockingFuture.result

    def awaited(answer: BlockingFuture[Any], timeout: float | None = None) -> Any:
        waiting.release()
        return result(answer, timeout)

    monkeypatch.setattr(BlockingFuture, "result", awaited)
    return waiting


def open_slowly(threads: ThreadPoolExecutor, gate: Gate, store: Store) -> Future[Engine]:
    opening = threads.submit(store.open)
    assert gate.reached.wait(PATIENCE)
    return opening


def test_a_slow_database_does_not_keep_others_from_being_opened(
    tmp_path: Path, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    slow, other = Store(tmp_path / "slow.db"), Store(tmp_path / "other.db")
    opening = open_slowly(threads, gate, slow)
    threads.submit(other.open).result(PATIENCE)
    threads.submit(other.close).result(PATIENCE)
    assert not opening.done()
    gate.allowed.set()
    opening.result(PATIENCE)
    slow.close()


def test_threads_that_open_one_database_share_an_engine(
    tmp_path: Path, gate: Gate, threads: ThreadPoolExecutor, waiters: threading.Semaphore
) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "slow.db")
    first, second = Store(tmp_path / "slow.db"), Store(tmp_path / "link.db")
    opening = open_slowly(threads, gate, first)
    others = [threads.submit(first.open), threads.submit(second.open)]
    for _ in others:
        assert waiters.acquire(timeout=PATIENCE)
    gate.allowed.set()
    engine = opening.result(PATIENCE)
    assert [other.result(PATIENCE) for other in others] == [engine, engine]
    assert len(gate.drivers) == 1
    first.close()
    assert not engine.is_stopping
    second.close()
    assert engine.is_stopping


def test_a_failed_opening_reaches_all_who_wait_for_it_and_is_tried_again(
    tmp_path: Path, gate: Gate, threads: ThreadPoolExecutor, waiters: threading.Semaphore
) -> None:
    stores = [Store(tmp_path / "slow.db") for _ in range(3)]
    gate.error = StoreBusy("it is migrated by another process")
    openings = [open_slowly(threads, gate, stores[0])]
    for store in stores[1:]:
        openings.append(threads.submit(store.open))
        assert waiters.acquire(timeout=PATIENCE)
    gate.allowed.set()
    for opening in openings:
        with pytest.raises(StoreBusy, match="it is migrated"):
            opening.result(PATIENCE)
    assert len(gate.drivers) == 1
    gate.error = None
    with closing(stores[1]) as store:
        assert not store.open().is_stopping


def test_a_store_that_is_closed_while_it_is_opened_lets_go_of_the_database(
    tmp_path: Path, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    store = Store(tmp_path / "slow.db")
    opening = open_slowly(threads, gate, store)
    threads.submit(store.close).result(PATIENCE)
    gate.allowed.set()
    with pytest.raises(StoreClosed):
        opening.result(PATIENCE)
    [driver] = gate.drivers
    with pytest.raises(StoreClosed):
        driver.execute("workers", {})
