"""The service document: one object for queues, processors by queue and name, and their jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Any

from bullite import Bullite, Job, JobDelayedError, JobWaitingChildrenError, Store, verify
from bullite.testing import START, Playground
from tests.support.helpers import until

Main = Callable[[Bullite], Coroutine[Any, Any, None]]
DEFAULTS: Any = {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}}


def run(tmp_path: Path, main: Main) -> None:
    path = tmp_path / "wiz.db"

    async def running() -> None:
        app = Bullite(path)
        await main(app)
        await app.stop()

    asyncio.run(asyncio.wait_for(running(), 30))
    with closing(Store(path)) as store:
        assert verify(store).problems == ()


# --- 1.1, 1.2: default options of a queue, and jobs that have their own --------------------------


def test_a_queue_has_default_options_for_every_process(tmp_path: Path) -> None:
    async def main(service: Bullite) -> None:
        await service.queue("agents").configure(default_job_options=DEFAULTS)
        other = Bullite(tmp_path / "wiz.db")
        job = await other.add("agents", "plan", {"foo": "bar"})
        elsewhere = await other.add("mails", "send")
        assert (job.attempts, job.opts["backoff"]) == (3, DEFAULTS["backoff"])
        assert (elsewhere.attempts, elsewhere.queue_name) == (1, "mails")
        await other.stop()

    run(tmp_path, main)


def test_the_options_of_a_job_beat_those_of_its_queue(tmp_path: Path) -> None:
    async def main(service: Bullite) -> None:
        await service.queue("agents").configure(default_job_options=DEFAULTS)
        job = await service.add("agents", "plan", {"foo": "bar"}, attempts=5, priority=2)
        assert (job.queue_name, job.name, job.data) == ("agents", "plan", {"foo": "bar"})
        assert (job.attempts, job.priority, job.opts["backoff"]) == (5, 2, DEFAULTS["backoff"])

    run(tmp_path, main)


# --- 1.3: processors by queue and name -----------------------------------------------------------


def test_a_processor_belongs_to_a_name_in_a_queue(tmp_path: Path) -> None:
    async def process(job: Job) -> str:
        return f"{job.queue_name}: {job.name}"

    async def main(service: Bullite) -> None:
        service.process("agents", "plan", process, 1)
        service.process("mails", "send", process)
        async with service:
            mine = await service.add("agents", "plan")
            other = await service.add("mails", "send")
            unserved = await service.add("agents", "send")
            assert await mine.result("10s") == "agents: plan"
            assert await other.result("10s") == "mails: send"
            assert await unserved.get_state() == "waiting"

    run(tmp_path, main)


def test_a_processor_of_concurrency_one_runs_one_at_a_time(tmp_path: Path) -> None:
    inside: list[str] = []

    async def process(job: Job) -> int:
        inside.append(job.id)
        await asyncio.sleep(0)
        inside.remove(job.id)
        return len(inside)

    async def main(service: Bullite) -> None:
        service.process("agents", "plan", process, concurrency=1)
        async with service:
            jobs = [await service.add("agents", "plan") for _ in range(10)]
            assert {await job.result("10s") for job in jobs} == {0}

    run(tmp_path, main)


# --- 1.4: the job object in the processor --------------------------------------------------------


def test_what_a_processor_does_to_its_job_is_stored(tmp_path: Path) -> None:
    async def process(job: Job) -> list[Any]:
        await job.update_data({"foo": "changed"})
        await job.update_progress(40)
        await job.log("half way")
        return [job.id, job.name, job.queue_name, job.opts["attempts"]]

    async def main(service: Bullite) -> None:
        service.process("agents", "plan", process)
        async with service:
            job = await service.add("agents", "plan", {"foo": "bar"}, attempts=2)
            assert await job.result("10s") == [job.id, "plan", "agents", 2]
            found = await service.queue("agents").get_job(job.id)
            assert found is not None
            assert found.data == {"foo": "changed"}
            assert [line["message"] for line in (await found.get_logs())["logs"]] == ["half way"]

    run(tmp_path, main)


# --- 1.5: steps in the data ----------------------------------------------------------------------


class Step(StrEnum):
    INITIAL = "initial"
    SECOND = "second"
    FINISH = "finish"


def test_a_job_goes_on_from_the_step_it_came_to(tmp_path: Path) -> None:
    done: list[str] = []

    async def process(job: Job) -> str:
        step = job.data["step"]
        while step != Step.FINISH:
            done.append(step)
            if step == Step.INITIAL:
                step = Step.SECOND
            elif done.count(Step.SECOND) == 1:
                raise RuntimeError("the power went out")
            else:
                step = Step.FINISH
            await job.update_data({"step": step})
        return step

    async def main(service: Bullite) -> None:
        service.process("agents", "plan", process)
        async with service:
            job = await service.add("agents", "plan", {"step": Step.INITIAL}, attempts=2)
            assert await job.result("10s") == Step.FINISH
        assert done == [Step.INITIAL, Step.SECOND, Step.SECOND]

    run(tmp_path, main)


# --- 1.6: delaying a job while it runs -----------------------------------------------------------


def test_a_job_that_delays_itself_comes_back_in_time_and_has_not_failed() -> None:
    with Playground() as play:
        service = Bullite(play.store)

        async def process(job: Job, token: str) -> str:
            if job.data["step"] == Step.INITIAL:
                await job.update_data({"step": Step.SECOND})
                await job.move_to_delayed(play.clock.now() + 60_000, token)
                raise JobDelayedError("in a minute")
            return "done"

        service.process("agents", "plan", process)
        play.serve(service)
        job = play.run(service.add("agents", "plan", {"step": Step.INITIAL}))
        ran = play.advance("1h")
        assert [(run.at - START).total_seconds() for run in ran] == [0, 60]
        assert [run.came_to for run in ran] == ["delayed", "completed"]
        assert play.assert_completed(job, "done").attempts_made == 1


# --- 1.7: waiting for children -------------------------------------------------------------------


def test_a_job_waits_for_its_children_in_whatever_queue(tmp_path: Path) -> None:
    states: list[str] = []

    async def main(service: Bullite) -> None:
        async def parent(job: Job, token: str) -> Any:
            if job.data["step"] == Step.INITIAL:
                for number, queue in enumerate(("agents", "helpers")):
                    await service.add(queue, "child", number, parent=job)
                await job.update_data({"step": Step.SECOND})
            if await job.move_to_waiting_children(token):
                raise JobWaitingChildrenError("for two of them")
            return sorted((await job.get_children_values()).values())

        async def child(job: Job) -> int:
            above = await service.queue("agents").get_job(str(job.parent_id))
            assert above is not None
            await until(lambda: above.is_waiting_children())
            states.append(await above.get_state())
            return 10 * int(job.data)

        service.process("agents", "parent", parent)
        service.process("agents", "child", child)
        service.process("helpers", "child", child)
        async with service:
            job = await service.add("agents", "parent", {"step": Step.INITIAL})
            assert await job.result("10s") == [0, 10]
            assert states == ["waiting-children"] * 2
            assert (await job.get_state(), job.attempts_made) == ("completed", 0)

    run(tmp_path, main)


def test_a_job_whose_children_are_done_need_not_wait(tmp_path: Path) -> None:
    async def main(service: Bullite) -> None:
        async def parent(job: Job, token: str) -> bool:
            child = await service.add("helpers", "child", parent=job)
            await child.result("10s")
            return await job.move_to_waiting_children(token)

        service.process("agents", "parent", parent)
        service.process("helpers", "child", lambda job: None)
        async with service:
            assert await (await service.add("agents", "parent")).result("10s") is False

    run(tmp_path, main)


# --- 1.8: the states -----------------------------------------------------------------------------


def test_a_job_goes_through_the_states_of_the_document() -> None:
    with Playground() as play:
        service = Bullite(play.store)
        during: list[str] = []

        async def process(job: Job) -> None:
            during.append(await job.get_state())
            if job.name == "fail":
                raise ValueError("it broke")

        service.process("agents", "plan", process)
        service.process("agents", "fail", process)
        play.serve(service)
        fine = play.run(service.add("agents", "plan"))
        bad = play.run(service.add("agents", "fail", attempts=2, backoff=1000))
        later = play.run(service.add("agents", "plan", delay="1h"))
        assert [job.state for job in (fine, bad, later)] == ["waiting", "waiting", "delayed"]
        play.drain()
        counts = play.run(service.queue("agents").get_job_counts("completed", "delayed"))
        assert counts == {"completed": 1, "delayed": 2}
        play.advance("1h")
        assert play.run(service.stats("agents")) == {
            "pending": 0,
            "processing": 0,
            "completed": 2,
            "failed": 1,
        }
        assert during == ["active"] * 4
