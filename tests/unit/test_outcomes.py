"""`decide`: the one place where a result becomes a move."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullite import Job, Queue, UnrecoverableError
from bullite.client.job.run import JobRun
from bullite.core.decide_outcome import (
    MAX_REASON_LENGTH,
    MAX_RESULT_LENGTH,
    STALLED_TOO_OFTEN,
    STARTED_TOO_OFTEN,
    Interrupted,
    Raised,
    Result,
    RetentionDefaults,
    Returned,
    Skipped,
    Unstarted,
    decide,
    storable,
)
from bullite.core.job_record import JobRow, JobStatusRow
from bullite.core.retention import Retention
from bullite.core.states import (
    BACK_OFF,
    COMPLETE,
    ERROR,
    FAIL,
    RELEASE,
    RETRY_NOW,
    RETURN_UNSTARTED,
    STALLED,
    TIMED_OUT,
    Move,
)
from bullite.errors import JobTimedOut


def attempt(
    attempts: int = 1,
    attempts_made: int = 0,
    options: dict[str, Any] | None = None,
    prefetched: bool = False,
    custom_id: str | None = None,
) -> Job:
    """A job that a worker holds, in a queue that is never opened."""
    row = JobRow(
        *(7, "welcome", custom_id, 0, attempts, attempts_made, 0, 0, 1_000, None),
        opts=None if options is None else json.dumps(options),
        rank=0,
        seq=7,
        traits=0,
        data="null",
    )
    queue = Queue("emails", "nowhere.db")
    return Job(queue, row, JobStatusRow("active"), JobRun(11, prefetched))


ONCE = attempt()
THRICE = attempt(attempts=3)
LAST = attempt(attempts=3, attempts_made=2)
PATIENT = attempt(attempts=3, options={"backoff": {"type": "linear", "delay": 500}})
PICKY = attempt(attempts=3, options={"backoff": [{"on": "KeyError", "retry": False}]})
error = ValueError("no")


@pytest.mark.parametrize(
    ("job", "result", "move", "delay", "value", "reason"),
    [
        pytest.param(ONCE, Returned(5), COMPLETE, 0, "5", None, id="returned"),
        pytest.param(ONCE, Returned(None), COMPLETE, 0, None, None, id="returned nothing"),
        pytest.param(LAST, Returned(None), COMPLETE, 0, None, None, id="nothing, after failures"),
        pytest.param(ONCE, Raised(error), FAIL, 0, None, "no", id="raised, the only attempt"),
        pytest.param(THRICE, Raised(error), RETRY_NOW, 0, None, "no", id="raised, attempts left"),
        pytest.param(LAST, Raised(error), FAIL, 0, None, "no", id="raised, the last attempt"),
        pytest.param(PATIENT, Raised(error), BACK_OFF, 500, None, "no", id="raised, with backoff"),
        pytest.param(PICKY, Raised(error), RETRY_NOW, 0, None, "no", id="raised, no rule for it"),
        pytest.param(PICKY, Raised(KeyError("k")), FAIL, 0, None, "'k'", id="a rule says no"),
        pytest.param(
            THRICE, Raised(UnrecoverableError("x")), FAIL, 0, None, "x", id="unrecoverable"
        ),
        pytest.param(ONCE, Raised(KeyError()), FAIL, 0, None, "KeyError", id="raised, no words"),
        pytest.param(ONCE, Raised(SystemExit(3)), FAIL, 0, None, "3", id="exited"),
        pytest.param(THRICE, Skipped("stalled"), FAIL, 0, None, "stalled", id="not run"),
        pytest.param(THRICE, Interrupted(), RELEASE, 0, None, None, id="interrupted"),
        pytest.param(THRICE, Unstarted(), RETURN_UNSTARTED, 0, None, None, id="never begun"),
        pytest.param(THRICE, Raised(error, 70), BACK_OFF, 70, None, "no", id="a strategy waits"),
        pytest.param(
            THRICE, Raised(error, 0), RETRY_NOW, 0, None, "no", id="a strategy wants it now"
        ),
        pytest.param(PATIENT, Raised(error, False), FAIL, 0, None, "no", id="a strategy says no"),
        pytest.param(
            LAST, Raised(error, 70), FAIL, 0, None, "no", id="a strategy, but no try left"
        ),
    ],
)
def test_every_result_means_one_move(
    job: Job, result: Result, move: Move, delay: int, value: str | None, reason: str | None
) -> None:
    verdict = decide(job, result, lambda: 0.0)
    assert (verdict.job, verdict.token) == (7, 11)
    assert (verdict.move, verdict.delay) == (move, delay)
    assert (verdict.value, verdict.reason) == (value, reason)


def test_a_value_that_cannot_be_stored_is_a_failed_attempt() -> None:
    verdict = decide(THRICE, Returned(object()), lambda: 0.0)
    assert verdict.move is RETRY_NOW
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


def test_a_failure_counts_its_attempt() -> None:
    assert decide(THRICE, Raised(error), lambda: 0.0).attempts_made == 1
    assert decide(LAST, Raised(error), lambda: 0.0).attempts_made == 3


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (Raised(error), ERROR),
        (Raised(JobTimedOut("too slow")), TIMED_OUT),
        (Skipped(STALLED_TOO_OFTEN), STALLED),
        (Skipped(STARTED_TOO_OFTEN), ERROR),
    ],
)
def test_a_failure_is_of_one_sort(result: Result, outcome: str) -> None:
    assert decide(ONCE, result, lambda: 0.0).outcome == outcome


@pytest.mark.parametrize("result", [Returned(1), Raised(error), Interrupted()], ids=repr)
def test_a_run_that_began_after_its_claim_was_recorded_says_so(result: Result) -> None:
    assert decide(attempt(prefetched=True, custom_id="x"), result, lambda: 0.0).prefetched
    assert decide(attempt(prefetched=True, custom_id="x"), result, lambda: 0.0).public_id == "x"
    assert decide(attempt(), result, lambda: 0.0).public_id == 7


def test_no_stack_is_stored_of_a_job_that_wants_none() -> None:
    silent = attempt(options={"stack_trace_limit": 0})
    assert decide(silent, Raised(error), lambda: 0.0).stack is None
    assert decide(ONCE, Raised(error), lambda: 0.0).stack is not None


def test_a_result_of_more_than_a_mebibyte_is_a_failed_attempt() -> None:
    assert decide(ONCE, Returned("x" * (MAX_RESULT_LENGTH - 2)), lambda: 0.0).move is COMPLETE
    verdict = decide(ONCE, Returned("x" * (MAX_RESULT_LENGTH - 1)), lambda: 0.0)
    assert verdict.move is FAIL
    assert str(MAX_RESULT_LENGTH) in str(verdict.reason)


# --- what may stay -------------------------------------------------------------------------------

RULES = RetentionDefaults(keep_completed=Retention(5), keep_failed=Retention(6))


def test_a_worker_says_what_stays_of_jobs_that_do_not_say_themselves() -> None:
    assert decide(ONCE, Returned(1), lambda: 0.0, RULES).retention == Retention(5)
    assert decide(ONCE, Raised(error), lambda: 0.0, RULES).retention == Retention(6)
    assert decide(ONCE, Skipped("x"), lambda: 0.0, RULES).retention == Retention(6)
    assert decide(ONCE, Returned(1), lambda: 0.0).retention is None


def test_the_word_of_the_job_beats_its_workers() -> None:
    job = attempt(options={"remove_on_complete": True, "remove_on_fail": False})
    assert decide(job, Returned(1), lambda: 0.0, RULES).retention == Retention(0)
    assert decide(job, Raised(error), lambda: 0.0, RULES).retention is None


def test_a_job_that_is_tried_again_removes_nothing() -> None:
    job = attempt(attempts=2, options={"remove_on_fail": True})
    assert decide(job, Raised(error), lambda: 0.0, RULES).retention is None


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
    assert len(stored) < MAX_REASON_LENGTH + 100
    assert stored.startswith("<xxx")
    assert stored.endswith("xxx>")
    assert f"[… {10**6 + 2 - MAX_REASON_LENGTH} characters left out …]" in stored


def test_text_of_just_the_greatest_length_is_kept_whole() -> None:
    assert storable("x" * MAX_REASON_LENGTH) == "x" * MAX_REASON_LENGTH
