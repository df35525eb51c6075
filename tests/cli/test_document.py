"""The QueueCTL document: every command line in it, and every section it prints, on both stores.

Its two lines for Windows are the exception.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullite import Job, Queue, Store, Worker
from bullite.client.runtime.blocking import run_blocking
from bullite.commands.job_types import RETRIES
from bullite.commands.processors import BuiltinProcessors
from bullite.core.clock import SystemClock
from tests.cli.program import Said, run
from tests.support.helpers import until

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")


@pytest.fixture
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def place(location: str) -> str:
    return location


def written(path: str) -> list[str]:
    """The words in a file."""
    return Path(path).read_text().split()


class HurriedClock(SystemClock):
    """The time of day, moved on by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0

    def now(self) -> int:
        return super().now() + self.passed


@asynccontextmanager
async def working(place: str, clock: HurriedClock | None = None) -> AsyncIterator[Queue]:
    """A worker for commands in this process, and its queue."""
    store = Store(place, clock=clock)
    queue = Queue("default", store, priority_order="high")
    crew = BuiltinProcessors(store)
    strategies = {RETRIES: crew.retry_strategy}
    async with queue, Worker(queue, crew.processors(), retry_strategies=strategies):
        yield queue
    await asyncio.to_thread(store.close)


def done(*arguments: object, db: str) -> Said:
    """What a command line says that must succeed."""
    said = run(*arguments, db=db)
    assert said.code == 0, (arguments, said)
    return said


def job_of(place: str, id: str) -> dict[str, Any]:
    answer: dict[str, Any] = done("show", id, "--json", db=place).json
    return answer


# --- command structure ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        *(["config", "set"], ["enqueue"], ["worker", "start"], ["worker", "stop"], ["status"]),
        *(["list"], ["stats"], ["output"], ["dlq", "list"], ["dlq", "retry"], ["cancel"]),
        *(["cleanup"], ["worker", "status"], ["schedule"], ["template", "create"]),
        ["enqueue-batch"],
    ],
    ids=" ".join,
)
def test_the_program_has_every_verb_of_the_document(words: list[str]) -> None:
    said = run(*words, "--help")

    assert (said.code, said.err) == (0, "")
    assert "Usage: queuectl" in said.out


@pytest.mark.parametrize("option", ["--priority", "--timeout", "--run-at"])
def test_enqueue_has_the_documents_options(option: str) -> None:
    assert option in run("enqueue", "--help").out


@pytest.mark.parametrize("state", ["pending", "processing", "completed", "failed", "dead"])
def test_jobs_are_listed_by_the_documents_states(place: str, state: str) -> None:
    done("enqueue", "true", db=place)

    assert len(done("list", "--state", state, db=place).lines) == (state == "pending")


# --- configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("max_retries", "5"), ("backoff_base", "1.5"), ("backoff_base", "3")),
        *(
            ("max_retries", "0"),
            ("retry_delay_type", "linear"),
            ("retry_delay_type", "exponential"),
        ),
        *(("retry_delay_type", "fixed"), ("fixed_retry_delay", "60")),
    ],
)
def test_a_value_of_the_document_can_be_set(place: str, key: str, value: str) -> None:
    done("config", "set", key, value, db=place)

    assert str(done("config", "get", key, "--json", db=place).json["value"]) == value


def test_the_defaults_are_the_documents(place: str) -> None:
    done("enqueue", "true", db=place)

    values = {k: done("config", "get", k, "--json", db=place).json["value"] for k in DEFAULTS}
    assert values == DEFAULTS


DEFAULTS = {"max_retries": 3, "backoff_base": 2}


# --- the life of a job ---------------------------------------------------------------------------


async def test_a_command_that_exits_with_0_goes_from_pending_to_completed(place: str) -> None:
    async with working(place) as queue:
        id = (await asyncio.to_thread(done, "enqueue", "echo 'hello'", db=place)).out.strip()
        await until(lambda: is_in(queue, id, "completed"))

    assert job_of(place, id)["status"] == "completed"
    assert "hello" in done("output", id, db=place).out


async def is_in(queue: Queue, id: str, *states: str) -> bool:
    return await queue.get_job_state(id) in states


async def test_failures_wait_2_then_4_then_8_seconds_and_then_it_is_dead(place: str) -> None:
    clock = HurriedClock()
    waits, statuses = [], []
    async with working(place, clock) as queue:
        id = (await asyncio.to_thread(done, "enqueue", "exit 1", db=place)).out.strip()
        for attempt in (1, 2, 3):
            job = await failed(queue, id, attempt)
            assert job.process_at is not None
            assert job.updated_at is not None
            waits.append(round((job.process_at - job.updated_at).total_seconds()))
            statuses.append((await asyncio.to_thread(job_of, place, id))["status"])
            clock.passed += waits[-1] * 1000
            queue.store.open().poll_now()
        await until(lambda: is_in(queue, id, "failed"))

    assert waits == [2, 4, 8]
    assert sum(waits) == 14
    assert statuses == ["failed"] * 3
    assert job_of(place, id)["status"] == "dead"
    assert "Attempts: 4/4" in done("output", id, db=place).out


async def failed(queue: Queue, id: str, attempts: int) -> Job:
    """The job, once so many attempts have failed."""

    async def has() -> bool:
        job = await queue.get_job(id)
        return job is not None and job.attempts_made == attempts and job.state == "delayed"

    await until(has)
    job = await queue.get_job(id)
    assert job is not None
    return job


async def test_the_retry_limit_is_captured_when_a_job_is_enqueued(place: str) -> None:
    await asyncio.to_thread(done, "config", "set", "max_retries", 5, db=place)
    id = (await asyncio.to_thread(done, "enqueue", "true", db=place)).out.strip()
    await asyncio.to_thread(done, "config", "set", "max_retries", 0, db=place)

    assert job_of(place, id)["max_retries"] == 5


async def test_without_retries_a_failure_is_dead_and_can_be_retried_by_hand(place: str) -> None:
    await asyncio.to_thread(done, "config", "set", "max_retries", 0, db=place)
    async with working(place) as queue:
        command = "test -e here || exit 1"
        id = (await asyncio.to_thread(done, "enqueue", command, db=place)).out.strip()
        await until(lambda: is_in(queue, id, "failed"))
        dead = await asyncio.to_thread(done, "dlq", "list", db=place)
        assert id in dead.out
        await asyncio.to_thread(Path("here").touch)
        await asyncio.to_thread(done, "dlq", "retry", id, db=place)
        await until(lambda: is_in(queue, id, "completed"))

    assert job_of(place, id)["attempts_made"] == 1


# --- bonus features ------------------------------------------------------------------------------


def test_a_timeout_is_given_in_seconds(place: str) -> None:
    id = done("enqueue", "long-running-task.sh", "--timeout", 300, db=place).out.strip()

    assert job_of(place, id)["timeout"] == 300


async def test_a_command_that_takes_too_long_is_ended_and_says_so(place: str) -> None:
    async with working(place) as queue:
        given = ("enqueue", "sleep 60", "--timeout", 1, "--max-retries", 0)
        id = (await asyncio.to_thread(done, *given, db=place)).out.strip()
        await until(lambda: is_in(queue, id, "failed"), 30)

    shown = job_of(place, id)
    assert (shown["outcome"], shown["failed_reason"]) == (
        "timed-out",
        "Command timed out after 1 seconds",
    )


async def test_higher_priorities_run_first_and_equal_ones_in_their_order(place: str) -> None:
    ids: dict[str, str] = {}
    for name, priority in (("D", 0), ("C", 5), ("A", 10), ("B", 10)):
        command = ("enqueue", f"echo {name} >> order", "--priority", priority)
        ids[name] = (await asyncio.to_thread(done, *command, db=place)).out.strip()
    async with working(place) as queue:
        await until(lambda: is_in(queue, ids["D"], "completed"))

    assert written("order") == ["A", "B", "C", "D"]


@pytest.mark.parametrize(
    ("command", "when", "seconds"),
    [
        *(("backup.sh", "+30s", 30), ("report.sh", "+5m", 300)),
        *(("cleanup.sh", "+2h", 7200), ("billing.sh", "+1d", 86_400)),
    ],
)
def test_a_job_is_scheduled_for_later(place: str, command: str, when: str, seconds: int) -> None:
    id = done("enqueue", command, "--run-at", when, db=place).out.strip()

    async def due() -> float:
        async with Queue("default", place) as queue:
            job = await queue.get_job(id)
            assert job is not None
            assert job.process_at is not None
            return (job.process_at - job.created_at).total_seconds()

    assert asyncio.run(due()) == pytest.approx(seconds, abs=1)


async def test_output_is_printed_as_the_document_has_it(place: str) -> None:
    async with working(place) as queue:
        command = "echo 'Processing 1000 records...'; echo 'Success!'; echo 'Warning' >&2"
        options = ("--priority", 5, "--timeout", 30, "--max-retries", 2, "--id", "abc-123-def")
        await asyncio.to_thread(done, "enqueue", command, *options, db=place)
        await until(lambda: is_in(queue, "abc-123-def", "completed"))

    when = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(
        "--- Job abc-123-def ---\n"
        f"Command: {re.escape(command)}\n"
        "State: completed\n"
        "Priority: 5\n"
        "Attempts: 1/3\n"
        "Timeout: 30s\n"
        f"Started: {when}\n"
        f"Completed: {when}\n"
        r"Duration: \d+ms\n"
        f"Created: {when}\n"
        "\n"
        "--- Output ---\n"
        "STDOUT:\n"
        "Processing 1000 records...\n"
        "Success!\n"
        "\n"
        "STDERR:\n"
        "Warning\n",
        done("output", "abc-123-def", db=place).out,
    )


def test_statistics_have_the_documents_sections_in_its_order(place: str) -> None:
    done("enqueue", "true", "--priority", 10, "--timeout", 120, db=place)

    said = done("stats", db=place).out
    headings = re.findall(r"^--- (.*) ---$", said, re.MULTILINE)
    assert headings[:5] == [
        "Queue Statistics",
        "Execution Time Statistics",
        "Top 5 Slowest Jobs",
        "Priority Distribution",
        "Jobs with Timeout",
    ]
    for line in ("Total Jobs: 1", "Pending: 1 (100.00%)", "Priority 10: 1 jobs (100.00%)"):
        assert line in said.splitlines()
    assert "Average Timeout: 120s" in said


# --- what it lists as limitations and enhancements -----------------------------------------------


async def test_a_running_job_is_cancelled(place: str) -> None:
    async with working(place) as queue:
        id = (await asyncio.to_thread(done, "enqueue", "sleep 60", db=place)).out.strip()
        await until(lambda: is_in(queue, id, "active"))
        await asyncio.to_thread(done, "cancel", id, db=place)
        await until(lambda: is_in(queue, id, "failed"))

    assert job_of(place, id)["status"] == "cancelled"
    assert id in done("list", "--state", "cancelled", db=place).out


async def test_old_completed_jobs_are_deleted(place: str) -> None:
    clock = HurriedClock()
    clock.passed = -8 * 86_400_000
    async with working(place, clock) as queue:
        id = (await queue.add("shell", {"command": "true"})).id
        await until(lambda: is_in(queue, id, "completed"))

    line = ("cleanup", "--older-than", "7d", "--state", "completed", "--yes")
    await asyncio.to_thread(done, *line, db=place)
    assert run("show", id, db=place).code == 1


def test_worker_health_is_shown(place: str) -> None:
    done("enqueue", "true", db=place)

    assert done("worker", "status", "--json", db=place).json == {"groups": [], "workers": []}


def test_status_is_printed_as_json(place: str) -> None:
    done("enqueue", "true", db=place)

    [queue] = done("status", "--format", "json", db=place).json["queues"]
    assert (queue["name"], queue["pending"]) == ("default", 1)


async def test_a_job_waits_for_another(place: str) -> None:
    first = (await asyncio.to_thread(done, "enqueue", "echo 1 >> order", db=place)).out.strip()
    line = ("enqueue", "step2.sh; echo 2 >> order", "--after", first)
    second = (await asyncio.to_thread(done, *line, db=place)).out.strip()
    assert job_of(place, second)["state"] == "waiting-children"
    async with working(place) as queue:
        await until(lambda: is_in(queue, second, "completed"))

    assert written("order") == ["1", "2"]


def test_a_command_is_scheduled_by_cron(place: str) -> None:
    done("schedule", "backup.sh", "--cron", "0 2 * * *", db=place)

    said = done("schedule", "list", db=place).out
    assert "backup.sh" in said
    assert "0 2 * * *" in said


def test_a_template_is_made_and_used(place: str) -> None:
    done("template", "create", "backup", "--command", "backup.sh", "--priority", 10, db=place)
    id = done("enqueue", "--template", "backup", db=place).out.strip()

    shown = job_of(place, id)
    assert (shown["command"], shown["priority"]) == ("backup.sh", 10)


def test_somebody_is_to_hear_of_a_failure_by_mail(place: str) -> None:
    line = ("enqueue", "long-task.sh", "--notify-on-failure", "user@example.com")
    id = done(*line, db=place).out.strip()

    async def notice() -> Any:
        async with Queue("default", place) as queue:
            job = await queue.get_job(id)
            assert job is not None
            return job.opts["on_failure"]

    assert run_blocking(notice())["data"] == {"notify": "user@example.com"}


def test_other_kinds_of_jobs_are_enqueued(place: str) -> None:
    hook = ("enqueue", "--type", "http-webhook", "--url", "https://example.com/hook")
    function = ("enqueue", "--type", "python-function", "--module", "tasks.process")
    names = [job_of(place, done(*line, db=place).out.strip())["name"] for line in (hook, function)]

    assert names == ["http-webhook", "python-function"]


def test_jobs_are_enqueued_from_a_file(place: str) -> None:
    jobs = [{"command": f"echo {number}", "priority": number} for number in range(3)]
    Path("jobs.json").write_text(json.dumps(jobs, indent=2))
    done("enqueue-batch", "jobs.json", db=place)

    listed = done("list", "--json", db=place).json["jobs"]
    assert sorted(job["priority"] for job in listed) == [0, 1, 2]
