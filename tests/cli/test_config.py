"""`queuectl config`: what holds for commands and their workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .program import run


def value_of(location: str, key: str, *more: str) -> dict[str, Any]:
    told: dict[str, Any] = run("config", "get", key, "--json", *more, db=location).json
    return told


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("max_retries", "5", 5),
        ("backoff_base", "1.5", 1.5),
        ("backoff_base", "3", 3),
        ("max_retries", "0", 0),
        ("retry_delay_type", "linear", "linear"),
        ("fixed_retry_delay", "60", 60),
    ],
)
def test_the_document_s_examples_work(location: str, key: str, text: str, value: Any) -> None:
    said = run("config", "set", key, text, db=location)
    assert (said.code, said.out) == (0, f"{key} = {text}\n")
    told = value_of(location, key)
    assert (told["value"], told["origin"]) == (value, "database")


def test_every_key_is_listed_with_where_it_comes_from(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("config", "set", "max_retries", "5", db=location)
    monkeypatch.setenv("QUEUECTL_KILL_GRACE", "7")
    rows = [line.split("\t") for line in run("config", "list", db=location).lines]
    told = {row[0]: row[1:3] for row in rows}
    assert told["max_retries"] == ["5", "database"]
    assert told["kill_grace"] == ["7", "environment"]
    assert told["backoff_base"] == ["2", "default"]
    listed = run("config", "list", "--json", db=location).json
    assert {one["key"]: one["origin"] for one in listed}["kill_grace"] == "environment"


def test_a_value_that_the_environment_beats_is_told(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECTL_MAX_RETRIES", "8")
    said = run("config", "set", "max_retries", "5", db=location)
    assert "QUEUECTL_MAX_RETRIES" in said.err
    assert value_of(location, "max_retries")["value"] == 8


def test_secrets_are_shown_only_when_asked_for(location: str) -> None:
    said = run("config", "set", "smtp_password", "hunter2", db=location)
    assert "hunter2" not in said.out + said.err
    for args in (["get", "smtp_password"], ["list"]):
        assert "hunter2" not in run("config", *args, db=location).out
        assert "hunter2" not in run("config", *args, "--json", db=location).out
        assert "***" in run("config", *args, db=location).out
        assert "hunter2" in run("config", *args, "--reveal", db=location).out
    assert value_of(location, "smtp_password", "--reveal")["value"] == "hunter2"
    assert value_of(location, "webhook_secret")["value"] is None


def test_a_bad_secret_is_not_repeated(location: str) -> None:
    said = run("config", "set", "smtp_password", "hunter\n2", db=location)
    assert said.code == 2
    assert "hunter" not in said.err


def test_a_bad_secret_of_the_environment_is_not_repeated(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECTL_SMTP_PASSWORD", "hunter2\n")
    said = run("enqueue", "x", db=location)
    assert said.code == 2
    assert "QUEUECTL_SMTP_PASSWORD" in said.err
    assert "hunter2" not in said.err


def test_a_variable_that_means_nothing_is_shown_and_the_rest_with_it(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("config", "set", "kill_grace", "7", db=location)
    monkeypatch.setenv("QUEUECTL_MAX_RETRIES", "many")
    problem = "QUEUECTL_MAX_RETRIES must be a whole number from 0 to 1000000, not 'many'"
    said = run("config", "list", db=location)
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in said.lines}
    assert said.code == 0
    assert rows["max_retries"] == ["-", "environment", problem]
    assert rows["kill_grace"][:2] == ["7", "database"]
    listed = {one["key"]: one for one in run("config", "list", "--json", db=location).json}
    assert (listed["max_retries"]["value"], listed["max_retries"]["problem"]) == (None, problem)
    assert listed["kill_grace"]["problem"] is None
    assert value_of(location, "kill_grace")["value"] == 7
    refused = run("config", "get", "max_retries", db=location)
    assert (refused.code, refused.err) == (2, f"queuectl: {problem}\n")


def test_values_can_be_looked_at_before_there_is_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECTL_KILL_GRACE", "7")
    db = str(tmp_path / "jobs.db")
    assert value_of(db, "kill_grace")["origin"] == "environment"
    assert run("config", "get", "max_retries", db=db).out == "3\n"
    assert run("config", "list", db=db).code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "text", "value"), [("fixed_retry_delay", "5m", 300), ("max_output_size", "1M", 2**20)]
)
def test_times_and_sizes_may_have_units(location: str, key: str, text: str, value: int) -> None:
    assert run("config", "set", key, text, db=location).out == f"{key} = {value}\n"
    assert run("config", "get", key, db=location).out == f"{value}\n"


def test_a_negative_number_is_told_what_it_must_be(location: str) -> None:
    said = run("config", "set", "max_retries", "-1", db=location)
    assert said.code == 2
    assert "max_retries must be a whole number from 0 to 1000000, not '-1'" in said.err


@pytest.mark.parametrize("typed", ["hunter2", "hunter2\n", "hunter2\r\n"])
def test_a_value_may_be_read_from_standard_input(location: str, typed: str) -> None:
    said = run("config", "set", "smtp_password", "-", db=location, stdin=typed)
    assert (said.code, said.out) == (0, "smtp_password = ***\n")
    assert value_of(location, "smtp_password", "--reveal")["value"] == "hunter2"


def test_several_lines_of_standard_input_are_several_values(location: str) -> None:
    run("config", "set", "redact_output", "-", db=location, stdin="a+\nb+\n")
    assert value_of(location, "redact_output")["value"] == ["a+", "b+"]


def test_standard_input_that_is_no_text_is_refused_and_not_repeated(location: str) -> None:
    said = run("config", "set", "smtp_password", "-", db=location, stdin=b"hunter2\xff")
    assert (said.code, said.out) == (2, "")
    assert "hunter2" not in said.err


def test_a_password_that_would_be_sent_in_the_clear_is_told_of(location: str) -> None:
    run("config", "set", "smtp_host", "mail.example.com", db=location)
    said = run("config", "set", "smtp_user", "me", db=location)
    assert said.code == 0
    assert "smtp_security" in said.err
    assert "smtp_security" not in run("config", "set", "smtp_security", "tls", db=location).err
    assert "smtp_security" in run("config", "unset", "smtp_security", db=location).err


def test_several_patterns_are_lines_or_arguments(location: str) -> None:
    run("config", "set", "redact_output", "token=\\S+", "key=.*", db=location)
    assert value_of(location, "redact_output")["value"] == ["token=\\S+", "key=.*"]
    assert run("config", "get", "redact_output", db=location).lines == ["token=\\S+", "key=.*"]
    run("config", "set", "redact_output", "a\nb", db=location)
    assert value_of(location, "redact_output")["value"] == ["a", "b"]


def test_what_is_unset_has_its_default_again(location: str) -> None:
    run("config", "set", "max_retries", "5", db=location)
    assert run("config", "unset", "max_retries", db=location).out == "max_retries = 3\n"
    assert value_of(location, "max_retries")["origin"] == "default"
    said = run("config", "unset", "max_retries", db=location)
    assert (said.code, said.out) == (0, "max_retries was not set; it is 3\n")


def test_jobs_are_made_with_what_holds_when_they_are(location: str) -> None:
    run("config", "set", "max_retries", "0", db=location)
    assert run("enqueue", "x", "--json", db=location).json["max_retries"] == 0


BAD = {
    "unknown": ["no_such", "1"],
    "text": ["max_retries", "many"],
    "negative": ["max_retries", "--", "-1"],
    "fraction": ["max_retries", "1.5"],
    "too small": ["backoff_base", "0.5"],
    "no number": ["backoff_base", "nan"],
    "word": ["retry_delay_type", "odd"],
    "pattern": ["redact_output", "("],
    "empty": ["smtp_host", ""],
    "two": ["max_retries", "1", "2"],
    "none": ["max_retries"],
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_values_change_nothing(tmp_path: Path, bad: list[str]) -> None:
    said = run("config", "set", *bad, db=str(tmp_path / "jobs.db"))
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_is_told_with_those_there_are(location: str) -> None:
    run("config", "set", "max_retries", "5", db=location)
    for what in ("get", "unset"):
        said = run("config", what, "odd", db=location)
        assert said.code == 2
        assert "max_retries, retry_delay_type" in said.err
