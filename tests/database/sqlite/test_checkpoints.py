"""The log goes back into the database in one way only, and stays small."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from bullite import Queue, Store
from bullite.core.clock import SystemClock
from bullite.database.sqlite.checkpoints import (
    BYTES_PER_FRAME,
    CHECKPOINT_FRAMES,
    FRAMES_PER_TRANSACTION,
    CheckpointGauge,
)
from bullite.database.sqlite.driver import SQLiteDriver
from tests.support.processes import add, hang, problems, rows, say, states

MEGABYTE = 1024 * 1024


# --- the log -------------------------------------------------------------------------------------


def sizes_of_the_log(database: Path, jobs: int, chunk: int) -> list[int]:
    """How long the log is after each transaction that adds `chunk` jobs."""
    log = database.with_name("jobs.db-wal")
    sizes: list[int] = []

    async def add() -> None:
        async with Queue("work", database) as queue:
            await queue.add_bulk(
                ({"name": "job", "data": {"number": number}} for number in range(jobs)),
                chunk=chunk,
                on_chunk=lambda _: sizes.append(log.stat().st_size),
            )

    asyncio.run(add())
    assert rows(database, "select count(*) from bullite_jobs") == [(jobs,)]
    assert problems(database) == ()
    return sizes


def assert_bounded(sizes: list[int]) -> None:
    assert min(sizes) > 0
    assert max(sizes) < 3 * 4 * MEGABYTE
    assert sizes == sorted(sizes), "a log that is overwritten is never cut"


def test_the_log_stays_small_when_20_000_jobs_are_added_in_portions(database):
    assert_bounded(sizes_of_the_log(database, 20_000, chunk=200))


def test_the_log_stays_small_when_20_000_jobs_are_added_in_few_big_portions(database):
    assert_bounded(sizes_of_the_log(database, 20_000, chunk=2_000))


def test_the_log_stays_small_when_jobs_are_added_one_by_one(database):
    assert_bounded(sizes_of_the_log(database, 3_000, chunk=1))


def test_a_checkpoint_is_passive_and_runs_while_we_hold_the_write_lock(database):
    driver = SQLiteDriver(database, SystemClock(), random.getrandbits)
    driver.open()
    said: list[str] = []
    driver._writer.set_trace_callback(lambda text: said.append(f"writer: {text}"))
    driver._checkpointer.set_trace_callback(lambda text: said.append(f"other: {text}"))
    try:
        driver.checkpoint()
    finally:
        driver.close()

    assert said[:3] == [
        "writer: begin immediate",
        "other: pragma wal_checkpoint(passive)",
        "writer: rollback",
    ]


def test_without_need_there_is_no_checkpoint(database):
    driver = SQLiteDriver(database, SystemClock(), random.getrandbits)
    driver.open()
    said: list[str] = []
    driver._writer.set_trace_callback(said.append)
    try:
        driver.checkpoint_if_due()
        assert said == []
    finally:
        driver.close()


# --- the gauge -----------------------------------------------------------------------------------


def writes_until_due(gauge: CheckpointGauge, rows: int = 0, size: int = 0) -> int:
    written = 0
    while not gauge.is_due():
        gauge.wrote(rows, size)
        written += 1
    return written


def test_a_new_gauge_is_not_due():
    assert not CheckpointGauge().is_due()


def test_many_small_transactions_make_a_checkpoint_due():
    assert writes_until_due(CheckpointGauge()) == CHECKPOINT_FRAMES // FRAMES_PER_TRANSACTION


def test_a_few_transactions_with_much_data_make_a_checkpoint_due():
    assert writes_until_due(CheckpointGauge(), size=CHECKPOINT_FRAMES * BYTES_PER_FRAME) == 1


def test_after_a_checkpoint_nothing_is_due():
    gauge = CheckpointGauge()
    writes_until_due(gauge)

    gauge.found(CHECKPOINT_FRAMES)

    assert not gauge.is_due()


def test_a_gauge_that_guessed_too_little_learns_to_be_due_sooner():
    gauge = CheckpointGauge()
    first = writes_until_due(gauge)

    gauge.found(4 * CHECKPOINT_FRAMES)

    assert writes_until_due(gauge) < first


def test_a_gauge_that_guessed_too_much_learns_to_be_due_later():
    gauge = CheckpointGauge()
    first = writes_until_due(gauge)

    gauge.found(CHECKPOINT_FRAMES // 4)

    assert writes_until_due(gauge) > first


def test_a_gauge_comes_to_the_true_measure():
    gauge = CheckpointGauge()
    true_frames = 20
    for _ in range(30):
        gauge.found(true_frames * writes_until_due(gauge))

    assert abs(writes_until_due(gauge) * true_frames - CHECKPOINT_FRAMES) < CHECKPOINT_FRAMES / 10


def test_no_single_finding_can_lead_a_gauge_astray_for_ever():
    gauge = CheckpointGauge()
    writes_until_due(gauge)

    gauge.found(1_000_000_000)

    assert writes_until_due(gauge) > 1


async def dies_in_a_checkpoint(database: str) -> None:
    """Moves the log into the database, and stops while it holds the write lock."""
    driver = Store(database).open().driver
    driver._writer.set_trace_callback(stop_before_rollback)
    driver.checkpoint()


def stop_before_rollback(statement: str) -> None:
    if statement == "rollback":
        say("about to let go")
        hang()


def test_after_a_checkpoint_that_was_cut_short_others_write_on_at_once(database, start):
    add(database, *["first"] * 50)
    killed_worker = start(dies_in_a_checkpoint, database)
    killed_worker.said("about to let go")

    killed_at = killed_worker.kill()

    add(database, "second")
    assert time.time() * 1000 - killed_at < 1000
    assert list(states(database).values()) == ["waiting"] * 51
    assert problems(database) == ()
