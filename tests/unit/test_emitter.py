"""Listeners: who is called, when, with what, and what happens when one raises."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from bullite.client.runtime.emitter import EventEmitter, OwnEmitter, plain
from bullite.errors import InvalidOptionType


@pytest.fixture
def emitter() -> EventEmitter:
    return EventEmitter()


def test_listeners_are_called_in_the_order_they_came_with_what_is_told(
    emitter: EventEmitter,
) -> None:
    heard: list[Any] = []
    emitter.on("done", lambda *arguments: heard.append(("one", *arguments)))
    emitter.on("done", lambda *arguments: heard.append(("two", *arguments)))
    assert emitter.emit("done", 1, 2) is True
    assert heard == [("one", 1, 2), ("two", 1, 2)]


def test_an_event_nobody_listens_to_is_told_to_nobody(emitter: EventEmitter) -> None:
    emitter.on("done", lambda: None)
    assert emitter.emit("begun") is False


@pytest.mark.parametrize(
    "spelling", ["log-added", "log_added", "job.log_added", "queue.log_added", "worker.log-added"]
)
def test_an_event_has_many_spellings_and_one_name(emitter: EventEmitter, spelling: str) -> None:
    heard: list[int] = []
    emitter.on(spelling, heard.append)
    emitter.emit("log-added", 1)
    assert (plain(spelling), heard) == ("log-added", [1])
    assert emitter.hears("begun", "log-added")


def test_registering_can_be_chained_or_decorate(emitter: EventEmitter) -> None:
    heard: list[int] = []
    assert emitter.on("a", heard.append).once("a", heard.append) is emitter

    @emitter.on("a")
    def third(number: int) -> None:
        heard.append(number)

    emitter.emit("a", 1)
    assert heard == [1, 1, 1]
    assert emitter.listeners("a") == [heard.append, third]


def test_who_listens_once_is_called_once(emitter: EventEmitter) -> None:
    heard: list[int] = []
    emitter.once("a", heard.append)
    assert [emitter.emit("a", 1), emitter.emit("a", 2)] == [True, False]
    assert heard == [1]
    assert not emitter.hears("a")


def test_who_listens_once_is_called_once_even_if_another_listener_emits(
    emitter: EventEmitter,
) -> None:
    heard: list[int] = []

    def echo(depth: int) -> None:
        if depth == 0:
            emitter.emit("a", 1)

    emitter.on("a", echo)
    emitter.once("a", heard.append)
    emitter.emit("a", 0)
    assert heard == [1]


def test_a_listener_that_listens_once_may_replace_itself(emitter: EventEmitter) -> None:
    heard: list[int] = []

    def first(number: int) -> None:
        emitter.off("a")
        emitter.on("a", heard.append)

    emitter.once("a", first)
    emitter.emit("a", 1)
    emitter.emit("a", 2)
    assert heard == [2]


def test_a_listener_can_be_forgotten_alone_or_with_the_others(emitter: EventEmitter) -> None:
    heard: list[str] = []

    def one() -> None:
        heard.append("one")

    def two() -> None:
        heard.append("two")

    emitter.on("a", one).on("a", two).on("b", one)
    emitter.off("a", one)
    emitter.emit("a")
    assert heard == ["two"]
    emitter.off("a")
    assert (emitter.emit("a"), emitter.emit("b")) == (False, True)
    emitter.remove_all_listeners()
    assert emitter.emit("b") is False


def test_a_listener_that_raises_disturbs_nobody_and_becomes_an_error(
    emitter: EventEmitter,
) -> None:
    heard: list[Any] = []

    def bad() -> None:
        raise ValueError("no")

    emitter.on("a", bad).on("a", lambda: heard.append("next"))
    emitter.on("error", lambda *told: heard.append(str(told)))
    assert emitter.emit("a") is True
    assert heard == ["(None, None, ValueError('no'))", "next"]


def test_an_error_nobody_listens_to_is_logged(
    emitter: EventEmitter, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(*arguments: object) -> None:
        raise ValueError("no")

    emitter.on("a", bad)
    with caplog.at_level(logging.ERROR, "bullite.events"):
        emitter.emit("a")
    assert "'a'" in caplog.text


def test_an_error_listener_that_raises_is_logged_and_not_called_for_itself(
    emitter: EventEmitter, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []

    def bad(queue: str, worker: str, error: Exception) -> None:
        calls.append(error)
        raise ValueError("no")

    emitter.on("error", bad)
    emitter.emit("error", "mails", "bob", KeyError("first"))
    assert len(calls) == 1
    assert "'error'" in caplog.text


@pytest.mark.parametrize(("event", "listener"), [(5, print), ("a", 5)])
def test_what_is_no_event_or_no_listener_is_refused(
    emitter: EventEmitter, event: Any, listener: Any
) -> None:
    with pytest.raises(InvalidOptionType):
        emitter.on(event, listener)


# --- coroutine functions -------------------------------------------------------------------------


async def test_a_coroutine_function_may_listen(emitter: EventEmitter) -> None:
    heard = asyncio.Event()

    async def listener() -> None:
        heard.set()

    emitter.on("a", listener)
    emitter.emit("a")
    await asyncio.wait_for(heard.wait(), 5)


async def test_what_it_raises_becomes_an_error() -> None:
    emitter = OwnEmitter()
    heard: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def listener() -> None:
        raise ValueError("no")

    emitter.on("a", listener).on("error", heard.set_result)
    emitter.emit("a")
    assert str(await asyncio.wait_for(heard, 5)) == "no"


def test_without_an_event_loop_it_cannot_be_called() -> None:
    emitter, errors = OwnEmitter(), list[Exception]()

    async def listener() -> None:
        raise AssertionError("never")

    emitter.on("a", listener).on("error", errors.append)
    emitter.emit("a")
    assert [type(error) for error in errors] == [TypeError]
