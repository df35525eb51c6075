"""Which function runs a job, and with which arguments."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest

from bullite.errors import InvalidOption, InvalidOptionType
from bullite.worker.processors import ANY, check_processors, make_handler

JOB: Any = SimpleNamespace(token="t", signal="s")


def echo(*arguments: Any) -> tuple[Any, ...]:
    return arguments


def call(function: Any) -> Any:
    return make_handler("it", function).call(JOB)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda job: echo(job), (JOB,)),
        (lambda job, token: echo(job, token), (JOB, "t")),
        (lambda job, token, signal: echo(job, token, signal), (JOB, "t", "s")),
        (lambda job, extra=5: echo(job, extra), (JOB, 5)),
        (lambda job, *rest: echo(job, *rest), (JOB,)),
        (lambda *all: echo(*all), (JOB,)),
        (lambda job, *, loud=True: echo(job, loud), (JOB, True)),
        (functools.partial(lambda own, job: echo(own, job), "own"), ("own", JOB)),
    ],
)
def test_a_function_gets_what_it_must_have(function: Any, arguments: tuple[Any, ...]) -> None:
    assert call(function) == arguments


@pytest.mark.parametrize("function", [lambda: None, lambda a, b, c, d: None])
def test_a_function_that_takes_something_else_is_refused(function: Any) -> None:
    with pytest.raises(InvalidOptionType, match="token"):
        make_handler("it", function)


def test_a_method_is_called_on_its_object() -> None:
    class Service:
        def run(self, job: Any, token: str) -> Any:
            return token

    assert call(Service().run) == "t"


class Callable:
    async def __call__(self, job: Any) -> None: ...


async def coroutine(job: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "in_loop"),
    [
        (coroutine, True),
        (functools.partial(coroutine), True),
        (Callable(), True),
        (lambda job: None, False),
        (functools.partial(lambda job: None), False),
    ],
)
def test_coroutine_functions_are_known_however_they_are_wrapped(
    function: Any, in_loop: bool
) -> None:
    assert make_handler("it", function).in_loop is in_loop


# --- assignments ---------------------------------------------------------------------------------


def test_no_processor_is_no_assignment() -> None:
    assert check_processors(None) == []


def test_one_function_takes_every_name() -> None:
    [assignment] = check_processors(lambda job: None)
    assert (assignment.names, assignment.concurrency) == (None, None)
    assert list(assignment.handlers) == [ANY]


def test_names_share_what_the_worker_has_unless_they_have_their_own() -> None:
    shared, own = check_processors(
        {"a": lambda job: None, "b": (lambda job: None, 3), "c": lambda job: None}
    )
    assert (shared.names, shared.concurrency) == (("a", "c"), None)
    assert (own.names, own.concurrency) == (("b",), 3)


@pytest.mark.parametrize(
    ("processor", "error"),
    [
        (5, InvalidOptionType),
        ({}, InvalidOption),
        ({"a": 5}, InvalidOptionType),
        ({"": lambda job: None}, InvalidOption),
        ({"a": (lambda job: None, 0)}, InvalidOption),
        ({"a": (lambda job: None, "many")}, InvalidOptionType),
    ],
)
def test_anything_else_is_refused(processor: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_processors(processor)
