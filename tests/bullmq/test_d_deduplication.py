"""Area D of the catalogue: jobs that are left out while another holds their key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bullite import Deduplication, Job, Queue, Worker
from tests.support.helpers import again, state_of, until
from tests.support.listening import payloads, told

X: Deduplication = {"id": "x"}
KEEP: Deduplication = {"id": "x", "keep_last_if_active": True}


class Gate:
    """A processor whose runs wait to be let through; it notes what ran and how many at once."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.running = self.most = 0
        self._open = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.ran.append(job.data)
        self.running += 1
        self.most = max(self.most, self.running)
        await self._open.wait()
        self.running -= 1

    def open(self) -> None:
        self._open.set()

    @asynccontextmanager
    async def shut(self, queue: Queue, **options: Any) -> AsyncIterator[Job]:
        """Meanwhile a first job, whose data is 1, runs; at the end everything has."""
        async with Worker(queue, self, concurrency=5):
            job = await queue.add("a", 1, **options)
            await until(lambda: self.ran == [1])
            yield job
            self.open()
            await until(lambda: is_idle(queue))


async def is_idle(queue: Queue) -> bool:
    counts = await queue.get_job_counts("waiting", "prioritized", "delayed", "active")
    return not any(counts.values())


async def total(queue: Queue) -> int:
    return sum((await queue.get_job_counts()).values())


async def is_free(queue: Queue) -> bool:
    return await queue.get_deduplication_job_id("x") is None


async def deduplicated(queue: Queue) -> list[tuple[str, str]]:
    """Of each event, who is there and who is not."""
    heard = payloads(await told(queue), "deduplicated")
    assert all(event["deduplication_id"] == "x" for event in heard)
    return [(event["job_id"], event["deduplicated_job_id"]) for event in heard]


async def test_D_001_the_second_job_of_a_key_is_left_out_and_told(queue: Queue) -> None:
    await queue.add("a", job_id="a1", deduplication=X)
    await queue.add("a", job_id="a2", deduplication=X)
    assert await queue.get_job("a2") is None
    assert payloads(await told(queue), "deduplicated") == [
        {"job_id": "a1", "deduplication_id": "x", "deduplicated_job_id": "a2"}
    ]


async def test_D_002_a_key_that_is_removed_while_its_job_runs_lets_the_next_in(
    queue: Queue,
) -> None:
    gate = Gate()
    async with gate.shut(queue, deduplication=X) as first:
        assert await queue.remove_deduplication_key("x") is True
        second = await queue.add("a", 2, deduplication=X)
        assert second.id != first.id
    assert [await state_of(queue, job) for job in (first, second)] == ["completed"] * 2
    assert (await again(queue, second)).deduplication_id == "x"


async def test_D_004_the_window_is_fixed_from_the_first_add(queue: Queue) -> None:
    throttle: Deduplication = {"id": "x", "ttl": 600}
    first = await queue.add("a", deduplication=throttle)
    for _ in range(2):
        await asyncio.sleep(0.1)
        assert (await queue.add("a", deduplication=throttle)).id == first.id
    await until(lambda: is_free(queue))
    second = await queue.add("a", deduplication=throttle)
    for _ in range(2):
        assert (await queue.add("a", deduplication=throttle)).id == second.id
    kept = [job_id for job_id, _ in await deduplicated(queue)]
    assert kept == [first.id, first.id, second.id, second.id]


async def test_D_005_removing_the_job_frees_its_key_before_the_window_ends(queue: Queue) -> None:
    throttle: Deduplication = {"id": "x", "ttl": "1h"}
    first = await queue.add("a", deduplication=throttle)
    await first.remove()
    assert (await queue.add("a", deduplication=throttle)).id != first.id


async def test_D_006_each_add_that_is_left_out_begins_the_window_anew(queue: Queue) -> None:
    extend: Deduplication = {"id": "x", "ttl": 700, "extend": True}
    first = await queue.add("a", 1, deduplication=extend, delay=60_000)
    for _ in range(6):
        await asyncio.sleep(0.15)
        assert (await queue.add("a", 2, deduplication=extend, delay=60_000)).data == 1
    assert len(await deduplicated(queue)) == 6
    assert await total(queue) == 1
    assert first.id == await queue.get_deduplication_job_id("x")


async def test_D_007_a_window_that_is_extended_outlives_the_job(queue: Queue) -> None:
    extend: Deduplication = {"id": "x", "ttl": 700, "extend": True}
    async with Worker(queue, nothing):
        first = await queue.add("a", deduplication=extend)
        await first.result()
        for _ in range(6):
            await asyncio.sleep(0.15)
            assert (await queue.add("a", deduplication=extend)).id == first.id
        assert await queue.get_deduplication_job_id("x") == first.id
    assert await total(queue) == 1


async def nothing(job: Job) -> None:
    pass


async def test_D_009_of_a_burst_only_the_last_runs(queue: Queue) -> None:
    debounce: Deduplication = {"id": "x", "ttl": 500, "extend": True, "replace": True}
    ran: list[Any] = []

    async def work(job: Job) -> None:
        ran.append((job.id, job.data))

    async with Worker(queue, work):
        for number in range(10):
            last = await queue.add("a", number, deduplication=debounce, delay=500)
            await asyncio.sleep(0.025)
        await last.result()
    assert ran == [(last.id, 9)]
    assert await total(queue) == 1
    assert len(await deduplicated(queue)) == 9


async def test_D_010_without_a_window_the_key_is_held_until_the_job_has_ended(
    queue: Queue,
) -> None:
    gate = Gate()
    async with gate.shut(queue, deduplication=X) as first:
        for _ in range(2):
            assert (await queue.add("a", deduplication=X)).id == first.id
    fourth = await queue.add("a", deduplication=X)
    assert (first.id, fourth.id) == ("1", "4")
    assert await total(queue) == 2


async def test_D_011_only_a_delayed_job_is_replaced_and_nobody_is_told_of_the_others(
    queue: Queue,
) -> None:
    replace: Deduplication = {"id": "x", "replace": True}
    gate = Gate()
    first = await queue.add("a", 1, deduplication=replace, delay=60_000)
    second = await queue.add("a", 2, deduplication=replace, delay=10)
    async with Worker(queue, gate):
        await until(lambda: gate.ran == [2])
        assert (await queue.add("a", 3, deduplication=replace)).id == second.id
        gate.open()
        await second.result()
    assert await deduplicated(queue) == [(second.id, first.id)]
    assert await total(queue) == 1


async def test_D_012_the_answer_to_an_add_that_is_left_out_stands_for_the_kept_job(
    queue: Queue,
) -> None:
    first = await queue.add("a", deduplication=X)
    await first.remove()
    second = await queue.add("a", deduplication=X)
    third = await queue.add("a", deduplication=X)
    assert (second.id != first.id, third.id) == (True, second.id)
    await third.remove()
    assert await queue.get_job(second.id) is None
    assert await total(queue) == 0


async def test_D_014_what_is_added_while_the_job_runs_runs_after_it(queue: Queue) -> None:
    gate = Gate()
    async with gate.shut(queue, deduplication=KEEP) as first:
        assert (await queue.add("a", 2, deduplication=KEEP)).id == first.id
        assert await total(queue) == 1
    assert gate.ran == [1, 2]


async def test_D_015_behind_a_job_that_waits_nothing_is_kept(queue: Queue) -> None:
    first = await queue.add("a", 1, deduplication=KEEP)
    await queue.add("a", 2, deduplication=KEEP)
    assert await deduplicated(queue) == [(first.id, "2")]
    gate = Gate()
    gate.open()
    async with Worker(queue, gate):
        await first.result()
    assert (gate.ran, await total(queue)) == ([1], 1)


async def test_D_016_only_the_latest_is_kept(queue: Queue) -> None:
    gate = Gate()
    async with gate.shut(queue, deduplication=KEEP):
        for number in (2, 3):
            await queue.add("a", number, deduplication=KEEP)
    assert gate.ran == [1, 3]


async def test_D_017_two_jobs_of_one_key_never_run_at_once(queue: Queue) -> None:
    gate = Gate()
    async with gate.shut(queue, deduplication=KEEP):
        gate.open()
        for number in range(2, 30):
            await queue.add("a", number, deduplication=KEEP)
            await asyncio.sleep(0.002)
    assert gate.most == 1


async def test_D_019_a_window_does_not_keep_the_kept_job_from_running(queue: Queue) -> None:
    rule: Deduplication = {**KEEP, "ttl": 10_000}
    gate = Gate()
    async with gate.shut(queue, deduplication=rule):
        await queue.add("a", 2, deduplication=rule)
    assert gate.ran == [1, 2]


async def test_D_020_in_a_paused_queue_the_kept_job_is_made_and_waits(queue: Queue) -> None:
    gate = Gate()
    async with gate.shut(queue, deduplication=KEEP) as first:
        await queue.add("a", 2, deduplication=KEEP)
        await queue.pause()
        gate.open()
        await first.result()
        assert await queue.get_job_counts("waiting", "active") == {"waiting": 1, "active": 0}
        await asyncio.sleep(0.05)
        assert gate.ran == [1]
        await queue.resume()
    assert gate.ran == [1, 2]


async def test_D_021_a_job_that_keeps_the_last_may_be_delayed(queue: Queue) -> None:
    assert (await queue.add("a", deduplication=KEEP, delay=5_000)).state == "delayed"


async def test_D_021_also_by_the_defaults_of_its_queue(location: str) -> None:
    async with Queue("emails", location, default_job_options={"delay": 5_000}) as queue:
        job = await queue.add("a", deduplication=KEEP)
        assert await job.get_state() == "delayed"


async def test_D_022_the_kept_job_has_its_own_delay(queue: Queue) -> None:
    gate = Gate()
    async with gate.shut(queue, deduplication=KEEP, delay=10) as first:
        await queue.add("a", 2, deduplication=KEEP, delay=300)
        gate.open()
        await first.result()
        [second] = await queue.get_delayed()
        assert (second.data, second.delay) == (2, 300)
    assert gate.ran == [1, 2]


async def test_D_024_the_window_does_not_end_while_the_job_runs(queue: Queue) -> None:
    rule: Deduplication = {**KEEP, "ttl": 20}
    gate = Gate()
    async with gate.shut(queue, deduplication=rule) as first:
        await asyncio.sleep(0.05)
        assert (await queue.add("a", 2, deduplication=rule)).id == first.id
        assert gate.ran == [1]
    assert (gate.ran, gate.most) == ([1, 2], 1)


async def test_D_025_the_kept_job_has_its_own_id(queue: Queue) -> None:
    gate = Gate()
    async with gate.shut(queue, deduplication=KEEP):
        await queue.add("a", 2, deduplication=KEEP, job_id="mine")
        assert await queue.get_job("mine") is None
    kept = await queue.get_job("mine")
    assert kept is not None
    assert (kept.data, kept.state) == (2, "completed")
