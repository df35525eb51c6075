"""Regular expressions of users: those that can take too long are found before they are used."""

from __future__ import annotations

import pytest

from bullite.commands.redaction_patterns import problem_of


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(x+x+)+y",
        "(a|aa)+$",
        "(a|a)*b",
        r"(\w+\s?)*$",
        r"password=(\w+\s?)*;",
        r"(?:[\w-]+\.?)+@example",
        "(?i)(KEY|[a-z])*!",
        "([0-9]+)*x",
        r"(\d|[0-9]{1,2})+z",
        "(.*)*x",
        "(?s)(.|\n)*z",
        r"token: ((é+)+)$",
        "(?=(b+)+c)",
        r"(?:a?){40}a{40}",
        r"\w*\w*\w*\w*!",
        r"(?P<word>[a-f]+){10,}g",
    ],
)
def test_a_pattern_that_explodes_is_refused(pattern: str) -> None:
    assert "more than 2 s" in (problem_of(pattern) or "")


@pytest.mark.parametrize(
    "pattern",
    [
        "hunter2",
        r"password=\S+",
        r"[\w.+-]+@[\w.-]+",
        r"(?i)(api[_-]?key|secret|token)\s*[:=]\s*['\"]?[\w./+=-]{8,}",
        r"\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b",
        r"AKIA[0-9A-Z]{16}",
        r"eyJ[\w-]+\.[\w-]+\.[\w-]+",
        r"(?s)-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----",
        r"(?<=Bearer )\S+",
        "a++b",
        "(?>a+)b",
        "^$",
        "",
        r"(\w)\1",
        "(a)?(?(1)b|c)",
    ],
)
def test_a_pattern_for_usual_secrets_can_be_used(pattern: str) -> None:
    assert problem_of(pattern) is None


def test_a_text_that_is_no_pattern_is_told_of() -> None:
    assert problem_of("(") == "missing ), unterminated subpattern at position 0"


def test_a_pattern_nested_too_deeply_is_told_of() -> None:
    assert problem_of("(" * 5_000 + "a" + ")" * 5_000) is not None


def test_a_pattern_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problem_of("measured once") is None
    monkeypatch.setattr("sys.executable", "/nowhere")
    assert problem_of("measured once") is None


def test_a_pattern_that_cannot_be_measured_is_no_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(OSError):
        problem_of("cannot be measured")
