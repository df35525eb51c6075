"""`decide`: the one place where a result becomes a move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullite import UnrecoverableError
from bullite.outcome import (
    LONGEST_REASON,
    Interrupted,
    NotRun,
    Raised,
    Result,
    Returned,
    decide,
    storable,
)
from bullite.states import BACK_OFF, COMPLETE, FAIL, GIVE_BACK, RETRY, Move


@dataclass
class Run:
    """A run of a job, as far as the decision needs it."""

    attempts: int = 1
    attempts_made: int = 0
    stored_options: dict[str, Any] = field(default_factory=dict)
    pk: int = 7
    token: int = 11
    ahead: bool = False


ONCE = Run()
THRICE = Run(attempts=3)
LAST = Run(attempts=3, attempts_made=2)
PATIENT = Run(attempts=3, stored_options={"backoff": {"type": "linear", "delay": 500}})
PICKY = Run(attempts=3, stored_options={"backoff": [{"on": "KeyError", "retry": False}]})
error = ValueError("no")


@pytest.mark.parametrize(
    ("job", "result", "move", "delay", "value", "reason"),
    [
        pytest.param(ONCE, Returned(5), COMPLETE, 0, "5", None, id="returned"),
        pytest.param(ONCE, Returned(None), COMPLETE, 0, None, None, id="returned nothing"),
        pytest.param(LAST, Returned(None), COMPLETE, 0, "null", None, id="nothing, after failures"),
        pytest.param(ONCE, Raised(error), FAIL, 0, None, "no", id="raised, the only attempt"),
        pytest.param(THRICE, Raised(error), RETRY, 0, None, "no", id="raised, attempts left"),
        pytest.param(LAST, Raised(error), FAIL, 0, None, "no", id="raised, the last attempt"),
        pytest.param(PATIENT, Raised(error), BACK_OFF, 500, None, "no", id="raised, with backoff"),
        pytest.param(PICKY, Raised(error), RETRY, 0, None, "no", id="raised, no rule for it"),
        pytest.param(PICKY, Raised(KeyError("k")), FAIL, 0, None, "'k'", id="a rule says no"),
        pytest.param(
            THRICE, Raised(UnrecoverableError("x")), FAIL, 0, None, "x", id="unrecoverable"
        ),
        pytest.param(ONCE, Raised(KeyError()), FAIL, 0, None, "KeyError", id="raised, no words"),
        pytest.param(ONCE, Raised(SystemExit(3)), FAIL, 0, None, "3", id="exited"),
        pytest.param(THRICE, NotRun("stalled"), FAIL, 0, None, "stalled", id="not run"),
        pytest.param(THRICE, Interrupted(), GIVE_BACK, 0, None, None, id="interrupted"),
    ],
)
def test_every_result_means_one_move(
    job: Run, result: Result, move: Move, delay: int, value: str | None, reason: str | None
) -> None:
    verdict = decide(job, result, lambda: 0.0)
    assert (verdict.job, verdict.token) == (7, 11)
    assert (verdict.move, verdict.delay) == (move, delay)
    assert (verdict.value, verdict.reason) == (value, reason)


def test_a_value_that_cannot_be_stored_is_a_failed_attempt() -> None:
    verdict = decide(THRICE, Returned(object()), lambda: 0.0)
    assert verdict.move is RETRY
    assert "the returned value cannot be stored as JSON" in str(verdict.reason)
    assert decide(ONCE, Returned(float("nan")), lambda: 0.0).move is FAIL


def test_the_stack_tells_the_causes_too() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as cause:
            raise ValueError("second") from cause
    except ValueError as caught:
        stack = decide(ONCE, Raised(caught), lambda: 0.0).stack
    assert stack is not None
    assert stack.index("KeyError: 'first'") < stack.index("ValueError: second")


def test_only_a_job_that_never_left_anything_is_spared_its_result_row() -> None:
    assert not decide(ONCE, Returned(None), lambda: 0.0).has_result
    assert decide(ONCE, Returned(0), lambda: 0.0).has_result
    assert decide(LAST, Returned(None), lambda: 0.0).has_result


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_that_cannot_tell_its_text_is_named_by_its_class() -> None:
    verdict = decide(ONCE, Raised(Unspeakable()), lambda: 0.0)
    assert verdict.move is FAIL
    assert "Unspeakable" in str(verdict.reason)


# --- what can be stored of an error --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain", "plain"),
        ("ünïcödé 🐂", "ünïcödé 🐂"),
        ("a\x00b", "a\\x00b"),
        ("\ud800", "\\ud800"),
        ("", ""),
    ],
)
def test_text_is_kept_as_far_as_a_database_can(text: str, stored: str) -> None:
    assert storable(text) == stored


@given(st.text(st.characters()))
def test_any_text_can_be_stored(text: str) -> None:
    stored = storable(text)
    assert "\x00" not in stored
    stored.encode()


def test_endless_text_keeps_its_beginning_and_its_end() -> None:
    stored = storable("<" + "x" * 10**6 + ">")
    assert len(stored) < LONGEST_REASON + 100
    assert stored.startswith("<xxx")
    assert stored.endswith("xxx>")
    assert f"[… {10**6 + 2 - LONGEST_REASON} characters left out …]" in stored


def test_text_of_just_the_greatest_length_is_kept_whole() -> None:
    assert storable("x" * LONGEST_REASON) == "x" * LONGEST_REASON
