"""How long to wait before the next attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bullite.core.backoff import MAX_DELAY, TYPES, delay_after


def never() -> float:
    raise AssertionError("there is nothing random about this")


def delays(backoff: Mapping[str, Any], times: int = 4) -> list[int | None]:
    return [delay_after(backoff, n, None, never) for n in range(1, times + 1)]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        ({"type": "fixed", "delay": 100}, [100, 100, 100, 100]),
        ({"type": "linear", "delay": 100}, [100, 200, 300, 400]),
        ({"type": "exponential", "delay": 100}, [100, 200, 400, 800]),
        ({"type": "polynomial", "delay": 100}, [100, 400, 900, 1600]),
        ({"type": "polynomial", "delay": 100, "exponent": 3}, [100, 800, 2700, 6400]),
        ({"type": "polynomial", "delay": 100, "exponent": 0.5}, [100, 141, 173, 200]),
        ({"type": "exponential", "delay": 100, "max_delay": 300}, [100, 200, 300, 300]),
        ({"type": "fixed", "delay": 0}, [0, 0, 0, 0]),
    ],
)
def test_delays_grow_as_their_type_says(backoff: Mapping[str, Any], expected: list[int]) -> None:
    assert delays(backoff) == expected


def test_without_backoff_the_next_attempt_comes_at_once() -> None:
    assert delay_after(None, 1, ValueError(), never) == 0


@pytest.mark.parametrize(
    ("jitter", "chance", "expected"),
    [(1, 0.0, 0), (1, 0.5, 500), (0.2, 0.0, 800), (0.2, 0.5, 900), (0.2, 1.0, 1000)],
)
def test_jitter_takes_away_a_random_part(jitter: float, chance: float, expected: int) -> None:
    backoff = {"type": "fixed", "delay": 1000, "jitter": jitter}
    assert delay_after(backoff, 1, None, lambda: chance) == expected


def test_jitter_applies_to_the_capped_delay() -> None:
    backoff = {"type": "exponential", "delay": 1000, "max_delay": 2000, "jitter": 1}
    assert delay_after(backoff, 30, None, lambda: 0.5) == 1000


@pytest.mark.parametrize("kind", TYPES)
@given(
    attempts=st.integers(1, 10**9),
    delay=st.integers(0, MAX_DELAY),
    exponent=st.floats(0, 100),
    jitter=st.floats(0, 1),
    chance=st.floats(0, 1, exclude_max=True),
)
@example(attempts=10**9, delay=MAX_DELAY, exponent=100.0, jitter=1.0, chance=0.999)
@example(attempts=1025, delay=1, exponent=0.0, jitter=0.0, chance=0.0)
def test_no_delay_is_ever_too_long(
    kind: str, attempts: int, delay: int, exponent: float, jitter: float, chance: float
) -> None:
    backoff = {"type": kind, "delay": delay, "exponent": exponent, "jitter": jitter}
    computed = delay_after(backoff, attempts, None, lambda: chance)
    assert isinstance(computed, int)
    assert 0 <= computed <= MAX_DELAY
    capped = delay_after(backoff | {"max_delay": 1000}, attempts, None, lambda: chance)
    assert capped is not None
    assert 0 <= capped <= 1000


# --- rules by error ------------------------------------------------------------------------------

RULES = [
    {"on": "ConnectionResetError", "type": "fixed", "delay": 1},
    {"on": "ConnectionError", "type": "fixed", "delay": 2},
    {"on": "KeyError", "retry": False},
    {"on": "OSError", "type": "linear", "delay": 4},
]


@pytest.mark.parametrize(
    ("error", "delay"),
    [
        pytest.param(ConnectionResetError(), 1, id="its own class"),
        pytest.param(BrokenPipeError(), 2, id="a base"),
        pytest.param(FileNotFoundError(), 4, id="a base further up"),
        pytest.param(KeyError(), None, id="not worth another try"),
        pytest.param(ValueError(), 0, id="no rule: at once"),
        pytest.param(None, 0, id="no error"),
    ],
)
def test_the_first_rule_that_matches_decides(
    error: BaseException | None, delay: int | None
) -> None:
    assert delay_after(RULES, 1, error, never) == delay


def test_a_rule_without_a_class_matches_everything() -> None:
    rules = [{"on": "KeyError", "type": "fixed", "delay": 1}, {"type": "fixed", "delay": 2}]
    assert delay_after(rules, 1, ValueError(), never) == 2
    assert delay_after(rules, 1, KeyError(), never) == 1


def test_a_single_rule_may_refuse_to_try_again() -> None:
    assert delay_after({"retry": False}, 1, ValueError(), never) is None


def test_a_single_rule_for_one_error_leaves_the_others_alone() -> None:
    rule = {"on": "KeyError", "retry": False}
    assert delay_after(rule, 1, KeyError(), never) is None
    assert delay_after(rule, 1, ValueError(), never) == 0
