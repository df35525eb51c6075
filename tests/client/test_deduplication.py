"""Deduplication as users meet it: the option, its verbs, its events."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bullite import Deduplication, Job, Queue, Worker
from bullite.core.job_options import check_options
from bullite.errors import BulliteError, InvalidOption, InvalidOptionType
from tests.support.helpers import again, case, fresh, until
from tests.support.listening import gather, names_of, payloads, told

X: Deduplication = {"id": "x"}


async def nothing(job: Job) -> None:
    pass


# --- the option ----------------------------------------------------------------------------------


async def test_a_bad_deduplication_is_refused_with_the_fix_and_nothing_is_stored(
    queue: Queue,
) -> None:
    for option, error, words in [
        ({}, InvalidOption, "deduplication id must be provided"),
        ({"id": None}, InvalidOption, "deduplication id must be provided"),
        ({"id": ""}, InvalidOption, "deduplication id must be provided"),
        ({"id": 7}, InvalidOptionType, "deduplication id must be text"),
        ({"id": "x" * 256}, InvalidOption, "deduplication id must have 1 to 255 characters"),
        ({"id": "a\x00b"}, InvalidOption, "deduplication id must not contain control characters"),
        ({"id": "x", "ttl": -1}, InvalidOption, "deduplication ttl must be between 1"),
        ({"id": "x", "ttl": 0}, InvalidOption, "deduplication ttl must be between 1"),
        ({"id": "x", "ttl": 1.5}, InvalidOptionType, "deduplication ttl must be milliseconds"),
        ({"id": "x", "ttl": "soon"}, InvalidOption, "deduplication ttl must look like"),
        ({"id": "x", "ttl": True}, InvalidOptionType, "deduplication ttl must be milliseconds"),
        ({"id": "x", "ttl": 10**30}, InvalidOption, "deduplication ttl must be between 1"),
        ({"id": "x", "extend": 1}, InvalidOptionType, "deduplication extend must be True or False"),
        ({"id": "x", "replace": "no"}, InvalidOptionType, "deduplication replace must be True"),
        (
            {"id": "x", "keep_last_if_active": None},
            InvalidOptionType,
            "deduplication keep_last_if_active must be True or False",
        ),
        ({"id": "x", "window": 5}, InvalidOption, "unknown key 'window'; the keys are: id, ttl"),
        ("x", InvalidOptionType, 'deduplication must be a mapping with "id"'),
        (["x"], InvalidOptionType, 'deduplication must be a mapping with "id"'),
    ]:
        with case((option, error, words)):
            with pytest.raises(error, match=words):
                await queue.add("a", deduplication=option)
            with pytest.raises(error, match=words):
                await queue.add_bulk(
                    [{"name": "b"}, {"name": "a", "opts": {"deduplication": option}}]
                )
            assert await queue.count() == 0


@pytest.mark.parametrize(
    "other", ["parent", "parent_id", "children", "depends_on", "depends_on_job_ids"]
)
def test_a_job_that_is_tied_to_others_must_not_be_left_out(other: str) -> None:
    with pytest.raises(InvalidOption, match=f"deduplication cannot be used together with {other}"):
        check_options({"deduplication": X, other: ["1"]})


async def test_the_defaults_of_a_queue_cannot_hold_a_key(location: str) -> None:
    with pytest.raises(InvalidOption, match="default_job_options cannot hold deduplication"):
        Queue("emails", location, default_job_options={"deduplication": X})
    async with Queue("emails", location) as queue:
        with pytest.raises(InvalidOption, match="default_job_options cannot hold deduplication"):
            await queue.configure(default_job_options={"deduplication": X})


async def test_no_deduplication_is_none(queue: Queue) -> None:
    options: Any = {"deduplication": None}
    job = await queue.add("a", **options)
    assert (job.deduplication_id, "deduplication" in job.opts) == (None, False)


async def test_the_window_may_be_any_duration(queue: Queue) -> None:
    for ttl in [90_000, "90s", "1.5m", timedelta(seconds=90)]:
        with case(ttl):
            queue = fresh(queue)
            job = await queue.add("a", deduplication={"id": "x", "ttl": ttl})
            assert job.opts["deduplication"] == {"id": "x", "ttl": 90_000}


async def test_a_job_tells_its_key_and_its_options(queue: Queue) -> None:
    rule: Deduplication = {"id": "x", "extend": False, "replace": True}
    job = await queue.add("a", deduplication=rule)
    for seen in (job, await again(queue, job)):
        assert seen.deduplication_id == "x"
        assert seen.opts["deduplication"] == {"id": "x", "replace": True}
    assert (await queue.add("b")).deduplication_id is None


async def test_an_id_may_be_any_text_a_name_may(queue: Queue) -> None:
    id = "käse '\"\\%:1 \U0001f9c0"
    first = await queue.add("a", deduplication={"id": id})
    assert (await queue.add("a", deduplication={"id": id})).id == first.id
    assert await queue.get_deduplication_job_id(id) == first.id
    assert await queue.remove_deduplication_key(id) is True


# --- answers and events --------------------------------------------------------------------------


async def test_the_answer_is_the_kept_job_as_it_is_now(queue: Queue) -> None:
    first = await queue.add("a", {"n": 1}, deduplication=X)
    async with Worker(queue, nothing):
        await first.result()
    throttle: Deduplication = {"id": "y", "ttl": "1h"}
    done = await queue.add("a", {"n": 1}, deduplication=throttle)
    async with Worker(queue, nothing):
        await done.result()
    answer = await queue.add("b", {"n": 2}, deduplication=throttle)
    assert (answer.id, answer.name, answer.data, answer.state) == (
        done.id,
        "a",
        {"n": 1},
        "completed",
    )


@pytest.mark.parametrize("job_id", [None, "mine"])
async def test_the_answer_names_the_kept_job_when_that_is_gone(
    queue: Queue, job_id: str | None
) -> None:
    throttle: Deduplication = {"id": "x", "ttl": "1h"}
    async with Worker(queue, nothing):
        first = await queue.add("a", deduplication=throttle, job_id=job_id, remove_on_complete=True)
        await first.result()
    answer = await queue.add("a", deduplication=throttle, job_id="other")
    assert (answer.id, answer.state) == (first.id, "unknown")
    assert await queue.get_deduplication_job_id("x") == first.id
    assert await queue.count() == 0


async def test_who_waits_for_the_answer_waits_for_the_kept_job(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        return job.data

    await queue.add("a", "first", deduplication=X)
    answer = await queue.add("a", "second", deduplication=X)
    async with Worker(queue, work):
        assert await answer.result() == "first"


async def test_replacing_is_told_as_the_removal_of_the_old_job(queue: Queue) -> None:
    rule: Deduplication = {"id": "x", "replace": True}
    old = await queue.add("a", deduplication=rule, delay="1h")
    new = await queue.add("a", deduplication=rule, delay="1h")
    heard = await told(queue)
    assert names_of(heard, old.id) == ["added", "delayed", "removed"]
    assert names_of(heard, new.id) == ["added", "delayed", "deduplicated"]
    assert payloads(heard, "removed") == [{"job_id": old.id, "prev": "delayed"}]
    assert payloads(heard, "deduplicated") == [
        {"job_id": new.id, "deduplication_id": "x", "deduplicated_job_id": old.id}
    ]
    assert (await queue.restore(old.id)).state == "delayed"
    assert await queue.get_deduplication_job_id("x") == new.id


async def test_listeners_in_this_process_hear_of_what_was_left_out(queue: Queue) -> None:
    heard = gather(queue, "job.deduplicated", "added")
    await queue.add("a", deduplication=X)
    await queue.add("a", deduplication=X)
    await until(lambda: len(heard) == 2)
    assert [event[0] for event in heard] == ["added", "job.deduplicated"]
    assert heard[1][-3:] == ("1", "x", "2")


# --- verbs ---------------------------------------------------------------------------------------


async def test_the_holder_of_a_key_can_be_asked_for(queue: Queue) -> None:
    assert await queue.get_deduplication_job_id("x") is None
    job = await queue.add("a", deduplication=X, job_id="mine")
    assert await queue.get_deduplication_job_id("x") == "mine"
    async with Worker(queue, nothing):
        await job.result()
    assert await queue.get_deduplication_job_id("x") is None


async def test_a_job_frees_its_key_if_it_holds_it(queue: Queue) -> None:
    first = await queue.add("a", deduplication=X)
    assert await first.remove_deduplication_key() is True
    assert await first.remove_deduplication_key() is False
    second = await queue.add("a", deduplication=X)
    assert second.id != first.id
    assert await first.remove_deduplication_key() is False
    assert await queue.get_deduplication_job_id("x") == second.id


async def test_a_job_frees_its_key_from_inside_its_run(queue: Queue) -> None:
    """Then the next one runs beside it."""
    both = asyncio.Barrier(2)

    async def work(job: Job) -> None:
        await job.remove_deduplication_key()
        if job.data == 1:
            await queue.add("a", 2, deduplication=X)
        await both.wait()

    async with Worker(queue, work, concurrency=2):
        await (await queue.add("a", 1, deduplication=X)).result(timeout="10s")


@pytest.mark.parametrize("verb", ["get_deduplication_job_id", "remove_deduplication_key"])
@pytest.mark.parametrize(("id", "error"), [("", InvalidOption), (7, InvalidOptionType)])
async def test_a_key_is_asked_for_by_text(
    queue: Queue, verb: str, id: Any, error: type[BulliteError]
) -> None:
    with pytest.raises(error, match="deduplication_id"):
        await getattr(queue, verb)(id)


async def test_draining_cleaning_and_obliterating_free_keys(queue: Queue) -> None:
    throttle: Deduplication = {"id": "x", "ttl": "1h"}

    async def drain() -> None:
        await queue.drain()

    async def clean() -> None:
        await queue.clean(0, state="waiting")

    async def obliterate() -> None:
        await queue.obliterate()

    for free in (drain, clean, obliterate):
        await queue.add("a", deduplication=throttle)
        await free()
        assert await queue.get_deduplication_job_id("x") is None


async def test_a_queue_that_is_obliterated_loses_what_it_kept_and_windows_of_the_gone(
    queue: Queue,
) -> None:
    keep: Deduplication = {"id": "x", "keep_last_if_active": True}
    begun = asyncio.Event()

    async def work(job: Job) -> None:
        if job.name == "hold":
            begun.set()
            await asyncio.Event().wait()

    async with Worker(queue, work, concurrency=2) as worker:
        throttle: Deduplication = {"id": "y", "ttl": "1h"}
        gone = await queue.add("quick", deduplication=throttle, remove_on_complete=True)
        await gone.result()
        await queue.add("hold", deduplication=keep)
        await begun.wait()
        await queue.add("hold", deduplication=keep)
        await queue.obliterate(force=True)
        assert await queue.get_deduplication_job_id("x") is None
        assert await queue.get_deduplication_job_id("y") is None
        assert await queue.get_job_counts("waiting", "active") == {"waiting": 0, "active": 0}
        await worker.close(force=True)


async def test_adds_under_one_key_at_once_answer_one_job(queue: Queue) -> None:
    jobs = await asyncio.gather(*(queue.add("a", n, deduplication=X) for n in range(50)))
    assert len({job.id for job in jobs}) == 1
    assert await queue.count() == 1
