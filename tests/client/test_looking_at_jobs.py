"""Finding jobs again, and counting them."""

from __future__ import annotations

import pytest

from bullite import Job, Queue, Worker
from bullite.core.states import REMOVE
from bullite.errors import InvalidOption, InvalidOptionType
from tests.support.helpers import again, case, fresh, move_by_hand


async def test_a_job_is_found_by_its_number(queue: Queue) -> None:
    job = await queue.add("a", 1)
    found = await queue.get_job(str(job.pk))
    assert found is not None
    assert found.data == 1


async def test_a_job_with_an_id_is_found_by_its_number_too(queue: Queue) -> None:
    job = await queue.add("a", job_id="mine")
    found = await queue.get_job(str(job.pk))
    assert found is not None
    assert found.id == "mine"


async def test_an_unknown_id_finds_nothing(queue: Queue) -> None:
    for unknown in [
        "999",
        "nobody",
        "",
        "-1",
        "0",
        "9" * 30,
        "9" * 5000,
        "\ud800",
        "a\x00b",
        "' or 1",
    ]:
        with case(unknown):
            await queue.add("a", job_id="x")
            assert await queue.get_job(unknown) is None


async def test_a_job_of_another_queue_is_not_found(queue: Queue) -> None:
    async with Queue("other", queue.store) as other:
        numbered, named = await other.add("a"), await other.add("a", job_id="x")
        assert await queue.get_job(numbered.id) is None
        assert await queue.get_job(named.id) is None


async def test_a_removed_job_is_not_found(queue: Queue) -> None:
    job = await queue.add("a", job_id="x")
    await move_by_hand(queue, job, REMOVE)
    assert await queue.get_job("x") is None
    assert await queue.get_job(str(job.pk)) is None


async def test_an_id_is_text(queue: Queue) -> None:
    with pytest.raises(InvalidOptionType, match="job_id must be text, not 5"):
        await queue.get_job(5)  # type: ignore[arg-type]


# --- counting ------------------------------------------------------------------------------------

NOTHING = {
    "waiting": 0,
    "prioritized": 0,
    "delayed": 0,
    "active": 0,
    "waiting-children": 0,
    "completed": 0,
    "failed": 0,
}


async def test_the_counts_of_an_empty_queue_are_all_there_and_zero(queue: Queue) -> None:
    assert await queue.get_job_counts() == NOTHING


async def test_every_state_is_counted(queue: Queue) -> None:
    async def work(job: Job) -> None:
        if job.name == "bad":
            raise ValueError("no")

    async with Worker(queue, work):
        await (await queue.add("good")).result()
        with pytest.raises(Exception, match="no"):
            await (await queue.add("bad")).result()
    await queue.add("plain")
    await queue.add_bulk([{"name": "ranked", "opts": {"priority": 1}}] * 2)
    await queue.add_bulk([{"name": "later", "opts": {"delay": "1h"}}] * 3)
    assert await queue.get_job_counts() == NOTHING | {
        "waiting": 1,
        "prioritized": 2,
        "delayed": 3,
        "completed": 1,
        "failed": 1,
    }


async def test_only_the_states_named_are_counted(queue: Queue) -> None:
    await queue.add("a")
    assert await queue.get_job_counts("failed", "waiting") == {"failed": 0, "waiting": 1}


async def test_states_go_by_many_names(queue: Queue) -> None:
    for word, state in [
        ("PENDING", "waiting"),
        ("wait", "waiting"),
        ("Processing", "active"),
        ("dead", "failed"),
        ("WAITING_CHILDREN", "waiting-children"),
        ("waiting-children", "waiting-children"),
        ("Prioritized", "prioritized"),
    ]:
        with case((word, state)):
            queue = fresh(queue)
            assert await queue.get_job_counts(word) == {state: 0}


async def test_an_unknown_state_is_refused_with_those_there_are(queue: Queue) -> None:
    for word in ["stalled", "removed", ""]:
        with (
            case(word),
            pytest.raises(
                InvalidOption, match=f"unknown state '{word}'; the states are: waiting, "
            ),
        ):
            await queue.get_job_counts(word)


# --- what a job tells ----------------------------------------------------------------------------


async def test_a_finished_job_tells_its_story(queue: Queue) -> None:
    async def work(job: Job) -> dict[str, int]:
        await job.update_progress(50)
        return {"sum": 3}

    async with Worker(queue, work):
        job = await queue.add("add")
        await job.result()
    told = await again(queue, job)
    assert (told.state, told.return_value, told.progress) == ("completed", {"sum": 3}, 100)
    assert (told.attempts_started, told.attempts_made, told.stalled_count) == (1, 1, 0)
    assert told.processed_at is not None
    assert told.finished_at is not None
    assert told.created_at <= told.processed_at <= told.finished_at == told.updated_at
    assert (told.failed_reason, told.stack, told.locked_by) == (None, None, None)


async def test_a_running_job_tells_who_runs_it(queue: Queue) -> None:
    async def work(job: Job) -> list[str | None]:
        return [job.locked_by, (await again(queue, job)).locked_by]

    async with Worker(queue, work, name="the-worker"):
        job = await queue.add("a")
        assert await job.result() == ["the-worker", "the-worker"]


async def test_a_job_knows_the_options_it_runs_under(queue: Queue) -> None:
    job = await queue.add("a", attempts=2, backoff="2s", priority=4, lifo=True, job_id="x")
    assert (await again(queue, job)).opts == {
        "attempts": 2,
        "backoff": {"type": "fixed", "delay": 2000},
        "delay": 0,
        "job_id": "x",
        "lifo": True,
        "priority": 4,
    }


async def test_a_job_shows_itself_in_a_line(queue: Queue) -> None:
    assert repr(await queue.add("a", job_id="x")) == "<Job x 'a' of 'emails': waiting>"
