"""What the documents on steps and on the architecture say of jobs that wait for others, and run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

from bullite import Job, JobWaitingChildrenError, Queue, Store, WaitingChildrenError, Worker, verify
from tests.support.databases import Database
from tests.support.helpers import again, until

Main = Callable[[Store], Coroutine[Any, Any, None]]


def run(database: Database, main: Main) -> None:
    with closing(Store(database.location)) as store:
        asyncio.run(asyncio.wait_for(main(store), 30))
        assert verify(store).problems == ()


# --- the architecture document: job dependencies and flows ---------------------------------------


def test_first_the_analysis_then_models_and_api_then_tests(database: Database) -> None:
    ran: list[str] = []

    async def process(job: Job) -> Any:
        ran.append(job.name)
        if job.name == "analyze-requirements":
            return {"entities": ["user", "session"]}
        [analysis] = (await job.get_dependency_values()).values()
        return [job.name, *analysis["entities"]]

    async def main(store: Store) -> None:
        queue = Queue("llm-processing", store, priority_order="high")
        analysis = await queue.add(
            "analyze-requirements", {"requirements": "Build a user authentication system"}
        )
        tests = await queue.add(
            "generate-tests", {"parent_analysis": analysis.id}, depends_on=analysis, priority=25
        )
        models = await queue.add(
            "generate-models", {"parent_analysis": analysis.id}, depends_on=analysis, priority=50
        )
        api = await queue.add(
            "generate-api", {"parent_analysis": analysis.id}, depends_on=analysis, priority=50
        )
        assert {job.state for job in (tests, models, api)} == {"waiting-children"}
        async with Worker(queue, process):
            assert await tests.result() == ["generate-tests", "user", "session"]
        assert await models.result() == ["generate-models", "user", "session"]
        assert (await again(queue, api)).depends_on == (analysis.id,)

    run(database, main)
    assert ran == ["analyze-requirements", "generate-models", "generate-api", "generate-tests"]


def test_a_parent_of_the_document_waits_for_its_children(database: Database) -> None:
    """Here a parent is who waits: the document's example is the one with `depends_on` above."""

    async def process(job: Job) -> Any:
        if job.name == "generate":
            return job.data
        return sorted((await job.get_children_values()).values())

    async def main(store: Store) -> None:
        queue = Queue("llm-processing", store)
        report = await queue.add(
            "report",
            children=[
                {"name": "generate", "data": "models", "queue_name": "llm-processing"},
                {"name": "generate", "data": "api", "queue_name": "other", "opts": {"priority": 1}},
            ],
        )
        assert report.state == "waiting-children"
        async with Worker(queue, process), Worker(Queue("other", store), process):
            assert await report.result() == ["api", "models"]

    run(database, main)


# --- the document on steps: waiting for children (1.7) -------------------------------------------


def test_a_parent_adds_children_to_its_own_and_other_queues_and_waits(database: Database) -> None:
    """The step that is stored in the job's data tells where to go on."""
    seen: list[str] = []

    async def main(store: Store) -> None:
        agents, tools = Queue("agents", store), Queue("tools", store)

        async def plan(job: Job) -> Any:
            if job.name != "plan":
                return job.data * 10
            while job.data["step"] != "finish":
                seen.append(job.data["step"])
                if job.data["step"] == "initial":
                    mine = {"id": job.id, "queue": job.queue_name}
                    first = await agents.add("subtask", 1, parent=mine)
                    second = await tools.add("subtask", 2, parent=mine)
                    children = [first.id, second.id]
                    await job.update_data({"step": "wait", "children": children})
                elif job.data["step"] == "wait":
                    if await job.move_to_waiting_children():
                        raise JobWaitingChildrenError
                    await job.update_data({**job.data, "step": "finish"})
            values = await job.get_children_values()
            agent, tool = job.data["children"]
            return [values[f"agents:{agent}"], values[f"tools:{tool}"]]

        parent = await agents.add("plan", {"step": "initial"})
        async with Worker(agents, plan):
            await until(lambda: parent.is_waiting_children())
            async with Worker(tools, plan):
                assert await parent.result() == [10, 20]
        done = await again(agents, parent)
        assert (done.attempts_made, done.attempts_started) == (1, 2)

    run(database, main)
    assert seen == ["initial", "wait", "wait"]


def test_when_all_children_are_completed_there_is_nothing_to_wait_for(database: Database) -> None:
    async def main(store: Store) -> None:
        agents, tools = Queue("agents", store), Queue("tools", store)

        async def plan(job: Job) -> bool:
            child = await tools.add("subtask", parent=job)
            await child.result()
            return await job.move_to_waiting_children()

        async def nothing(job: Job) -> None: ...

        parent = await agents.add("plan")
        async with Worker(agents, plan), Worker(tools, nothing):
            assert await parent.result() is False

    run(database, main)


def test_the_states_of_the_document_are_gone_through(database: Database) -> None:
    """1.8: waiting, active, waiting_children, waiting again, active, completed."""
    states: list[str] = []

    async def main(store: Store) -> None:
        queue = Queue("agents", store)

        async def plan(job: Job) -> None:
            if job.name == "plan":
                states.append(await job.get_state())
                if job.attempts_started == 1:
                    await queue.add("subtask", parent=job)
                if await job.move_to_waiting_children():
                    states.append(await job.get_state())
                    raise WaitingChildrenError
            else:
                states.append("the child ran")

        parent = await queue.add("plan")
        assert await queue.get_job_counts("waiting_children") == {"waiting-children": 0}
        async with Worker(queue, plan):
            await parent.result()
        states.append(await parent.get_state())

    run(database, main)
    assert states == ["active", "waiting-children", "the child ran", "active", "completed"]


def test_a_token_may_be_passed_and_is_checked(database: Database) -> None:
    """2: only the run that holds a job may let it wait."""

    async def main(store: Store) -> None:
        queue = Queue("agents", store)

        async def plan(job: Job, token: str) -> str:
            if job.name != "plan":
                return "a child"
            if job.attempts_started == 1:
                await queue.add("subtask", parent=job)
            try:
                await job.move_to_waiting_children("somebody else's")
            except Exception as error:
                refused = type(error).__name__
            if await job.move_to_waiting_children(token):
                raise WaitingChildrenError
            return refused

        parent = await queue.add("plan")
        async with Worker(queue, plan):
            assert await parent.result() == "LostLock"

    run(database, main)
