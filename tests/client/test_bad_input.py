"""What cannot be done is refused with an error of ours that names it, and nothing is stored."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bullite import (
    Job,
    JobFailed,
    JobNotFound,
    Queue,
    QueueEvents,
    QueueEventsProducer,
    Scheduler,
    Store,
    Worker,
)
from bullite.core.codec import DEEPEST
from bullite.errors import (
    BulliteError,
    InvalidOption,
    InvalidOptionType,
    PayloadTooLarge,
    StoreClosed,
    UnserializableData,
)
from tests.support.databases import Database
from tests.support.helpers import again, case

MIB = 1024 * 1024


def circular() -> Any:
    loop: list[Any] = []
    loop.append({"again": loop})
    return loop


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


UNSTORABLE = {
    "nan": math.nan,
    "infinity": math.inf,
    "minus infinity": {"a": [-math.inf]},
    "circular": circular(),
    "object": object(),
    "function": len,
    "class": Job,
    "generator": (n for n in range(3)),
    "complex": 1j,
    "surrogate": "\ud800",
    "surrogate inside": {"a": ["x\udfff"]},
    "surrogate key": {"\udfff": 1},
    "endless number": 10**5_000,
    "too deep": deep(100_000),
    "object key": {object(): 1},
}
STRANGE = {
    "nul": "a\x00b",
    "nul key": {"\x00": 1},
    "separators": "\x1e\x1f\x1d",
    "quotes": "'\"`;--",
    "emoji": "👩🏽‍🚀 ﷽ é",
    "not a character": "\ufffe\uffff",
    "line separators": "\u2028\u2029\x85",
    "empty": ["", {}, [], None],
    "numbers": [0, -0.0, 1e308, 5e-324, 2**63 - 1, -(2**63), 2**70, 0.1],
    "words": ["null", "NaN", "true", True, False],
    "deep": deep(100),
    "wide": list(range(10_000)),
}


async def nothing_stored(queue: Queue) -> bool:
    return await queue.get_job_count_by_types() == 0


# --- data, results, progress ---------------------------------------------------------------------


async def test_data_that_cannot_be_stored_is_refused(queue: Queue) -> None:
    for name, value in UNSTORABLE.items():
        with case(name):
            with pytest.raises(UnserializableData, match="the data of job a"):
                await queue.add("a", value)
            with pytest.raises(UnserializableData, match=r"jobs\[1\]"):
                await queue.add_bulk([{"name": "a"}, {"name": "a", "data": value}])
            assert await nothing_stored(queue)


async def test_a_result_that_cannot_be_stored_fails_the_job(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        return UNSTORABLE.get(job.name, "fine")

    async with Worker(queue, work):
        for name in UNSTORABLE:
            with case(name):
                with pytest.raises(JobFailed, match="the returned value"):
                    await (await queue.add(name)).result(timeout="10s")
                assert await (await queue.add("good")).result(timeout="10s") == "fine"


async def test_progress_that_cannot_be_stored_is_refused(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await worker.get_next_job()
        assert job is not None
        await job.update_progress(5)
        for name, value in UNSTORABLE.items():
            with case(name):
                with pytest.raises(UnserializableData, match="progress"):
                    await job.update_progress(value)
                with pytest.raises(UnserializableData, match="progress"):
                    await queue.update_job_progress(job.id, value)
                assert job.progress == 5
                assert (await again(queue, job)).progress == 5
        await job.move_to_completed()


async def test_strange_values_come_back_as_they_went(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        await job.update_progress({"so far": job.data})
        return job.data

    async with Worker(queue, work):
        for name, value in STRANGE.items():
            with case(name):
                job = await queue.add("a", value)
                assert await job.result(timeout="10s") == value
                stored = await again(queue, job)
                assert (stored.data, stored.return_value) == (value, value)
                assert stored.progress == {"so far": value}


async def test_strange_results_of_jobs_that_go_at_once_come_back_too(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        return job.data

    async with Worker(queue, work):
        for name, value in STRANGE.items():
            with case(name):
                job = await queue.add("a", value, remove_on_complete=True)
                assert await job.result(timeout="10s") == value


async def test_what_is_accepted_can_be_read_again_however_deep(queue: Queue) -> None:
    """Else a job would be stored that no worker can ever run."""

    async def work(job: Job) -> Any:
        return job.data

    async with Worker(queue, work):
        for levels in (200, DEEPEST, DEEPEST + 1, 900, 990, 1_000, 1_500, 3_000):
            with case(levels):
                try:
                    job = await queue.add("a", deep(levels), remove_on_complete=True)
                except UnserializableData:
                    assert levels > DEEPEST
                else:
                    result, depth = await job.result(timeout="10s"), 0
                    while isinstance(result, list):
                        result, depth = result[0], depth + 1
                    assert depth == levels
                assert await (await queue.add("b", 1)).result(timeout="10s") == 1


async def test_no_value_of_a_job_may_be_nested_so_deep_that_others_cannot_be_listed(
    queue: Queue,
) -> None:
    asked = await queue.add("a", 1)
    too_deep = {"a": deep(DEEPEST)}
    with case("data"), pytest.raises(UnserializableData, match="nested more than 500 levels"):
        await queue.add("a", too_deep)
    with case("new data"), pytest.raises(UnserializableData, match="nested more than 500 levels"):
        await asked.update_data(too_deep)
    with case("progress"), pytest.raises(UnserializableData, match="nested more than 500 levels"):
        await queue.update_job_progress(asked.id, too_deep)
    with case("on_failure"), pytest.raises(UnserializableData, match="nested more than"):
        await queue.add("a", on_failure={"queue": "b", "name": "b", "data": too_deep})
    with case("event"), pytest.raises(UnserializableData, match="nested more than 500 levels"):
        await queue.send_event(asked.id, "e", too_deep)

    async def work(job: Job) -> Any:
        return too_deep

    async with Worker(queue, work):
        with case("result"), pytest.raises(JobFailed, match="nested more than 500 levels"):
            await asked.result(timeout="10s")
    assert [job.id for job in await queue.get_jobs()] == [asked.id]


async def test_data_is_taken_as_it_is_now(queue: Queue) -> None:
    data = {"a": 1}
    job = await queue.add("a", data)
    data["a"] = 2
    assert job.data == {"a": 1}
    assert (await again(queue, job)).data == {"a": 1}


# --- size ----------------------------------------------------------------------------------------


async def test_a_mebibyte_of_data_is_stored_and_a_byte_more_is_not(queue: Queue) -> None:
    job = await queue.add("a", "x" * (MIB - 2))
    assert len((await again(queue, job)).data) == MIB - 2
    with pytest.raises(PayloadTooLarge, match=r"1048577.*size_limit"):
        await queue.add("a", "x" * (MIB - 1))
    assert await queue.count() == 1


async def test_bytes_count_and_not_characters(queue: Queue) -> None:
    await queue.add("a", "é" * ((MIB - 2) // 2))
    with pytest.raises(PayloadTooLarge):
        await queue.add("a", "é" * ((MIB - 2) // 2 + 1))
    assert await queue.count() == 1


async def test_a_mebibyte_of_data_runs(queue: Queue) -> None:
    async def work(job: Job) -> int:
        return len(job.data)

    async with Worker(queue, work):
        assert await (await queue.add("a", "x" * (MIB - 2))).result(timeout="10s") == MIB - 2


async def test_one_too_large_means_that_none_of_a_bulk_is_stored(queue: Queue) -> None:
    with pytest.raises(PayloadTooLarge, match=r"jobs\[1\]"):
        await queue.add_bulk([{"name": "a"}, {"name": "a", "data": "x" * MIB}])
    assert await nothing_stored(queue)


async def test_the_limit_may_be_moved(queue: Queue) -> None:
    await queue.add("a", "x" * (2 * MIB), size_limit=3 * MIB)
    with pytest.raises(PayloadTooLarge, match="10 bytes"):
        await queue.add("a", "x" * 9, size_limit=10)
    await queue.add("a", "x" * 8, size_limit=10)
    assert await queue.count() == 2


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_mebibyte_of_result_is_stored_and_a_byte_more_fails_the_job(
    queue: Queue, in_thread: bool
) -> None:
    async def in_loop(job: Job) -> str:
        return "x" * job.data

    def thread(job: Job) -> str:
        return "x" * job.data

    async with Worker(queue, thread if in_thread else in_loop):
        job = await queue.add("a", MIB - 2)
        assert len(await job.result(timeout="10s")) == MIB - 2
        with pytest.raises(JobFailed, match="1048577 bytes"):
            await (await queue.add("a", MIB - 1)).result(timeout="10s")


# --- names and ids -------------------------------------------------------------------------------

BAD_NAMES = ["", "a\x00b", "a\nb", "\x7f", "\x85", "\u2028", "\ud800", "x" * 256]
WRONG_NAMES = [None, 5, b"a", ["a"], True, Path("a")]
ODD_NAMES = [
    *(" ", "a b", "../../etc/passwd", "a/b\\c", "%00", "'; drop table bullite_jobs; --"),
    *(
        "{}",
        "$HOME",
        "*",
        "?",
        "a:b",
        "é",
        "日本語",
        "👩🏽‍🚀",
        "x" * 255,
        "٣a",
        "-1",
        "1.5",
        "null",
    ),
]


async def test_a_bad_name_of_a_job_is_refused(queue: Queue) -> None:
    for bad in BAD_NAMES + WRONG_NAMES:
        with case(bad):
            with pytest.raises((InvalidOption, InvalidOptionType), match="name"):
                await queue.add(bad)
            assert await nothing_stored(queue)


def test_a_bad_name_of_a_queue_is_refused(database: Database, location: str) -> None:
    for bad in BAD_NAMES + WRONG_NAMES:
        with case(bad):
            with pytest.raises((InvalidOption, InvalidOptionType), match="name"):
                Queue(bad, location)
            assert not database.exists()


async def test_a_bad_id_is_refused(queue: Queue) -> None:
    for bad in [*BAD_NAMES, *WRONG_NAMES[1:], "5", "000", "٣"]:
        with case(bad):
            with pytest.raises((InvalidOption, InvalidOptionType), match="job_id"):
                await queue.add("a", job_id=bad)
            assert await nothing_stored(queue)


async def test_odd_names_and_ids_are_only_text(queue: Queue) -> None:
    async def work(job: Job) -> list[str]:
        return [job.id, job.name, job.queue_name]

    for odd in ODD_NAMES:
        with case(odd):
            queue = Queue(odd, queue.store)
            async with Worker(queue, {odd: work}, name=odd):
                job = await queue.add(odd, job_id=odd, tags=[odd])
                assert await job.result(timeout="10s") == [odd, odd, odd]
                stored = await again(queue, job)
                assert (stored.id, stored.tags, stored.processed_by) == (odd, (odd,), odd)
                assert await queue.remove(odd) is True
                assert (await queue.restore(odd)).pk == job.pk


async def test_an_id_that_cannot_be_is_nobodys(queue: Queue) -> None:
    await queue.add("a")
    for id in [
        *("9223372036854775807", "9223372036854775808", "9999999999999999999", "9" * 5_000),
        *("٣", "1e3", "01", "", "\x00", "\ud800", "x" * 100_000),
    ]:
        with case(id):
            assert await queue.get_job(id) is None
            assert await queue.get_job_state(id) == "unknown"
            assert await queue.remove(id) is False
            assert await queue.get_job_logs(id) == {"logs": [], "count": 0}
            with pytest.raises(JobNotFound):
                await queue.restore(id)
            with pytest.raises(JobNotFound):
                await queue.retry_job(id)
            with pytest.raises(JobNotFound):
                await queue.update_job_progress(id, 1)
            with pytest.raises(JobNotFound):
                await queue.add_job_log(id, "line")


# --- errors --------------------------------------------------------------------------------------


async def test_whatever_an_error_says_is_stored_somehow(queue: Queue) -> None:
    texts = ["a\x00b", "\ud800", "x" * 10**6, "\x1e", "👩🏽‍🚀", "a\r\nb"]

    async def work(job: Job) -> None:
        raise ValueError(texts[job.data])

    async with Worker(queue, work):
        for number, text in enumerate(texts):
            with case(text):
                job = await queue.add("a", number)
                with pytest.raises(JobFailed):
                    await job.result(timeout="10s")
                failed = await again(queue, job)
                assert failed.failed_reason
                assert "\x00" not in failed.failed_reason
                assert len(failed.failed_reason) < 70_000
                assert failed.stack is not None
                [attempt] = await failed.get_attempts()
                assert attempt.error == failed.failed_reason


# --- options of add ------------------------------------------------------------------------------

HUGE = 10**40
NOT_DURATIONS = [-1, HUGE, 1.5, math.nan, True, "", "5", "5 years", "-5s", [5], {"s": 5}, b"5s"]
NOT_COUNTS = [-1, HUGE, 2**31, 1.5, math.nan, True, "5", [5], None]
NOT_MOMENTS = [-1, HUGE, 1.5, True, "", "tomorrow", [5], datetime(2030, 1, 1)]
NOT_RETENTION = [
    *(-2, HUGE, 1.5, "all", [5], None),
    *({"age": -1}, {"age": math.nan}, {"age": math.inf}, {"age": True}, {"age": "old"}),
    *({"count": -2}, {"count": 1.5}, {"count": True}, {"count": HUGE}),
    *({"limit": -1}, {"limit": "5"}, {"days": 5}, {5: 5}),
]
BAD_OPTIONS: dict[str, list[Any]] = {
    "priority": [-(2**21), 2**21, HUGE, -HUGE, 1.5, math.nan, True, "5", None, [5]],
    "delay": [*NOT_DURATIONS, None, timedelta(days=-1), timedelta.max],
    "run_at": [*NOT_MOMENTS, "2030-01-01T00:00:00", "9999-12-31T23:59:59-14:00"],
    "timestamp": [*NOT_MOMENTS, "2030-01-01T00:00:00", "9999-12-31T23:59:59-14:00"],
    "attempts": [0, *NOT_COUNTS],
    "backoff": [
        *(-1, HUGE, 1.5, True, "", "soon", [5], {"delay": -1}, {"delay": None}),
        *({"type": 5}, {"type": ""}, {"delay": 5, "colour": 1}, {"jitter": 2}, {"jitter": -0.1}),
        *({"jitter": math.nan}, {"jitter": "1"}, {"exponent": -1}, {"exponent": HUGE}),
        *({"max_delay": -1}, {"on": 5}, {"on": ""}, {"retry": "no"}, {"settings": 5}),
        *({"settings": {"jitter": 1}}, {"settings": {"colour": True}}, [{"delay": -1}], [[]]),
    ],
    "retry_strategy": [5, "", "a\x00", [5], True, len, {"delay": -1}, {"colour": 5}],
    "lifo": [1, 0, "yes", None],
    "timeout": [0, *NOT_DURATIONS, timedelta(0), timedelta.max],
    "expires": [0, *NOT_DURATIONS, timedelta(0), timedelta.max],
    "remove_on_complete": NOT_RETENTION,
    "remove_on_fail": NOT_RETENTION,
    "keep_logs": NOT_COUNTS,
    "stack_trace_limit": NOT_COUNTS,
    "size_limit": [*NOT_COUNTS, 2**30],
    "tags": ["a", 5, None, [5], [""], ["a\x00"], ["x" * 256], ["a"] * 51, {"a": 1}],
}
WORD_FOR = {"retry_strategy": "retry_strategy|backoff", "tags": "tag"}


async def test_a_bad_option_is_named_and_nothing_is_stored(queue: Queue) -> None:
    for option in BAD_OPTIONS:
        with case(option):
            words = WORD_FOR.get(option, option)
            for value in BAD_OPTIONS[option]:
                options: Any = {option: value}
                with pytest.raises((ValueError, TypeError), match=words) as raised:
                    pytest.fail(f"accepted {await queue.add('a', **options)} with {value!r}")
                assert isinstance(raised.value, BulliteError), value
            assert await nothing_stored(queue)


async def test_a_bad_option_of_one_job_keeps_its_whole_bulk_out(queue: Queue) -> None:
    for option in BAD_OPTIONS:
        with case(option):
            options: Any = {option: BAD_OPTIONS[option][0]}
            with pytest.raises(BulliteError, match=r"jobs\[1\]"):
                await queue.add_bulk([{"name": "a"}, {"name": "a", "opts": options}])
            assert await nothing_stored(queue)


async def test_an_unknown_option_is_named_with_those_there_are(queue: Queue) -> None:
    for option in ["colour", "jobId", "removeOnComplete", "", "\x00", "Delay"]:
        with case(option):
            options: Any = {option: 1}
            with pytest.raises(InvalidOption, match="unknown job option") as raised:
                await queue.add("a", **options)
            assert repr(option) in str(raised.value)
            assert "remove_on_complete" in str(raised.value)
            assert await nothing_stored(queue)


async def test_a_time_may_be_said_in_one_way_only(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match=r"delay.*run_at"):
        await queue.add("a", delay=5, run_at=datetime.now(UTC))
    assert await nothing_stored(queue)


async def test_a_time_without_a_zone_is_refused_with_the_fix(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match=r"run_at must have a time zone.*utc"):
        await queue.add("a", run_at=datetime(2030, 1, 1))


async def test_a_time_before_the_epoch_is_over(queue: Queue) -> None:
    job = await queue.add("a", run_at=datetime(1960, 1, 1, tzinfo=UTC))
    assert job.state == "waiting"


async def test_the_last_moment_of_the_calendar_can_be_shown(queue: Queue) -> None:
    for option in ["run_at", "timestamp"]:
        with case(option):
            options: Any = {option: datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)}
            job = await again(queue, await queue.add("a", **options))
            shown = job.process_at if option == "run_at" else job.created_at
            assert shown == options[option]


async def test_a_delay_past_the_calendar_does_not_make_a_job_that_cannot_be_shown(
    queue: Queue,
) -> None:
    late = datetime(9999, 12, 31, tzinfo=UTC)
    try:
        job = await queue.add("a", timestamp=late, delay="365d")
    except InvalidOption:
        return
    assert (await again(queue, job)).process_at is not None


# --- options of queues ---------------------------------------------------------------------------


def test_a_bad_option_of_a_queue_is_named(database: Database, location: str) -> None:
    for option, value in [
        ("priority_order", "LOW"),
        ("priority_order", 5),
        ("default_job_options", 5),
        ("default_job_options", [("attempts", 3)]),
        ("default_job_options", {"attempts": -1}),
        ("default_job_options", {"colour": 1}),
        ("default_job_options", {"job_id": "x"}),
        ("events", 5),
        ("random", 5),
        ("dead_letter", 5),
        ("dead_letter", "emails"),
        ("keep_completed", -1),
        ("keep_failed", {"count": -1}),
        ("trash_age", "old"),
        ("max_events", -1),
        ("colour", "red"),
    ]:
        with case((option, value)):
            options: Any = {option: value}
            inside = next(iter(value)) if isinstance(value, dict) else option
            with pytest.raises(BulliteError, match=f"{option}|{inside}"):
                Queue("emails", location, **options)
            assert not database.exists()


@pytest.mark.parametrize("bad", [5, b"jobs.db", ["jobs.db"], "", "a\x00b", ":memory:", "redis://x"])
def test_a_bad_store_is_refused(bad: Any) -> None:
    for make in (
        lambda: Queue("emails", bad),
        lambda: Store(bad),
        lambda: Scheduler(bad),
        lambda: QueueEvents("emails", bad),
    ):
        with pytest.raises((InvalidOption, InvalidOptionType), match="store"):
            make()


# --- arguments of methods ------------------------------------------------------------------------

Call = Callable[[Queue, Job], Any]
BAD_CALLS: dict[str, Call] = {
    "add_job_log id": lambda queue, job: queue.add_job_log(5, "line"),  # type: ignore[arg-type]
    "add_job_log keep": lambda queue, job: queue.add_job_log(job.id, "line", keep_logs=-1),
    "add_job_log level": lambda queue, job: queue.add_job_log(job.id, "line", "loud"),
    "change_delay": lambda queue, job: job.change_delay(-1),
    "change_delay text": lambda queue, job: job.change_delay("soon"),
    "change_delay huge": lambda queue, job: job.change_delay(HUGE),
    "change_priority": lambda queue, job: job.change_priority(HUGE),
    "change_priority text": lambda queue, job: job.change_priority("5"),  # type: ignore[arg-type]
    "change_priority lifo": lambda queue, job: job.change_priority(5, 1),  # type: ignore[arg-type]
    "clean grace": lambda queue, job: queue.clean(-1),
    "clean grace text": lambda queue, job: queue.clean("old"),
    "clean limit": lambda queue, job: queue.clean(0, -1),
    "clean limit float": lambda queue, job: queue.clean(0, 1.5),  # type: ignore[arg-type]
    "clean state": lambda queue, job: queue.clean(0, state=5),  # type: ignore[arg-type]
    "clear_logs": lambda queue, job: job.clear_logs(-1),
    "drain": lambda queue, job: queue.drain("yes"),  # type: ignore[arg-type]
    "get_counts_per_priority": lambda queue, job: queue.get_counts_per_priority(5),  # type: ignore[arg-type]
    "get_counts_per_priority items": lambda queue, job: queue.get_counts_per_priority(["a"]),  # type: ignore[list-item]
    "get_job": lambda queue, job: queue.get_job(5),  # type: ignore[arg-type]
    "get_job None": lambda queue, job: queue.get_job(None),  # type: ignore[arg-type]
    "get_job_counts": lambda queue, job: queue.get_job_counts(5),  # type: ignore[arg-type]
    "get_job_logs": lambda queue, job: queue.get_job_logs(5),  # type: ignore[arg-type]
    "get_job_logs start": lambda queue, job: queue.get_job_logs(job.id, "0"),  # type: ignore[arg-type]
    "get_job_logs asc": lambda queue, job: queue.get_job_logs(job.id, asc="no"),  # type: ignore[arg-type]
    "get_job_state": lambda queue, job: queue.get_job_state(b"1"),  # type: ignore[arg-type]
    "get_jobs": lambda queue, job: queue.get_jobs(5),  # type: ignore[arg-type]
    "get_jobs items": lambda queue, job: queue.get_jobs([5]),  # type: ignore[list-item]
    "get_jobs asc": lambda queue, job: queue.get_jobs(asc="no"),  # type: ignore[arg-type]
    "iter_jobs": lambda queue, job: anext(queue.iter_jobs(5)),  # type: ignore[arg-type]
    "obliterate force": lambda queue, job: queue.obliterate("yes"),  # type: ignore[arg-type]
    "obliterate count": lambda queue, job: queue.obliterate(count=0),
    "on": lambda queue, job: queue.on("completed", 5),  # type: ignore[call-overload]
    "on event": lambda queue, job: queue.on(5, print),  # type: ignore[call-overload]
    "promote_jobs": lambda queue, job: queue.promote_jobs(0),
    "remove id": lambda queue, job: queue.remove(5),  # type: ignore[arg-type]
    "remove children": lambda queue, job: queue.remove(job.id, "no"),  # type: ignore[arg-type]
    "remove job": lambda queue, job: job.remove("no"),  # type: ignore[arg-type]
    "restore": lambda queue, job: queue.restore(5),  # type: ignore[arg-type]
    "restore None": lambda queue, job: queue.restore(None),  # type: ignore[arg-type]
    "result": lambda queue, job: job.result(timeout=-1),
    "result float": lambda queue, job: job.result(timeout=1.5),  # type: ignore[arg-type]
    "retry state": lambda queue, job: job.retry("waiting"),
    "retry delay": lambda queue, job: job.retry(delay=-1),
    "retry reset": lambda queue, job: job.retry(reset_attempts=1),  # type: ignore[arg-type]
    "retry_job id": lambda queue, job: queue.retry_job(5),  # type: ignore[arg-type]
    "retry_job delay": lambda queue, job: queue.retry_job(job.id, delay="soon"),
    "retry_job reset": lambda queue, job: queue.retry_job(job.id, reset_attempts=1),  # type: ignore[arg-type]
    "retry_jobs count": lambda queue, job: queue.retry_jobs(0),
    "retry_jobs state": lambda queue, job: queue.retry_jobs(state="waiting"),
    "retry_jobs timestamp": lambda queue, job: queue.retry_jobs(timestamp="yesterday"),
    "retry_jobs delay": lambda queue, job: queue.retry_jobs(delay="soon"),
    "retry_jobs naive": lambda queue, job: queue.retry_jobs(timestamp=datetime(2030, 1, 1)),
    "retry_jobs reset": lambda queue, job: queue.retry_jobs(reset_attempts=1),  # type: ignore[arg-type]
    "trim_events": lambda queue, job: queue.trim_events(-1),
    "trim_events huge": lambda queue, job: queue.trim_events(HUGE),
    "update_job_progress id": lambda queue, job: queue.update_job_progress(5, 1),  # type: ignore[arg-type]
}


async def test_a_bad_argument_is_refused_and_nothing_changes(queue: Queue) -> None:
    job = await queue.add("a", 1, delay="1h", priority=3)
    before = await again(queue, job)
    for name, call in BAD_CALLS.items():
        with case(name):
            with pytest.raises(BulliteError) as raised:
                await call(queue, job)
            assert isinstance(raised.value, ValueError | TypeError)
            after = await again(queue, job)
            assert (after.state, after.priority, after.process_at, after.updated_at) == (
                before.state,
                before.priority,
                before.process_at,
                before.updated_at,
            )
            assert (await job.get_logs())["count"] == 0


HELD_CALLS: dict[str, Callable[[Job], Any]] = {
    "extend_lock": lambda job: job.extend_lock(0),
    "extend_lock text": lambda job: job.extend_lock("long"),
    "extend_lock huge": lambda job: job.extend_lock(HUGE),
    "move_to_completed keep": lambda job: job.move_to_completed(1, remove_on_complete=-2),
    "move_to_completed token": lambda job: job.move_to_completed(1, 5),  # type: ignore[arg-type]
    "move_to_delayed": lambda job: job.move_to_delayed("later"),
    "move_to_delayed naive": lambda job: job.move_to_delayed(datetime(2030, 1, 1)),
    "move_to_delayed huge": lambda job: job.move_to_delayed(HUGE),
    "move_to_delayed None": lambda job: job.move_to_delayed(None),  # type: ignore[arg-type]
    "move_to_failed keep": lambda job: job.move_to_failed("no", remove_on_fail="all"),  # type: ignore[arg-type]
    "move_to_failed retry": lambda job: job.move_to_failed("no", retry=0),  # type: ignore[arg-type]
    "move_to_failed error": lambda job: job.move_to_failed(None),  # type: ignore[arg-type]
    "move_to_failed class": lambda job: job.move_to_failed(ValueError),  # type: ignore[arg-type]
    "update_data": lambda job: job.update_data(math.nan),
    "update_progress": lambda job: job.update_progress(math.nan),
}


async def test_a_bad_argument_of_a_run_is_refused_and_it_goes_on(queue: Queue) -> None:
    await queue.add("a", 1)
    async with Worker(queue, None) as worker:
        job = await worker.get_next_job()
        assert job is not None
        for name, call in HELD_CALLS.items():
            with case(name):
                with pytest.raises(BulliteError):
                    await call(job)
                assert (await again(queue, job)).state == "active"
        await job.move_to_completed()


# --- after the end -------------------------------------------------------------------------------

CLOSED_CALLS: dict[str, Call] = {
    "add": lambda queue, job: queue.add("b"),
    "add_bulk": lambda queue, job: queue.add_bulk([{"name": "b"}]),
    "add_job_log": lambda queue, job: queue.add_job_log(job.id, "line"),
    "clean": lambda queue, job: queue.clean(0),
    "configure": lambda queue, job: queue.configure(trash_age=5),
    "count": lambda queue, job: queue.count(),
    "drain": lambda queue, job: queue.drain(),
    "get_attempts": lambda queue, job: job.get_attempts(),
    "get_counts_per_priority": lambda queue, job: queue.get_counts_per_priority(),
    "get_job": lambda queue, job: queue.get_job(job.id),
    "get_job_counts": lambda queue, job: queue.get_job_counts(),
    "get_jobs": lambda queue, job: queue.get_jobs(),
    "get_logs": lambda queue, job: job.get_logs(),
    "get_meta": lambda queue, job: queue.get_meta(),
    "get_workers": lambda queue, job: queue.get_workers(),
    "is_paused": lambda queue, job: queue.is_paused(),
    "iter_jobs": lambda queue, job: anext(queue.iter_jobs()),
    "job.change_delay": lambda queue, job: job.change_delay(5),
    "job.change_priority": lambda queue, job: job.change_priority(5),
    "job.clear_logs": lambda queue, job: job.clear_logs(),
    "job.get_state": lambda queue, job: job.get_state(),
    "job.log": lambda queue, job: job.log("line"),
    "job.promote": lambda queue, job: job.promote(),
    "job.remove": lambda queue, job: job.remove(),
    "job.result": lambda queue, job: job.result(),
    "job.retry": lambda queue, job: job.retry(),
    "job.update_data": lambda queue, job: job.update_data(5),
    "job.update_progress": lambda queue, job: job.update_progress(5),
    "obliterate": lambda queue, job: queue.obliterate(),
    "pause": lambda queue, job: queue.pause(),
    "promote_jobs": lambda queue, job: queue.promote_jobs(),
    "remove": lambda queue, job: queue.remove(job.id),
    "restore": lambda queue, job: queue.restore(job.id),
    "resume": lambda queue, job: queue.resume(),
    "retry_job": lambda queue, job: queue.retry_job(job.id),
    "retry_jobs": lambda queue, job: queue.retry_jobs(),
    "trim_events": lambda queue, job: queue.trim_events(5),
    "update_job_progress": lambda queue, job: queue.update_job_progress(job.id, 5),
    "wait_until_ready": lambda queue, job: queue.wait_until_ready(),
}


async def test_after_close_every_call_says_so(location: str) -> None:
    queue = Queue("emails", location)
    job = await queue.add("a", 1, delay="1h")
    await queue.close()
    for name, call in CLOSED_CALLS.items():
        with case(name), pytest.raises(StoreClosed):
            await call(queue, job)
    async with Queue("emails", location) as reopened:
        assert (await again(reopened, job)).state == "delayed"
        assert await reopened.get_job_count_by_types() == 1


async def test_a_worker_of_a_closed_queue_says_so(
    location: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(job: Job) -> None: ...

    queue = Queue("emails", location)
    await queue.add("a")
    await queue.close()
    worker = Worker(queue, work, autorun=False)
    with pytest.raises(StoreClosed):
        await worker.run()
    with pytest.raises(StoreClosed):
        await Worker(queue).get_next_job()


async def test_a_job_that_is_held_while_its_queue_closes_is_not_lost(location: str) -> None:
    queue = Queue("emails", location)
    await queue.add("a", 1)
    worker = Worker(queue, None, lock_duration=200)
    job = await worker.get_next_job()
    assert job is not None
    await queue.close()
    with pytest.raises(StoreClosed):
        await job.move_to_completed()
    async with Queue("emails", location) as reopened, Worker(reopened, None) as other:
        taken = None
        for _ in range(10):
            taken = await other.get_next_job()
            if taken is not None:
                break
            await asyncio.sleep(0.05)
        assert taken is not None
        assert taken.id == job.id
        await taken.move_to_completed()


async def test_nothing_that_a_job_reports_may_be_larger_than_its_data(queue: Queue) -> None:
    job = await queue.add("a", 1)
    large = "x" * MIB
    with case("progress from outside"), pytest.raises(PayloadTooLarge, match="the progress takes"):
        await queue.update_job_progress(job.id, large)
    with case("event"), pytest.raises(PayloadTooLarge, match=str(MIB)):
        await queue.send_event(job.id, "e", large)
    with case("on_failure"), pytest.raises(PayloadTooLarge, match="the data of on_failure takes"):
        await queue.add("a", 1, on_failure={"queue": "b", "name": "b", "data": {"a": large}})
    with case("stored on_failure"), pytest.raises(PayloadTooLarge, match="of on_failure takes"):
        await queue.configure(on_failure={"queue": "b", "name": "b", "data": {"a": large}})
    async with QueueEventsProducer(queue.name, queue.store) as producer:
        with case("published"), pytest.raises(PayloadTooLarge, match="payload of event e takes"):
            await producer.publish_event("e", {"a": large})

    async def work(job: Job) -> None:
        await job.update_progress("x" * (MIB - 2))
        with pytest.raises(PayloadTooLarge, match="the progress takes"):
            await job.update_progress(large)

    async with Worker(queue, work):
        await job.result(timeout="10s")
    assert await again(queue, job) is not None
    assert len((await again(queue, job)).progress) == MIB - 2


async def test_long_lines_of_a_log_and_reasons_are_cut(queue: Queue) -> None:
    job = await queue.add("a", 1)
    await queue.add_job_log(job.id, "x" * 10 * MIB)
    logs = await queue.get_job_logs(job.id)
    assert len(logs["logs"][0]["message"]) < 70_000
    await queue.cancel(job.id, "y" * 10 * MIB)
    assert len(str((await again(queue, job)).failed_reason)) < 70_000
