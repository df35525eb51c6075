"""What `repr` says of the objects that users hold."""

from __future__ import annotations

from bullite import Job, Queue, Store, Worker, sync


async def nothing(job: Job) -> None:
    pass


async def test_repr_of_queue_names_it_and_its_database(queue: Queue, location: str) -> None:
    assert repr(queue) == f"<Queue {queue.name!r} in {Store(location).location}>"


def test_repr_of_sync_queue_is_that_of_the_queue(location: str) -> None:
    with sync.Queue("letters", location) as queue:
        assert repr(queue) == f"<Queue 'letters' in {Store(location).location}>"


async def test_repr_of_worker_tells_its_state(queue: Queue) -> None:
    worker = Worker(queue, nothing, name="ada", autorun=False)
    said = [repr(worker)]
    async with worker:
        said.append(repr(worker))
        await worker.pause()
        said.append(repr(worker))
    said.append(repr(worker))
    start = f"<Worker 'ada' of {queue.name!r}: "
    states = ["not started", "running", "paused", "closed"]
    assert said == [f"{start}{state}>" for state in states]
