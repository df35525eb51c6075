"""Requests and statements by the size of the data: twice the jobs must not take twice as many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from bullite import FlowProducer, Queue
from bullite.engine.mail import Ask
from bullite.engine.reading import ReadingThread
from bullite.engine.writer import Engine

FEW, MANY = 5, 60
"""Two sizes of the same data; what is sent for both must be equal."""


class Sent:
    """What this process asked of its store: requests to the engine, and reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        submit_all, read = Engine.submit_all, ReadingThread.read

        def submitted(engine: Engine, asks: Sequence[Ask]) -> None:
            self.names += [type(ask.request).__name__ for ask in asks]
            submit_all(engine, asks)

        def read_by(thread: ReadingThread, statement: str, *rest: Any) -> None:
            self.names.append(statement)
            read(thread, statement, *rest)

        monkeypatch.setattr(Engine, "submit_all", submitted)
        monkeypatch.setattr(ReadingThread, "read", read_by)

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
