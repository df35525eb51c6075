"""Retry strategies of the user's own: who is asked, and what the answers mean."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from bullite.core.backoff import MAX_DELAY
from bullite.errors import InvalidOption, InvalidOptionType, UnrecoverableError
from bullite.worker.retry_strategies import Strategies

ERROR = ValueError("no")


def job(attempts: int = 5, attempts_made: int = 1, **options: Any) -> Any:
    return SimpleNamespace(attempts=attempts, attempts_made=attempts_made, _stored_options=options)


def named(function: Any) -> Strategies:
    return Strategies({"mine": function}, None)


def test_a_job_without_a_strategy_is_left_to_its_back_off() -> None:
    strategies = named(lambda made, error: 5)
    assert strategies.retry_delay(job(), ERROR) is None
    assert strategies.retry_delay(job(backoff={"type": "fixed", "delay": 9}), ERROR) is None


def test_a_named_strategy_is_called_with_the_attempt_and_the_error() -> None:
    asked: list[Any] = []

    def strategy(made: int, error: BaseException) -> int:
        asked.append((made, error))
        return 70

    assert named(strategy).retry_delay(job(retry_strategy="mine"), ERROR) == 70
    assert asked == [(2, ERROR)]


@pytest.mark.parametrize(
    ("answer", "wait"), [(0, 0), (2.6, 3), (False, False), (-1, False), (1e300, MAX_DELAY)]
)
def test_an_answer_is_a_wait_or_no(answer: Any, wait: Any) -> None:
    meant = named(lambda made, error: answer).retry_delay(job(retry_strategy="mine"), ERROR)
    assert meant == wait
    assert type(meant) is type(wait)


@pytest.mark.parametrize("answer", [None, True, "5s", float("nan")], ids=repr)
def test_anything_else_is_no_answer(answer: Any) -> None:
    with pytest.raises(InvalidOption):
        named(lambda made, error: answer).retry_delay(job(retry_strategy="mine"), ERROR)


async def test_a_strategy_may_be_a_coroutine_function() -> None:
    async def strategy(made: int, error: BaseException) -> int:
        return 7

    waiting = named(strategy).retry_delay(job(retry_strategy="mine"), ERROR)
    assert inspect.isawaitable(waiting)
    assert await waiting == 7


def test_an_unknown_strategy_is_named_beside_the_error() -> None:
    with pytest.raises(InvalidOption, match=r"no;.*other"):
        named(lambda made, error: 5).retry_delay(job(retry_strategy="other"), ERROR)


@pytest.mark.parametrize(
    ("last", "error"),
    [(job(attempts=2, retry_strategy="mine"), ERROR), (job(retry_strategy="mine"), None)],
)
def test_no_strategy_is_called_when_there_is_nothing_to_decide(last: Any, error: Any) -> None:
    def never(made: int, error: BaseException) -> int:
        raise AssertionError("asked")

    assert named(never).retry_delay(last, error or UnrecoverableError("x")) is None


def test_an_unknown_kind_of_back_off_is_the_workers_own() -> None:
    asked: list[Any] = []

    def strategy(made: int, kind: str, error: BaseException, job: Any) -> int:
        asked.append((made, kind, error))
        return 8

    custom = job(backoff={"type": "jumpy", "delay": 3})
    assert Strategies({}, strategy).retry_delay(custom, ERROR) == 8
    assert asked == [(2, "jumpy", ERROR)]


def test_without_one_the_job_fails_with_the_reason() -> None:
    with pytest.raises(InvalidOption, match="jumpy"):
        Strategies({}, None).retry_delay(job(backoff={"type": "jumpy", "delay": 3}), ERROR)


def test_the_rule_that_matches_the_error_decides_whose_it_is() -> None:
    rules = [{"on": "KeyError", "type": "jumpy", "delay": 1}, {"type": "fixed", "delay": 1}]
    strategies = Strategies({}, lambda made, kind, error, job: 8)
    assert strategies.retry_delay(job(backoff=rules), ERROR) is None
    assert strategies.retry_delay(job(backoff=rules), KeyError("k")) == 8


@pytest.mark.parametrize(("of_names", "backoff"), [({"a": 5}, None), ({}, 5)])
def test_a_strategy_must_be_callable(of_names: Any, backoff: Any) -> None:
    with pytest.raises(InvalidOptionType):
        Strategies(of_names, backoff)
