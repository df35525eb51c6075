"""`queuectl show`: all that is known of one job."""

from __future__ import annotations

from bullite import Queue

from .concurrent_runs import LATER, have_run
from .program import run, run_well


async def test_a_job_is_shown_in_sections(queue: Queue, location: str) -> None:
    data = {"command": "echo hi", "timeout": 30}
    job = await queue.add("shell", data, priority=5, attempts=3, tags=["a", "b"], delay="1h")
    said = run_well("show", job.id, db=location)
    assert said.lines[0] == f"--- Job {job.id} ---"
    for line in (
        "Command: echo hi",
        "Queue: emails",
        "State: pending (delayed)",
        "Priority: 5",
        "Attempts: 0/3",
        "Timeout: 30s",
        "Tags: a, b",
        "Log lines: 0",
        "--- Data ---",
    ):
        assert line in said.lines


async def test_each_run_is_in_the_history(queue: Queue, location: str) -> None:
    [job] = await have_run(queue, "failed")
    said = run_well("show", job.id, db=location)
    assert "--- History ---" in said.lines
    assert said.lines[-1].startswith("1. ")
    assert ": error after " in said.lines[-1]
    assert said.lines[-1].endswith("not this time")


async def test_json_has_the_history_and_what_is_waited_for(queue: Queue, location: str) -> None:
    first = await queue.add("a", **LATER)
    [done] = await have_run(queue, "completed", depends_on=[])
    job = await queue.add("b", depends_on=[first.id, done.id])
    await job.log("a line")
    shown = run_well("show", job.id, "--json", db=location).json

    assert (shown["id"], shown["state"], shown["status"]) == (job.id, "waiting-children", "pending")
    assert [one["id"] for one in shown["depends_on"]] == [first.id, done.id]
    assert shown["depends_on"][0] == {"queue": "emails", "id": first.id, "state": "pending"}
    assert shown["history"] == []
    assert shown["logs"] == 1

    [run] = run_well("show", done.id, "--json", db=location).json["history"]
    assert (run["number"], run["outcome"], run["error"]) == (1, "completed", None)
    assert run["duration_ms"] >= 0


async def test_what_came_of_a_job_is_shown(queue: Queue, location: str) -> None:
    good, bad = await have_run(queue, "completed", "dead")
    assert '--- Result ---\n"good"\n' in run_well("show", good.id, db=location).out
    assert "--- Error ---\nit is broken\n" in run_well("show", bad.id, db=location).out


async def test_control_bytes_in_data_are_spelled_out(queue: Queue, location: str) -> None:
    job = await queue.add("shell", {"command": "\x9b31m", "env": {"A": "\x9b"}})
    said = run_well("show", job.id, db=location)
    assert "\x9b" not in said.out
    assert "Command: \\x9b31m" in said.lines


async def test_a_job_that_is_not_there(queue: Queue, location: str) -> None:
    await queue.add("a")
    said = run("show", "77", db=location)
    assert (said.code, said.out) == (1, "")
    assert said.err == "queuectl: there is no job 77; `queuectl list` shows those there are\n"


async def test_an_id_in_several_queues_needs_the_name_of_one(queue: Queue, location: str) -> None:
    for each in (queue, Queue("other", queue.store)):
        await each.add("a", job_id="mine")
    said = run("show", "mine", db=location)
    assert said.code == 2
    assert "(emails, other): say which with --queue" in said.err
    shown = run_well("show", "mine", "--queue", "other", "--json", db=location).json
    assert shown["queue"] == "other"
