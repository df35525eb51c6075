"""How a processor learns that it should stop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bullite.client.job.abort_signal import Signal


def test_at_first_there_is_no_need_to_stop() -> None:
    signal = Signal()
    assert (signal.aborted, signal.reason) == (False, None)
    signal.throw_if_aborted()
    assert signal.wait_in_thread(0) is False


def test_only_the_first_reason_counts() -> None:
    signal = Signal()
    signal.abort("first")
    signal.abort("second")
    assert (signal.aborted, signal.reason) == (True, "first")


def test_those_who_want_to_be_called_are_called_once() -> None:
    signal = Signal()
    calls: list[str] = []
    signal.on_abort(lambda: calls.append("before"))
    signal.abort()
    signal.abort()
    assert calls == ["before"]
    signal.on_abort(lambda: calls.append("after"))
    assert calls == ["before", "after"]


def test_a_callback_that_raises_does_not_keep_the_others_from_their_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    signal = Signal()
    calls: list[int] = []
    signal.on_abort(lambda: 1 // 0)
    signal.on_abort(lambda: calls.append(1))
    signal.abort()
    assert calls == [1]
    assert "a callback of a signal failed" in caplog.text


def test_a_reason_that_is_an_error_is_raised_as_it_is() -> None:
    signal = Signal()
    signal.abort(KeyError("k"))
    with pytest.raises(KeyError):
        signal.throw_if_aborted()


def test_any_other_reason_is_raised_in_words() -> None:
    signal = Signal()
    signal.abort("out of time")
    with pytest.raises(InterruptedError, match="out of time"):
        signal.throw_if_aborted()


async def test_a_coroutine_can_wait_for_it_from_another_thread() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    threading.Thread(target=signal.abort, args=("now",)).start()
    assert await asyncio.wait_for(waiting, 5) == "now"


async def test_who_comes_late_does_not_wait() -> None:
    signal = Signal()
    signal.abort("past")
    assert await asyncio.wait_for(signal.wait(), 5) == "past"


async def test_a_wait_that_was_given_up_does_no_harm() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    signal.abort("now")
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_a_thread_can_wait_for_it() -> None:
    signal = Signal()
    threading.Timer(0.01, signal.abort).start()
    assert signal.wait_in_thread(5) is True
