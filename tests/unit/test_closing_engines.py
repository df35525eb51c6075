"""What is asked of an engine, or of its thread for reads, while another thread closes it."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bullite.core.clock import SystemClock
from bullite.database.driver import Params, Result
from bullite.database.sqlite.driver import SQLiteDriver
from bullite.engine.engine import Engine
from bullite.engine.read_thread import ReadThread
from bullite.engine.replies import SAME_THREAD, PendingRequest
from bullite.engine.threads import start_thread
from bullite.errors import StoreClosed
from bullite.operations.queues import OpenQueue

PATIENCE = 10


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(SQLiteDriver(tmp_path / "jobs.db", SystemClock(), lambda bits: 1))


# --- requests ------------------------------------------------------------------------------------


class Joiner:
    def __init__(self, reply: Callable[[Any], None]) -> None:
        self._reply = reply

    def merge(self, parts: Sequence[Any]) -> list[PendingRequest]:
        return [PendingRequest(part, self._reply) for part in parts]


@pytest.mark.parametrize("way", ["put", "put_fragment", "when_room"])
def test_a_request_put_in_when_the_engine_has_just_been_closed_is_answered(
    engine: Engine, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.start()
    put = getattr(engine._inbox, way)

    def close_first(*arguments: Any) -> None:
        monkeypatch.undo()
        engine.close()
        put(*arguments)

    monkeypatch.setattr(engine._inbox, way, close_first)
    answers: list[Any] = []
    request = OpenQueue("work", None)
    if way == "put":
        engine.submit(request, answers.append)
    elif way == "put_fragment":
        engine.submit_merged(Joiner(answers.append), request)
    else:
        engine.when_room(answers.append, SAME_THREAD)
    expected = type(None) if way == "when_room" else StoreClosed
    assert [type(answer) for answer in answers] == [expected]


# --- reads ---------------------------------------------------------------------------------------


class Silent:
    """A reader that finds nothing."""

    clock = SystemClock()

    def read(self, statement: str, params: Params) -> Result:
        return Result([], 0)

    def close(self) -> None:
        pass


def test_a_read_put_in_beside_the_close_is_answered() -> None:
    closing = threading.Thread(target=lambda: reading.close())

    def spawn_and_close(run: Callable[[], None], name: str) -> None:
        start_thread(run, name)
        closing.start()
        closing.join(0.2)  # it ends meanwhile where nothing keeps it from that

    reading = ReadThread(Silent, spawn_and_close)
    answered = threading.Event()
    reading.read("statement", {}, lambda answer: answered.set(), SAME_THREAD)
    assert answered.wait(PATIENCE)
    closing.join()


def interrupted(act: Callable[[], None], line: int, meanwhile: Callable[[], None]) -> bool:
    """Run `act` in a thread, and `meanwhile` in another before a line of `ReadThread.read`.

    Return False if it has fewer lines. What `meanwhile` waits for, it gets when `act` goes on.
    """
    other = threading.Thread(target=meanwhile)
    seen = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal seen
        if frame.f_code is not ReadThread.read.__code__:
            return None
        if event == "line":
            seen += 1
            if seen == line:
                other.start()
                other.join(0.05)
        return trace

    def run() -> None:
        sys.settrace(trace)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if seen >= line:
        other.join()
    return seen >= line


def test_two_threads_that_read_first_start_one_reader() -> None:
    started: list[str] = []

    def spawn(run: Callable[[], None], name: str) -> None:
        started.append(name)
        start_thread(run, name)

    for line in itertools.count(1):
        started.clear()
        reading = ReadThread(Silent, spawn)

        def read(reading: ReadThread = reading) -> None:
            answered = threading.Event()
            reading.read("statement", {}, lambda answer: answered.set(), SAME_THREAD)
            assert answered.wait(PATIENCE)

        both = interrupted(read, line, read)
        reading.close()
        if not both:
            break
        assert started == ["bullite-reader"]
    assert line > 3
