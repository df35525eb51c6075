"""`queuectl logs`: the lines that a job has logged."""

from __future__ import annotations

import asyncio
import json
import re

from bullite import Job, Queue, Worker
from bullite.client.runtime.blocking import run_blocking
from tests.cli.program import run, run_well

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def logged(location: str) -> str:
    """The id of a job with two lines in its log."""
    queue = Queue("mails", location)
    job = run_blocking(queue.add("n"))
    run_blocking(queue.add_job_log(job.id, "one"))
    run_blocking(queue.add_job_log(job.id, "two\x1b[31m", "warn"))
    queue.store.close()
    return job.id


def test_every_line_has_its_time_and_level(location: str) -> None:
    said = run_well("logs", logged(location), db=location)
    assert re.fullmatch(rf"{TIME} info one\n{TIME} warn two\\x1b\[31m\n", said.out), said.out


def test_raw_lines_are_not_escaped(location: str) -> None:
    assert "two\x1b[31m" in run_well("logs", logged(location), "--raw", db=location).out


def test_in_json_every_line_is_a_document(location: str) -> None:
    said = run_well("logs", logged(location), "--json", db=location)
    entries = [json.loads(line) for line in said.lines]
    assert [(one["level"], one["message"]) for one in entries] == [
        ("info", "one"),
        ("warn", "two\x1b[31m"),
    ]


def test_a_job_that_logged_nothing_has_no_lines(location: str) -> None:
    queue = Queue("mails", location)
    job = run_blocking(queue.add("n"))
    queue.store.close()
    said = run_well("logs", job.id, db=location)
    assert (said.out, said.err) == ("", "no log lines\n")


def test_of_a_command_that_logged_nothing_it_is_told_where_its_output_is(location: str) -> None:
    job_id = run_well("enqueue", "x", db=location).out.strip()
    said = run_well("logs", job_id, db=location)
    told = f"no log lines; `queuectl output {job_id}` shows what the command said\n"
    assert (said.out, said.err) == ("", told)


async def test_following_goes_on_until_the_job_has_ended(queue: Queue, location: str) -> None:
    async def process(job: Job) -> None:
        for number in range(5):
            await job.log(f"line {number}")
            await asyncio.sleep(0.1)

    job = await queue.add("n")
    following = asyncio.create_task(asyncio.to_thread(run, "logs", "-f", job.id, db=location))
    async with Worker(queue, process):
        said = await following
    assert said.code == 0
    assert [line.split(" ", 2)[2] for line in said.lines] == [f"line {n}" for n in range(5)]


def test_following_a_job_that_has_ended_ends(location: str) -> None:
    job_id = logged(location)
    run_well("cancel", job_id, db=location)
    assert len(run_well("logs", job_id, "--follow", db=location).lines) == 2
