"""How the program behaves towards pipes, terminals and people, whatever the verb."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest

from bullite import Job, JobFailed, Queue, UnrecoverableError, Worker
from bullite.cli import console
from bullite.cli.console import escape_control, one_line, pluralize
from bullite.cli.program import queuectl
from bullite.cli.session import Session
from bullite.client.runtime.blocking import run_blocking
from bullite.database.sqlite import connections, schema
from tests.cli.program import command, environment, run, run_well
from tests.cli.running_worker import working
from tests.cli.terminals import on_terminal
from tests.support.databases import PATIENCE, Database

FRAMES = re.compile(r"[─━│┃┌┐└┘├┤┬┴┼╭╮╰╯]")
ESCAPE = "\x1b"


@pytest.fixture
def completed(location: str) -> str:
    """The id of a completed job."""
    job_id = run_well("enqueue", "echo hi", db=location).out.strip()
    with working(location):
        run_well("wait", job_id, db=location)
    return job_id


# --- pipes and terminals ---


@pytest.mark.parametrize("verb", ["list", "status", "stats", "queues list", "worker status"])
def test_a_pipe_gets_neither_colour_nor_frames(location: str, completed: str, verb: str) -> None:
    out = run_well(*verb.split(), db=location).out
    assert ESCAPE not in out
    assert not FRAMES.search(out)


def test_a_pipe_gets_tabs_and_no_headings(location: str, completed: str) -> None:
    [line] = run_well("list", db=location).lines
    assert line.split("\t")[:3] == [completed, "default", "completed"]


def test_a_terminal_gets_headings_and_colour(location: str, completed: str) -> None:
    code, seen = on_terminal("list", db=location)
    assert code == 0
    assert ESCAPE in seen
    assert "COMMAND" in seen


@pytest.mark.parametrize("verb", ["list", "status"])
def test_no_color_is_heeded(location: str, completed: str, verb: str) -> None:
    code, seen = on_terminal(verb, db=location, NO_COLOR="1")
    assert code == 0
    assert "default" in seen
    assert not re.search(r"\x1b\[(3|4|9|10)\d", seen)


def test_json_on_a_terminal_has_no_colour(location: str, completed: str) -> None:
    _, seen = on_terminal("list", "--json", db=location)
    assert ESCAPE not in seen


def test_talk_goes_to_standard_error(location: str) -> None:
    assert run_well("enqueue", "x", db=location).err == "added to default\n"
    said = run_well("list", "--state", "dead", db=location)
    assert (said.out, said.err) == ("", "no jobs were found\n")


def test_a_verb_minds_a_database_that_is_named_before_it() -> None:
    seen: list[str] = []

    @click.command()
    @console.verb
    def look(session: Session) -> None:
        seen.append(session.location)

    group = click.Group(commands={"look": look}, params=[click.Option(["--db"])])
    group.callback = lambda db: None
    for words in (
        ["--db", "a.db", "look"],
        ["look", "--db", "b.db"],
        ["--db", "a", "look", "--db", "c.db"],
    ):
        group.main(words, standalone_mode=False)
    assert seen == ["a.db", "b.db", "c.db"]


def every_verb(
    command: click.Command, name: str = "queuectl"
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        found = command.get_command(context, word)
        assert found is not None
        yield from every_verb(found, f"{name} {word}")


def test_every_option_is_explained() -> None:
    unexplained = [
        (name, option.name)
        for name, command in every_verb(queuectl)
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert unexplained == []


def test_the_help_of_workers_shows_what_holds_unless_said_and_examples() -> None:
    text = " ".join(run_well("worker", "start", "--help").out.split())
    for words in ("[default: 1;", "[default: default]", "[default: 30s]", "stopped and restarted"):
        assert words in text
    assert "queuectl worker start --count 3" in text


def test_on_a_terminal_it_is_said_that_a_lock_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 0.2)
    monkeypatch.setattr(schema, "WARN_AFTER", 0.1)
    db = str(tmp_path / "jobs.db")
    run_well("enqueue", "x", db=db)
    with closing(sqlite3.connect(db, isolation_level=None)) as stranger:
        stranger.execute("begin exclusive")
        seen = run("enqueue", "x", db=db, terminal=True)
        piped = run("enqueue", "x", db=db)
    assert "waiting for it" in seen.err.splitlines()[0]
    assert seen.err.splitlines()[1] == piped.err.strip()
    assert "try again when it has ended" in piped.err


# --- control bytes ---

HIDDEN = "\u061c\u200b\u200d\u2028\u2029\u2060\u2064\ufe0f\ufeff\U000e0041\U000e01ef"
EVIL = f"echo \x1b]0;owned\x07\x1b[2J\u202edone\x9b31m{HIDDEN}"
CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    r"\ud800-\udfff\U000e0000-\U000e0fff]"
)


@pytest.mark.parametrize(
    "verb",
    [
        *("list", "show JOB", "output JOB", "why JOB", "events", "wait JOB", "stats"),
        *("status", "doctor", "logs JOB"),
    ],
)
def test_what_is_stored_cannot_write_to_a_terminal(location: str, verb: str) -> None:
    queue = Queue("default", location)
    job = run_blocking(queue.add("shell", {"command": EVIL, "note": EVIL}, tags=["ok"]))
    run_blocking(queue.add_job_log(job.id, EVIL))
    run_blocking(queue.cancel(job.id, EVIL))
    queue.store.close()
    words = [job.id if word == "JOB" else word for word in verb.split()]
    said = run(*words, db=location)
    assert said.out
    assert not CONTROL.search(said.out.replace("\t", ""))
    assert not CONTROL.search(said.err)


async def test_what_a_processor_raises_cannot_write_to_a_terminal(
    queue: Queue, location: str
) -> None:
    async def fail(job: Job) -> None:
        raise UnrecoverableError(EVIL)

    job = await queue.add("shell", {"command": EVIL})
    async with Worker(queue, fail):
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    for verb in ("dlq list", f"dlq show {job.id}", f"show {job.id}", f"wait {job.id}", "events"):
        said = run(*verb.split(), db=location)
        assert "owned" in said.out
        assert not CONTROL.search(said.out.replace("\t", ""))


def test_control_bytes_of_arguments_are_escaped_in_complaints(location: str) -> None:
    run_well("enqueue", "x", db=location)
    for arguments in (["show", EVIL], ["list", "--state", EVIL], [EVIL], ["list", f"--{EVIL}"]):
        said = run(*arguments, db=location)
        assert said.code in (1, 2)
        assert not CONTROL.search(said.err)


def test_json_holds_control_characters_only_spelled_out(location: str) -> None:
    job_id = run_well("enqueue", EVIL, db=location).out.strip()
    said = run_well("show", job_id, "--json", db=location)
    assert said.json["command"] == EVIL
    assert not CONTROL.search(said.out)


def test_control_bytes_are_spelled_out() -> None:
    assert escape_control("a\x1b[0m\tb\nc\x85\u202e") == "a\\x1b[0m\tb\nc\\x85\\u202e"


def test_one_thing_is_called_otherwise_than_several() -> None:
    told = [pluralize(number, "process", "processes") for number in (0, 1, 2)]
    assert told == ["0 processes", "1 process", "2 processes"]


def test_one_line_is_one_line_and_not_too_long() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("x" * 100, 10) == "x" * 9 + "…"


# --- leaving early ---


def test_a_reader_that_leaves_is_no_error(location: str) -> None:
    run_well("enqueue-batch", "-", db=location, stdin=f"echo {'x' * 200}\n" * 2_000)
    listing = subprocess.Popen(
        command("list", "--limit", 2_000),
        env=environment(location),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert listing.stdout is not None
    assert listing.stderr is not None
    listing.stdout.readline()
    listing.stdout.close()
    said = listing.stderr.read()
    listing.stderr.close()
    listing.wait(PATIENCE)
    assert b"Traceback" not in said
    assert b"Broken" not in said
    assert b"Exception" not in said


@pytest.mark.parametrize("verb", ["list", "status --json", "--help", "enqueue x"])
def test_a_reader_that_was_never_there_is_no_error(location: str, verb: str) -> None:
    run_well("enqueue", "x", db=location)
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        command(*verb.split()),
        env=environment(location),
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
        check=False,
    )
    os.close(theirs)
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
    assert done.returncode in (0, 1)


@pytest.mark.parametrize("verb", ["wait", "logs -f", "output -f"])
def test_an_interrupt_ends_it_with_130(location: str, verb: str) -> None:
    job_id = run_well("enqueue", "x", db=location).out.strip()
    process = subprocess.Popen(
        command(*verb.split(), job_id),
        env=environment(location),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    ends = time.monotonic() + PATIENCE
    # It has more than one thread when it has opened the database.
    while len(os.listdir(f"/proc/{process.pid}/task")) < 2 and time.monotonic() < ends:
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, b"", b"queuectl: interrupted\n")


# --- asking ---

DESTRUCTIVE = [
    *("remove JOB", "drain default", "cleanup --older-than 0", "dlq purge"),
    *("schedule remove hourly", "template remove t"),
]


def arranged(location: str) -> str:
    """Something that each of them could destroy; the id of a job."""
    job_id = run_well("enqueue", "x", db=location).out.strip()
    run_well(*["schedule", "add", "echo", "--every", "1h", "--name", "hourly"], db=location)
    run_well("template", "create", "t", "--command", "x", db=location)
    return job_id


@pytest.mark.parametrize("verb", DESTRUCTIVE)
def test_without_anybody_to_ask_nothing_is_destroyed(database: Database, verb: str) -> None:
    job_id = arranged(database.location)
    before = {table: database.rows(table) for table in database.tables}
    words = [job_id if word == "JOB" else word for word in verb.split()]
    said = run(*words, db=database.location)
    assert (said.code, said.out) == (1, "")
    assert said.err.endswith("Say --yes to do it without being asked\n")
    assert said.err.count("\n") == 1
    assert {table: database.rows(table) for table in database.tables} == before


@pytest.mark.parametrize(("typed", "code"), [("n\n", 1), ("\n", 1), ("y\n", 0), ("YES\n", 0)])
def test_on_a_terminal_somebody_is_asked(location: str, typed: str, code: int) -> None:
    job_id = arranged(location)
    ended, seen = on_terminal("remove", job_id, db=location, typed=typed)
    assert ended == code
    assert f"Remove job {job_id}? [y/N]" in seen
    gone = run("show", job_id, db=location).code == 1
    assert gone is (code == 0)


def test_control_bytes_in_a_question_are_escaped(location: str) -> None:
    arranged(location)
    said = run("remove", EVIL, db=location)
    assert not CONTROL.search(said.err)
