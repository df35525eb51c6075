"""`queuectl schedule`: commands that run again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bullite import Queue

from .program import run


def schedules(location: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = run("schedule", "list", "--json", db=location).json
    return listed


def test_a_command_is_scheduled_as_the_document_writes_it(location: str) -> None:
    said = run("schedule", "backup.sh", "--cron", "0 2 * * *", db=location)
    assert said.code == 0
    assert said.out.startswith("backup.sh: next at ")
    [one] = schedules(location)
    assert (one["name"], one["queue"], one["command"]) == ("backup.sh", "default", "backup.sh")
    assert (one["cron"], one["every_ms"], one["tz"]) == ("0 2 * * *", None, "UTC")
    assert one["next_run_at"].endswith("T02:00:00.000Z")
    assert one["enabled"] is True


async def test_its_jobs_are_made_as_enqueue_makes_them(location: str) -> None:
    options = ["--priority", "7", "--timeout", "30", "--max-retries", "0", "--tag", "nightly"]
    where = ["--queue", "nights", "--name", "backup"]
    said = run("schedule", *options, *where, "backup.sh", "--every", "1h", "--json", db=location)
    assert said.json["template"]["data"] == {"command": "backup.sh", "timeout": 30}
    async with Queue("nights", location) as queue:
        assert await queue.wait_until_ready() is None
        assert queue.priority_order == "high"
        [job] = await queue.get_jobs()
        assert (job.name, job.priority, job.attempts) == ("shell", 7, 1)
        assert job.tags == ("nightly",)
        assert job.repeat_job_key == "backup"


def test_the_clocks_of_a_zone_can_be_meant(location: str) -> None:
    said = run(
        *("schedule", "x", "--cron", "0 2 * * *", "--tz", "Asia/Kolkata", "--json"), db=location
    )
    assert said.json["tz"] == "Asia/Kolkata"
    assert said.json["next_run_at"].endswith("T20:30:00.000Z")


def test_a_name_of_its_own_makes_it_changeable(location: str) -> None:
    run("schedule", "a.sh", "--every", "1h", "--name", "mine", db=location)
    assert run("schedule", "b.sh", "--every", "2h", "--name", "mine", db=location).code == 0
    [one] = schedules(location)
    assert (one["command"], one["every_ms"]) == ("b.sh", 7_200_000)


def test_a_name_made_from_the_command_takes_no_other_s_place(location: str) -> None:
    for when in ("1h", "2h", "1h"):
        assert run("schedule", "tar c / | gzip", "--every", when, db=location).code == 0
    assert {(one["name"], one["every_ms"]) for one in schedules(location)} == {
        ("tar-c-gzip", 3_600_000),
        ("tar-c-gzip-2", 7_200_000),
    }


def test_commands_called_like_a_word_can_be_scheduled(location: str) -> None:
    assert run("schedule", "add", "list", "--every", "1h", db=location).code == 0
    assert run("schedule", "--every", "1h", "--", "pause", db=location).code == 0
    assert {one["command"] for one in schedules(location)} == {"list", "pause"}


def test_a_web_hook_and_a_template_can_be_scheduled(location: str) -> None:
    run("template", "create", "nightly", "--command", "backup.sh", "--priority", "4", db=location)
    said = run("schedule", "--template", "nightly", "--every", "1d", "--json", db=location)
    assert said.json["template"]["opts"]["priority"] == 4
    assert said.json["name"] == "backup.sh"
    said = run("schedule", "--url", "https://example.org/x", "--every", "1d", "--json", db=location)
    assert said.json["template"]["name"] == "http-webhook"


async def test_a_schedule_is_paused_resumed_run_and_removed(location: str) -> None:
    run("schedule", "backup.sh", "--cron", "0 2 * * *", db=location)
    assert run("schedule", "pause", "backup.sh", "--json", db=location).json["enabled"] is False
    assert run("schedule", "list", db=location).out.split("\t")[3] == "paused"
    job_id = run("schedule", "run", "backup.sh", db=location).out.strip()
    assert run("schedule", "resume", "backup.sh", "--json", db=location).json["enabled"] is True
    said = run("schedule", "remove", "backup.sh", db=location)
    assert said.code == 1
    assert len(schedules(location)) == 1
    assert run("schedule", "remove", "backup.sh", "--yes", db=location).code == 0
    assert schedules(location) == []
    async with Queue("default", location) as queue:
        assert [job.id for job in await queue.get_jobs()] == [job_id]


def test_a_limit_ends_it(location: str) -> None:
    said = run("schedule", "x", "--every", "1h", "--limit", "3", "--json", db=location)
    assert said.json["limit"] == 3


def test_a_name_in_several_queues_needs_the_queue(location: str) -> None:
    for queue in ("one", "two"):
        run("schedule", "x", "--every", "1h", "--queue", queue, db=location)
    said = run("schedule", "pause", "x", db=location)
    assert said.code == 2
    assert "one, two" in said.err
    assert run("schedule", "pause", "x", "--queue", "two", db=location).code == 0
    assert {one["queue"]: one["enabled"] for one in schedules(location)} == {
        "one": True,
        "two": False,
    }


def test_there_is_no_such_schedule(location: str) -> None:
    run("enqueue", "true", db=location)
    for word in ("pause", "resume", "run"):
        said = run("schedule", word, "nobody", db=location)
        assert said.code == 1
        assert "there is no schedule 'nobody'" in said.err


BAD = {
    "no time": ["x"],
    "two times": ["x", "--cron", "0 2 * * *", "--every", "1h"],
    "bad cron": ["x", "--cron", "61 * * * *"],
    "words": ["x", "--cron", "every day"],
    "bad zone": ["x", "--cron", "0 2 * * *", "--tz", "Mars/Base"],
    "zone of an interval": ["x", "--every", "1h", "--tz", "UTC"],
    "bad interval": ["x", "--every", "often"],
    "no interval": ["x", "--every", "0"],
    "bad limit": ["x", "--every", "1h", "--limit", "0"],
    "bad name": ["x", "--every", "1h", "--name", "a\x00b"],
    "no command": ["--every", "1h"],
    "bad option": ["x", "--every", "1h", "--backoff", "odd"],
    "a job's own": ["x", "--every", "1h", "--delay", "5m"],
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_input_changes_nothing(tmp_path: Path, bad: list[str]) -> None:
    said = run("schedule", *bad, db=str(tmp_path / "jobs.db"))
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_bad_input_leaves_the_schedule_there_is(location: str) -> None:
    run("schedule", "x", "--cron", "0 2 * * *", "--name", "mine", db=location)
    before = schedules(location)
    assert run("schedule", "x", "--cron", "0 99 * * *", "--name", "mine", db=location).code == 2
    assert schedules(location) == before


def test_how_often_is_shown_without_decimals_that_say_nothing(location: str) -> None:
    run("schedule", "x", "--every", "2s", db=location)
    [line] = run("schedule", "list", db=location).lines
    assert line.split("\t")[2] == "every 2s"


def test_the_bad_field_of_a_pattern_comes_first(location: str) -> None:
    said = run("schedule", "x", "--cron", "61 * * * *", db=location)
    assert said.code == 2
    assert said.err.startswith("queuectl: pattern must have a good minute, not '61'")
