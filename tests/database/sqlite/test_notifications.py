"""Wake-ups go through sockets beside the file; without them, jobs are started very soon."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullite import Queue, Worker
from bullite.database.driver import Notifications
from bullite.database.sqlite.files import SideFiles
from bullite.database.sqlite.notifications import MAX_SOCKET_PATH, Notifier
from tests.processes.test_wakeups import POLL, SLACK, delays, tell_time, work
from tests.support.processes import Child, add, rows, states, wait_until, write


def is_idle(database: Path, worker: Child) -> bool:
    idle = "select 1 from bullite_workers where hungry = 1 and pid = ?"
    active = "select 1 from bullite_jobs where state = 'active'"
    return bool(rows(database, idle, worker.pid)) and not rows(database, active)


def slowest_but_one(found: list[float]) -> float:
    """One of them may have met a moment in which a busy machine did something else."""
    return sorted(found)[-2]


def test_when_every_wake_up_is_lost_jobs_still_start_within_the_poll(database, start, monkeypatch):
    add(database)
    monkeypatch.setattr(Notifier, "send", Notifier.forget)
    worker = start(work, database)

    found = delays(database, worker, jobs=9, is_idle=is_idle)

    assert slowest_but_one(found) < POLL + SLACK
    assert max(found) > POLL / 5, "wake-ups were not lost"


def test_a_worker_whose_socket_was_deleted_still_starts_jobs_within_the_poll(database, start):
    add(database)
    worker = start(work, database)
    wait_until(lambda: is_idle(database, worker))
    [(address,)] = rows(database, "select address from bullite_workers")
    Path(address).unlink()

    assert slowest_but_one(delays(database, worker, jobs=5, is_idle=is_idle)) < POLL + SLACK


# --- addresses -----------------------------------------------------------------------------------


@pytest.fixture
def deep_database(tmp_path: Path) -> Path:
    """A database whose path is far longer than the name of a socket can be."""
    folder = tmp_path / ("deep" * 20) / ("deeper" * 20)
    folder.mkdir(parents=True)
    return folder / "jobs.db"


def test_workers_of_a_database_with_a_long_path_are_woken_too(deep_database, start):
    add(deep_database)
    worker = start(work, deep_database)

    assert statistics.median(delays(deep_database, worker, jobs=9, is_idle=is_idle)) < POLL / 5
    [(address,)] = rows(deep_database, "select address from bullite_workers")
    assert len(os.fsencode(address)) > MAX_SOCKET_PATH
    assert Path(address).parent == SideFiles(deep_database).side_folder


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of our own, with a short path."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_sockets_of_a_database_with_a_long_path_are_in_its_side_folder(
    deep_database, temporary_folder
):
    places = SideFiles(deep_database)
    places.make_side_folder()
    before = len(os.listdir("/proc/self/fd"))
    ear, voice = (Notifier(places.socket(nonce)) for nonce in (1, 2))
    voice.note([ear.listen()], 3)
    voice.send()

    assert ear.read_notifications().ready == {3}
    assert list(temporary_folder.iterdir()) == []
    assert [path.stat().st_mode & 0o777 for path in places.side_folder.iterdir()] == [0o600]

    ear.abandon()  # its process was killed
    voice.note([os.fspath(places.socket(1))], 3)
    voice.send()
    voice.close()
    assert len(os.listdir("/proc/self/fd")) == before
    shutil.rmtree(deep_database.parent)
    assert list(temporary_folder.iterdir()) == []


def test_a_closed_worker_leaves_neither_socket_nor_sign_of_life(deep_database):
    async def work_a_little() -> str:
        async with Queue("work", deep_database) as queue:
            job = await queue.add("job")
            async with Worker(queue, tell_time):
                await job.result(timeout=10_000)
                [(address,)] = rows(deep_database, "select address from bullite_workers")
                return address

    address = asyncio.run(work_a_little())

    assert not Path(address).exists()
    assert [path.name for path in SideFiles(deep_database).side_folder.iterdir()] == ["gate"]


def test_an_address_that_is_dead_or_absurd_is_ignored(database):
    add(database)
    for address in ("/nowhere/at/all.sock", str(database), "x" * 500, ""):
        write(
            database,
            "insert into bullite_workers (queue, name, nonce, pid, host, boot, lock_duration, "
            "lease_until, max_stalled_count, hungry, address, started_at) "
            "select id, 'gone', 1, 1, 'h', 'b', 1, 1, 1, 1, ?, 1 from bullite_queues",
            address,
        )

    add(database, "job", "job")

    assert list(states(database).values()) == ["waiting", "waiting"]


# --- the mechanism -------------------------------------------------------------------------------


@pytest.fixture
def ear(tmp_path):
    ear = Notifier(tmp_path / "ear.sock")
    ear.listen()
    yield ear
    ear.close()


@pytest.fixture
def voice(tmp_path):
    voice = Notifier(tmp_path / "voice.sock")
    yield voice
    voice.close()


def test_what_is_noted_is_heard_once_it_is_sent(ear, voice):
    voice.note([ear.listen()], 3)
    voice.note([ear.listen()], 5)
    assert ear.read_notifications().ready == set()

    voice.send()

    assert ear.read_notifications().ready == {3, 5}
    assert ear.read_notifications().ready == set()


def test_an_alert_is_heard_once_and_is_no_queue(ear, voice):
    voice.note_alert(ear.listen())
    assert not ear.read_notifications().is_alerted

    voice.send()

    assert ear.read_notifications() == Notifications(set(), is_alerted=True)
    assert not ear.read_notifications().is_alerted


def test_an_alert_among_other_wake_ups_is_heard_with_them(ear, voice):
    voice.note([ear.listen()], 3)
    voice.note_alert(ear.listen())
    voice.note([ear.listen()], 5)

    voice.send()

    assert ear.read_notifications() == Notifications({3, 5}, is_alerted=True)


def test_what_is_forgotten_is_never_sent(ear, voice):
    voice.note([ear.listen()], 3)
    voice.note_alert(ear.listen())
    voice.forget()
    voice.send()

    assert ear.read_notifications() == Notifications(set(), is_alerted=False)


def test_an_ear_that_nobody_listens_with_never_blocks_the_voice(ear, voice):
    voice.note([ear.listen()] * 20_000, 3)
    began = time.monotonic()

    voice.send()

    assert time.monotonic() - began < 1
    assert ear.read_notifications().ready == {3}


def test_noise_is_not_taken_for_a_queue(ear):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for noise in (b"", b"-1", b"hello", b"\xff" * 200, b"7"):
            stranger.sendto(noise, ear._short(ear.listen()))

    assert ear.read_notifications().ready == {7}


def test_only_its_owner_can_wake_a_process(ear):
    assert os.stat(ear.listen()).st_mode & 0o777 == 0o600
