"""`queuectl run`: a program and its arguments, which no shell looks at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import run, run_well
from tests.cli.running_worker import working

ARGUMENTS = ["a b", "it's", '"quoted"', "$HOME", "`id`", "*", "", "-x", "--flag=1", "ü", "a\\b"]


def test_arguments_come_as_they_were_given(location: str) -> None:
    with working(location):
        said = run_well("run", "--wait", "--", "printf", "<%s>\\n", *ARGUMENTS, db=location)
    assert said.out == "".join(f"<{argument}>\n" for argument in ARGUMENTS)


def test_what_is_waited_for_is_escaped_unless_raw(location: str) -> None:
    with working(location):
        said = run_well("run", "--wait", "--", "printf", r"a\033b", db=location)
        raw = run_well("run", "--wait", "--raw", "--", "printf", r"a\033b", db=location)
    assert (said.out, raw.out) == ("a\\x1bb", "a\x1bb")


def test_options_before_the_dashes_are_the_jobs_and_after_them_the_programs(
    location: str,
) -> None:
    said = run_well("run", "--priority", 5, "--json", "--", "ls", "--priority", "9", db=location)
    assert said.json["priority"] == 5
    assert said.json["data"] == {"argv": ["ls", "--priority", "9"]}
    assert said.json["command"] == "ls --priority 9"


def test_only_the_id_is_written_to_standard_output(location: str) -> None:
    said = run_well("run", "--", "true", db=location)
    assert said.out.strip().isdecimal()
    assert said.err == "added to default\n"


def test_what_follows_the_program_is_its_own_without_dashes_too(location: str) -> None:
    said = run_well("run", "--json", "ls", "-l", "--json", "--", "x", db=location)
    assert said.json["data"] == {"argv": ["ls", "-l", "--json", "--", "x"]}


def test_it_is_shown_as_a_shell_would_have_it(location: str) -> None:
    said = run_well("run", "--json", "--", "echo", "a b", "$HOME", db=location)
    assert said.json["command"] == "echo 'a b' '$HOME'"


def test_a_program_that_is_not_there_fails_at_once(location: str) -> None:
    with working(location):
        said = run("run", "--wait", "--", "no-such-program-anywhere", db=location)
    assert said.code == 3
    assert "could not be started" in said.err


@pytest.mark.parametrize("arguments", [[], ["--"], ["--", ""], ["--priority", "x", "--", "ls"]])
def test_without_a_program_nothing_is_made(tmp_path: Path, arguments: list[str]) -> None:
    said = run("run", *arguments, db=str(tmp_path / "jobs.db"))
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_option_before_the_dashes_is_refused(tmp_path: Path) -> None:
    said = run("run", "--prioritee", "5", "--", "ls", db=str(tmp_path / "jobs.db"))
    assert said.code == 2
    assert "--prioritee" in said.err
    assert list(tmp_path.iterdir()) == []
