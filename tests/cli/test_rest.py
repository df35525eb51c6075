"""What is promised of the program and of the commands it runs, and has no better place."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

from bullite import Queue
from bullite.cli import times
from bullite.cli.console import Progress
from bullite.cli.verbs import worker

from .program import run_well
from .running_worker import working
from .setup_jobs import dead

PAGE = Path(__file__).parents[2] / "docs" / "queuectl.md"


def test_the_program_has_two_names() -> None:
    ours = [one for one in entry_points(group="console_scripts") if one.value == "bullite.cli:main"]
    assert {one.name for one in ours} == {"bullite", "queuectl"}


def test_a_job_in_json_has_the_fields_that_are_documented(location: str) -> None:
    run_well("enqueue", "x", db=location)
    [job] = run_well("list", "--json", db=location).json["jobs"]
    told = PAGE.read_text().partition("A job in JSON:")[2].partition("Times are")[0]
    assert list(job) == re.findall(r"`(\w+)`", told)


@pytest.mark.parametrize("verb", [worker.start, worker.stop])
def test_running_jobs_are_waited_for_30_seconds_unless_told_otherwise(verb: click.Command) -> None:
    [timeout] = [option for option in verb.params if option.name == "timeout"]
    assert times.seconds("--timeout", str(timeout.default)) == 30


def test_of_each_stream_100_kb_are_kept_unless_configured(location: str) -> None:
    job = run_well("enqueue", "head -c 100001 /dev/zero; echo hi >&2", db=location).out.strip()
    with working(location):
        run_well("wait", job, db=location)
    [told] = run_well("output", job, "--json", db=location).json["runs"]
    assert (told["stdout_dropped_bytes"], told["stderr_dropped_bytes"]) == (1, 0)


def said_by(location: str, command: str) -> list[str]:
    with working(location):
        return run_well("enqueue", command, "--wait", db=location).out.split()


def test_a_command_leads_a_session_and_a_group_of_its_own(location: str) -> None:
    assert len(set(said_by(location, "echo $$; ps -o pgid= -o sid= -p $$"))) == 1


def test_a_command_begins_with_the_usual_signals(location: str) -> None:
    blocked, ignored = said_by(location, "sed -n 's/^Sig[BI].*:.//p' /proc/self/status")
    assert int(blocked, 16) == 0
    assert not int(ignored, 16) & 1 << 12, "PIPE, which Python ignores"


def test_nothing_but_the_command_is_read_by_a_shell(location: str, tmp_path: Path) -> None:
    evil = f"$(touch {tmp_path}/x); touch {tmp_path}/x"
    options = ["--id", evil, "--tag", evil, "--env", f"A={evil}", "--queue", evil]
    job = run_well("enqueue", 'echo "$A"', *options, db=location).out.strip()
    with working(location, evil):
        run_well("wait", job, db=location)
    assert f"STDOUT:\n{evil}\n" in run_well("output", job, db=location).out
    assert list(tmp_path.glob("x")) == []


def test_a_job_of_a_batch_may_say_its_type(location: str) -> None:
    lines = '{"type": "shell", "command": "x"}\n{"type": "http-webhook", "url": "https://a.org"}\n'
    run_well("enqueue-batch", "-", db=location, stdin=lines)
    jobs = run_well("list", "--json", db=location).json["jobs"]
    assert [job["name"] for job in jobs] == ["http-webhook", "shell"]


@pytest.mark.parametrize(
    "verb", ["retry --all", "cleanup --older-than 0 --state dead --yes", "dlq purge --yes", "drain"]
)
async def test_how_far_it_is_is_shown_to_who_waits(
    queue: Queue, location: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dead(queue)
    await queue.add("a")
    at = Progress.at

    def later(bar: Progress, done: int) -> None:
        bar._started = bar._updated = bar._clock() - 10
        at(bar, done)

    monkeypatch.setattr(Progress, "at", later)
    words = ["drain", "emails", "--yes"] if verb == "drain" else verb.split()
    assert "/s\x1b[K" in run_well(*words, db=location, terminal=True).err
    assert "/s" not in run_well(*words, db=location).err
