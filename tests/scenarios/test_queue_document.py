"""The queue document's sketches, its sections 4 and 6, written for this library and run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bullite import EventEmitter, Job, JobOptions, Queue, Store, Worker, verify
from bullite.errors import InvalidOptionType
from tests.support.helpers import state_of, until

Main = Callable[[Queue, EventEmitter], Coroutine[Any, Any, None]]


def run(tmp_path: Path, main: Main) -> None:
    """The queue of the document, with an emitter of its own."""
    path = tmp_path / "jobs.db"

    async def running() -> None:
        emitter = EventEmitter()
        async with Queue("email-queue", path, events=emitter) as queue:
            await main(queue, emitter)

    asyncio.run(asyncio.wait_for(running(), 30))
    with closing(Store(path)) as store:
        assert verify(store).problems == ()


async def send(job: Job) -> dict[str, Any]:
    await job.update_progress(50)
    await job.log("sending")
    if job.name == "bounce":
        raise ValueError("no such address")
    return {"sent": job.data["to"]}


async def is_in(queue: Queue, job: Job, state: str) -> bool:
    return await state_of(queue, job) == state


# --- 4.1: a job ----------------------------------------------------------------------------------


def test_a_job_has_the_attributes_of_the_document(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        job = await queue.add(
            "send", {"to": "ann"}, priority=3, attempts=2, job_id="mail-1", timeout=60_000
        )
        assert (job.id, job.name, job.queue_name) == ("mail-1", "send", "email-queue")
        assert (job.data, job.progress, job.attempts_made) == ({"to": "ann"}, 0, 0)
        assert job.opts["priority"] == 3
        assert (job.processed_at, job.finished_at, job.process_at) == (None, None, None)
        assert (job.locked_by, job.lock_expires_at, job.repeat_job_key) == (None, None, None)
        async with Worker(queue, send):
            await job.result()
        done = await queue.get_job("mail-1")
        assert done is not None
        assert done.return_value == {"sent": "ann"}
        assert done.processed_at is not None
        assert done.finished_at is not None
        assert done.created_at <= done.processed_at <= done.finished_at
        [line] = (await queue.get_job_logs("mail-1"))["logs"]
        assert (line["message"], line["level"]) == ("sending", "info")

    run(tmp_path, main)


def test_a_running_job_says_who_holds_it(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        async def work(job: Job) -> list[Any]:
            now = await queue.get_job(job.id)
            assert now is not None
            return [now.state, now.locked_by, now.lock_expires_at is not None]

        async with Worker(queue, work, name="worker-1"):
            job = await queue.add("send")
            assert await job.result() == ["active", "worker-1", True]

    run(tmp_path, main)


def test_a_job_can_be_promoted_and_retried(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        job = await queue.add("bounce", {"to": "bob"}, delay=3_600_000)
        async with Worker(queue, send):
            await job.promote()
            await until(lambda: is_in(queue, job, "failed"))
        failed = await queue.get_job(job.id)
        assert failed is not None
        await failed.retry()
        assert await is_in(queue, job, "waiting")

    run(tmp_path, main)


def test_a_job_can_be_ended_by_hand(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        good, bad = await queue.add("good"), await queue.add("bad", attempts=5)
        worker = Worker(queue, None)
        first, second = await worker.get_next_job(), await worker.get_next_job()
        assert first is not None
        assert second is not None
        await first.move_to_completed({"ok": True}, remove_on_complete=False)
        await second.move_to_failed(ValueError("no"), retry=False, remove_on_fail=False)
        await worker.close()
        assert [await state_of(queue, job) for job in (good, bad)] == ["completed", "failed"]

    run(tmp_path, main)


def test_the_backoff_may_be_called_a_retry_strategy(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        strategy: Any = {"type": "exponential", "delay": 3_600_000}
        job = await queue.add("bounce", {}, attempts=3, retry_strategy=strategy)
        async with Worker(queue, send):
            await until(lambda: is_in(queue, job, "delayed"))
        delayed = await queue.get_job(job.id)
        assert delayed is not None
        assert delayed.delay == 3_600_000

    run(tmp_path, main)


def test_a_strategy_of_ones_own_is_a_function_that_the_worker_knows(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        asked: list[tuple[int, str]] = []

        async def patient(attempts_made: int, error: BaseException) -> int | bool:
            asked.append((attempts_made, str(error)))
            return 10 if attempts_made < 2 else False

        with pytest.raises(InvalidOptionType, match="retry_strategies"):
            await queue.add("bounce", {}, retry_strategy=patient)  # type: ignore[arg-type]
        job = await queue.add("bounce", {}, attempts=9, retry_strategy="patient")
        async with Worker(queue, send, retry_strategies={"patient": patient}):
            await until(lambda: is_in(queue, job, "failed"))
        assert asked == [(1, "no such address"), (2, "no such address")]

    run(tmp_path, main)


# --- 4.2: a queue --------------------------------------------------------------------------------

WORDS = {
    "PENDING": "waiting",
    "ACTIVE": "active",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "DELAYED": "delayed",
    "WAITING_CHILDREN": "waiting-children",
    "PRIORITIZED": "prioritized",
}


@pytest.mark.parametrize(("word", "state"), WORDS.items())
def test_the_documents_words_for_states_are_understood(
    tmp_path: Path, word: str, state: str
) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        for spelling in (word, word.lower(), word.lower().replace("_", "-")):
            assert await queue.get_jobs([spelling], 0, -1, True) == []
            assert await queue.get_job_counts(spelling) == {state: 0}
            assert await queue.clean(0, state=spelling) == []

    run(tmp_path, main)


def test_a_queue_is_managed_as_in_the_document(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        mails: list[tuple[str, JobOptions]] = [
            ("ann", {}),
            ("bob", {"delay": 3_600_000}),
            ("cat", {"lifo": True}),
        ]
        jobs = await queue.add_bulk(
            {"name": "send", "data": {"to": to}, "opts": opts} for to, opts in mails
        )
        ann, bob, cat = jobs
        assert [job.id for job in await queue.get_jobs(["PENDING"], 0, -1, True)] == [
            cat.id,
            ann.id,
        ]
        assert [job.id for job in await queue.get_jobs(["DELAYED"])] == [bob.id]
        counts = await queue.get_job_counts()
        assert (counts["waiting"], counts["delayed"], counts["active"]) == (2, 1, 0)
        await queue.remove_job(ann.id)
        assert await queue.get_job(ann.id) is None
        await queue.empty()
        assert await queue.get_jobs(["PENDING", "DELAYED"]) != []
        assert (await queue.get_job_counts())["waiting"] == 0

    run(tmp_path, main)


def test_cleaning_takes_the_documents_arguments_by_name(tmp_path: Path) -> None:
    """The two documents order them differently, so that only names are safe."""

    async def main(queue: Queue, emitter: EventEmitter) -> None:
        jobs = [await queue.add("send", {"to": "ann"}) for _ in range(3)]
        async with Worker(queue, send):
            for job in jobs:
                await job.result()
        await asyncio.sleep(0.005)
        assert await queue.clean(0, state="COMPLETED", limit=2) == [job.id for job in jobs[:2]]
        with pytest.raises(InvalidOptionType, match="limit"):
            await queue.clean(0, "COMPLETED", 0)  # type: ignore[arg-type]
        assert await queue.get_job_counts("COMPLETED") == {"completed": 1}

    run(tmp_path, main)


def test_a_paused_queue_hands_out_nothing(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        heard: list[tuple[str, str]] = []
        for event in ("queue.paused", "queue.resumed"):
            emitter.on(event, lambda name, event=event: heard.append((event, name)))
        await queue.pause()
        async with Worker(queue, send):
            job = await queue.add("send", {"to": "ann"})
            await asyncio.sleep(0.05)
            assert await is_in(queue, job, "waiting")
            await queue.resume()
            assert await job.result() == {"sent": "ann"}
        await until(lambda: len(heard) == 2)
        assert heard == [("queue.paused", "email-queue"), ("queue.resumed", "email-queue")]

    run(tmp_path, main)


# --- 4.3: a worker -------------------------------------------------------------------------------


def test_a_worker_takes_the_documents_options(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        worker = Worker(
            queue, send, concurrency=2, lock_duration=30_000, lock_renew_time=15_000, autorun=False
        )
        assert not worker.is_running
        running = asyncio.create_task(worker.run())
        jobs = [await queue.add("send", {"to": "ann"}) for _ in range(5)]
        for job in jobs:
            assert await job.result() == {"sent": "ann"}
        await worker.close(force=False)
        await running

    run(tmp_path, main)


# --- 4.4 and 6: events ---------------------------------------------------------------------------


def test_a_queue_tells_its_listeners_ids_and_results(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        lines: list[str] = []

        def completed(job_id: str, result: Any, *_: Any) -> None:
            lines.append(f"Job {job_id} in email-queue completed with {result}")

        queue.on("job.completed", completed)
        async with Worker(queue, send):
            job = await queue.add("send", {"to": "ann"})
            await until(lambda: lines)
        assert lines == [f"Job {job.id} in email-queue completed with {{'sent': 'ann'}}"]

    run(tmp_path, main)


def test_an_emitter_tells_of_failures_in_any_queue(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        lines: list[str] = []

        @emitter.on("job.failed")
        def failed(queue_name: str, job_id: str, error: Exception, *_: Any) -> None:
            lines.append(f"Job {job_id} in queue {queue_name} failed: {error}")

        async with Worker(queue, send):
            job = await queue.add("bounce", {})
            await until(lambda: lines)
        assert lines == [f"Job {job.id} in queue email-queue failed: no such address"]

    run(tmp_path, main)


def test_every_event_of_the_document_is_told_with_its_arguments(tmp_path: Path) -> None:
    async def main(queue: Queue, emitter: EventEmitter) -> None:
        heard: list[tuple[Any, ...]] = []
        names = (
            *("job.added", "job.active", "job.completed", "job.failed", "job.progress"),
            *("job.delayed", "job.promoted", "job.removed", "job.log_added"),
        )
        for name in names:
            emitter.on(name, lambda *arguments, name=name: heard.append((name, *arguments)))
        async with Worker(queue, send):
            good = await queue.add("send", {"to": "ann"}, delay=10)
            await good.result()
            bad = await queue.add("bounce", {}, attempts=2, backoff={"type": "fixed", "delay": 10})
            await until(lambda: is_in(queue, bad, "failed"))
            await bad.remove()
            await until(lambda: heard[-1][0] == "job.removed")
        assert {event[1] for event in heard} == {"email-queue"}
        assert [event[0] for event in heard if event[2] == good.id] == [
            *("job.added", "job.delayed", "job.promoted", "job.active"),
            *("job.progress", "job.log_added", "job.completed"),
        ]
        assert [event[0] for event in heard if event[2] == bad.id] == [
            *("job.added", "job.active", "job.progress", "job.log_added"),
            *("job.failed", "job.delayed", "job.promoted"),
            *("job.active", "job.progress", "job.log_added", "job.failed", "job.removed"),
        ]

    run(tmp_path, main)
