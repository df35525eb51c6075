"""`queuectl enqueue-batch`: jobs from a file or a pipe."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bullite import Job, Queue
from bullite.cli.verbs import enqueue_batch
from bullite.client.runtime.blocking import iterate_blocking, run_blocking
from tests.cli.program import Said, command, environment, run, run_well


def jobs_in(location: str, name: str = "default") -> list[Job]:
    queue = Queue(name, location)
    try:
        run_blocking(queue.wait_until_ready())
        states = ("waiting", "prioritized", "delayed", "waiting-children")
        jobs = [job for state in states for job in iterate_blocking(queue.iter_jobs(state))]
        return sorted(jobs, key=lambda job: job.pk)
    finally:
        queue.store.close()


def commands_in(location: str, name: str = "default") -> list[str]:
    return [job.data["command"] for job in jobs_in(location, name)]


def add(location: str, content: str | bytes, *arguments: object) -> Said:
    return run_well("enqueue-batch", "-", *arguments, db=location, stdin=content)


def refused(location: str, content: str | bytes, *arguments: object, code: int = 2) -> str:
    said = run("enqueue-batch", "-", *arguments, db=location, stdin=content)
    assert (said.code, said.out) == (code, "")
    assert said.err.count("\n") == 1
    return said.err


# --- what a file may hold ---


def test_every_line_of_a_plain_file_is_a_command(location: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.txt"
    file.write_text("echo 1\n  echo 2  \n\n\t\necho 3 # ü")
    said = run_well("enqueue-batch", file, db=location)
    assert said.out == "3 jobs added\n"
    assert commands_in(location) == ["echo 1", "  echo 2  ", "echo 3 # ü"]


def test_every_line_may_be_an_object_or_text_in_json(location: str) -> None:
    lines = [{"command": "echo 1", "priority": 5}, {"argv": ["ls", "a b", ""]}, "echo 3"]
    add(location, "".join(json.dumps(line) + "\n" for line in lines))
    one, two, three = jobs_in(location)
    assert (one.data, one.priority) == ({"command": "echo 1"}, 5)
    assert two.data == {"argv": ["ls", "a b", ""]}
    assert three.data == {"command": "echo 3"}


@pytest.mark.parametrize(
    "text",
    [
        '[\n {"command":\n "a"},\n\n "b"\n, {"command": "c"}\n]\n',
        '["a", {"command": "b"},"c"]',
        '\n\n  [ "a" , "b" , "c" ]  \n\n',
    ],
)
def test_a_file_may_be_one_array(location: str, text: str) -> None:
    add(location, text)
    assert commands_in(location) == ["a", "b", "c"]


def test_an_array_on_one_line_may_be_longer_than_any_line(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueue_batch, "MAX_LINE_LENGTH", 10_000)
    monkeypatch.setattr(enqueue_batch, "BLOCK", 100)
    names = [f"echo ü{n}" for n in range(2_000)]
    add(location, json.dumps([{"command": name} for name in names], ensure_ascii=False))
    assert commands_in(location) == names


def test_what_the_file_holds_may_be_said(location: str) -> None:
    add(location, "{echo 1; echo 2; }\n", "--input", "lines")
    add(location, '"x"\n', "--input", "jsonl")
    add(location, '["y"]', "--input", "json")
    assert commands_in(location) == ["{echo 1; echo 2; }", "x", "y"]


def test_every_line_may_be_text_in_json(location: str) -> None:
    add(location, '"echo \\"a\\""\n"echo b"\n{"command": "echo c"}\n')
    assert commands_in(location) == ['echo "a"', "echo b", "echo c"]


def test_a_first_line_that_only_begins_with_a_quote_is_a_command(location: str) -> None:
    add(location, '"my prog" -v\necho b\n')
    assert commands_in(location) == ['"my prog" -v', "echo b"]


def test_an_object_among_plain_lines_is_one(location: str) -> None:
    add(location, 'echo a\n  {"command": "echo b", "priority": 5}\necho c\n')
    assert commands_in(location) == ["echo a", "echo b", "echo c"]
    assert [job.priority for job in jobs_in(location)] == [0, 5, 0]


def test_a_plain_line_in_braces_that_is_no_object_is_a_command(location: str) -> None:
    lines = ["echo a", "{ echo b; }", '{"a",b}', '{"command": "c"', '"echo d"']
    add(location, "\n".join(lines))
    assert commands_in(location) == lines


def test_a_bad_object_among_plain_lines_is_told_by_its_number(location: str) -> None:
    assert "line 2: unknown option" in refused(location, 'a\n{"colour": 1}\n')


@pytest.mark.parametrize(
    "lines",
    [
        "[ -f x ] && echo yes\n",
        '[ "$a" ]\necho b\n',
        "[[ -f x ]] && echo yes\n",
        "{ echo a; }\n",
    ],
)
def test_commands_that_look_like_json_are_refused_with_what_to_say(
    location: str, lines: str
) -> None:
    assert "if it holds commands, say --input lines; " in refused(location, lines)
    add(location, lines, "--input", "lines")
    assert commands_in(location) == lines.splitlines()


def test_what_is_known_to_be_json_is_not_taken_for_commands(location: str) -> None:
    for content, form in (('{"command": "a"}\n{bad\n', "auto"), ("{bad\n", "jsonl"), ("[", "json")):
        assert "--input" not in refused(location, content, "--input", form)


@pytest.mark.parametrize("content", ["", "\n \n", "[]", " [ ] \n"])
def test_an_empty_file_adds_nothing(location: str, content: str) -> None:
    said = add(location, content)
    assert said.out == "0 jobs added\n"


def test_a_byte_order_mark_is_passed_over(location: str) -> None:
    for content in ("echo 1\n", '{"command": "echo 2"}\n', '["echo 3"]'):
        add(location, b"\xef\xbb\xbf" + content.encode())
    assert commands_in(location) == ["echo 1", "echo 2", "echo 3"]


def test_windows_line_ends_are_no_part_of_a_command(location: str) -> None:
    add(location, b"echo 1\r\necho 2\r\n\r\n")
    add(location, b'{"command": "echo 3"}\r\n{"command": "echo 4"}\r\n')
    assert commands_in(location) == ["echo 1", "echo 2", "echo 3", "echo 4"]


# --- options ---


def test_options_go_by_their_long_names_with_either_dash(location: str) -> None:
    job = {
        "command": "x",
        "queue": "q",
        "priority": 7,
        "timeout": 30,
        "run-at": "2090-01-01",
        "max_retries": 0,
        "tags": ["a", "b"],
        "env": {"A": "1"},
        "env-from": ["B"],
        "no_output": True,
        "backoff": "linear:5s",
    }
    add(location, json.dumps(job))
    [found] = jobs_in(location, "q")
    assert (found.priority, found.attempts, found.state) == (7, 1, "delayed")
    assert list(found.tags) == ["a", "b"]
    assert found.opts["backoff"] == {"type": "linear", "delay": 5_000}
    assert found.data == {
        "command": "x",
        "timeout": 30,
        "env": {"A": "1"},
        "env_from": ["B"],
        "no_output": True,
    }


def test_other_types_of_jobs_may_be_added(location: str) -> None:
    lines = [
        {"url": "https://example.com", "headers": {"X": "1"}, "body": {"a": 1}},
        {"module": "tasks.process", "args": [1], "kwargs": {"a": 2}},
    ]
    add(location, json.dumps(lines))
    assert [job.name for job in jobs_in(location)] == ["http-webhook", "python-function"]
    assert jobs_in(location)[0].data["body"] == {"a": 1}


def test_values_of_variables_may_be_numbers_and_empty(location: str) -> None:
    add(location, json.dumps({"command": "x", "env": {"A": 1, "B": 2.5, "C": ""}}))
    assert jobs_in(location)[0].data["env"] == {"A": "1", "B": "2.5", "C": ""}


def test_an_option_of_an_object_beats_its_template_which_beats_the_configuration(
    location: str,
) -> None:
    run_well("config", "set", "max_retries", 9, db=location)
    options = ["--priority", 5, "--timeout", 30, "--no-output", "--env", "A=1", "--tag", "t"]
    run_well("template", "create", "t", "--command", "x", *options, db=location)
    own = {"priority": 0, "no_output": False, "env": {"B": "2"}, "tags": ["own"]}
    add(location, json.dumps([{"template": "t"}, {"template": "t", **own}]))
    one, two = jobs_in(location)
    plain = {"command": "x", "timeout": 30}
    assert (one.priority, one.attempts, list(one.tags)) == (5, 10, ["t"])
    assert one.data == {**plain, "no_output": True, "env": {"A": "1"}}
    assert (two.priority, list(two.tags)) == (0, ["t", "own"])
    assert two.data == {**plain, "env": {"A": "1", "B": "2"}}


def test_a_template_that_is_not_there_is_told_by_its_line(location: str) -> None:
    run_well("enqueue", "x", db=location)
    err = refused(location, '{"command": "a"}\n{"template": "nope"}\n')
    assert err.startswith("queuectl: line 2: there is no template 'nope'")


def test_batch_resolves_relative_paths_against_its_working_directory(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    add(location, json.dumps({"command": "x", "cwd": "below"}))
    assert jobs_in(location)[0].data["cwd"] == str(tmp_path / "below")
    assert "cwd: there is no folder" in refused(location, '{"command": "x", "cwd": "above"}')


def test_without_a_mail_server_it_is_said_once_that_no_mail_will_be_sent(location: str) -> None:
    line = json.dumps({"command": "x", "notify_on_failure": "user@example.com"})
    assert add(location, f"{line}\n{line}\n").err.count("smtp_host") == 1


def test_it_is_said_once_that_a_private_address_will_not_be_called(location: str) -> None:
    calls = [{"url": "http://127.0.0.1"}, {"command": "x", "notify_on_failure": "http://[::1]/"}]
    lines = [*calls, {"command": "x", "notify_on_failure": "user@example.com"}]
    err = add(location, "\n".join(map(json.dumps, lines))).err
    assert [err.count(key) for key in ("allow_private_webhooks", "smtp_host")] == [1, 1]


def test_the_option_queue_is_for_those_that_name_none(location: str) -> None:
    add(location, '{"command": "a"}\n{"command": "b", "queue": "mine"}\n', "--queue", "theirs")
    assert commands_in(location, "theirs") == ["a"]
    assert commands_in(location, "mine") == ["b"]


def test_jobs_that_share_some_options_have_each_their_own(location: str) -> None:
    lines = [{"command": str(n), "priority": n % 3, "max_retries": n % 2} for n in range(50)]
    add(location, "\n".join(map(json.dumps, lines)))
    found = [(job.data["command"], job.priority, job.attempts) for job in jobs_in(location)]
    assert found == [(str(n), n % 3, n % 2 + 1) for n in range(50)]


def test_a_job_may_come_after_one_that_is_there(location: str) -> None:
    first = run_well("enqueue", "x", db=location).out.strip()
    add(location, json.dumps({"command": "y", "after": first}))
    add(location, json.dumps({"command": "z", "after": [first]}))
    assert [job.state for job in jobs_in(location)] == ["waiting", *["waiting-children"] * 2]


def test_a_job_may_come_after_one_of_a_line_before_it(location: str) -> None:
    lines = [
        {"command": "a", "id": "aa"},
        {"command": "b", "id": "bb", "queue": "other", "after": ["aa"]},
        {"command": "c", "after": ["aa", "bb"]},
    ]
    add(location, "\n".join(map(json.dumps, lines)))
    states = [job.state for name in ("default", "other") for job in jobs_in(location, name)]
    assert states == ["waiting", "waiting-children", "waiting-children"]
    last = jobs_in(location)[1].opts["depends_on"]
    assert [list(one) for one in last] == [["default", "aa"], ["other", "bb"]]


def test_a_job_may_come_after_one_of_a_chunk_before(location: str) -> None:
    lines = [{"command": "a", "id": "aa"}, {"command": "b", "after": "aa"}]
    add(location, "\n".join(map(json.dumps, lines)), "--chunk", 1)
    assert [job.state for job in jobs_in(location)] == ["waiting", "waiting-children"]


def test_ids_that_are_taken_are_counted_apart(location: str) -> None:
    add(location, '{"command": "a", "id": "one"}\n')
    lines = [{"command": "b", "id": id} for id in ("one", "two", "two")] + [{"command": "b"}]
    said = add(location, "\n".join(map(json.dumps, lines)))
    assert said.out == "2 jobs added, 2 were there already\n"
    assert commands_in(location) == ["a", "b", "b"]
    said = add(location, '{"command": "a", "id": "one"}\n', "--json")
    assert said.json == {"added": 0, "existing": 1}


# --- what is refused ---

BAD: list[tuple[str | bytes, int, str]] = [
    ('{"command": "a"}\n{"command": "b"\n', 2, "not JSON"),
    ('{"command": "a"}\n\n5\n', 3, "a job is text or an object, not 5"),
    ('{"command": "a"}\n{"command": "b", "colour": 1}\n', 2, "unknown option 'colour'"),
    ('{"command": 5}\n', 1, "command must be text, not 5"),
    ('{"command": ""}\n', 1, "give a command"),
    ("{}\n", 1, "give a command"),
    ('{"command": "a", "argv": ["b"]}\n', 1, "give command or argv, not both"),
    ('{"argv": "ls -l"}\n', 1, "argv must be a list"),
    ('{"argv": [1]}\n', 1, "argv must be text"),
    ('{"command": "a", "priority": 1}\n{"command": "a", "priority": true}\n', 2, "priority must"),
    ('{"command": "a", "priority": 1.5}\n', 1, "priority must be a whole number"),
    ('{"command": "a", "priority": 9999999}\n', 1, "priority must be between"),
    ('{"command": "a", "timeout": "soon"}\n', 1, "timeout must be a time"),
    ('"a"\n{"command": "a", "no_output": "false"}\n', 2, "no_output must be true or false"),
    ('{"command": "a", "clean-env": "no"}\n', 1, "clean_env must be true or false, not 'no'"),
    ('{"command": "a", "no_output": 0}\n', 1, "no_output must be true or false, not 0"),
    ('{"command": "a", "cpu": 0}\n', 1, "cpu must be more than 0 seconds"),
    ('{"command": " \\t "}\n', 1, "command is blank"),
    ('{"command": "b", "after": "aa"}\n{"command": "a", "id": "aa"}\n', 1, "there is no job aa"),
    ('{"command": "a", "timeout": [1]}\n', 1, "timeout must be a time"),
    ('{"command": "a", "id": "5"}\n', 1, "all digits"),
    ('{"command": "a", "id": 5}\n', 1, "id must be text"),
    ('{"command": "a", "queue": 5}\n', 1, "queue must be text"),
    ('{"command": "a", "queue": ""}\n', 1, "queue must be text"),
    ('{"command": "a", "run-at": "x"}\n', 1, ": run_at must be such as"),
    ('{"type": "http-webhook"}\n', 1, ": give url"),
    ('{"template": 5}\n', 1, "template must be text, not 5"),
    ('{"command": "a", "queue": "a\\nb"}\n', 1, "queue"),
    ('{"command": "a", "tags": {"b": 1}}\n', 1, "tag must be"),
    ('{"command": "a", "tags": [["b"]]}\n', 1, "tag must be"),
    ('{"command": "a", "env": 5}\n', 1, "env must be"),
    ('{"command": "a", "env": {"A": null}}\n', 1, "env A must be text, not None"),
    ('{"command": "a", "env": {"A": true}}\n', 1, "env A must be text, not True"),
    ('{"command": "a", "env": {"A": "\\u0000"}}\n', 1, "env A must be text"),
    ('{"url": "https://a.org", "headers": {"A": null}}\n', 1, "header A must be text, not None"),
    ('{"url": "https://a.org", "headers": {"Host": "b"}}\n', 1, "header host cannot be chosen"),
    ('{"command": "a", "after": "nope"}\n', 1, "there is no job nope"),
    ('{"command": "a\\u0000b"}\n', 1, "command must be text"),
    ('["a",\n"b"\n"c"]', 3, "a comma or ] must follow"),
    ('["a",\n\n{"command": 1}]', 3, "command must be text"),
    ('["a",]', 1, "a job must follow a comma"),
    ('["a"\n', 2, "a comma or ] must follow"),
    ('["a", {"command": "b"', 1, "not JSON"),
    ('["a"]\n["b"]', 2, "nothing may follow the array"),
    ('["a", NaN]', 1, "not JSON"),
    (b"echo 1\necho \xff\n", 2, "not UTF-8"),
    (b'["a", "\xff"]', 1, "not UTF-8"),
    (b"x\n" + b"y" * (2 * 1024 * 1024 + 1), 2, "longer than"),
    ("[" * 100_000, 1, "not JSON"),
    ('{"a":' * 100_000, 1, "not JSON"),
    ("x" * 1_100_000, 1, "exceeds the limit"),
    ("a\nb\x00c\n", 2, "command must be text"),
]


ARRAYS: list[tuple[str, str]] = [
    ('["a",\n\n{"command": 1}]', "line 3, element 2: command must be text"),
    ('["a", 5]', "line 1, element 2: a job is text or an object"),
    ('["a", {"command": "b"', "line 1, element 2: not JSON"),
    ('[{"command": "a", "id": "5"}]', "line 1, element 1: id must not be all digits"),
]


@pytest.mark.parametrize(("content", "problem"), ARRAYS, ids=range(len(ARRAYS)))
def test_a_bad_element_of_an_array_is_told_by_its_number_too(
    tmp_path: Path, content: str, problem: str
) -> None:
    err = refused(str(tmp_path / "jobs.db"), content)
    assert err.startswith(f"queuectl: {problem}")


def test_elements_that_are_refused_together_are_told_by_their_numbers(location: str) -> None:
    run_well("queues", "set", "default", "--max-waiting", 1, db=location)
    err = refused(location, '["a",\n"b"]', code=1)
    assert err.startswith("queuectl: lines 1 to 2, elements 1 to 2: ")


@pytest.mark.parametrize(("content", "line", "problem"), BAD, ids=range(len(BAD)))
def test_a_bad_line_is_told_by_its_number_and_no_database_is_made(
    tmp_path: Path, content: str | bytes, line: int, problem: str
) -> None:
    err = refused(str(tmp_path / "jobs.db"), content)
    assert re.match(rf"queuectl: line {line}(, element \d+)?: ", err)
    assert problem in err
    assert "nothing of its chunk was stored" in err
    assert list(tmp_path.iterdir()) == []


def test_chunks_before_a_bad_line_are_kept(location: str) -> None:
    lines = [f"echo {n}" for n in range(7)]
    content = "\n".join(json.dumps({"command": line}) for line in lines) + "\n{bad\n"
    err = refused(location, content, "--chunk", 3)
    assert err.startswith("queuectl: line 8: not JSON")
    assert err.endswith("nothing of its chunk was stored; 6 jobs before it were stored\n")
    assert commands_in(location) == lines[:6]


def test_what_the_queue_refuses_is_told_by_its_line(location: str) -> None:
    queue = Queue("default", location)
    run_blocking(queue.configure(max_payload_bytes=60))
    queue.store.close()
    refused(location, "short\n\n" + "x" * 100 + "\n", code=1)
    assert commands_in(location) == []


def test_a_chunk_over_several_queues_is_stored_as_a_whole(location: str) -> None:
    lines = [{"command": f"echo {n}", "queue": f"q{n % 3}", "priority": n} for n in range(6)]
    said = add(location, "\n".join(map(json.dumps, lines)))
    assert said.out == "6 jobs added\n"
    for number in range(3):
        stored = [(job.data["command"], job.priority) for job in jobs_in(location, f"q{number}")]
        assert stored == [(f"echo {n}", n) for n in (number, number + 3)]
    assert run("queues", "show", "q0", "--json", db=location).json["settings"][
        "priority_order"
    ] == ("high")


def test_a_full_queue_refuses_a_batch_as_it_refuses_one_job(location: str) -> None:
    run_well("queues", "set", "default", "--max-waiting", 1, db=location)
    said = run("enqueue-batch", "-", "--json", db=location, stdin="a\nb\n")
    assert (said.code, said.json["added"]) == (1, 0)
    assert said.err == f"queuectl: {said.json['error']}\n"
    run_well("enqueue", "a", db=location)
    assert run("enqueue", "b", db=location).code == said.code


def test_what_one_of_several_queues_refuses_is_stored_in_none(location: str) -> None:
    run_well("queues", "set", "small", "--max-waiting", 1, db=location)
    lines = [{"command": str(n), "queue": queue} for n, queue in enumerate(["big", *["small"] * 2])]
    err = refused(location, "\n" + "\n".join(map(json.dumps, lines)), code=1)
    assert err.startswith("queuectl: lines 2 to 4: ")
    assert "nothing of its chunk was stored" in err
    assert commands_in(location, "big") == commands_in(location, "small") == []


def test_a_bad_line_of_several_queues_is_told_by_its_number(location: str) -> None:
    run_well("queues", "set", "a", "--concurrency", 1, db=location)
    queue = Queue("b", location)
    run_blocking(queue.configure(default_job_options={"size_limit": 50}))
    queue.store.close()
    lines = [{"command": "x", "queue": "a"}, {"command": "y" * 100, "queue": "b"}]
    err = refused(location, "\n".join(map(json.dumps, lines)))
    assert err.startswith("queuectl: line 2: ")
    assert commands_in(location, "a") == commands_in(location, "b") == []


def test_ids_that_are_taken_are_counted_apart_in_every_queue(location: str) -> None:
    add(location, '{"command": "a", "id": "one", "queue": "q"}\n')
    lines = [{"command": "b", "id": "one", "queue": queue} for queue in ("p", "q", "p")]
    said = add(location, "\n".join(map(json.dumps, lines)))
    assert said.out == "1 job added, 2 were there already\n"
    assert commands_in(location, "q") == ["a"]
    assert commands_in(location, "p") == ["b"]


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for name in ("missing", "."):
        said = run("enqueue-batch", tmp_path / name, db=str(tmp_path / "jobs.db"))
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("queuectl: cannot read ")
        assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("queue", ["", "123", "a\nb"])
def test_a_bad_name_of_a_queue_is_refused(tmp_path: Path, queue: str) -> None:
    said = run("enqueue-batch", "-", "--queue", queue, db=str(tmp_path / "jobs.db"), stdin="x\n")
    assert said.code == 2
    assert said.err.startswith("queuectl: --queue must")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chunk", ["0", "100001", "x"])
def test_a_bad_size_of_chunks_is_refused(tmp_path: Path, chunk: str) -> None:
    said = run("enqueue-batch", "-", "--chunk", chunk, db=str(tmp_path / "jobs.db"))
    assert said.code == 2


# --- how it goes ---

PEAK = (
    "import resource, subprocess, sys\n"
    "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
)


def peak_of(file: Path, location: str) -> int:
    """KB that the program takes at most; as the only child of a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *command("enqueue-batch", file)],
        env=environment(location),
        capture_output=True,
        check=True,
        timeout=100,
    )
    return int(done.stdout)


@pytest.mark.parametrize("form", ["lines", "array"])
def test_three_times_as_many_jobs_take_no_more_memory(tmp_path: Path, form: str) -> None:
    peaks: list[int] = []
    # With fewer, SQLite's own cache of 16 MB would not be full, and count as growth.
    for number in (100_000, 300_000):
        file = tmp_path / f"jobs{number}"
        lines = (f"echo job {n}" for n in range(number))
        with file.open("w") as out:
            if form == "lines":
                out.writelines(f"{line}\n" for line in lines)
            else:
                out.write("[" + ", ".join(map(json.dumps, lines)) + "]")
        peaks.append(peak_of(file, f"sqlite:///{tmp_path}/{number}.db?durability=relaxed"))
    assert peaks[1] - peaks[0] < 8_000, peaks


def test_how_far_it_is_is_shown_on_a_terminal_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "jobs"
    file.write_text("echo 1\n" * 30_000)
    db = str(tmp_path / "jobs.db")
    # What is done within a second shows no bar: the clock is hurried.
    hurried = (
        "import time, itertools; ticks = itertools.count(0, 2); "
        "time.monotonic = lambda: float(next(ticks)); "
        "from bullite.cli import main; main()"
    )
    arguments = [sys.executable, "-c", hurried, "enqueue-batch", str(file), "--chunk", "5000"]
    quiet = subprocess.run(
        arguments, env=environment(db), capture_output=True, timeout=60, check=True
    )
    assert quiet.stderr == b""
    ours, theirs = pty.openpty()
    loud = subprocess.Popen(
        arguments, env=environment(db), stdout=subprocess.PIPE, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    shown = bytearray()
    reading = threading.Thread(target=read_all, args=(ours, shown))
    reading.start()
    out, _ = loud.communicate(timeout=60)
    reading.join(20)
    assert out == b"30000 jobs added\n"
    assert b"adding [" in shown
    rates = re.findall(rb"%, ([\d,]+) jobs/s", shown)
    assert rates
    assert all(int(rate.replace(b",", b"")) <= 2_500 for rate in rates), "5000 in 2 s or more"
    assert shown.endswith(b"\r\x1b[K")


def read_all(terminal: int, into: bytearray) -> None:
    """All that is written to a terminal, until nobody has it open any more."""
    try:
        while data := os.read(terminal, 65_536):
            into += data
    except OSError:
        pass
    os.close(terminal)


def test_json_is_one_document(location: str) -> None:
    assert add(location, "a\nb\n", "--json").json == {"added": 2, "existing": 0}


def test_json_tells_what_was_stored_before_a_bad_line(location: str) -> None:
    content = '{"command": "a"}\n' * 4 + "{bad\n"
    said = run("enqueue-batch", "-", "--chunk", 3, "--json", db=location, stdin=content)
    assert said.code == 2
    assert (said.json["added"], said.json["existing"]) == (3, 0)
    assert said.json["error"].startswith("line 5: not JSON")
    assert said.err == f"queuectl: {said.json['error']}\n"


def test_options_that_are_shared_do_not_mix_with_those_tied_to_others(location: str) -> None:
    first = run_well("enqueue", "x", db=location).out.strip()
    lines: list[dict[str, Any]] = [{"command": "a"}, {"command": "b", "after": first}]
    add(location, "\n".join(map(json.dumps, [*lines, {"command": "c"}])))
    states = {job.data["command"]: job.state for job in jobs_in(location)}
    assert states == {"x": "waiting", "a": "waiting", "b": "waiting-children", "c": "waiting"}
