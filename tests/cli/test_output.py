"""`queuectl output`: what a command said."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from bullite import Store
from bullite.cli.console import Console
from bullite.cli.follow_output import OutputFollower
from bullite.cli.session import Session
from bullite.client.key_values import set_value
from bullite.client.runtime.blocking import run_blocking
from bullite.commands import history
from bullite.commands.output import StoredStream
from tests.cli.program import Said, command, environment, run, run_well
from tests.cli.running_worker import working

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def ended(location: str, *arguments: object) -> str:
    """The id of a job that was run."""
    job_id = run_well("enqueue", *arguments, db=location).out.strip()
    with working(location):
        run("wait", job_id, "--timeout", "20s", db=location)
    return job_id


def configure(location: str, **values: Any) -> None:
    store = Store(location)
    for name, value in values.items():
        run_blocking(set_value(store, "config", name, value))
    store.close()


def raw(location: str, *arguments: object) -> tuple[bytes, bytes]:
    done = subprocess.run(
        command("output", *arguments, "--raw"),
        env=environment(location),
        capture_output=True,
        timeout=30,
        check=True,
    )
    return done.stdout, done.stderr


def test_it_is_laid_out_as_in_the_document(location: str) -> None:
    line = "echo 'Processing 1000 records...'; echo 'Success!'; echo 'Warning: Deprecated' >&2"
    job_id = ended(location, line, "--priority", 5, "--timeout", 30)
    expected = f"""--- Job {job_id} ---
Command: {re.escape(line)}
State: completed
Priority: 5
Attempts: 1/4
Timeout: 30s
Started: {TIME}
Completed: {TIME}
Duration: \\d+ms
Created: {TIME}

--- Output ---
STDOUT:
Processing 1000 records...
Success!

STDERR:
Warning: Deprecated
"""
    said = run_well("output", job_id, db=location)
    assert re.fullmatch(expected, said.out), said.out
    assert said.err == ""


def test_a_job_that_has_not_run_has_said_nothing(location: str) -> None:
    job_id = run_well("enqueue", "x", db=location).out.strip()
    said = run_well("output", job_id, db=location)
    expected = f"""--- Job {job_id} ---
Command: x
State: pending
Priority: 0
Attempts: 0/4
Created: {TIME}

--- Output ---
STDOUT:


STDERR:

"""
    assert re.fullmatch(expected, said.out), said.out


def test_a_failure_tells_its_reason_and_exit_code(location: str) -> None:
    out = run_well("output", ended(location, "exit 7", "--max-retries", 0), db=location).out
    assert "State: dead\n" in out
    assert "Attempts: 1/1\n" in out
    assert "Error: Command exited with code 7\n" in out
    assert "Exit code: 7\n" in out


@pytest.fixture
def thrice(location: str, tmp_path: Path) -> str:
    """A job that was run three times, and says each time which."""
    configure(location, retry_delay_type="fixed", fixed_retry_delay=0)
    count = tmp_path / "count"
    line = f"echo x >> {count}; echo run $(wc -l < {count}); [ $(wc -l < {count}) = 3 ]"
    return ended(location, line)


def test_of_several_attempts_the_last_is_shown(location: str, thrice: str) -> None:
    out = run_well("output", thrice, db=location).out
    assert "Attempts: 3/4\n" in out
    assert "STDOUT:\nrun 3\n\n" in out


def test_an_attempt_may_be_chosen(location: str, thrice: str) -> None:
    out = run_well("output", thrice, "--attempt", 1, db=location).out
    assert "STDOUT:\nrun 1\n\n" in out
    assert raw(location, thrice, "--attempt", 2) == (b"run 2\n", b"")


def test_an_attempt_that_was_not_made_is_refused(location: str, thrice: str) -> None:
    said = run("output", thrice, "--attempt", 4, db=location)
    assert (said.code, said.out) == (1, "")
    assert said.err == f"queuectl: job {thrice} has no output of attempt 4\n"
    assert run("output", thrice, "--attempt", 0, db=location).code == 2


def test_json_has_every_attempt(location: str, thrice: str) -> None:
    told = run_well("output", thrice, "--json", db=location).json
    assert (told["state"], told["status"]) == ("completed", "completed")
    assert [one["stdout"] for one in told["runs"]] == ["run 1\n", "run 2\n", "run 3\n"]
    assert [one["exit_code"] for one in told["runs"]] == [1, 1, 0]
    assert [one["attempt"] for one in told["runs"]] == [1, 2, 3]


EVERY_BYTE = bytes(range(256))


def test_raw_output_is_what_was_said_byte_for_byte(location: str, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(EVERY_BYTE)
    job_id = ended(location, f"cat {tmp_path}/bytes; cat {tmp_path}/bytes >&2; printf x")
    assert raw(location, job_id) == (EVERY_BYTE + b"x", EVERY_BYTE)


def test_control_bytes_are_escaped_otherwise(location: str) -> None:
    job_id = ended(location, r"printf 'a\033[31mb\007\tc\302\233d\n'")
    out = run_well("output", job_id, db=location).out
    assert "STDOUT:\na\\x1b[31mb\\x07\tc\\x9bd\n" in out
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", out)


def test_what_was_left_out_is_noted(location: str) -> None:
    configure(location, max_output_size=1000)
    job_id = ended(location, "head -c 5000 /dev/zero | tr '\\0' a")
    out = run_well("output", job_id, db=location).out
    assert "[... 4000 bytes left out ...]" in out
    told = run_well("output", job_id, "--json", db=location).json
    assert told["runs"][0]["stdout_dropped_bytes"] == 4000


def test_of_long_lines_that_are_redacted_it_is_said_why_they_are_left_out(location: str) -> None:
    configure(location, max_output_size=1000, redact_output=["hunter2"])
    job_id = ended(location, "head -c 5000 /dev/zero | tr '\\0' a")
    said = run_well("output", job_id, db=location)
    assert "[... 5000 bytes left out ...]" in said.out
    assert said.err == (
        "a line that was cut is left out: what is left of it cannot be checked for what "
        "redact_output takes out\n"
    )


# --- following ---

SAYING = "for i in 1 2 3 4 5 6; do echo out $i; echo err $i >&2; sleep 0.15; done; printf 'ü end'"


def follow(location: str, job_id: str, *arguments: object) -> Said:
    """Follow a job from before it begins."""
    answers: list[Said] = []
    thread = threading.Thread(
        target=lambda: answers.append(run("output", job_id, "--follow", *arguments, db=location))
    )
    thread.start()
    with working(location):
        thread.join(30)
    assert answers
    return answers[0]


def test_following_shows_all_of_it_and_nothing_twice(location: str) -> None:
    job_id = run_well("enqueue", SAYING, db=location).out.strip()
    said = follow(location, job_id)
    assert said.code == 0
    assert said.out == "".join(f"out {n}\n" for n in range(1, 7)) + "ü end"
    errors = "".join(f"err {n}\n" for n in range(1, 7))
    assert said.err == f"{errors}job {job_id} is completed\n"


def test_following_goes_on_over_retries(location: str, tmp_path: Path) -> None:
    configure(location, retry_delay_type="fixed", fixed_retry_delay=0)
    count = tmp_path / "count"
    line = (
        f"echo x >> {count}; echo begin; sleep 0.4; echo run $(wc -l < {count}); "
        f"[ $(wc -l < {count}) = 3 ]"
    )
    job_id = run_well("enqueue", line, db=location).out.strip()
    said = follow(location, job_id)
    assert said.out == "".join(f"begin\nrun {n}\n" for n in (1, 2, 3))


def test_following_in_json_is_a_document_a_line(location: str) -> None:
    job_id = run_well("enqueue", SAYING, db=location).out.strip()
    pieces = [json.loads(line) for line in follow(location, job_id, "--json").lines]
    out = "".join(piece["data"] for piece in pieces if piece["stream"] == "stdout")
    assert out == "".join(f"out {n}\n" for n in range(1, 7)) + "ü end"


def test_following_escapes_control_bytes_unless_raw(location: str) -> None:
    line = r"printf 'a\033b'; sleep 0.5; printf 'c\007'"
    job_id = run_well("enqueue", line, db=location).out.strip()
    assert follow(location, job_id).out == r"a\x1bbc\x07"
    job_id = run_well("enqueue", line, db=location).out.strip()
    assert follow(location, job_id, "--raw").out == "a\x1bbc\x07"


def test_a_character_that_comes_in_two_pieces_is_shown_as_one(location: str) -> None:
    line = r"printf '\303'; sleep 0.6; printf '\274'"
    job_id = run_well("enqueue", line, db=location).out.strip()
    assert follow(location, job_id).out == "ü"


def test_following_what_says_too_much_misses_only_what_is_noted(location: str) -> None:
    configure(location, max_output_size=1000)
    line = "echo begin; sleep 0.5; head -c 5000 /dev/zero | tr '\\0' a; echo; echo end"
    job_id = run_well("enqueue", line, db=location).out.strip()
    out = follow(location, job_id).out
    assert out.count("begin") == 1
    assert out.count("end\n") == 1
    assert len(out) <= 6 + 5000 + 5 + 40


def test_following_a_job_that_has_ended_shows_it(location: str) -> None:
    job_id = ended(location, "echo hi")
    out = run_well("output", job_id, "-f", db=location).out
    assert out.startswith(f"--- Job {job_id} ---\n")
    assert out.count("hi\n") == 2, "in the command, and in what it said"


def test_what_is_known_already_is_not_told_again() -> None:
    kept = StoredStream(b"0123", b"6789", 2)
    note = b"\n[... %d bytes left out ...]\n"
    assert kept.whole() == b"0123" + note % 2 + b"6789"
    rests = [kept.after(seen) for seen in (2, 4, 5, 6, 8, 10, 99)]
    assert rests == [
        b"23" + note % 2 + b"6789",
        note % 2 + b"6789",
        note % 1 + b"6789",
        b"6789",
        b"89",
        b"",
        b"",
    ]


def test_after_a_gap_it_goes_on_behind_its_last_words() -> None:
    voice = OutputFollower(Session(None, Console(as_json=True)), raw=False)
    voice.print_chunk(history.LiveChunk(1, 9, "stdout", b"pieces were dropped before this one"))
    kept = StoredStream(b"head", b"dropped before this one, and the end", 4_000)
    assert voice._rest_of("stdout", kept) == b", and the end"
