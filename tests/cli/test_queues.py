"""`queuectl queues`: which there are, and what holds for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bullite import Queue

from .concurrent_runs import have_run
from .program import plain, run


def shown(location: str, name: str = "emails") -> dict[str, Any]:
    told: dict[str, Any] = run("queues", "show", name, "--json", db=location).json
    return told


async def test_queues_are_listed_with_their_jobs(queue: Queue, location: str) -> None:
    await queue.add("a")
    await queue.add("a", delay="1h")
    await Queue("other", queue.store).pause()
    listed = run("queues", "list", "--json", db=location).json
    assert [(one["name"], one["paused"]) for one in listed] == [("emails", False), ("other", True)]
    assert listed[0]["counts"]["waiting"] == listed[0]["counts"]["delayed"] == 1
    lines = run("queues", "list", db=location).lines
    assert lines[0] == "emails\trunning\tlow\t2\t0\t0\t0\t0\t0\t0"
    assert lines[1].startswith("other\tpaused")


async def test_people_read_of_states_in_queuectls_words(queue: Queue, location: str) -> None:
    await have_run(queue, "failed", "dead")
    await queue.cancel((await queue.add("a", delay="1h")).id)
    [line] = run("queues", "list", db=location).lines
    assert line.split("\t")[3:] == ["0", "0", "0", "1", "1", "1", "0"]
    lines = run("queues", "show", "emails", db=location).lines
    for line in ("failed: 1", "dead: 1", "cancelled: 1"):
        assert line in lines
    assert shown(location)["counts"]["failed"] == 2


async def test_on_a_narrow_terminal_headings_stay_whole(
    queue: Queue, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    await queue.add("a")
    heading, row = plain(run("queues", "list", db=location, terminal=True).out)
    assert heading.split()[:6] == ["NAME", "STATUS", "ORDER", "PENDING", "PROCESSING", "COMPLETED"]
    assert len(heading) <= 80
    assert row.startswith("emails")


def test_a_queue_that_is_made_runs_higher_priorities_first(location: str) -> None:
    assert run("queues", "set", "new", "--concurrency", "2", db=location).code == 0
    assert shown(location, "new")["settings"]["priority_order"] == "high"


async def test_the_order_of_an_existing_queue_changes_only_when_asked(
    queue: Queue, location: str
) -> None:
    await queue.wait_until_ready()
    run("queues", "set", "emails", "--concurrency", "2", db=location)
    assert shown(location)["settings"]["priority_order"] == "low"
    run("queues", "set", "emails", "--priority-order", "high", db=location)
    assert shown(location)["settings"]["priority_order"] == "high"


SETTINGS: dict[str, tuple[str, str, Any, str | None]] = {
    "concurrency": ("--concurrency", "3", 3, "none"),
    "rate": ("--rate", "100/1m", {"max": 100, "duration_ms": 60_000}, "none"),
    "dead_letter": ("--dead-letter", "graves", "graves", "none"),
    "keep_completed_ms": ("--keep-completed", "2d", 172_800_000, "none"),
    "keep_failed_ms": ("--keep-failed", "90", 90_000, "none"),
    "trash_age_ms": ("--trash-age", "2h", 7_200_000, None),
    "max_waiting": ("--max-waiting", "10", 10, "none"),
    "max_payload": ("--max-payload", "10K", 10_240, "none"),
    "retry_dead_after_ms": ("--retry-dead-after", "6h", 21_600_000, "none"),
    "retry_dead_times": ("--retry-dead-times", "4", 4, None),
    "on_dead": ("--on-dead", "ops@example.org", "ops@example.org", "none"),
}


async def test_every_setting_is_set_shown_and_taken_away(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    for setting, (option, text, value, away) in SETTINGS.items():
        said = run("queues", "set", "emails", option, text, "--json", db=location)
        assert said.json["settings"][setting] == value, setting
        assert shown(location)["settings"][setting] == value
        if away is not None:
            assert run("queues", "set", "emails", option, away, db=location).code == 0
            assert shown(location)["settings"][setting] is None, setting


async def test_the_library_finds_what_was_set(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    options = ["--rate", "5/s", "--concurrency", "7", "--on-dead", "https://example.org/x"]
    assert run("queues", "set", "emails", *options, db=location).code == 0
    assert await queue.get_global_rate_limit() == {"max": 5, "duration": 1_000}
    assert await queue.get_global_concurrency() == 7
    assert (await queue.get_meta())["on_failure"]["queue"] == "notifications"


async def test_people_are_shown_a_line_for_each(queue: Queue, location: str) -> None:
    await queue.add("a")
    run("queues", "set", "emails", "--rate", "100/m", "--keep-completed", "none", db=location)
    lines = run("queues", "show", "emails", db=location).lines
    for line in ("name: emails", "pending: 1", "rate: 100/1m", "keep-completed: none"):
        assert line in lines


async def test_there_is_no_such_queue(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    said = run("queues", "show", "nobody", db=location)
    assert said.code == 1
    assert "the queues are: emails" in said.err


BAD = {
    "nothing": [],
    "order": ["--priority-order", "odd"],
    "concurrency": ["--concurrency", "0"],
    "rate": ["--rate", "fast"],
    "rate of none": ["--rate", "0/1m"],
    "rate in no time": ["--rate", "1/0"],
    "itself": ["--dead-letter", "emails"],
    "age": ["--keep-completed", "long"],
    "trash": ["--trash-age", "none"],
    "waiting": ["--max-waiting", "x"],
    "payload": ["--max-payload", "big"],
    "times": ["--retry-dead-times", "0"],
    "no time": ["--retry-dead-after", "0"],
    "one of two": ["--concurrency", "2", "--max-waiting", "x"],
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_input_changes_nothing(tmp_path: Path, bad: list[str]) -> None:
    said = run("queues", "set", "emails", *bad, db=str(tmp_path / "jobs.db"))
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
