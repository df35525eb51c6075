"""`queuectl list`: which jobs are shown, in which order, and in which form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bullite import Queue
from bullite.cli.job_list import COLUMNS
from bullite.client.runtime.blocking import run_blocking

from .concurrent_runs import LATER, have_run
from .program import environment, plain, program, run, run_well


def ids(*arguments: object, db: str) -> list[str]:
    return [job["id"] for job in run_well("list", "--json", *arguments, db=db).json["jobs"]]


async def test_the_newest_come_first_from_all_queues(queue: Queue, location: str) -> None:
    other = Queue("other", queue.store)
    jobs = [await each.add("a") for each in (queue, other, queue, other)]
    assert ids(db=location) == [job.id for job in reversed(jobs)]


async def test_one_queue_can_be_asked_for(queue: Queue, location: str) -> None:
    await Queue("other", queue.store).add("a")
    job = await queue.add("a")
    assert ids("--queue", "emails", db=location) == [job.id]


@pytest.mark.parametrize(
    ("word", "fates"),
    [
        ("completed", ["completed"]),
        ("failed", ["failed"]),
        ("dead", ["dead"]),
        ("DEAD", ["dead"]),
        ("delayed", ["pending", "failed"]),
        ("pending", ["pending"]),
        ("cancelled", ["cancelled"]),
        ("processing", []),
    ],
)
async def test_a_state_may_be_queuectls_word_or_the_librarys(
    queue: Queue, location: str, word: str, fates: list[str]
) -> None:
    fated = dict(zip(("completed", "failed", "dead"), await _of_all_fates(queue), strict=True))
    fated["pending"] = await queue.add("shell", {"command": "pending"}, delay="1h")
    fated["cancelled"] = await queue.add("shell", {"command": "cancelled"}, delay="1h")
    await queue.cancel(fated["cancelled"].id)

    assert set(ids("--state", word, db=location)) == {fated[fate].id for fate in fates}


async def _of_all_fates(queue: Queue) -> list:
    return await have_run(queue, "completed", "failed", "dead")


async def test_a_status_is_looked_for_until_there_are_enough(queue: Queue, location: str) -> None:
    # Both are delayed, and those that are not wanted come first.
    failed = await have_run(queue, *["failed"] * 3)
    await queue.add_bulk([{"name": "a", "opts": {"delay": "2h"}}] * 600)

    assert ids("--state", "failed", "--limit", 2, db=location) == [job.id for job in failed[:0:-1]]


async def test_a_cursor_goes_on_where_the_last_list_ended(queue: Queue, location: str) -> None:
    failed = await have_run(queue, *["failed"] * 5)
    await queue.add_bulk([{"name": "a", "opts": LATER}] * 3)
    seen: list[str] = []
    cursor: list[str] = []
    for _ in range(3):
        page = run_well("list", "--state", "failed", "--limit", 2, "--json", *cursor, db=location)
        seen += [job["id"] for job in page.json["jobs"]]
        cursor = ["--cursor", page.json["cursor"]]

    assert sorted(seen) == sorted(job.id for job in failed)
    assert page.json["cursor"] is None
    assert page.json["more"] is False


async def test_several_queues_have_no_cursor(queue: Queue, location: str) -> None:
    for each in (queue, Queue("other", queue.store)):
        await each.add_bulk([{"name": "a"}] * 3)
    said = run_well("list", "--limit", 4, db=location)
    assert len(said.lines) == 4
    assert "there are more" in said.err
    assert run_well("list", "--limit", 4, "--json", db=location).json["more"] is True
    assert run_well("list", "--limit", 6, "--json", db=location).json["more"] is False

    refused = run("list", "--cursor", "0-1-1", db=location)
    assert (refused.code, refused.out) == (2, "")
    assert "--queue" in refused.err


async def test_jobs_are_found_by_name_tag_and_text(queue: Queue, location: str) -> None:
    one = await queue.add("one", {"to": "Ann"}, tags=["urgent"])
    two = await queue.add("two", {"to": "Bob"})

    assert ids("--name", "two", db=location) == [two.id]
    assert ids("--tag", "urgent", db=location) == [one.id]
    assert ids("--search", "bob", db=location) == [two.id]
    assert ids("--search", "ann", "--name", "two", db=location) == []


async def test_jobs_are_found_by_when_they_were_added(queue: Queue, location: str) -> None:
    job = await queue.add("a")
    assert ids("--since", "2h", db=location) == [job.id]
    assert ids("--since", "2020-01-01", db=location) == [job.id]
    assert ids("--since", "2090-01-01T00:00:00Z", db=location) == []


async def test_a_program_reads_columns_between_tabs(queue: Queue, location: str) -> None:
    job = await queue.add("shell", {"command": "echo\t1\n2"}, priority=7, attempts=4)
    said = run_well("list", db=location)
    [line] = said.lines
    created = job.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert line.split("\t") == [job.id, "emails", "pending", "7", "0/4", created, "echo 1 2"]


async def test_on_a_terminal_there_are_headings(queue: Queue, location: str) -> None:
    await queue.add("shell", {"command": "echo hi"})
    said = run_well("list", db=location, terminal=True)
    for column in ("ID", "QUEUE", "STATUS", "PRIORITY", "ATTEMPTS", "CREATED", "COMMAND"):
        assert column in said.lines[0]


async def test_on_a_narrow_terminal_ids_are_whole_and_commands_cut(
    queue: Queue, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "0b9f4c1e-3f0d-4b0a-9a55-0c4d8f3a8d11"
    await queue.add("shell", {"command": "x" * 100}, job_id=long)
    heading, row = plain(run_well("list", db=location, terminal=True).out)
    assert heading.split() == ["ID", *(word for word in COLUMNS if word != "ID")]
    assert row.startswith(f"{long}  emails ")
    assert row.rstrip().endswith("xx…")


@pytest.mark.parametrize("terminal", [True, False])
async def test_control_bytes_are_spelled_out(
    queue: Queue, location: str, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    await queue.add("shell", {"command": "\x1b]0;owned\x07"})
    said = run_well("list", db=location, terminal=terminal)
    assert "\x1b]" not in said.out
    assert "\x07" not in said.out
    assert "\\x1b]0" in said.out


async def test_what_is_not_found_is_no_failure(queue: Queue, location: str) -> None:
    await queue.add("a")
    said = run_well("list", "--state", "dead", db=location)
    assert said.out == ""
    assert said.err == "no jobs were found\n"


async def test_nothing_found_is_an_empty_document(queue: Queue, location: str) -> None:
    await queue.add("a")
    said = run_well("list", "--state", "dead", "--format", "json", db=location)
    assert said.json == {"jobs": [], "cursor": None, "more": False}
    assert said.err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["--state", "lost"], 2, "dead"),
        (["--queue", "nope"], 1, "emails"),
        (["--since", "yesterday"], 2, "--since"),
        (["--limit", "0"], 2, "--limit"),
        (["--cursor", "x"], 2, "cursor"),
    ],
)
async def test_what_cannot_be_meant_is_one_line_that_names_the_fix(
    queue: Queue, location: str, arguments: list[str], code: int, word: str
) -> None:
    await queue.add("a")
    said = run("list", *arguments, db=location)
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("queuectl: ")
    assert word in said.err
    assert said.err.count("\n") == 1


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    said = program("list", "--db", tmp_path / "none.db")
    assert (said.code, said.out) == (1, "")
    assert "there is no database" in said.err
    assert [*tmp_path.iterdir()] == []


def test_a_list_in_json_loads_neither_asyncio_nor_rich(queue: Queue, location: str) -> None:
    run_blocking(queue.add("a"))
    # Those who made psycopg load the one by themselves.
    unwanted = ["rich"] if "://" in location else ["rich", "asyncio"]
    lists = (
        "import sys, bullite.cli.program as app\n"
        "try: app.run(['list', '--json'])\n"
        "except SystemExit as leaving: assert not leaving.code\n"
        "assert not set(sys.argv[1:]) & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", lists, *unwanted],
        env=environment(location),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
