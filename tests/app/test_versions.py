"""Payloads that outlive a deploy: versions, upcasters, and names that nobody knows any more."""

from __future__ import annotations

from typing import Any

import pytest

from bullite import Bullite, Job, JobFailed, Worker
from bullite.client.job.version_skew import is_postponed
from bullite.errors import InvalidOption, InvalidOptionType
from bullite.testing import Playground
from tests.support.helpers import state_of, until

NEWER = "made by a newer version of its task than this worker has: waits for a newer worker"


def first(app: Bullite) -> Any:
    @app.task(name="greet")
    def greet(name: str) -> str:
        return f"hello {name}"

    return greet


def with_keyword(data: dict[str, Any]) -> dict[str, Any]:
    [name] = data["args"]
    return {"args": [], "kwargs": {**data["kwargs"], "name": name}}


def with_greeting(data: dict[str, Any]) -> dict[str, Any]:
    data["kwargs"]["greeting"] = "good day"
    return data


def third(app: Bullite, in_loop: bool = False) -> Any:
    options: dict[str, Any] = {
        "name": "greet",
        "version": 3,
        "upcasters": {1: with_keyword, 2: with_greeting},
    }
    if in_loop:

        @app.task(**options)
        async def greet_in_loop(*, name: str, greeting: str) -> str:
            return f"{greeting} {name}"

        return greet_in_loop

    @app.task(**options)
    def greet(*, name: str, greeting: str) -> str:
        return f"{greeting} {name}"

    return greet


async def test_a_job_of_an_older_version_is_brought_up_step_by_step(location: str) -> None:
    old, new = Bullite(location), Bullite(location)
    third(new)
    job = await first(old).enqueue("ada")
    between = await old.add("default", "greet", {"v": 2, "kwargs": {"name": "bob"}})
    await old.stop()
    async with new:
        for one, greeting in ((job, "good day ada"), (between, "good day bob")):
            found = await new.queue().get_job(one.id)
            assert found is not None
            assert await found.result("10s") == greeting


async def test_upcaster_that_changes_its_data_does_not_change_the_data_of_the_job(
    app: Bullite,
) -> None:
    def add_a_name(data: dict[str, Any]) -> dict[str, Any]:
        data["kwargs"]["names"].append("grace")
        return data

    @app.task(name="show", version=2, upcasters={1: add_a_name})
    def show(job: Job, *, names: list[str]) -> Any:
        return [names, job.data]

    async with app:
        job = await app.add("default", "show", {"kwargs": {"names": ["ada"]}})
        names, data = await job.result("10s")
    assert names == ["ada", "grace"]
    assert data == {"kwargs": {"names": ["ada"]}}


async def test_a_version_is_stored_with_its_job_unless_it_is_the_first(app: Bullite) -> None:
    job = await third(app).enqueue(name="ada", greeting="hey")
    assert job.data == {"v": 3, "kwargs": {"name": "ada", "greeting": "hey"}}
    other = app.task(name="plain")(lambda: None)
    assert (await other.enqueue()).data == {}
    async with app:
        assert await job.result("10s") == "hey ada"


async def test_an_upcaster_always_finds_both_kinds_of_arguments(app: Bullite) -> None:
    seen: list[Any] = []

    def note(data: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(data))
        return data

    app.task(name="nothing", version=2, upcasters={1: note})(lambda: None)
    async with app:
        for data in ({}, None, {"v": 1}):
            await (await app.add("default", "nothing", data)).result("10s")
    assert seen == [{"args": [], "kwargs": {}}] * 3


async def test_an_upcaster_that_fails_fails_the_job(app: Bullite) -> None:
    third(app)
    async with app:
        job = await app.add("default", "greet", {"args": ["one", "too many"]})
        with pytest.raises(JobFailed, match="too many values"):
            await job.result("10s")


@pytest.mark.parametrize(
    ("version", "upcasters", "missing"),
    [(2, {}, 1), (3, {1: with_keyword}, 2), (3, {2: with_keyword}, 1), (2**31 - 1, None, 1)],
)
def test_a_missing_upcaster_is_refused_at_decoration(
    app: Bullite, version: int, upcasters: Any, missing: int
) -> None:
    with pytest.raises(InvalidOption, match=f"no upcaster for version {missing}: give"):
        app.task(name="greet", version=version, upcasters=upcasters)(lambda: None)


def test_an_upcaster_that_is_no_function_is_refused_at_decoration(app: Bullite) -> None:
    with pytest.raises(InvalidOptionType, match="the upcaster of version 1"):
        app.task(name="greet", version=2, upcasters={1: "up"})(lambda: None)  # type: ignore[dict-item]


def test_upcasters_that_are_no_mapping_are_refused_at_decoration(app: Bullite) -> None:
    with pytest.raises(InvalidOptionType, match="task greet: upcasters must map versions to"):
        app.task(name="greet", version=2, upcasters=[with_keyword])(lambda: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "number"), [(1, 1), (2, 2), (2, 3), (2, 0), (2, "2")], ids=str)
def test_an_upcaster_for_no_version_before_the_tasks_is_refused_at_decoration(
    app: Bullite, version: int, number: Any
) -> None:
    upcasters = {**dict.fromkeys(range(1, version), with_keyword), number: with_keyword}
    with pytest.raises(InvalidOption, match=f"task greet .*an upcaster for version {number!r}"):
        app.task(name="greet", version=version, upcasters=upcasters)(lambda: None)
    assert app.processors() == {}


@pytest.mark.parametrize("given", [None, {"nonsense": 1}, [1], {"args": 5}], ids=str)
async def test_an_upcaster_that_gives_no_arguments_fails_the_job(app: Bullite, given: Any) -> None:
    app.task(name="mine", version=3, upcasters={1: lambda _: given, 2: with_greeting})(
        lambda greeting=None: None
    )
    async with app:
        job = await app.add("default", "mine", {})
        with pytest.raises(JobFailed) as told:
            await job.result("10s")
    assert f"what its upcaster of version 1 gave is {given!r}, and must be" in str(told.value)


# --- code that is older than the job -------------------------------------------------------------


@pytest.mark.parametrize("in_loop", [False, True], ids=["thread", "coroutine"])
async def test_a_job_of_a_newer_version_is_parked_and_not_failed(
    location: str, in_loop: bool
) -> None:
    old, new = Bullite(location), Bullite(location)
    if in_loop:

        @old.task(name="greet")
        async def greet(name: str) -> str:
            return name
    else:
        first(old)
    job = await third(new).options(attempts=1).enqueue(name="ada", greeting="hey")
    await new.stop()
    async with old:
        await until(lambda: _is_delayed(old, job.id))
        found = await old.queue().get_job(job.id)
        assert found is not None
        assert (found.attempts_made, found.failed_reason) == (0, None)
        [line] = (await found.get_logs())["logs"]
        assert (line["message"], line["level"]) == (NEWER, "warn")
        await found.promote()
        await until(lambda: _is_delayed(old, job.id))
        assert (await found.get_logs())["count"] == 1, "it is said once"
        assert (await old.queue().why(job.id)).endswith(f": {NEWER}")
        assert await old.queue().doctor() == [
            "1 job of 'greet' came from a newer version of the task than its workers have: "
            "start newer ones"
        ]
    async with new:
        found = await new.queue().get_job(job.id)
        assert found is not None
        assert await found.result("10s") == "hey ada"


async def _is_delayed(app: Bullite, id: str) -> bool:
    return await app.queue().get_job_state(id) == "delayed"


def test_a_parked_job_runs_by_itself_when_newer_code_comes() -> None:
    with Playground() as play:
        old, new = Bullite(play.store), Bullite(play.store)
        first(old)
        task = third(new)
        play.serve(old)
        job = play.run(task.enqueue(name="ada", greeting="hey"))
        assert [run.came_to for run in play.advance("5m")] == ["delayed"] * 6
        play.serve(new)
        play.advance("1m")
        play.assert_completed(job, "hey ada")


async def test_parked_jobs_run_at_once_when_newer_code_starts(location: str) -> None:
    old, new = Bullite(location), Bullite(location)
    first(old)
    task = third(new)
    jobs = await task.map([{"name": "ada", "greeting": "hey"}] * 3)
    newest = await new.add("default", "greet", {"v": 4})
    soon = await task.options(delay=59_000).enqueue(name="bob", greeting="ho")
    await new.stop()
    async with old:
        for job in (*jobs, newest):
            await until(lambda job=job: _is_parked(old, job.id), limit=20)
    async with new:
        for job in jobs:
            found = await new.queue().get_job(job.id)
            assert found is not None
            assert await found.result("20s") == "hey ada"
        assert await new.queue().get_job_state(newest.id) == "delayed"
        assert await new.queue().get_job_state(soon.id) == "delayed"
        assert "1 job of 'greet'" in (await new.queue().doctor())[0]


async def _is_parked(app: Bullite, id: str) -> bool:
    found = await app.queue().get_job(id)
    return found is not None and found.state == "delayed" and await is_postponed(found)


# --- names that nobody knows ---------------------------------------------------------------------


async def test_a_job_of_an_unknown_name_stays_where_it_is(app: Bullite) -> None:
    first(app)
    unknown = await app.add("default", "gone", {"args": [1]})
    async with app:
        known = await app.add("default", "greet", {"args": ["ada"]})
        await known.result("10s")
        assert await state_of(app.queue(), unknown) == "waiting"
        assert "no worker takes jobs named 'gone'" in await app.queue().why(unknown.id)


async def test_the_doctor_lists_names_that_no_worker_takes(app: Bullite) -> None:
    first(app)
    async with app:
        queue = app.queue()
        assert await queue.doctor() == []
        for name, options in (("gone", {}), ("gone", {"priority": 1}), ("lost", {"delay": "1h"})):
            await app.add("default", name, None, **options)  # type: ignore[arg-type]
        await app.add("default", "greet", {"args": ["ada"]}, delay="1h")
        await app.add("other", "gone")
        told = await queue.doctor()
        assert [line.partition(":")[0] for line in told] == [
            "2 jobs wait with the name 'gone', which no worker takes",
            "1 job waits with the name 'lost', which no worker takes",
        ]


async def test_the_doctor_counts_what_several_workers_take_together(app: Bullite) -> None:
    async def nothing(job: Job) -> None:
        """Does nothing."""

    queue = app.queue()
    for name in ("a", "b", "c"):
        await queue.add(name, delay="1h")
    async with Worker(queue, {"a": nothing}) as one, Worker(queue, {"b": (nothing, 1)}) as other:
        await one.wait_until_ready()
        await other.wait_until_ready()
        [told] = await queue.doctor()
        assert "'c'" in told
        async with Worker(queue, nothing) as all_of_them:
            await all_of_them.wait_until_ready()
            assert await queue.doctor() == []


async def test_the_doctor_does_not_mind_a_queue_that_nobody_serves_yet(app: Bullite) -> None:
    await app.add("default", "anything")
    assert await app.queue().doctor() == []
