"""`queuectl template`: options kept under a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from .program import run

BACKUP = ("template", "create", "backup", "--command", "backup.sh", "--priority", "10")


def test_the_document_s_example_works(location: str) -> None:
    assert run(*BACKUP, db=location).out == "created the template backup\n"
    job = run("enqueue", "--template", "backup", "--json", db=location).json
    assert (job["command"], job["priority"]) == ("backup.sh", 10)


def test_an_option_beats_the_template_which_beats_the_configuration(location: str) -> None:
    run("config", "set", "max_retries", "9", db=location)
    run(*BACKUP, "--max-retries", "4", db=location)
    job = run("enqueue", "--template", "backup", "--json", db=location).json
    assert (job["max_retries"], job["priority"]) == (4, 10)
    own = ["--max-retries", "0", "--priority", "0"]
    job = run("enqueue", "--template", "backup", *own, "--json", db=location).json
    assert (job["max_retries"], job["priority"]) == (0, 0)
    run("template", "create", "plain", "--command", "x", db=location)
    assert run("enqueue", "--template", "plain", "--json", db=location).json["max_retries"] == 9


def test_templates_are_listed_and_shown(location: str) -> None:
    run(*BACKUP, "--env", "A=1", "--env", "B=2", "--no-output", db=location)
    run("template", "create", "hook", "--url", "https://example.org", db=location)
    options = {
        "command": "backup.sh",
        "priority": 10,
        "env": ["A=***", "B=***"],
        "no_output": True,
    }
    assert run("template", "show", "backup", "--json", db=location).json == {
        "name": "backup",
        "options": options,
    }
    assert run("template", "list", "--json", db=location).json == [
        {"name": "backup", "options": options},
        {"name": "hook", "options": {"url": "https://example.org"}},
    ]
    assert "--env: B=***" in run("template", "show", "backup", db=location).lines
    [line, _] = run("template", "list", db=location).lines
    assert line.split("\t")[2] == "--priority 10 --env 'A=***' --env 'B=***' --no-output"
    names = [line.split("\t")[:2] for line in run("template", "list", db=location).lines]
    assert names == [["backup", "backup.sh"], ["hook", "POST https://example.org"]]


def test_a_python_function_has_arguments(location: str) -> None:
    call = ["--module", "tasks.process", "--args", "[1, 2]", "--kwargs", '{"a": null}']
    run("template", "create", "call", *call, db=location)
    job = run("enqueue", "--template", "call", "--json", db=location).json
    assert job["data"] == {"module": "tasks.process", "args": [1, 2], "kwargs": {"a": None}}


def test_one_takes_another_s_place_only_by_force(location: str) -> None:
    run(*BACKUP, db=location)
    said = run("template", "create", "backup", "--command", "other.sh", db=location)
    assert said.code == 1
    assert "--force" in said.err
    assert run("template", "show", "backup", "--json", db=location).json["options"] == {
        "command": "backup.sh",
        "priority": 10,
    }
    said = run("template", "create", "backup", "--command", "other.sh", "--force", db=location)
    assert said.out == "replaced the template backup\n"
    job = run("enqueue", "--template", "backup", "--json", db=location).json
    assert (job["command"], job["priority"]) == ("other.sh", 0)


def test_a_template_is_removed_after_asking(location: str) -> None:
    run(*BACKUP, db=location)
    assert run("template", "remove", "backup", db=location).code == 1
    assert len(run("template", "list", "--json", db=location).json) == 1
    said = run("template", "remove", "backup", "--yes", "--json", db=location)
    assert said.json == {"name": "backup", "removed": True}
    assert run("template", "list", "--json", db=location).json == []


def test_there_is_no_such_template(location: str) -> None:
    run("enqueue", "true", db=location)
    for args in (
        ["template", "show", "nobody"],
        ["template", "remove", "nobody", "--yes"],
        ["enqueue", "--template", "nobody"],
    ):
        said = run(*args, db=location)
        assert said.code == 1
        assert "there is no template 'nobody'" in said.err


BAD = {
    "no command": [],
    "bad time": ["--command", "x", "--timeout", "long"],
    "bad type": ["--command", "x", "--type", "odd"],
    "two kinds": ["--command", "x", "--url", "https://example.org"],
    "bad JSON": ["--module", "a.b", "--args", "{"],
    "an id": ["--command", "x", "--id", "mine"],
    "retries": ["--command", "x", "--max-retries", "-1"],
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_could_not_be_enqueued_is_not_kept(tmp_path: Path, bad: list[str]) -> None:
    said = run("template", "create", "name", *bad, db=str(tmp_path / "jobs.db"))
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
