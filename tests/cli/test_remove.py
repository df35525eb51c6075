"""`queuectl remove` and `queuectl restore`."""

from __future__ import annotations

import asyncio
import os
import subprocess

from bullite import Queue

from .program import command, environment, run
from .setup_jobs import completed, running, states

ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")


async def test_a_removed_job_can_be_restored_by_its_id_alone(queue: Queue, location: str) -> None:
    await Queue("another", queue.store).wait_until_ready()
    jobs = [await queue.add("a"), await completed(queue), await queue.add("a", job_id="mine")]
    before = await states(queue, *jobs)
    ids = [job.id for job in jobs]
    said = run("remove", *ids, "--yes", "--json", db=location)
    assert said.json == [{"id": id, "queue": "emails", "done": "removed"} for id in ids]
    assert await states(queue, *jobs) == ["unknown"] * 3
    said = run("restore", *ids, db=location)
    assert said.lines == [f"{id}: restored" for id in ids]
    assert await states(queue, *jobs) == before


async def test_without_somebody_to_ask_nothing_is_removed(queue: Queue, location: str) -> None:
    job = await queue.add("a")
    said = run("remove", job.id, db=location)
    assert (said.code, said.out) == (1, "")
    assert "--yes" in said.err
    assert await states(queue, job) == ["waiting"]


async def test_a_running_job_stays(queue: Queue, location: str) -> None:
    async with running(queue) as job:
        said = await asyncio.to_thread(run, "remove", job.id, "--yes", db=location)
        assert said.code == 1
        assert "locked by the worker" in said.err
        assert await states(queue, job) == ["active"]


async def test_what_was_not_removed_cannot_be_restored(queue: Queue, location: str) -> None:
    job = await queue.add("a")
    said = run("restore", job.id, "nobody", db=location)
    assert said.code == 1
    assert f"no job {job.id} was removed" in said.err
    assert "no job nobody was removed" in said.err


async def test_another_spelling_of_a_number_is_no_id(queue: Queue, location: str) -> None:
    job = await queue.add("a")
    await job.remove()
    for spelling in (f"00{job.id}", f"{job.id}".translate(ARABIC)):
        assert run("restore", spelling, db=location).code == 1
        assert run("restore", spelling, "--queue", "emails", db=location).code == 1
    assert await states(queue, job) == ["unknown"]


async def test_a_taken_id_is_not_restored(queue: Queue, location: str) -> None:
    await (await queue.add("a", job_id="mine")).remove()
    await queue.add("b", job_id="mine")
    said = run("restore", "mine", db=location)
    assert said.code == 1
    assert "another job is called 'mine'" in said.err


async def test_an_id_removed_from_several_queues_needs_the_queue(
    queue: Queue, location: str
) -> None:
    other = Queue("other", queue.store)
    for each in (queue, other):
        await (await each.add("a", job_id="same")).remove()
    said = run("restore", "same", db=location)
    assert said.code == 2
    assert "emails, other" in said.err
    assert run("restore", "same", "--queue", "other", db=location).code == 0
    assert await other.get_job("same") is not None
    assert await queue.get_job("same") is None


def answered(answer: str, *args: str, db: str) -> tuple[int, str]:
    """What becomes of a command line when somebody at a terminal answers: code and talk."""
    ours, theirs = os.openpty()
    with os.fdopen(ours, "w") as keyboard:
        keyboard.write(answer + "\n")
        keyboard.flush()
        done = subprocess.run(
            command(*args),
            env=environment(db),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        os.close(theirs)
    return done.returncode, done.stderr


async def test_somebody_at_a_terminal_is_asked(queue: Queue, location: str) -> None:
    job = await queue.add("a")
    code, talk = answered("n", "remove", job.id, db=location)
    assert (code, talk) == (
        1,
        f"Remove job {job.id}? [y/N] queuectl: nothing was changed\n",
    )
    assert await states(queue, job) == ["waiting"]
    code, _ = answered("y", "remove", job.id, db=location)
    assert code == 0
    assert await states(queue, job) == ["unknown"]
