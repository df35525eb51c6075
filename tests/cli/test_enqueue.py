"""`queuectl enqueue`: each of its options, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bullite import Job, Queue, Store
from bullite.cli.verbs import output
from bullite.client.key_values import set_value
from bullite.client.runtime.blocking import run_blocking
from tests.cli.program import Said, command, environment, run, run_well
from tests.cli.running_worker import working
from tests.cli.terminals import on_terminal
from tests.support.databases import PATIENCE, Database


def stored(location: str, job_id: str, queue: str = "default") -> Job:
    found = Queue(queue, location)
    try:
        job = run_blocking(found.get_job(job_id))
        assert job is not None
        return job
    finally:
        found.store.close()


def enqueue(location: str, *arguments: object) -> Job:
    """Enqueue something; the job as it is stored."""
    said = run_well("enqueue", *arguments, "--json", db=location)
    job = said.json
    return stored(location, job["id"], job["queue"])


def counts(location: str) -> dict[str, int]:
    return {
        one["name"]: one["pending"]
        for one in run_well("status", "--json", db=location).json["queues"]
    }


def test_only_the_id_is_written_to_standard_output(location: str) -> None:
    said = run_well("enqueue", "echo hi", db=location)
    job = stored(location, said.out.removesuffix("\n"))
    assert job.data == {"command": "echo hi"}
    assert (job.name, job.state, job.attempts) == ("shell", "waiting", 4)
    assert said.err == "added to default\n"


def test_json_is_the_job(location: str) -> None:
    said = run_well("enqueue", "echo hi", "--json", db=location)
    assert said.err == ""
    job = said.json
    assert job["command"] == "echo hi"
    assert (job["state"], job["status"], job["max_retries"]) == ("waiting", "pending", 3)


# --- how it is run ---


def test_queue_names_the_queue(location: str) -> None:
    assert enqueue(location, "x", "--queue", "mails").queue_name == "mails"
    assert enqueue(location, "x", "-q", "mails").queue_name == "mails"


def test_higher_priorities_run_first(location: str) -> None:
    jobs = [enqueue(location, "true", "--priority", number) for number in (0, 5, 10)]
    with working(location):
        run_well("wait", *[job.id for job in jobs], "--timeout", "20s", db=location)
    events = [json.loads(line) for line in run_well("events", "--json", db=location).lines]
    began = [event["job_id"] for event in events if event["event"] == "active"]
    assert began == [job.id for job in reversed(jobs)]


def test_a_queue_that_runs_lower_numbers_first_stays_so(location: str) -> None:
    made = Queue("default", location, priority_order="low")
    run_blocking(made.wait_until_ready())
    enqueue(location, "x", "--priority", 10)
    assert run_blocking(made.get_meta())["priority_order"] == "low"
    made.store.close()


def test_a_negative_priority_is_no_option(location: str) -> None:
    assert enqueue(location, "x", "--priority", "-5").priority == -5
    assert enqueue(location, "x", "--priority=-5").priority == -5


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("5m", 300), ("0.5", 0.5)])
def test_timeout_is_kept_in_seconds(location: str, text: str, seconds: float) -> None:
    assert enqueue(location, "x", "--timeout", text).data["timeout"] == seconds


def test_run_at_may_be_counted_from_now(location: str) -> None:
    job = enqueue(location, "x", "--run-at", "+2h")
    assert job.state == "delayed"
    assert job.process_at is not None
    assert 7_190 < (job.process_at - datetime.now(UTC)).total_seconds() <= 7_201


def test_run_at_may_be_a_date(location: str) -> None:
    job = enqueue(location, "x", "--run-at", "2090-01-31T08:00:00Z")
    assert job.process_at == datetime(2090, 1, 31, 8, tzinfo=UTC)


def test_a_date_that_has_passed_means_now(location: str) -> None:
    assert enqueue(location, "x", "--run-at", "2020-01-31").state == "waiting"


def test_delay_counts_from_now(location: str) -> None:
    job = enqueue(location, "x", "--delay", "5m")
    assert (job.state, job.delay) == ("delayed", 300_000)
    assert enqueue(location, "x", "--delay", "0").state == "waiting"


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (7, 8)])
def test_max_retries_are_runs_but_one(location: str, retries: int, attempts: int) -> None:
    assert enqueue(location, "x", "--max-retries", retries).attempts == attempts


@pytest.mark.parametrize(
    ("text", "backoff"),
    [
        ("10s", {"type": "fixed", "delay": 10_000}),
        ("fixed:1m", {"type": "fixed", "delay": 60_000}),
        ("linear:5", {"type": "linear", "delay": 5_000}),
        ("exponential:2s", {"type": "exponential", "delay": 2_000}),
    ],
)
def test_backoff_takes_the_place_of_the_configured(
    location: str, text: str, backoff: dict[str, Any]
) -> None:
    options = enqueue(location, "x", "--backoff", text).opts
    assert options["backoff"] == backoff
    assert "retry_strategy" not in options


def test_without_backoff_the_configuration_decides_later(location: str) -> None:
    assert enqueue(location, "x").opts["retry_strategy"] == "queuectl"


def test_a_job_after_another_waits_for_it(location: str) -> None:
    first = enqueue(location, "true")
    later = enqueue(location, "true", "--after", first.id)
    assert later.state == "waiting-children"
    with working(location):
        run_well("wait", later.id, "--timeout", "20s", db=location)
    assert stored(location, first.id).finished_at <= stored(location, later.id).processed_at  # type: ignore[operator]


def test_a_job_after_one_that_completed_may_begin(location: str) -> None:
    first = enqueue(location, "true")
    with working(location):
        run_well("wait", first.id, db=location)
    assert enqueue(location, "true", "--after", first.id).state == "waiting"


def test_a_job_after_one_that_fails_fails(location: str) -> None:
    first = enqueue(location, "false", "--max-retries", 0)
    later = enqueue(location, "true", "--after", first.id)
    with working(location):
        assert run("wait", later.id, "--timeout", "20s", db=location).code == 3
    assert stored(location, later.id).state == "failed"


def test_a_job_may_come_after_one_of_another_queue(location: str) -> None:
    first = enqueue(location, "true", "--queue", "one")
    later = enqueue(location, "true", "--queue", "two", "--after", first.id)
    assert (later.queue_name, later.state) == ("two", "waiting-children")


def test_a_job_after_an_unknown_one_is_refused_and_nothing_is_added(location: str) -> None:
    enqueue(location, "x")
    said = run("enqueue", "x", "--queue", "new", "--after", "12345", db=location)
    assert (said.code, said.out) == (1, "")
    assert said.err == "queuectl: there is no job 12345 that this one could come after\n"
    assert counts(location) == {"default": 1}


def test_a_job_after_an_ambiguous_id_is_refused(location: str) -> None:
    for queue in ("one", "two"):
        enqueue(location, "x", "--queue", queue, "--id", "same")
    said = run("enqueue", "x", "--after", "same", db=location)
    assert said.code == 2
    assert "several queues (one, two)" in said.err
    assert enqueue(location, "x", "--queue", "two", "--after", "same").queue_name == "two"


def test_an_id_that_is_taken_finds_the_job_that_has_it(location: str) -> None:
    first = enqueue(location, "first", "--id", "backup")
    said = run_well("enqueue", "second", "--id", "backup", db=location)
    assert (said.out, first.id) == ("backup\n", "backup")
    assert "nothing was added" in said.err
    assert stored(location, "backup").data == {"command": "first"}
    assert counts(location) == {"default": 1}


def test_cwd_env_and_standard_input_are_kept(location: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("from a file\n")
    with patch.dict(os.environ, {"FROM_WORKER": "w"}), working(location):
        said = run_well(
            *("enqueue", "pwd; cat; echo $A:$B:$FROM_WORKER", "--wait"),
            *("--cwd", tmp_path, "--stdin", tmp_path / "in"),
            *("--env", "A=1=2", "--env", "B=", "--env-from", "FROM_WORKER"),
            db=location,
        )
    assert said.out == f"{tmp_path}\nfrom a file\n1=2::w\n"


def test_enqueue_resolves_relative_paths_against_its_working_directory(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "in").touch()
    monkeypatch.chdir(tmp_path)
    data = enqueue(location, "x", "--cwd", "below", "--stdin", "in").data
    assert (data["cwd"], data["stdin"]) == (str(tmp_path / "below"), str(tmp_path / "in"))
    assert enqueue(location, "x", "--cwd", ".").data["cwd"] == str(tmp_path)


def test_an_absolute_path_may_be_one_of_the_worker_s_machine(location: str) -> None:
    data = enqueue(location, "x", "--cwd", "/no/such/folder", "--stdin", "/no/such/file").data
    assert (data["cwd"], data["stdin"]) == ("/no/such/folder", "/no/such/file")


def test_enqueue_resolves_relative_paths_of_a_template_against_its_working_directory(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_well("template", "create", "t", "--command", "x", "--cwd", "below", db=location)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    assert enqueue(location, "--template", "t").data["cwd"] == str(tmp_path / "below")
    assert run_well("template", "list", db=location).lines


def test_tags_are_kept(location: str) -> None:
    job = enqueue(location, "x", "--tag", "nightly", "--tag", "db")
    assert job.tags == ("nightly", "db") or list(job.tags) == ["nightly", "db"]


def test_no_output_keeps_nothing_of_what_is_said(location: str) -> None:
    job = enqueue(location, "echo secret", "--no-output")
    with working(location):
        run_well("wait", job.id, db=location)
    assert "secret" not in run_well("output", job.id, db=location).out.partition("STDOUT")[2]


def test_who_is_to_hear_of_a_failure_is_a_job_of_its_own(location: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    job = enqueue(
        location, "false", "--max-retries", 0, "--notify-on-failure", f"cat > {told}; echo"
    )
    with working(location, "default", "notifications"):
        assert run("wait", job.id, db=location).code == 3
        listed = run_well("list", "--queue", "notifications", "--json", db=location).json
        run_well("wait", listed["jobs"][0]["id"], "--timeout", "20s", db=location)
    assert told.exists()


def test_without_a_mail_server_it_is_said_that_no_mail_will_be_sent(location: str) -> None:
    mail = ["--notify-on-failure", "user@example.com"]
    said = run_well("enqueue", "x", *mail, db=location)
    assert "warning: " in said.err
    assert "queuectl config set smtp_host HOST" in said.err
    assert said.out.strip().isdecimal()
    run_well("config", "set", "smtp_host", "mail.example.com", db=location)
    assert "warning" not in run_well("enqueue", "x", *mail, db=location).err


def test_who_is_told_by_other_ways_needs_no_mail_server(location: str) -> None:
    for target in ("https://example.com/hook", "notify-send failed"):
        said = run_well("enqueue", "x", "--notify-on-failure", target, db=location)
        assert said.err == "added to default\n"


PRIVATE = [
    "http://localhost:8080/x",
    "https://LOCALHOST./",
    "http://a.localhost",
    "http://10.1.2.3",
    "http://127.1/",
    "http://[::1]:80/",
    "http://[fd00::1]",
]


@pytest.mark.parametrize("url", PRIVATE)
@pytest.mark.parametrize("option", ["--url", "--notify-on-failure"])
def test_that_a_private_address_will_not_be_called_is_said(
    location: str, option: str, url: str
) -> None:
    call = ["enqueue", option, url] if option == "--url" else ["enqueue", "x", option, url]
    said = run_well(*call, db=location)
    assert said.err.splitlines()[0].startswith("warning: ")
    assert "queuectl config set allow_private_webhooks true" in said.err
    assert said.out.strip().isdecimal()
    run_well("config", "set", "allow_private_webhooks", "true", db=location)
    assert "warning" not in run_well(*call, db=location).err


def test_no_name_is_looked_up_to_say_whether_it_is_at_a_private_address(location: str) -> None:
    look_up = socket.getaddrinfo
    asked: list[int] = []

    def noting(host: Any, port: Any, *rest: Any, flags: int = 0, **more: Any) -> Any:
        if host == "localhost.example.com":
            asked.append(flags)
        return look_up(host, port, *rest, flags=flags, **more)

    with patch("socket.getaddrinfo", noting):
        said = run_well("enqueue", "--url", "http://localhost.example.com/", db=location)
    assert said.err == "added to default\n"
    assert all(flags & socket.AI_NUMERICHOST for flags in asked)


def test_cpu_and_memory_are_kept(location: str) -> None:
    data = enqueue(location, "x", "--cpu", "10", "--memory", "500M").data
    assert (data["cpu"], data["memory"]) == (10, 500 * 1024**2)


# --- templates ---


def keep_template(location: str, name: str, **template: Any) -> None:
    store = Store(location)
    run_blocking(set_value(store, "template", name, template))
    store.close()


def test_an_option_beats_the_template_which_beats_the_configuration(location: str) -> None:
    store = Store(location)
    run_blocking(set_value(store, "config", "max_retries", 9))
    store.close()
    keep_template(location, "backup", command="backup.sh", priority=10, max_retries=5)
    job = enqueue(location, "--template", "backup")
    assert (job.data, job.priority, job.attempts) == ({"command": "backup.sh"}, 10, 6)
    job = enqueue(location, "--template", "backup", "--priority", 1, "--max-retries", 0)
    assert (job.priority, job.attempts) == (1, 1)
    assert enqueue(location, "other.sh", "--template", "backup").data == {"command": "other.sh"}
    assert enqueue(location, "x").attempts == 10


def test_a_moment_beats_the_delay_of_a_template(location: str) -> None:
    keep_template(location, "t", command="x", delay="1d")
    job = enqueue(location, "--template", "t", "--run-at", "2090-01-01T00:00Z")
    assert job.process_at == datetime(2090, 1, 1, tzinfo=UTC)


def test_a_delay_beats_the_moment_of_a_template(location: str) -> None:
    keep_template(location, "t", command="x", run_at="2090-01-01T00:00Z")
    job = enqueue(location, "--template", "t", "--delay", "7d")
    assert job.delay == 7 * 86_400_000


WHAT: dict[str, dict[str, Any]] = {
    "command": {"command": "x", "cwd": "/", "cpu": "5"},
    "argv": {"argv": ["x"], "no_output": True},
    "url": {"url": "https://example.com", "type": "http-webhook", "body": "b", "method": "GET"},
    "module": {"module": "a.b", "args": [1]},
}
GIVEN: dict[str, tuple[list[str], dict[str, Any]]] = {
    "command": (["y"], {"command": "y"}),
    "url": (["--url", "https://example.org"], {"url": "https://example.org", "method": "POST"}),
    "module": (["--module", "c.d"], {"module": "c.d"}),
}
OTHERS = [
    *[("command", "url"), ("command", "module"), ("argv", "url"), ("argv", "module")],
    *[("url", "command"), ("url", "module"), ("module", "command"), ("module", "url")],
]


@pytest.mark.parametrize(("kept", "given"), OTHERS)
def test_another_thing_to_do_beats_the_template_s_with_all_that_belongs_to_it(
    location: str, kept: str, given: str
) -> None:
    keep_template(location, "t", **WHAT[kept], timeout="30", priority=3)
    arguments, data = GIVEN[given]
    job = enqueue(location, *arguments, "--template", "t")
    assert job.data == {**data, "timeout": 30}
    assert job.priority == 3


def test_a_command_keeps_what_a_template_says_of_programs(location: str) -> None:
    keep_template(location, "t", argv=["x", "y"], no_output=True)
    job = enqueue(location, "z", "--template", "t")
    assert job.data == {"command": "z", "no_output": True}


def test_variables_of_a_template_are_replaced_one_by_one(location: str) -> None:
    keep_template(location, "t", command="x", env=["A=1", "B=1"])
    job = enqueue(location, "--template", "t", "--env", "B=2", "--env", "C=3")
    assert job.data["env"] == {"A": "1", "B": "2", "C": "3"}


def test_tags_are_added_to_those_of_a_template(location: str) -> None:
    keep_template(location, "t", command="x", tag=["a", "b"])
    job = enqueue(location, "--template", "t", "--tag", "b", "--tag", "c")
    assert list(job.tags) == ["a", "b", "c"]


def test_a_template_that_is_not_there_is_refused(location: str) -> None:
    said = run("enqueue", "--template", "nope", db=location)
    assert said.code == 1
    assert "there is no template 'nope'" in said.err


def test_the_environment_beats_what_is_configured(location: str) -> None:
    with patch.dict(os.environ, {"QUEUECTL_MAX_RETRIES": "1"}):
        assert enqueue(location, "x").attempts == 2


# --- waiting ---


def test_wait_shows_what_the_command_says_as_if_it_ran_here(location: str) -> None:
    with working(location):
        said = run_well("enqueue", "echo out; echo err >&2", "--wait", db=location)
    assert said.out == "out\n"
    assert said.err.endswith("err\n")


def test_wait_ends_with_3_when_the_command_fails(location: str) -> None:
    with working(location):
        said = run("enqueue", "exit 7", "--max-retries", 0, "--wait", db=location)
    assert said.code == 3
    assert "failed: Command exited with code 7" in said.err


def test_wait_in_json_is_one_document_at_the_end(location: str) -> None:
    with working(location):
        said = run_well("enqueue", "echo out", "--wait", "--json", db=location)
    assert said.json["status"] == "completed"
    assert [one["stdout"] for one in said.json["runs"]] == ["out\n"]


def test_wait_escapes_control_bytes_unless_raw(location: str) -> None:
    line = r'printf "\033[31mred\a\377"'
    with working(location):
        said = run_well("enqueue", line, "--wait", db=location)
        raw = run_well("enqueue", line, "--wait", "--raw", db=location)
    assert said.out == "\\x1b[31mred\\x07\ufffd"
    assert raw.out == "\x1b[31mred\x07\ufffd"


def test_wait_escapes_control_bytes_on_a_terminal_too(location: str) -> None:
    with working(location):
        code, seen = on_terminal("enqueue", r'printf "\033[31mred"', "--wait", db=location)
    assert code == 0
    assert "\\x1b[31mred" in seen
    assert "\x1b" not in seen


def test_raw_goes_with_wait(tmp_path: Path) -> None:
    said = run("enqueue", "x", "--raw", db=str(tmp_path / "jobs.db"))
    assert (said.code, said.err) == (2, "queuectl: --raw goes with --wait\n")
    assert list(tmp_path.iterdir()) == []


def waiting(location: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A process that waits for the job it has added."""
    return subprocess.Popen(
        command("enqueue", "true", "--wait", *arguments),
        env=environment(location),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_an_interrupted_wait_says_that_the_job_stays_and_how_to_cancel_it(location: str) -> None:
    process = waiting(location, "--id", "mine")
    assert process.stderr is not None
    assert process.stderr.readline() == b"added to default\n"
    assert process.stderr.readline() == b"waiting for job mine\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, b"")
    assert err == (
        b"job mine stays queued: `queuectl cancel mine` cancels it\nqueuectl: interrupted\n"
    )
    assert stored(location, "mine").state == "waiting"


def test_wait_says_once_why_a_job_does_not_begin(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "WAIT_NOTICE_AFTER", 0.2)
    answers: list[Said] = []

    def wait() -> None:
        answers.append(run("enqueue", "x", "--id", "mine", "--wait", db=location))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(1)
    queue = Queue("default", location)
    reason = run_blocking(queue.why("mine"))
    run_blocking(queue.cancel("mine"))
    queue.store.close()
    thread.join(PATIENCE)
    [said] = answers
    assert said.err.count(reason) == 1
    assert (said.code, said.out) == (3, "")


def test_wait_says_nothing_of_what_is_not_kept(location: str) -> None:
    with working(location):
        said = run_well("enqueue", "echo secret", "--no-output", "--wait", db=location)
    assert said.out == ""
    assert "left out" not in said.err


def test_wait_shows_what_a_function_returned(location: str) -> None:
    call = ["--module", "tests.cli.tasks.add", "--args", "[1, 2]"]
    with working(location):
        said = run_well("enqueue", *call, "--wait", db=location)
    assert said.out == "3\n"


# --- other types ---


def test_a_web_hook_has_a_url_a_method_headers_and_a_body(location: str) -> None:
    job = enqueue(
        location,
        *("--type", "http-webhook", "--url", "https://example.com/x", "--method", "put"),
        *("--header", "X-A: 1:2", "--header", "X-B:b", "--body", '{"a": 1}', "--timeout", "5"),
    )
    assert job.name == "http-webhook"
    assert job.data == {
        "url": "https://example.com/x",
        "method": "PUT",
        "headers": {"X-A": "1:2", "X-B": "b"},
        "body": '{"a": 1}',
        "timeout": 5,
    }


def test_a_url_alone_is_a_web_hook_that_is_posted_to(location: str) -> None:
    job = enqueue(location, "--url", "https://example.com/x")
    assert (job.name, job.data["method"]) == ("http-webhook", "POST")


def test_a_python_function_has_arguments(location: str) -> None:
    job = enqueue(
        location,
        *("--type", "python-function", "--module", "tests.cli.tasks.add"),
        *("--args", "[1, 2]", "--kwargs", '{"start": 10}'),
    )
    assert job.name == "python-function"
    with working(location):
        run_well("wait", job.id, "--timeout", "20s", db=location)
    assert stored(location, job.id).return_value == 13


# --- what is refused ---

BAD: list[tuple[list[str], str]] = [
    ([], 'give a command, such as: queuectl enqueue "echo hello"'),
    ([""], "give a command"),
    (["x", "--priority", "high"], "'--priority'"),
    (["x", "--priority", "9999999"], "priority must be between"),
    (["x", "--timeout", "soon"], "timeout must be a time"),
    (["x", "--timeout", "0"], "timeout must be more than 0"),
    (["x", "--run-at", "soon"], "--run-at must be such as"),
    (["x", "--delay", "-5"], "delay must be a time"),
    (
        ["x", "--delay", "5", "--run-at", "+5s"],
        "--run-at and --delay say the same thing in two ways; give one",
    ),
    (["x", "--max-retries", "-1"], "--max-retries must be from 0"),
    (["x", "--max-retries", "many"], "'--max-retries'"),
    (["x", "--backoff", "sometimes:5s"], "backoff must be such as"),
    (["x", "--backoff", "fixed:x"], "backoff must be a time"),
    (["x", "--id", "123"], "--id must not be all digits"),
    (["x", "--id", "a\x07b"], "control"),
    (["x", "--queue", "a\nb"], "control"),
    (["x", "--queue", ""], "--queue must"),
    (["x", "--queue", "123"], "--queue must not be all digits"),
    (["x", "--env-from", "A=B"], "--env-from takes the name of a variable"),
    (["x", "--cwd", "no-such-folder"], "--cwd: there is no folder "),
    (["x", "--stdin", "no-such-file"], "--stdin: there is no file "),
    (["x", "--notify-on-failure", "https://me:hidden@example.com"], "user or a password"),
    (["x", "--queue", "q" * 256], "255"),
    (["x", "--env", "NOVALUE"], "env must be such as NAME=VALUE"),
    (["x", "--env", "=v"], "env must be such as NAME=VALUE"),
    (["x", "--memory", "lots"], "memory must be such as"),
    (["x", "--cpu", "x"], "cpu must be a time"),
    (["x", "--cpu", "0"], "--cpu must be more than 0 seconds; leave it out for none"),
    (["  "], "command is blank: give one, such as echo hello"),
    (["x", "--type", "java"], "'--type'"),
    (["x", "--url", "https://example.com"], "command is for jobs of type shell"),
    (["--type", "http-webhook"], "give --url"),
    (["--type", "python-function"], "give --module"),
    (["--type", "http-webhook", "--url", "ftp://x"], "URL must begin with http"),
    (["--url", "https://me:hidden@example.com"], "user or a password"),
    (["--url", "https://exa mple.com"], "spaces"),
    (["--url", "https://example.com:0"], "port 0"),
    (["--url", "https://x", "--timeout", "2h"], "timeout must be more than 0 and at most 3600 s"),
    (["--url", "https://x", "--header", "Content-Length: 5"], "content-length cannot be chosen"),
    (["--url", "https://x", "--header", "A: \x07"], "characters that no header may hold"),
    (["--url", "https://x", "--header", "A: b\r\nC: d"], "characters that no header may hold"),
    (["--url", "https://x", "--header", "\r\nA: b"], "characters that no header may hold"),
    (["--url", "https://x", "--method", "FETCH"], "method must be one of"),
    (["--url", "https://x", "--header", "novalue"], "header must be such as NAME:VALUE"),
    (["--url", "https://x", "--cwd", "/"], "cwd is for jobs of type shell"),
    (["--url", "https://x", "--module", "a.b"], "module is for jobs of type python-function"),
    (["--module", "nodots"], "module must name a function"),
    (["--module", "a.b", "--args", "{}"], "args must be an array"),
    (["--module", "a.b", "--args", "[1"], "--args must be JSON"),
    (["--module", "a.b", "--kwargs", "[]"], "kwargs must be an object"),
    (["x", "--args", "[1]"], "args is for jobs of type python-function"),
    (["x", "--type", "shell", "--body", "b"], "body is for jobs of type http-webhook"),
    (["x" * 1_100_000], "exceeds the limit"),
    (["x", "--tag", "a\tb"], "a tag"),
    (["x", "--colour"], "--colour"),
    (["x", "y"], "unexpected extra argument"),
]


@pytest.mark.parametrize(("arguments", "problem"), BAD, ids=[" ".join(a)[:40] for a, _ in BAD])
def test_bad_input_is_one_line_and_makes_no_database(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    path = tmp_path / "jobs.db"
    said = run("enqueue", *arguments, db=str(path))
    assert (said.code, said.out) == (2, "")
    assert problem in said.err
    assert said.err.startswith("queuectl: ")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--template", "x"], ["x", "--after", "5"]])
def test_what_refers_to_something_makes_no_database(tmp_path: Path, arguments: list[str]) -> None:
    said = run("enqueue", *arguments, db=str(tmp_path / "jobs.db"))
    assert said.code == 1
    assert list(tmp_path.iterdir()) == []


def test_bad_input_changes_nothing_in_a_database(database: Database) -> None:
    run_well("enqueue", "x", db=database.location)
    before = {table: database.rows(table) for table in database.tables}
    for arguments in (["x", "--queue", "new", "--priority", "9999999"], ["--url", "x"]):
        assert run("enqueue", *arguments, db=database.location).code == 2
    assert {table: database.rows(table) for table in database.tables} == before


def test_a_bad_variable_of_the_environment_is_told_of(location: str) -> None:
    with patch.dict(os.environ, {"QUEUECTL_MAX_RETRIES": "many"}):
        said = run("enqueue", "x", db=location)
    assert said.code == 2
    assert "QUEUECTL_MAX_RETRIES must be a whole number" in said.err


def test_the_first_job_makes_the_database(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    said: Said = run_well("enqueue", "x", db=str(path))
    assert said.out == "1\n"
    assert path.stat().st_mode & 0o777 == 0o600 or sys.platform == "win32"
    assert json.loads(run_well("list", "--json", db=str(path)).out)["jobs"]
