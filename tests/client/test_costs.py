"""Requests and statements by the size of the data: twice the jobs must not take twice as many."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from bullite import FlowProducer, Job, Queue, Worker
from bullite.database.driver import Result
from bullite.engine.engine import Engine
from bullite.engine.read_thread import ReadThread
from bullite.engine.replies import PendingRequest, Reply, ReplyTarget
from bullite.engine.transaction_runner import TransactionRunner
from tests.support.helpers import until

FEW, MANY = 5, 60
"""Two sizes of the same data; what is sent for both must be equal."""


class Sent:
    """What this process asked of its store: requests to the engine, and reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.looked_at = 0
        """Rows of lists of jobs that were read in order to move them."""
        submit_all, read, execute = Engine.submit_all, ReadThread.read, TransactionRunner._timed

        def submitted(engine: Engine, asks: Sequence[PendingRequest]) -> None:
            self.names += [type(ask.request).__name__ for ask in asks]
            submit_all(engine, asks)

        def read_by(
            thread: ReadThread, statement: str, params: Any, reply: Reply, mailbox: ReplyTarget
        ) -> None:
            def answered(rows: Any) -> None:
                self._count(statement, rows)
                reply(rows)

            self.names.append(statement)
            read(thread, statement, params, answered, mailbox)

        def executed(runner: TransactionRunner, statement: str, params: Any) -> Result:
            result = execute(runner, statement, params)
            self._count(statement, result.rows)
            return result

        monkeypatch.setattr(Engine, "submit_all", submitted)
        monkeypatch.setattr(TransactionRunner, "_timed", executed)
        monkeypatch.setattr(ReadThread, "read", read_by)

    def _count(self, statement: str, rows: Sequence[Any]) -> None:
        if statement.startswith("oldest:"):
            self.looked_at += len(rows)

    async def by(self, call: Callable[[], Awaitable[Any]]) -> list[str]:
        """What a call sends; made twice, as the first time something may be opened."""
        await call()
        self.names.clear()
        await call()
        return list(self.names)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    return Sent(monkeypatch)


async def plant(queue: Queue, children: int) -> str:
    """Add a parent with children in two other queues; its id."""
    flow = {
        "name": "parent",
        "queue_name": queue.name,
        "children": [
            {"name": "child", "queue_name": f"others {number % 2}"} for number in range(children)
        ],
    }
    async with FlowProducer(queue.store) as producer:
        return str((await producer.add(flow))["job"].id)


async def test_get_dependencies_reads_children_in_other_queues_together(
    queue: Queue, sent: Sent
) -> None:
    costs = []
    for number in (FEW, MANY):
        parent = await plant(queue, number)

        async def look(parent: str = parent, number: int = number) -> None:
            found = await queue.get_dependencies(parent)
            assert len({job.id for job in found["jobs"]}) == found["total"] == number

        costs.append(await sent.by(look))
    assert costs[0] == costs[1]


async def test_get_flow_reads_children_in_other_queues_together(queue: Queue, sent: Sent) -> None:
    costs = []
    for number in (FEW, MANY):
        parent = await plant(queue, number)

        async def look(parent: str = parent, number: int = number) -> None:
            async with FlowProducer(queue.store) as producer:
                found = await producer.get_flow(queue.name, parent, max_children=number)
            assert found is not None
            assert len({node["job"].id for node in found["children"]}) == number

        costs.append(await sent.by(look))
    assert costs[0] == costs[1]


async def test_add_bulk_reads_existing_jobs_together(queue: Queue, sent: Sent) -> None:
    costs = []
    for number in (FEW, MANY):
        jobs = [{"name": "a", "opts": {"job_id": f"id {n}"}} for n in range(number)]

        async def add(jobs: list[Any] = jobs) -> None:
            added = await queue.add_bulk(jobs)
            assert [job.id for job in added] == [job["opts"]["job_id"] for job in jobs]

        costs.append(await sent.by(add))
    assert costs[0] == costs[1]


async def test_add_bulk_of_flows_reads_existing_jobs_together(queue: Queue, sent: Sent) -> None:
    costs = []
    for number in (FEW, MANY):
        flows = [
            {"name": "a", "queue_name": "others", "opts": {"job_id": f"id {n}"}}
            for n in range(number)
        ]
        producer = FlowProducer(queue.store)

        async def add(flows: list[Any] = flows, producer: FlowProducer = producer) -> None:
            added = await producer.add_bulk(flows)
            assert [one["job"].id for one in added] == [flow["opts"]["job_id"] for flow in flows]

        costs.append(await sent.by(add))
    assert costs[0] == costs[1]


# --- many jobs, moved by an operator -------------------------------------------------------------

CHUNK = 3


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bullite.client.queue.bulk_moves.MOVED_AT_ONCE", CHUNK)


async def fail(job: Job) -> None:
    raise ValueError("it broke")


async def fail_all(queue: Queue, number: int) -> list[str]:
    """Add jobs that fail; their ids, in the order in which they ended."""
    jobs = await queue.add_bulk([{"name": "a"} for _ in range(number)])
    async with Worker(queue, fail):
        await until(lambda: has_failed(queue, number))
    assert {job.id for job in jobs} == {job.id for job in await queue.get_failed()}
    return [job.id for job in await queue.get_jobs("failed", asc=True)]


async def has_failed(queue: Queue, number: int) -> bool:
    return await queue.get_failed_count() == number


@pytest.mark.usefixtures("small_chunks")
async def test_drain_looks_once_at_jobs_that_cannot_be_removed(queue: Queue, sent: Sent) -> None:
    for number in range(4):
        await queue.upsert_job_scheduler(f"s {number}", every="1h")
    await queue.add_bulk([{"name": "a"}] * 10)
    await queue.add_bulk([{"name": "a", "opts": {"delay": "2h"}}] * 3)
    await queue.drain(delayed=True)
    assert await queue.count() == 4
    assert sent.looked_at == 17


@pytest.mark.usefixtures("small_chunks")
async def test_drain_removes_jobs_that_it_lets_run(queue: Queue) -> None:
    first = await queue.add("a")
    for _ in range(2 * CHUNK):
        last = await queue.add("b", depends_on=[first.id], on_dependency_failure="run")
    await queue.add_bulk([{"name": "c"}] * CHUNK)
    await queue.add("d", depends_on=[last.id], on_dependency_failure="run")
    await queue.drain()
    assert await queue.get_job_count_by_types() == 0


async def test_obliterate_looks_once_at_jobs_that_cannot_be_deleted(
    queue: Queue, sent: Sent
) -> None:
    # Parents that wait for children in other queues stay.
    parents = [await plant(queue, 2) for _ in range(4)]
    await queue.add_bulk([{"name": "a"}] * 10)
    await queue.obliterate(count=CHUNK)
    assert {job.id for job in await queue.get_waiting_children()} == set(parents)
    assert sent.looked_at == 14


async def test_obliterate_by_force_deletes_jobs_that_waited_for_a_running_one(
    queue: Queue,
) -> None:
    first = await queue.add("a")
    await queue.add("b", depends_on=[first.id], on_dependency_failure="run")
    by_hand = Worker(queue, None)
    assert await by_hand.get_next_job() is not None
    await queue.obliterate(force=True)
    assert await queue.get_job_count_by_types() == 0
    await by_hand.close()


async def test_drain_and_obliterate_keep_no_ids(queue: Queue, sent: Sent) -> None:
    """What they hold after each chunk is that chunk: the peak is that of a queue of one chunk."""
    peaks = []
    for number in (1_000, 8_000):
        await queue.add_bulk([{"name": "a"} for _ in range(2 * number)])
        tracemalloc.start()
        await queue.drain()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


async def test_clean_sends_one_request_for_each_chunk(
    queue: Queue, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    for chunk, requests in ((100, 1), (4, 4)):
        failed = await fail_all(queue, 13)
        monkeypatch.setattr("bullite.client.queue.bulk_moves.MOVED_AT_ONCE", chunk)
        sent.names.clear()
        assert await queue.clean(0, state="failed") == failed
        assert len(sent.names) == requests + 1  # and one to log what was done


async def test_retry_jobs_sends_one_request_for_each_chunk_and_reads_no_job(
    queue: Queue, sent: Sent
) -> None:
    failed = await fail_all(queue, 4 * CHUNK)
    sent.names.clear()
    told: list[int] = []
    assert await queue.retry_jobs(CHUNK, on_piece=told.append) == failed
    assert told == [CHUNK, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK]
    assert len(sent.names) <= 4 + 1
    assert await queue.get_waiting_count() == len(failed)


async def test_promote_jobs_sends_one_request_for_each_chunk(queue: Queue, sent: Sent) -> None:
    jobs = await queue.add_bulk(
        [{"name": "a", "opts": {"delay": f"{n + 1}h"}} for n in range(4 * CHUNK)]
    )
    sent.names.clear()
    assert await queue.promote_jobs(CHUNK) == [job.id for job in jobs]
    assert len(sent.names) <= 4 + 1
    assert [job.id for job in await queue.get_waiting()] == [job.id for job in jobs]
