"""A program without an event loop, as users write it; type checkers must accept all of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import bullite
import bullite.sync
from bullite import Attempt, BulkJob, FlowNode, JobOptions, JobScheduler, Metrics, Signal, Step
from bullite.sync import (
    BackoffStrategy,
    FlowJob,
    FlowProducer,
    Found,
    Job,
    NamedLock,
    Processor,
    Queue,
    QueueEvents,
    QueueEventsProducer,
    Scheduler,
    Store,
    Worker,
    verify,
)

PATIENCE = timedelta(seconds=15)


def greet(job: bullite.sync.Job) -> str:
    job.update_progress({"percent": 50})
    lines: int = job.log("half way", "warn")
    assert lines == 1
    length: int = job.step("measure", len, job.data["name"])
    return f"{job.data['name']} has {length}"


def count(job: Job, token: str, signal: Signal) -> int:
    signal.throw_if_aborted()
    assert token == job.token
    return len(job.data)


async def wait(job: bullite.Job) -> int:
    await job.update_progress(1)
    return await job.log("waited")


def strategy(attempts_made: int, type: str, error: BaseException, job: Job) -> int:
    return attempts_made


def add(queue: Queue) -> list[Job]:
    options: JobOptions = {"attempts": 2, "backoff": {"type": "mine"}}
    bulk: list[BulkJob] = [
        {"name": "count", "data": [1, 2], "opts": options},
        {"name": "wait"},
    ]
    job: Job = queue.add("greet", {"name": "Ada"}, priority=1, job_id="ada")
    others: list[Job] = queue.add_bulk(bulk)
    return [job, *others]


def work(queue: Queue, jobs: list[Job]) -> None:
    processors: dict[str, Processor | tuple[Processor, int]] = {
        "greet": greet,
        "count": (count, 2),
        "wait": wait,
    }
    chosen: BackoffStrategy = strategy
    worker = Worker(queue, processors, concurrency=2, backoff_strategy=chosen)
    heard: list[str] = []

    def note(job: Job, value: Any) -> None:
        heard.append(job.name)

    worker.on("completed", note)

    @worker.process("late")
    def late(job: Job) -> str:
        return job.name

    with worker:
        results: list[Any] = [job.result(timeout=PATIENCE) for job in jobs]
        assert results == ["Ada has 3", 2, 1]
        again: str = late(queue.add("late", delay="1h"))
        assert again == "late"
        owner: Queue = worker.queue
        assert owner == queue
        worker.pause()
        worker.resume()
        assert worker.cancel_job("nobody") is False
    assert len(heard) == 3


def look(queue: Queue) -> None:
    job: Job | None = queue.get_job("ada")
    assert job is not None
    state: str = job.get_state()
    steps: list[Step] = job.get_steps()
    attempts: list[Attempt] = job.get_attempts()
    assert (state, len(steps), len(attempts)) == ("completed", 1, 1)
    walk: Iterator[Job] = queue.iter_jobs("completed")
    assert len([each.id for each in walk]) == 3
    found: Found = queue.find(name="greet")
    jobs: list[Job] = found.jobs
    assert (len(jobs), found.cursor) == (1, None)
    metrics: Metrics = queue.metrics()
    assert metrics is not None
    counts: dict[str, int] = queue.get_job_counts()
    assert counts["completed"] == 3
    scheduler: JobScheduler | None = queue.get_job_scheduler("nobody")
    assert scheduler is None
    purged: int = queue.purge("1h", fits=lambda job: job.name == "greet")
    assert purged == 0


def grow(store: Store) -> None:
    leaf: FlowNode = {"name": "leaf", "queue_name": "leaves"}
    with FlowProducer(store) as flows:
        tree: FlowJob = flows.add({"name": "root", "queue_name": "roots", "children": [leaf]})
        below: list[FlowJob] = tree.get("children", [])
        assert below[0]["job"].parent_id == tree["job"].id


def listen(store: Store) -> None:
    heard = threading.Event()
    with QueueEvents("typed", store) as events, QueueEventsProducer("typed", store) as producer:

        def greeted(payload: Any, event_id: str) -> None:
            heard.set()

        events.on("greeting", greeted)
        producer.publish_event("greeting", {"to": "Ada"})
        assert heard.wait(15)
    with Scheduler(store):
        pass


def main(location: str) -> None:
    store = Store(location)
    with Queue("typed", store, default_job_options={"attempts": 1}) as queue:
        work(queue, add(queue))
        look(queue)
        grow(store)
        listen(store)
        lock: NamedLock = store.lock("typed")
        with lock:
            assert lock.held
        print(verify(store))  # noqa: T201
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
