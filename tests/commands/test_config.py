"""What can be configured: what values may be, where they come from, the wait before a retry."""

from __future__ import annotations

from typing import Any

import pytest

from bullite import Queue
from bullite.client.key_values import set_value
from bullite.commands.config import (
    KIND,
    MAX_DELAY,
    SETTINGS,
    configuration,
    configuration_without_database,
    effective,
    read_value,
    retry_delay,
    usable_patterns,
)
from bullite.errors import InvalidOption

DEFAULTS = {key: setting.default for key, setting in SETTINGS.items()}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in SETTINGS:
        monkeypatch.delenv(f"QUEUECTL_{key.upper()}", raising=False)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("max_retries", "0", 0),
        ("max_retries", "+5", 5),
        ("max_retries", "1000000", 1_000_000),
        ("retry_delay_type", "exponential", "exponential"),
        ("retry_delay_type", "linear", "linear"),
        ("retry_delay_type", "fixed", "fixed"),
        ("backoff_base", "1", 1),
        ("backoff_base", "1.5", 1.5),
        ("backoff_base", "3.0", 3),
        ("backoff_base", "1e3", 1_000),
        ("fixed_retry_delay", "0", 0),
        ("fixed_retry_delay", "0.25", 0.25),
        ("fixed_retry_delay", "5m", 300),
        ("fixed_retry_delay", "250ms", 0.25),
        ("max_output_size", "0", 0),
        ("max_output_size", "100000000", 100_000_000),
        ("max_output_size", "1M", 1_048_576),
        ("max_output_size", "1MB", 1_048_576),
        ("max_output_size", "20k", 20_480),
        ("redact_output", "", []),
        ("redact_output", "a+\n\npass.*", ["a+", "pass.*"]),
        ("kill_grace", "0", 0),
        ("kill_grace", "2.5", 2.5),
        ("kill_grace", "10s", 10),
        ("smtp_host", "mail.example.com", "mail.example.com"),
        ("smtp_port", "65535", 65_535),
        ("smtp_security", "none", "none"),
        ("smtp_security", "starttls", "starttls"),
        ("smtp_security", "tls", "tls"),
        ("smtp_user", "me", "me"),
        ("smtp_password", "pass word", "pass word"),
        ("smtp_sender", "me@example.com", "me@example.com"),
        ("webhook_secret", "ßecret", "ßecret"),
        ("allow_private_webhooks", "true", True),
        ("allow_private_webhooks", "ON", True),
        ("allow_private_webhooks", "no", False),
        ("allow_private_webhooks", "0", False),
    ],
)
def test_a_text_means_a_value(key: str, text: str, value: Any) -> None:
    found = read_value(key, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "texts", "wanted"),
    [
        (
            "max_retries",
            ["", "-1", "1000001", "1.5", "many", " 1", "1_000", "9" * 5_000],
            "a whole number from 0 to 1000000",
        ),
        ("retry_delay_type", ["", "Fixed", "random"], "one of exponential, linear, fixed"),
        ("backoff_base", ["", "0", "0.99", "-2", "two", "nan", "inf", "1e400"], "a number of at"),
        ("fixed_retry_delay", ["", "-1", "-1m", "5y", "nan", "-inf"], "seconds or a time"),
        ("max_output_size", ["", "-1", "100000001", "1G", "1T", "1e3"], "bytes or a size"),
        ("redact_output", ["(", "ok\n[", "*"], "regular expressions, one a line"),
        ("kill_grace", ["", "-0.1", "soon"], "seconds or a time such as 30s or 5m"),
        ("smtp_host", ["", "a\nb"], "text without control characters"),
        ("smtp_port", ["", "0", "65536", "smtp"], "a whole number from 1 to 65535"),
        ("smtp_security", ["", "ssl"], "one of none, starttls, tls"),
        ("smtp_user", ["", "a\x00"], "text without control characters"),
        ("smtp_password", ["", "a\r"], "text without control characters"),
        ("smtp_sender", ["", "a\x1b"], "text without control characters"),
        ("webhook_secret", ["", "a\n"], "text without control characters"),
        ("allow_private_webhooks", ["", "maybe", "2"], "true or false"),
    ],
)
def test_a_text_that_means_nothing_is_refused_with_what_it_must_be(
    key: str, texts: list[str], wanted: str
) -> None:
    for text in texts:
        with pytest.raises(InvalidOption) as refused:
            read_value(key, text)
        assert str(refused.value).startswith(f"{key} must be {wanted}")


def test_every_setting_is_tested() -> None:
    here = globals()
    for test in (
        "test_a_text_means_a_value",
        "test_a_text_that_means_nothing_is_refused_with_what_it_must_be",
    ):
        [mark] = here[test].pytestmark
        assert {case[0] for case in mark.args[1]} == set(SETTINGS)


@pytest.mark.parametrize("key", [key for key, setting in SETTINGS.items() if setting.is_secret])
def test_a_secret_that_is_refused_is_not_repeated(key: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        read_value(key, "hunter2\n")
    assert "hunter2" not in str(refused.value)
    problem = effective({}, {f"QUEUECTL_{key.upper()}": "hunter2\n"})[key].problem
    assert problem is not None
    assert "hunter2" not in problem


def test_an_unknown_key_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidOption) as refused:
        read_value("max_retry", "3")
    assert str(refused.value).startswith("unknown configuration key 'max_retry'; the keys are: max")


def test_every_default_is_what_its_own_text_means() -> None:
    for key, setting in SETTINGS.items():
        if setting.default not in (None, []):
            assert read_value(key, str(setting.default)) == setting.default


def test_secrets_are_known_as_such() -> None:
    secret = {key for key, setting in SETTINGS.items() if setting.is_secret}
    assert secret == {"smtp_password", "webhook_secret"}


# --- where values come from ----------------------------------------------------------------------


def test_the_environment_beats_what_is_kept_which_beats_the_default() -> None:
    stored = {"max_retries": 7, "backoff_base": 4}
    found = effective(stored, {"QUEUECTL_MAX_RETRIES": "9", "MAX_RETRIES": "1"})
    assert (found["max_retries"].value, found["max_retries"].origin) == (9, "environment")
    assert (found["backoff_base"].value, found["backoff_base"].origin) == (4, "database")
    assert (found["kill_grace"].value, found["kill_grace"].origin) == (5, "default")


def test_without_anything_said_everything_is_its_default() -> None:
    found = effective({}, {})
    assert {key: value.value for key, value in found.items()} == DEFAULTS
    assert {value.origin for value in found.values()} == {"default"}


def test_a_variable_that_means_nothing_is_refused_by_its_own_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUEUECTL_KILL_GRACE", "soon")
    with pytest.raises(InvalidOption, match=r"^QUEUECTL_KILL_GRACE must be seconds or a time"):
        configuration_without_database()


def test_a_variable_that_means_nothing_leaves_the_other_values_readable() -> None:
    found = effective({"max_retries": 7}, {"QUEUECTL_KILL_GRACE": "soon"})
    assert (found["max_retries"].value, found["max_retries"].problem) == (7, None)
    assert (found["kill_grace"].value, found["kill_grace"].origin) == (None, "environment")


def test_what_is_kept_under_keys_that_nobody_knows_is_passed_over() -> None:
    assert set(effective({"of a later version": 1}, {})) == set(SETTINGS)


async def test_the_configuration_is_read_anew_each_time(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await configuration(queue.store) == DEFAULTS
    await set_value(queue.store, KIND, "backoff_base", 3)
    assert (await configuration(queue.store))["backoff_base"] == 3
    monkeypatch.setenv("QUEUECTL_BACKOFF_BASE", "4")
    assert (await configuration(queue.store))["backoff_base"] == 4
    monkeypatch.delenv("QUEUECTL_BACKOFF_BASE")
    await set_value(queue.store, KIND, "backoff_base", None)
    assert await configuration(queue.store) == DEFAULTS


# --- the wait before a retry ---------------------------------------------------------------------


def delays(**config: Any) -> list[int]:
    return [retry_delay({**DEFAULTS, **config}, made) for made in (1, 2, 3)]


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({}, [2_000, 4_000, 8_000]),
        ({"backoff_base": 3}, [3_000, 9_000, 27_000]),
        ({"backoff_base": 1}, [1_000, 1_000, 1_000]),
        ({"backoff_base": 1.5}, [1_500, 2_250, 3_375]),
        ({"retry_delay_type": "linear"}, [2_000, 4_000, 6_000]),
        ({"retry_delay_type": "linear", "backoff_base": 1.5}, [1_500, 3_000, 4_500]),
        ({"retry_delay_type": "fixed"}, [60_000, 60_000, 60_000]),
        ({"retry_delay_type": "fixed", "fixed_retry_delay": 0.25}, [250, 250, 250]),
        ({"retry_delay_type": "fixed", "fixed_retry_delay": 0}, [0, 0, 0]),
    ],
)
def test_the_wait_grows_as_configured(config: dict[str, Any], wanted: list[int]) -> None:
    assert delays(**config) == wanted


@pytest.mark.parametrize("base", [2, 1.0001e8, 999_999.5, 1_000_000_000])
@pytest.mark.parametrize("made", [30, 64, 65, 1_000, 1_000_000])
@pytest.mark.parametrize("kind", ["exponential", "linear"])
def test_no_wait_is_longer_than_a_year(kind: str, base: float, made: int) -> None:
    config = {**DEFAULTS, "retry_delay_type": kind, "backoff_base": base}
    assert 0 < retry_delay(config, made) <= MAX_DELAY * 1000


def test_the_longest_fixed_wait_is_a_year_too() -> None:
    config = {"retry_delay_type": "fixed", "fixed_retry_delay": 1_000_000_000}
    assert delays(**config) == [MAX_DELAY * 1000] * 3


def test_a_pattern_that_explodes_is_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match=r"redact_output must be .*\(a\+\)\+\$.*more than 2 s"):
        read_value("redact_output", "fine\n(a+)+$")


def test_usable_patterns_refuses_a_stored_pattern_that_explodes() -> None:
    with pytest.raises(ValueError, match="more than 2 s"):
        usable_patterns(["fine", "(a+)+$"])
