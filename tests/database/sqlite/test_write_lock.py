"""The gate before the file: one process at a time, in turn, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullite import Queue
from bullite.database.sqlite import connections
from bullite.database.sqlite.write_lock import FairWriteLock
from bullite.errors import StoreBusy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def gate(path: Path) -> Iterator[FairWriteLock]:
    gate = FairWriteLock(path)
    yield gate
    gate.close()


@pytest.fixture
def other(path: Path) -> Iterator[FairWriteLock]:
    """The gate as another process holds it: a lock belongs to an opening of the file."""
    other = FairWriteLock(path)
    yield other
    other.close()


def openings_of(path: Path) -> int:
    """How many descriptors of this process lead to a file."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{fd}") == str(path)
    return found


def test_a_gate_that_nobody_holds_is_entered_at_once(gate: FairWriteLock) -> None:
    assert gate.enter(timeout=0)
    gate.leave()
    assert gate.enter(timeout=0)


def test_only_one_is_inside(gate: FairWriteLock, other: FairWriteLock) -> None:
    assert other.enter(timeout=0)
    assert not gate.enter(timeout=0.01)


def test_who_waits_enters_when_the_other_leaves(gate: FairWriteLock, other: FairWriteLock) -> None:
    other.enter(timeout=0)
    entered: list[bool] = []
    waiting = threading.Thread(target=lambda: entered.append(gate.enter(timeout=20)))
    waiting.start()
    other.leave()
    waiting.join()
    assert entered == [True]
    assert not other.enter(timeout=0.01)


def test_who_gave_up_waiting_does_not_hold_it_later(
    gate: FairWriteLock, other: FairWriteLock
) -> None:
    other.enter(timeout=0)
    assert not gate.enter(timeout=0.01)
    other.leave()
    assert other.enter(timeout=20)


def test_who_gave_up_may_wait_again(gate: FairWriteLock, other: FairWriteLock) -> None:
    other.enter(timeout=0)
    assert not gate.enter(timeout=0.01)
    assert not gate.enter(timeout=0.01)
    other.leave()
    assert gate.enter(timeout=20)


def test_a_forked_child_lets_go_of_the_gate_of_its_parent(
    path: Path, gate: FairWriteLock, other: FairWriteLock
) -> None:
    """Else it would keep the lock of a parent that died; also after the parent had to queue."""
    other.enter(timeout=0)
    assert not gate.enter(timeout=0.01)
    other.leave()
    assert gate.enter(timeout=20)
    child = os.fork()
    if child == 0:
        try:
            gate.abandon()
            os._exit(0 if openings_of(path) == 1 else 1)  # the other's is still there
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert not other.enter(timeout=0.01), "the parent is still inside"


def test_an_add_that_waits_too_long_for_its_turn_is_told_so_and_the_next_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a process is stopped in the middle of a transaction."""
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 0.05)

    async def main() -> None:
        async with Queue("work", tmp_path / "jobs.db") as queue:
            stopped = FairWriteLock(tmp_path / "jobs.db.bullite" / "gate")
            stopped.enter(timeout=20)
            with pytest.raises(StoreBusy, match=r"another process has been writing to .*jobs\.db"):
                await queue.add("a")
            stopped.leave()
            stopped.close()
            monkeypatch.setattr(connections, "BUSY_TIMEOUT", 20)
            await queue.add("b")
            assert await queue.get_job_counts("waiting") == {"waiting": 1}

    asyncio.run(main())
