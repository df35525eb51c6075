"""Deduplication keys when processes race for them, and when they die with them."""

from __future__ import annotations

import asyncio
import json
import os
import random

from bullite import Job, Queue, Worker
from tests.crash.handlers import work
from tests.support.databases import database_at
from tests.support.processes import add, finished, problems, registered, rows, say, wait_until

KEEP = {"id": "x", "keep_last_if_active": True}


async def add_again_and_again(location: str, times: int) -> None:
    """Say the ids that adds under one key answer."""
    async with Queue("work", location) as queue:
        say("ready")
        for _ in range(times):
            say((await queue.add("a", deduplication={"id": "x"})).id)


def test_eight_processes_add_one_key_and_there_is_one_job(location, start):
    children = [start(add_again_and_again, location, 5) for _ in range(8)]
    answers = {line for child in children for line in child.rest()}

    [(job,)] = rows(location, "select id from bullite_jobs")
    assert answers == {"ready", str(job)}
    assert problems(location) == ()


def test_what_is_kept_behind_a_job_is_not_lost_with_its_worker(database, location, start):
    [job] = add(location, "hold", deduplication=KEEP)
    killed_worker = start(work, location, **database.short_lease)
    killed_worker.said(f"start {job}")
    assert add(location, "quick", deduplication=KEEP) == [job]
    killed_worker.kill()

    second_worker = start(work, location, **database.short_lease)

    wait_until(lambda: len(rows(location, "select id from bullite_jobs")) == 2)
    [(kept,)] = rows(location, "select id from bullite_jobs where name = 'quick'")
    wait_until(lambda: finished(location, kept))
    assert registered(location, second_worker)
    assert rows(location, "select key from bullite_deduplication") == []
    assert problems(location) == ()


# --- a storm -------------------------------------------------------------------------------------

KEYS = 5


async def work_alone(location: str, ledger: str) -> None:
    """Run jobs that note their beginning and their end, until killed."""
    book = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def process(job: Job) -> None:
        note = [job.deduplication_id, job.data, os.getpid()]
        os.write(book, (json.dumps(["start", *note]) + "\n").encode())
        await asyncio.sleep(random.uniform(0, 0.02))
        os.write(book, (json.dumps(["end", *note]) + "\n").encode())

    settings = database_at(location).short_lease
    await Worker(
        Queue("work", location), process, concurrency=5, max_stalled_count=99, **settings
    ).run()


def test_in_a_storm_of_kills_no_two_jobs_of_a_key_run_and_no_key_is_left(location, tmp_path, start):
    ledger = tmp_path / "ledger"
    workers = [start(work_alone, location, ledger) for _ in range(3)]

    async def rage() -> None:
        dice = random.Random(5)
        async with Queue("work", location) as queue:
            for number in range(90):
                key = {"id": str(number % KEYS), "keep_last_if_active": True}
                await queue.add("a", number, deduplication=key)
                await asyncio.sleep(0.01)
                if number % 30 == 29:
                    killed_worker = dice.randrange(len(workers))
                    await asyncio.to_thread(workers[killed_worker].kill)
                    workers[killed_worker] = start(work_alone, location, ledger)

    asyncio.run(rage())
    wait_until(lambda: not rows(location, "select 1 from bullite_jobs where state <> 'completed'"))

    notes = [json.loads(line) for line in ledger.read_text().splitlines()]
    running: dict[str, tuple[int, int]] = {}
    for what, key, number, pid in notes:
        if what == "end":
            running.pop(key, None)
            continue
        # Only one whose worker was killed may be found running, and it is begun once more.
        assert running.get(key, (number, 0))[0] == number
        running[key] = number, pid
    assert running == {}
    assert rows(location, "select key from bullite_deduplication") == []
    assert problems(location) == ()
