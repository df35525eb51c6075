"""`queuectl add`: a job for Python workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullite import Queue
from bullite.client.runtime.blocking import run_blocking
from tests.cli.program import run, run_well


def test_a_job_has_a_queue_a_name_and_data(location: str) -> None:
    said = run_well("add", "mails", "welcome", "--data", '{"to": ["a", 1, null]}', db=location)
    queue = Queue("mails", location)
    job = run_blocking(queue.get_job(said.out.strip()))
    queue.store.close()
    assert job is not None
    assert (job.name, job.data, job.attempts) == ("welcome", {"to": ["a", 1, None]}, 1)


def test_options_are_those_of_the_library(location: str) -> None:
    said = run_well(
        *("add", "mails", "welcome", "--priority", 3, "--delay", "5m", "--attempts", 4),
        *("--id", "hello", "--tag", "a", "--tag", "b", "--json"),
        db=location,
    )
    job = said.json
    assert (job["id"], job["priority"], job["attempts"]) == ("hello", 3, 4)
    assert (job["state"], job["tags"], job["data"]) == ("delayed", ["a", "b"], None)


def test_an_id_that_is_taken_finds_the_job_that_has_it(location: str) -> None:
    for data in ("1", "2"):
        said = run_well("add", "mails", "n", "--id", "x", "--data", data, "--json", db=location)
    assert said.json["data"] == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--data", "{bad"], "--data must be JSON"),
        (["--data", "NaN"], "--data"),
        (["--delay", "x"], "--delay must be a time"),
        (["--attempts", "0"], "attempts"),
        (["--priority", "99999999"], "priority"),
        (["--id", "5"], "--id must not be all digits"),
        (["--tag", "a\tb"], "a tag"),
        (["--data", '"' + "x" * 1_100_000 + '"'], "exceeds the limit"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_input_makes_no_database(tmp_path: Path, arguments: list[str], problem: str) -> None:
    said = run("add", "mails", "welcome", *arguments, db=str(tmp_path / "jobs.db"))
    assert (said.code, said.out) == (2, "")
    assert problem in said.err
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "names", [["mails"], ["", "n"], ["123", "n"], ["q", ""], ["a\nb", "n"], ["q", "a\nb"]]
)
def test_a_queue_and_a_name_must_be_good(tmp_path: Path, names: list[str]) -> None:
    said = run("add", *names, db=str(tmp_path / "jobs.db"))
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
