"""`queuectl completion`, and what it completes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from bullite import Queue
from bullite.cli.completers import completes
from bullite.cli.session import Session
from bullite.cli.verbs.completion import SHELLS

from .program import command, environment, run, run_well


def answered(
    line: str,
    db: str | None = None,
    shell: str = "bash",
    piece: str | None = None,
    cwd: Path | None = None,
) -> list[str]:
    """What the program answers to a shell at the end of a line, asked as its script does.

    bash tells which piece of the line it will replace; the last word unless given.
    """
    asking = {
        "_QUEUECTL_COMPLETE": f"{shell}_complete",
        "_QUEUECTL_LINE": line,
        "_QUEUECTL_PIECE": line.rpartition(" ")[2] if piece is None else piece,
    }
    done = subprocess.run(
        command(),
        env=environment(db, **asking),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def completed(line: str, db: str | None = None, **how: Any) -> list[str]:
    """The names that a shell offers at the end of a line."""
    [kind, *names] = answered(line, db, **how)
    assert kind == "names"
    return names


def test_verbs_complete() -> None:
    assert completed("queuectl can") == ["cancel"]
    assert completed("queuectl schedule re") == ["remove", "resume"]
    assert completed("queuectl retry --keep") == ["--keep-attempts"]


async def test_names_of_queues_and_ids_of_jobs_complete(queue: Queue, location: str) -> None:
    await Queue("errands", queue.store).wait_until_ready()
    job, other = await queue.add("a", job_id="mine"), await queue.add("a", job_id="mint")
    assert completed("queuectl pause e", location) == ["emails", "errands"]
    assert completed("queuectl cleanup --queue em", location) == ["emails"]
    for verb in ("cancel", "retry", "dlq retry", "promote", "remove"):
        assert sorted(completed(f"queuectl {verb} mi", location)) == [job.id, other.id], verb


def test_names_complete_where_a_job_is_added(location: str) -> None:
    for queue, job_id in (("mails", "job-1"), ("masses", "job-2")):
        run_well("enqueue", "x", "--id", job_id, "--queue", queue, db=location)
    run_well("template", "create", "backup", "--command", "x", db=location)
    for verb in ("enqueue", "run", "enqueue --queue new"):
        assert sorted(completed(f"queuectl {verb} --after job", location)) == ["job-1", "job-2"]
        assert completed(f"queuectl {verb} --template b", location) == ["backup"]
    assert completed("queuectl add ma", location) == ["mails", "masses"]
    assert completed("queuectl enqueue 'a b' --after job-1", location) == ["job-1"]


@pytest.mark.parametrize("shell", SHELLS)
def test_files_and_folders_are_left_to_the_shell(shell: str) -> None:
    for line in ("enqueue-batch c.z", "enqueue --stdin ", "run --stdin=c.z"):
        assert answered(f"queuectl {line}", shell=shell) == ["file"]
    for line in ("enqueue --cwd /us", "schedule add x --cwd=", "template create t --cwd /us"):
        assert answered(f"queuectl {line}", shell=shell) == ["dir"]


def test_a_value_behind_an_equals_sign_completes(location: str) -> None:
    run_well("enqueue", "x", "--queue", "mails", db=location)
    for line, piece in (("queuectl list --queue=ma", "ma"), ("queuectl list --queue=", "")):
        assert completed(line, location, piece=piece) == ["mails"]
        # A user may have bash break words at other characters.
        assert completed(line, location, piece=f"--queue={piece}") == ["--queue=mails"]
        assert completed(line, location, shell="zsh") == ["mails"]
        assert completed(line, location, shell="fish") == ["--queue=mails"]


def test_bash_is_given_the_piece_of_an_id_that_it_will_replace(location: str) -> None:
    run_well("enqueue", "x", "--id", "repeat:x:123", db=location)
    for line, piece, rest in (
        ("rep", "rep", "repeat:x:123"),
        ("repeat:", "", "x:123"),
        ("repeat:x:1", "1", "123"),
        ('"repeat:x:1', "repeat:x:1", "repeat:x:123"),
    ):
        assert completed(f"queuectl show {line}", location, piece=piece) == [rest]


@pytest.mark.parametrize(
    ("typed", "piece", "written"),
    [
        ("it", "it", 'it\\\'s\\ \\$5\\;\\ \\"ü\\"'),
        ("it\\'s\\ ", "it\\'s\\ ", 'it\\\'s\\ \\$5\\;\\ \\"ü\\"'),
        ('"it', "it", 'it\'s \\$5; \\"ü\\"'),
        ("'it", "it", "it'\\''s $5; \"ü\""),
    ],
)
def test_bash_is_given_a_name_quoted_as_it_is_typed(
    location: str, typed: str, piece: str, written: str
) -> None:
    job_id = 'it\'s $5; "ü"'
    run_well("enqueue", "x", "--id", job_id, db=location)
    assert completed(f"queuectl show {typed}", location, piece=piece) == [written]
    whole = {"'": f"'{written}'", '"': f'"{written}"'}.get(typed[0], written)
    said = subprocess.run(["sh", "-c", f"printf %s {whole}"], capture_output=True, check=True)
    assert said.stdout.decode() == job_id


def test_other_shells_quote_names_themselves(location: str) -> None:
    run_well("enqueue", "x", "--id", "my:id, $5", db=location)
    assert completed("queuectl show my", location, shell="zsh") == ["my\\:id, $5"]
    assert completed("queuectl show 'my", location, shell="fish") == ["my:id, $5"]


def test_what_a_verb_does_is_told_to_shells_that_show_it() -> None:
    assert completed("queuectl sho", shell="zsh") == ["show:Show all that is known of a job."]
    assert completed("queuectl sho", shell="fish") == ["show\tShow all that is known of a job."]


def test_states_and_forms_complete() -> None:
    assert completed("queuectl list --state c") == ["completed", "cancelled"]
    assert completed("queuectl list --format ") == ["text", "json"]


def test_names_of_templates_schedules_and_keys_complete(location: str) -> None:
    run("template", "create", "backup", "--command", "x", db=location)
    run("schedule", "report.sh", "--every", "1h", db=location)
    assert completed("queuectl template show b", location) == ["backup"]
    assert completed("queuectl schedule pause r", location) == ["report.sh"]
    assert completed("queuectl config get smtp_p", location) == ["smtp_port", "smtp_password"]


def test_what_was_opened_to_complete_a_name_is_closed_whatever_happens(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Session] = []
    close = Session.close

    def closing(session: Session) -> None:
        closed.append(session)
        close(session)

    def fail(session: Session, context: click.Context) -> list[str]:
        session.store(make=True).open()
        raise RuntimeError

    monkeypatch.setattr(Session, "close", closing)
    context = click.Context(click.Command("x"))
    context.params = {"db": location}
    assert completes(fail)(context, click.Argument(["name"]), "") == []
    assert len(closed) == 1


def test_without_a_database_nothing_is_told(location: str) -> None:
    missing = os.path.join(os.sep, "nowhere", "at", "all.db")
    assert completed("queuectl pause ", missing) == []
    assert completed("queuectl cancel ", missing) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell(shell: str) -> None:
    said = run("completion", shell)
    assert said.code == 0
    assert "_QUEUECTL_COMPLETE" in said.out
    told = run("completion", shell, "--json").json
    assert told["shell"] == shell
    assert told["script"].strip() == said.out.strip()
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=said.out, text=True, check=False)
        assert done.returncode == 0


def test_another_shell_is_not_understood() -> None:
    said = run("completion", "cmd")
    assert said.code == 2
    assert "bash" in said.err


# --- which database is asked ---------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A server that accepts connections and says nothing; no variable names a database."""
    monkeypatch.delenv("BULLITE_URL", raising=False)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def was_connected_to(server: socket.socket) -> bool:
    try:
        connection, _ = server.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def url_of(server: socket.socket) -> str:
    return f"postgresql://ada@127.0.0.1:{server.getsockname()[1]}/jobs"


@pytest.mark.parametrize("name", ["bullite.toml", "pyproject.toml"])
def test_completion_does_not_connect_to_a_server_that_a_settings_file_names(
    tmp_path: Path, server: socket.socket, name: str
) -> None:
    table = "[tool.bullite]\n" if name == "pyproject.toml" else ""
    (tmp_path / name).write_text(f'{table}url = "{url_of(server)}"\n')
    assert completed("queuectl show ", cwd=tmp_path) == []
    assert not was_connected_to(server)


def test_completion_connects_to_a_server_that_bullite_url_names(
    tmp_path: Path, server: socket.socket
) -> None:
    assert completed("queuectl show ", url_of(server), cwd=tmp_path) == []
    assert was_connected_to(server)


def test_completion_reads_a_file_that_a_settings_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BULLITE_URL", raising=False)
    run_well("enqueue", "x", "--id", "mine", db=str(tmp_path / "jobs.db"))
    (tmp_path / "bullite.toml").write_text('url = "jobs.db"\n')
    assert completed("queuectl show m", cwd=tmp_path) == ["mine"]


def test_completion_reads_no_default_database_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BULLITE_URL", raising=False)
    database = tmp_path / "bullite.db"
    run_well("enqueue", "x", "--id", "theirs", db=str(database))
    os.chown(database, 54_321, 54_321)
    assert completed("queuectl show t", cwd=tmp_path) == []
