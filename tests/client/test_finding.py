"""Finding jobs: by name, tag, date, state and text, a slice at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bullite import FlowProducer, Job, Queue, UnrecoverableError, Worker
from bullite.client.queue import search
from bullite.errors import BulliteError, InvalidOption, InvalidOptionType
from tests.support.databases import Database
from tests.support.helpers import case, until

LONG_AGO = 1_600_000_000_000


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few jobs are many."""
    monkeypatch.setattr(search, "SLICE", 2)
    monkeypatch.setattr(search, "MAX_SCANNED", 4)


async def found(queue: Queue, **criteria: Any) -> list[Any]:
    """The data of what is found at once."""
    return [job.data for job in (await queue.find(**criteria)).jobs]


async def walk(queue: Queue, **criteria: Any) -> list[list[Any]]:
    """The data of all that is found, page by page."""
    pages = []
    cursor: str | None = None
    while True:
        page = await queue.find(**criteria, cursor=cursor)
        pages.append([job.data for job in page.jobs])
        cursor = page.cursor
        if cursor is None:
            return pages


def joined(pages: list[list[Any]]) -> list[Any]:
    return [data for page in pages for data in page]


async def work(job: Job) -> Any:
    if job.name == "fails":
        raise UnrecoverableError(f"The {job.data} Broke")
    return {"made of": job.data}


async def run_all(queue: Queue) -> None:
    async with Worker(queue, work):
        await until(lambda: is_done(queue))


async def is_done(queue: Queue) -> bool:
    return not any((await queue.get_job_counts("waiting", "prioritized", "active")).values())


# --- by what -------------------------------------------------------------------------------------


async def test_an_empty_queue_has_nothing_to_find(queue: Queue) -> None:
    nothing = await queue.find()
    assert (nothing.jobs, nothing.cursor) == ([], None)
    for criteria in ({"name": "a"}, {"tag": "a"}, {"text": "a"}, {"state": "failed"}):
        assert await found(queue, **criteria) == []


async def test_everything_is_found_newest_first_with_all_that_is_known(queue: Queue) -> None:
    for number in range(3):
        await queue.add("a", number, tags=["x"])
    jobs = (await queue.find()).jobs
    assert [job.data for job in jobs] == [2, 1, 0]
    assert (jobs[0].name, jobs[0].state, jobs[0].tags) == ("a", "waiting", ("x",))


async def test_by_name(queue: Queue) -> None:
    for number, name in enumerate(("a", "b", "a", "A")):
        await queue.add(name, number)
    assert await found(queue, name="a") == [2, 0]
    assert await found(queue, name="c") == []


async def test_by_tag(queue: Queue) -> None:
    for number, tags in enumerate((["x"], ["y", "x"], [], ["X"], ["x", "x"])):
        await queue.add("a", number, tags=tags)
    assert await found(queue, tag="x") == [4, 1, 0]
    assert await found(queue, tag="y") == [1]
    assert await found(queue, tag="z") == []


async def test_by_date_a_moment_may_be_said_in_any_way(queue: Queue) -> None:
    for number in range(4):
        await queue.add("a", number, timestamp=LONG_AGO + number, tags=["x"])
    since = LONG_AGO + 2
    as_datetime = datetime.fromtimestamp(since / 1000, UTC)
    assert await found(queue, since=since) == [3, 2]
    assert await found(queue, since=as_datetime) == [3, 2]
    assert await found(queue, since=since, tag="x") == [3, 2]
    assert await found(queue, since=since, name="a") == [3, 2]
    assert await found(queue, since=since, state="waiting") == [3, 2]


async def one_of_each(queue: Queue) -> None:
    """A job in every state but active, and one of every outcome; data says which."""
    await queue.add("a", "completed")
    await queue.add("fails", "failed")
    await run_all(queue)
    cancelled = await queue.add("a", "cancelled")
    await queue.cancel(cancelled.id)
    await queue.pause()
    await queue.add("a", "waiting")
    await queue.add("a", "prioritized", priority=2)
    await queue.add("a", "delayed", delay="1h")
    below = {"name": "a", "data": "delayed", "opts": {"delay": "1h"}}
    await queue.add("a", "waiting-children", children=[below])


STATES = {
    "waiting": ["waiting"],
    "wait": ["waiting"],
    "PENDING": ["waiting"],
    "prioritized": ["prioritized"],
    "paused": ["prioritized", "waiting"],
    "delayed": ["delayed", "delayed"],
    "waiting_children": ["waiting-children"],
    "active": [],
    "processing": [],
    "completed": ["completed"],
    "failed": ["cancelled", "failed"],
    "dead": ["cancelled", "failed"],
    "cancelled": ["cancelled"],
    "Cancelled ": ["cancelled"],
    "expired": [],
    "stalled": [],
    "timed_out": [],
}


async def test_by_state_in_every_word_for_it_and_by_outcome(queue: Queue) -> None:
    await one_of_each(queue)
    for word, expected in STATES.items():
        with case(word):
            assert sorted(await found(queue, state=word)) == expected
            assert sorted(await found(queue, state=word, name="a")) == [
                data for data in expected if data != "failed"
            ]


async def test_by_several_states(queue: Queue) -> None:
    await one_of_each(queue)
    several = await found(queue, state=["completed", "failed", "completed"])
    assert sorted(several) == ["cancelled", "completed", "failed"]
    assert await found(queue, state=[]) == []


async def test_the_jobs_of_a_queue_that_is_not_paused_are_not_paused(queue: Queue) -> None:
    await queue.add("a")
    assert await found(queue, state="paused") == []


async def test_those_that_run_are_found(queue: Queue) -> None:
    worker = Worker(queue, None)
    await queue.add("a", "runs")
    job = await worker.get_next_job()
    assert job is not None
    assert await found(queue, state="active") == ["runs"]
    await job.move_to_completed()
    await worker.close()


async def test_those_that_run_are_in_their_places_among_the_others(
    queue: Queue, small_steps: None
) -> None:
    for number in range(9):
        # Two of every three are taken, whatever was added after them.
        await queue.add("a", number, priority=1 if number % 3 else 2)
    async with Worker(queue, None, concurrency=6, autorun=False) as hands:
        taken = [await hands.get_next_job("t") for _ in range(6)]
        assert all(job is not None and job.data % 3 for job in taken)
        for criteria in ({}, {"name": "a"}):
            assert joined(await walk(queue, limit=2, **criteria)) == [8, 7, 6, 5, 4, 3, 2, 1, 0]


async def test_of_a_state_the_last_to_end_comes_first(queue: Queue) -> None:
    later = await queue.add("a", "second", delay="1h")
    await queue.add("a", "first")
    async with Worker(queue, work):
        await until(lambda: queue.get_completed_count())
        await later.promote()
        await later.result(timeout="10s")
    assert await found(queue, state="completed") == ["second", "first"]


async def test_an_expired_job_is_found_by_that(queue: Queue) -> None:
    await queue.add("a", "late", expires=1)
    async with Worker(queue, work, maintenance_interval=10):
        await until(lambda: queue.get_failed_count())
    assert await found(queue, state="expired") == ["late"]
    assert await found(queue, state="cancelled") == []


TEXTS = {
    "needle-1": "its id",
    "NEEDLE-1": "its id",
    "mend": "its name",
    "ÄRGER": "its data",
    'said "hi"': "its data",
    "two\nlines": "its data",
    '"deep":{"': "its data",
    "plain words": "a text as data",
    "the broken one broke": "its reason",
    "made of": "its result",
    "urgent": "a tag",
}


async def test_text_is_looked_for_everywhere_in_either_case(queue: Queue) -> None:
    expected = {
        "its id": await queue.add("a", 1, job_id="Needle-1"),
        "its name": await queue.add("Mends", 2),
        "its data": await queue.add(
            "a", {"deep": {"list": ["Ärger", 'he said "Hi"', "Two\nlines"]}}
        ),
        "a text as data": await queue.add("a", "Plain Words"),
        "its reason": await queue.add("fails", "broken one"),
        "a tag": await queue.add("a", 3, tags=["URGENT"]),
    }
    async with Worker(queue, {"fails": work}):
        await until(lambda: queue.get_failed_count())
    expected["its result"] = await queue.add("result", 5)
    async with Worker(queue, {"result": work}):
        await until(lambda: queue.get_completed_count())
    for text, where in TEXTS.items():
        with case(text):
            assert [job.id for job in (await queue.find(text=text)).jobs] == [expected[where].id]
    assert await found(queue, text="nobody said that") == []
    assert len(await found(queue, text="")) == len(expected)


async def test_all_criteria_must_be_met(queue: Queue) -> None:
    moments = {"old": LONG_AGO, "new": LONG_AGO + 1_000}
    for name in ("a", "b"):
        for tag in ("x", "y"):
            for age, at in moments.items():
                for word in ("this", "that"):
                    data = f"{name} {tag} {age} {word}"
                    priority = int(word == "that")
                    await queue.add(name, data, tags=[tag], timestamp=at, priority=priority)
    every = {"name": "a", "tag": "x", "since": LONG_AGO + 1, "text": "THIS", "state": "waiting"}
    assert await found(queue, **every) == ["a x new this"]
    for left_out in every:
        with case(left_out):
            criteria = {key: value for key, value in every.items() if key != left_out}
            number = {"text": 1, "state": 1}.get(left_out, 2)
            assert len(await found(queue, **criteria)) == number


async def test_a_queue_does_not_find_the_jobs_of_another(queue: Queue) -> None:
    other = Queue("other", queue.store)
    await other.add("a", 1, tags=["x"])
    await queue.wait_until_ready()
    for criteria in ({}, {"name": "a"}, {"tag": "x"}, {"text": "1"}, {"state": "waiting"}):
        assert await found(queue, **criteria) == []


# --- a slice at a time ---------------------------------------------------------------------------

WAYS: list[dict[str, Any]] = [{}, {"name": "a"}, {"tag": "x"}, {"text": "x"}, {"state": "waiting"}]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
async def test_pages_go_through_everything_once(
    queue: Queue, limit: int, small_steps: None
) -> None:
    # Equal times, and places in front of the line, which are negative.
    for number in range(7):
        await queue.add("a", number, timestamp=LONG_AGO, tags=["x"], lifo=number % 2 == 1)
    for way in WAYS:
        with case(way):
            pages = await walk(queue, **way, limit=limit)
            assert all(len(page) <= limit for page in pages)
            expected = [6, 4, 2, 0, 1, 3, 5] if "state" in way else [6, 5, 4, 3, 2, 1, 0]
            assert joined(pages) == expected


@pytest.mark.parametrize("order", ["low", "high"])
async def test_pages_of_priorities_in_either_order(
    queue: Queue, order: str, small_steps: None
) -> None:
    await queue.configure(priority_order=order)
    for number in range(7):
        await queue.add("a", number, priority=1 + number % 3)
    pages = await walk(queue, state="prioritized", limit=2)
    assert sorted(joined(pages)) == list(range(7))


async def test_pages_go_through_several_states(queue: Queue, small_steps: None) -> None:
    for number in range(3):
        await queue.add("a", number)
        await queue.add("a", 10 + number, delay="1h")
        await queue.add("a", 20 + number, priority=1)
    pages = await walk(queue, state=["delayed", "waiting", "prioritized"], limit=2)
    assert sorted(joined(pages)) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert [len(page) for page in pages[:4]] == [2] * 4


async def test_pages_are_not_confused_by_what_is_added_meanwhile(queue: Queue) -> None:
    for way in WAYS:
        with case(way):
            other = Queue(f"meanwhile {way}", queue.store)
            for number in range(4):
                await other.add("a", number, tags=["x"])
            seen: list[Any] = []
            cursor: str | None = None
            while True:
                page = await other.find(**way, limit=1, cursor=cursor)
                seen += [job.data for job in page.jobs]
                cursor = page.cursor
                await other.add("a", "new", tags=["x"])
                if cursor is None:
                    break
            assert seen == [3, 2, 1, 0]


async def test_who_looks_at_too_many_answers_with_what_there_is_and_a_cursor(
    queue: Queue, small_steps: None
) -> None:
    await queue.add("a", "the needle")
    for number in range(9):
        await queue.add("a", number)
    first = await queue.find(text="needle")
    assert first.jobs == []
    assert first.cursor is not None
    assert joined(await walk(queue, text="needle")) == ["the needle"]
    assert len(await walk(queue, text="needle")) > 1
    assert joined(await walk(queue, text="needle", state="waiting")) == ["the needle"]
    assert joined(await walk(queue, text="needle", name="a")) == ["the needle"]


async def test_a_queue_whose_jobs_stand_in_lanes_is_walked_through_the_same(
    queue: Queue, small_steps: None
) -> None:
    async with Worker(queue, {"nobody": work}):
        await (await queue.add("nobody")).result(timeout="10s")
    await queue.set_rate_limit("a key", 1, "1h")
    names = ["a", "b", "c"]
    for number in range(9):
        await queue.add(names[number % 3], number, limit_key="a key" if number == 4 else None)
        await queue.add(names[number % 3], 10 + number, priority=1)
    assert joined(await walk(queue, state="waiting", limit=2)) == list(range(8, -1, -1))
    assert joined(await walk(queue, state="prioritized", limit=2)) == list(range(18, 9, -1))
    assert joined(await walk(queue, name="b", state="waiting", limit=2)) == [7, 4, 1]


# --- what goes and comes back --------------------------------------------------------------------


async def test_removed_jobs_are_passed_over_without_a_look(queue: Queue, small_steps: None) -> None:
    for number in range(10):
        await queue.add("stays", number)
    await queue.drain()
    await queue.add("stays", "new")
    for criteria in ({}, {"name": "stays"}):
        page = await queue.find(**criteria)  # type: ignore[arg-type]
        assert ([job.data for job in page.jobs], page.cursor) == (["new"], None)


async def test_a_removed_job_is_not_found_until_it_is_restored(queue: Queue) -> None:
    job = await queue.add("a", 1, tags=["x"])
    await job.remove()
    for way in WAYS:
        with case(way):
            assert await found(queue, **way) == []
    await queue.restore(job.id)
    for way in [way for way in WAYS if "text" not in way]:
        with case(way):
            assert await found(queue, **way) == [1]


async def test_a_dead_letter_is_found_by_its_tag_where_it_is(queue: Queue) -> None:
    await queue.configure(dead_letter="dead")
    job = await queue.add("fails", 1, tags=["x"])
    await run_all(queue)
    dead = Queue("dead", queue.store)
    assert await found(dead, tag="x") == [1]
    assert await found(dead, tag="x", state="failed") == [1]
    assert await found(queue, tag="x") == []
    await dead.retry_job(job.id)
    assert (await found(dead, tag="x"), await found(queue, tag="x")) == ([], [1])


async def test_the_jobs_of_a_scheduler_have_its_tags(queue: Queue) -> None:
    template: Any = {"name": "report", "data": 1, "opts": {"tags": ["daily", "x"]}}
    await queue.upsert_job_scheduler("r", every="1h", template=template)
    assert await found(queue, tag="daily") == [1]
    async with Worker(queue, work):
        await until(lambda: queue.get_completed_count())
    assert await found(queue, tag="daily", state="completed") == [1]
    assert await found(queue, tag="daily", state="delayed") == [1]


async def test_the_jobs_of_a_flow_have_their_tags(queue: Queue) -> None:
    leaf: Any = {"name": "leaf", "queue_name": "emails", "data": 2, "opts": {"tags": ["x", "l"]}}
    root: Any = {"name": "root", "queue_name": "emails", "data": 1, "opts": {"tags": ["x"]}}
    await FlowProducer(queue.store).add({**root, "children": [leaf]})
    assert sorted(await found(queue, tag="x")) == [1, 2]
    assert await found(queue, tag="l") == [2]
    assert await found(queue, tag="x", state="waiting-children") == [1]


async def test_a_job_that_was_kept_behind_a_key_has_its_tags(queue: Queue) -> None:
    key: Any = {"id": "k", "keep_last_if_active": True}
    worker = Worker(queue, None)
    await queue.add("a", 1, deduplication=key)
    running = await worker.get_next_job()
    assert running is not None
    await queue.add("a", 2, deduplication=key, tags=["x"])
    assert await found(queue, tag="x") == []
    await running.move_to_completed()
    assert await found(queue, tag="x") == [2]
    await worker.close()


async def test_tags_come_from_the_defaults_of_the_queue(queue: Queue) -> None:
    await queue.configure(default_job_options={"tags": ["x"]})
    await queue.add_bulk([{"name": "a", "data": 1}, {"name": "a", "data": 2, "opts": {"tags": []}}])
    assert await found(queue, tag="x") == [1]


async def test_what_is_deleted_leaves_no_tags(queue: Queue, database: Database) -> None:
    await queue.add("a", 1, tags=["x", "y"], remove_on_complete=True)
    await queue.add("fails", 2, tags=["x"], remove_on_fail=True)
    await queue.add("a", 3, tags=["x"])
    await run_all(queue)
    assert len(database.rows("tags")) == 1
    await queue.clean(0, state="completed")
    await queue.add("a", 4, tags=["x"])
    await queue.obliterate(force=True)
    assert database.rows("tags") == []


# --- what is refused -----------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], type[BulliteError], str]] = [
    ({"name": 5}, InvalidOptionType, "name must be text"),
    ({"tag": ["x"]}, InvalidOptionType, "tag must be text"),
    ({"text": b"x"}, InvalidOptionType, "text must be text"),
    ({"since": "yesterday"}, BulliteError, "since"),
    ({"since": []}, BulliteError, "since"),
    ({"state": 5}, InvalidOptionType, "state must be text"),
    ({"state": [5]}, InvalidOptionType, "a state must be text"),
    ({"state": "gone"}, InvalidOption, "unknown state 'gone'"),
    ({"state": ["failed", "cancelled"]}, InvalidOption, "state: an outcome is looked for alone"),
    ({"limit": 0}, InvalidOption, "limit"),
    ({"limit": 10_001}, InvalidOption, "limit"),
    ({"limit": "5"}, InvalidOptionType, "limit"),
    ({"limit": True}, InvalidOptionType, "limit"),
    ({"cursor": 5}, InvalidOptionType, "cursor must be text"),
    *(
        ({"cursor": cursor}, InvalidOption, "cursor must be one that find gave")
        for cursor in ("", "0", "0:1", "0:1:2:3", "1:1:1", "a:1:2", "0:1:-", "0:١:2", "0:1:2\n")
    ),
    ({"cursor": f"0:{2**63}:1"}, InvalidOption, "cursor must be one that find gave"),
]


async def test_bad_arguments_are_named(queue: Queue) -> None:
    for criteria, error, message in REFUSED:
        with case(criteria), pytest.raises(error, match=message):
            await queue.find(**criteria)
