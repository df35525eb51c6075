"""J: what a job is given when it is added, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.errors import InvalidOption, InvalidOptionType, PayloadTooLarge
from tests.support.helpers import again


async def test_J_001_a_job_read_again_has_its_id_data_and_options(queue: Queue) -> None:
    made = await queue.add("a", {"foo": "bar"}, timestamp=1_489_962_445_188)
    job = await again(queue, made)
    assert (job.id, job.data) == (made.id, {"foo": "bar"})
    assert job.opts["timestamp"] == job.timestamp == 1_489_962_445_188


async def test_J_002_a_job_has_the_id_that_was_chosen_for_it(queue: Queue) -> None:
    job = await queue.add("a", job_id="customjob")
    assert job.id == (await again(queue, job)).id == "customjob"


async def test_J_004_data_within_the_size_limit_is_taken_and_the_limit_remembered(
    queue: Queue,
) -> None:
    job = await again(queue, await queue.add("a", {"foo": "bar"}, size_limit=20))
    assert (job.data, job.opts["size_limit"]) == ({"foo": "bar"}, 20)


@pytest.mark.parametrize("job_id", [None, "customjob"])
async def test_J_005_data_one_byte_over_the_size_limit_is_refused(
    queue: Queue, job_id: str | None
) -> None:
    with pytest.raises(PayloadTooLarge, match=r"(?s)job sized.*12 bytes"):
        await queue.add("sized", {"foo": "bar"}, size_limit=12, job_id=job_id)
    assert await queue.get_job_count_by_types() == 0
    # 13 bytes as compact JSON: this is the smallest limit that lets it through.
    assert (await queue.add("sized", {"foo": "bar"}, size_limit=13, job_id=job_id)).id


async def test_J_006_the_size_of_data_is_counted_in_utf_8_bytes(queue: Queue) -> None:
    data = {"foo": "äöü"}  # 13 characters, 16 bytes, 28 with escapes
    with pytest.raises(PayloadTooLarge, match="15 bytes"):
        await queue.add("a", data, size_limit=15)
    assert (await again(queue, await queue.add("a", data, size_limit=16))).data == data


async def test_J_009_a_priority_with_a_fraction_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidOptionType, match="priority"):
        await queue.add("a", priority=1.1)  # type: ignore[arg-type]
    assert await queue.count() == 0


async def test_J_010_a_priority_above_the_highest_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match=r"priority.*2097151"):
        await queue.add("a", priority=2_097_152)
    assert (await queue.add("a", priority=2_097_151)).priority == 2_097_151


async def test_J_011_deduplication_without_an_id_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="deduplication id must be provided"):
        await queue.add("a", deduplication={"id": ""})
    assert await queue.count() == 0


async def test_J_012_an_option_that_bullmq_gave_up_is_refused_by_name(queue: Queue) -> None:
    options: Any = {"debounce": {"id": "x"}}
    with pytest.raises(InvalidOption, match="debounce has been removed, use deduplication"):
        await queue.add("a", **options)
    assert await queue.count() == 0


@pytest.mark.parametrize("jitter", [-1, 5])
async def test_J_014_jitter_outside_0_to_1_is_refused_when_the_job_is_added(
    queue: Queue, jitter: float
) -> None:
    with pytest.raises(InvalidOption, match=r"jitter.*between 0 and 1"):
        await queue.add("a", backoff={"type": "fixed", "delay": 100, "jitter": jitter})
    assert await queue.count() == 0


async def test_J_016_data_that_is_the_number_zero_stays_zero(queue: Queue) -> None:
    seen: list[Any] = []

    async def work(job: Job) -> None:
        seen.append(job.data)

    async with Worker(queue, work):
        job = await queue.add("a", 0)
        await job.result()
    seen.append((await again(queue, job)).data)
    assert [(value, type(value)) for value in seen] == [(0, int), (0, int)]
