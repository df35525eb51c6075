"""What jobs hold that not everybody should read is masked wherever they are shown."""

from __future__ import annotations

import pytest

from bullite.cli.masking import masked_data, masked_given, masked_text
from tests.cli.program import run, run_well

SECRET = "hunter2"
COMMAND = [f"echo https://me:{SECRET}@example.com/x", "--env", f"TOKEN={SECRET}"]
CALL = ["--url", "https://example.com", "--header", f"Authorization: Bearer {SECRET}"]


def enqueue(location: str, *arguments: str) -> str:
    return run_well("enqueue", *arguments, "--json", db=location).json["id"]


@pytest.mark.parametrize("arguments", [COMMAND, CALL])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_secrets_of_a_job_are_masked_by_every_verb_that_shows_it(
    location: str, arguments: list[str], form: list[str]
) -> None:
    added = run_well("enqueue", *arguments, "--json", db=location)
    job = added.json["id"]
    verbs = ["list", f"show {job}", f"why {job}", f"logs {job}", f"output {job}", f"cancel {job}"]
    for verb in (*verbs, "dlq list", "events", "status", "doctor", f"wait {job}", f"retry {job}"):
        said = run(*verb.split(), *form, db=location)
        assert SECRET not in said.out + said.err, verb
    assert SECRET not in added.out


@pytest.mark.parametrize("verb", ["show JOB", "show JOB --json", "list --json"])
def test_secrets_of_a_job_are_shown_if_asked_for(location: str, verb: str) -> None:
    job = enqueue(location, *CALL)
    words = [job if word == "JOB" else word for word in verb.split()]
    assert f"Bearer {SECRET}" in run_well(*words, "--show-secrets", db=location).out
    assert "Authorization" in run_well(*words, db=location).out


def test_a_login_in_a_listed_command_is_shown_if_asked_for(location: str) -> None:
    enqueue(location, *COMMAND)
    assert "https://***@example.com/x" in run_well("list", db=location).out
    assert f"//me:{SECRET}@" in run_well("list", "--show-secrets", db=location).out


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_secrets_of_templates_and_schedules_are_masked_unless_asked_for(
    location: str, form: list[str]
) -> None:
    made = [
        run_well("template", "create", "t", "--command", *COMMAND, db=location),
        run_well("schedule", *COMMAND, "--every", "1h", "--name", "s", *form, db=location),
    ]
    for verb in ("template list", "template show t", "schedule list"):
        made.append(run_well(*verb.split(), *form, db=location))
        asked = run_well(*verb.split(), *form, "--show-secrets", db=location)
        assert SECRET in asked.out, verb
    assert [said.out for said in made if SECRET in said.out] == []


def test_a_template_with_masked_secrets_still_gives_them_to_jobs(location: str) -> None:
    run_well("template", "create", "t", "--command", "true", *COMMAND[1:], db=location)
    job = run_well("enqueue", "--template", "t", db=location).out.strip()
    shown = run_well("show", job, "--json", "--show-secrets", db=location)
    assert shown.json["data"]["env"] == {"TOKEN": SECRET}


@pytest.mark.parametrize(
    "arguments",
    [
        ["enqueue", "x", "--env", SECRET],
        ["enqueue", "x", "--env", f"={SECRET}"],
        ["enqueue", "--url", "https://example.com", "--header", SECRET],
        ["enqueue", "--url", "https://example.com", "--header", f"A: {SECRET}\x07"],
        ["enqueue", "--url", f"https://me:{SECRET}@example.com"],
    ],
)
def test_complaints_do_not_repeat_secrets(location: str, arguments: list[str]) -> None:
    said = run(*arguments, db=location)
    assert said.code == 2
    assert SECRET not in said.err


def test_a_bad_line_of_a_batch_does_not_repeat_secrets(location: str) -> None:
    line = f'{{"command": "x", "env": {{"A": ["{SECRET}"]}}}}'
    said = run("enqueue", "--file", "-", db=location, stdin=line)
    assert said.code == 2
    assert SECRET not in said.err


def test_data_of_jobs_of_an_application_is_not_masked() -> None:
    data = {"env": {"A": "1"}, "headers": {"B": "2"}, "url": "https://a:b@c"}
    assert masked_data("deploy", data) == data


def test_masked_data_keeps_names_and_everything_else() -> None:
    data = {"argv": ["a", "ftp://u:p@h"], "env": {"A": "1"}, "timeout": 5, "no_output": True}
    assert masked_data("shell", data) == {
        "argv": ["a", "ftp://***@h"],
        "env": {"A": "***"},
        "timeout": 5,
        "no_output": True,
    }


def test_masked_given_keeps_names() -> None:
    given = {"env": ["A=1", "B="], "header": "C: 2", "tag": ["t"]}
    assert masked_given(given) == {"env": ["A=***", "B=***"], "header": ["C: ***"], "tag": ["t"]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("POST https://u:p@h/x?a=b@c", "POST https://***@h/x?a=b@c"),
        ("git clone https://token@h/x", "git clone https://***@h/x"),
        ("https://u:p@ss@h", "https://***@h"),
        ("mail me@example.com", "mail me@example.com"),
        ("https://h/me@x", "https://h/me@x"),
    ],
)
def test_masked_text_hides_logins_in_urls(text: str, shown: str) -> None:
    assert masked_text(text) == shown
