"""Jobs that are commands, web hooks, functions and notices, run by a worker in this process."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.cli.job_spec import notify_job
from bullite.cli.session import NOTICES
from bullite.client.key_values import set_value
from bullite.client.runtime import bridge
from bullite.commands import processors, runner
from bullite.commands.config import KIND, SETTINGS
from bullite.commands.history import CommandRun, output_after, runs_of
from bullite.commands.job_types import RETRIES
from bullite.commands.processors import BuiltinProcessors
from bullite.commands.webhook import verify_signature
from bullite.operations.command_output import OutputChunk, WriteOutput
from bullite.worker.processors import WithFallback
from tests.commands.test_notify import Post
from tests.commands.test_notify import serving as serving_mail
from tests.commands.test_runner import has_left, sleepers
from tests.commands.test_webhook import Server
from tests.support.databases import Database
from tests.support.helpers import again, state_of, take_away, until

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for key in SETTINGS:
        monkeypatch.delenv(f"QUEUECTL_{key.upper()}", raising=False)


@pytest.fixture
def mark() -> Iterator[str]:
    """Seconds to sleep that nobody else sleeps; who still does in the end is killed."""
    number = f"301.{os.getpid()}{next(_numbers):03}"
    yield number
    for pid in sleepers(number):
        os.kill(pid, signal.SIGKILL)


async def configure(queue: Queue, **values: Any) -> None:
    for key, value in values.items():
        await set_value(queue.store, KIND, key, value)


async def at_once(queue: Queue) -> None:
    """Let retries follow without a wait."""
    await configure(queue, retry_delay_type="fixed", fixed_retry_delay=0)


@asynccontextmanager
async def working(
    queue: Queue, modules: Sequence[str] = (), **options: Any
) -> AsyncIterator[BuiltinProcessors]:
    crew = BuiltinProcessors(queue.store, modules)
    async with Worker(
        queue,
        crew.processors(),
        concurrency=4,
        retry_strategies={RETRIES: crew.retry_strategy},
        **options,
    ):
        yield crew


async def add(queue: Queue, command: str | None = None, retries: int = 0, **data: Any) -> Job:
    if command is not None:
        data["command"] = command
    return await queue.add("shell", data, attempts=retries + 1, retry_strategy=RETRIES)


async def ended(queue: Queue, job: Job) -> Job:
    """The job, once it has ended for good."""

    async def has_ended() -> bool:
        return await state_of(queue, job) in ("completed", "failed")

    await until(has_ended)
    return await again(queue, job)


async def run(
    queue: Queue, command: str | None = None, **options: Any
) -> tuple[Job, list[CommandRun]]:
    """A command that has ended, and its runs."""
    async with working(queue):
        job = await ended(queue, await add(queue, command, **options))
    return job, await runs_of(queue.store, job)


# --- how they end --------------------------------------------------------------------------------


async def test_a_command_completes_and_what_it_said_is_kept_by_stream(queue: Queue) -> None:
    job, [done] = await run(queue, "echo out; echo err >&2")
    assert (job.state, job.return_value, job.attempts_made) == ("completed", {"exit_code": 0}, 1)
    assert (done.number, done.how, done.exit_code, done.signal) == (1, "exited", 0, None)
    assert (done.stdout.whole(), done.stderr.whole()) == (b"out\n", b"err\n")
    assert done.began_at <= done.ended_at


@pytest.mark.parametrize("command", ["true", "false"])
async def test_what_a_command_came_to_is_recorded_at_the_first_try(
    queue: Queue, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "bullite.engine")
    await run(queue, command)
    assert not [line for line in caplog.messages if "a batch is run again" in line]


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_commands_run_beside_somebody_who_takes_all_other_jobs(
    queue: Queue, kind: str
) -> None:
    async def take_in_loop(job: Job) -> str:
        return f"took {job.name}"

    def take_in_thread(job: Job) -> str:
        return f"took {job.name}"

    rest = take_in_loop if kind == "coroutine" else take_in_thread
    async with Worker(
        queue, WithFallback(BuiltinProcessors(queue.store).processors(), rest), concurrency=2
    ):
        other = await queue.add("something")
        command = await ended(queue, await add(queue, "echo out"))
        assert await other.result(timeout=30_000) == "took something"
    [done] = await runs_of(queue.store, command)
    assert done.stdout.whole() == b"out\n"


async def test_a_program_gets_its_arguments_as_they_are(queue: Queue) -> None:
    _, [done] = await run(queue, argv=["echo", "$HOME; ls", "a  b"])
    assert done.stdout.whole() == b"$HOME; ls a  b\n"


@pytest.mark.parametrize(
    ("command", "reason", "how", "exit_code", "number"),
    [
        ("exit 3", "Command exited with code 3", "exited", 3, None),
        (
            "kill -9 $$",
            "Command was killed by signal 9 (SIGKILL)",
            "signalled",
            None,
            signal.SIGKILL,
        ),
        ("kill -40 $$", "Command was killed by signal 40", "signalled", None, 40),
    ],
)
async def test_a_command_that_fails_says_how(
    queue: Queue, command: str, reason: str, how: str, exit_code: int | None, number: int | None
) -> None:
    job, [done] = await run(queue, command)
    assert (job.state, job.outcome, job.failed_reason) == ("failed", "error", reason)
    assert (done.how, done.exit_code, done.signal) == (how, exit_code, number)


async def test_a_command_that_takes_too_long_is_ended_and_tried_again(
    queue: Queue, mark: str
) -> None:
    await at_once(queue)
    job, runs = await run(queue, f"echo hello; sleep {mark} & sleep {mark}", retries=1, timeout=1)
    assert (job.outcome, job.failed_reason) == ("timed-out", "Command timed out after 1 seconds")
    assert [(one.number, one.how, one.stdout.whole()) for one in runs] == [
        (1, "timed-out", b"hello\n"),
        (2, "timed-out", b"hello\n"),
    ]
    assert [attempt.outcome for attempt in await job.get_attempts()] == ["timed-out"] * 2
    assert sleepers(mark) == []


async def test_a_part_of_a_second_is_said_as_it_was_given(queue: Queue) -> None:
    job, _ = await run(queue, "sleep 60", timeout=0.2)
    assert job.failed_reason == "Command timed out after 0.2 seconds"


async def test_each_attempt_has_its_own_output(queue: Queue) -> None:
    await at_once(queue)
    line = "echo x >> tries; n=$(wc -l < tries); echo out $n; echo err $n >&2; test $n = 3"
    job, runs = await run(queue, line, retries=5)
    assert (job.state, job.attempts_made) == ("completed", 3)
    assert [(one.number, one.exit_code) for one in runs] == [(1, 1), (2, 1), (3, 0)]
    assert [one.stdout.whole() for one in runs] == [b"out 1\n", b"out 2\n", b"out 3\n"]
    assert [one.stderr.whole() for one in runs] == [b"err 1\n", b"err 2\n", b"err 3\n"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"command": "true", "cwd": "nowhere"}, "No such file or directory: nowhere"),
        ({"argv": ["no-such-program"]}, "No such file or directory: no-such-program"),
        ({"argv": ["/etc/passwd"]}, "Permission denied: /etc/passwd"),
        ({"command": "true", "stdin": "nothing"}, "No such file or directory: nothing"),
        (
            {"command": "true", "env_from": ["NOT_THERE"]},
            "the worker has no variable NOT_THERE in its environment",
        ),
        ({"command": "true\0"}, "a null byte in the command"),
        ({"command": "true", "env": {"A": 1}}, "expected str, bytes or os.PathLike object"),
        ({}, "the job's data names none"),
        ({"command": ""}, "the job's data names none"),
        ({"command": 5}, "the job's data names none"),
        (None, "the job's data names none"),
        ([1], "the job's data names none"),
    ],
)
async def test_what_cannot_be_started_fails_at_once_and_the_worker_lives(
    queue: Queue, data: Any, reason: str
) -> None:
    async with working(queue):
        bad = await queue.add("shell", data, attempts=5, retry_strategy=RETRIES)
        job = await ended(queue, bad)
        following = await ended(queue, await add(queue, "true"))
    assert (job.state, job.attempts_made) == ("failed", 1)
    assert job.failed_reason is not None
    assert job.failed_reason.startswith(f"Command could not be started: {reason}")
    assert following.state == "completed"


async def test_a_command_that_cannot_be_started_now_is_tried_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at_once(queue)
    start, refusals = subprocess.Popen, iter([OSError(errno.EMFILE, "Too many open files")])

    def start_later(*arguments: Any, **options: Any) -> Any:
        for refusal in refusals:
            raise refusal
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", start_later)
    job, runs = await run(queue, "true", retries=1)
    assert (job.state, job.attempts_made, len(runs)) == ("completed", 2, 1)
    [failed, _] = await job.get_attempts()
    assert failed.error == "Command could not be started: Too many open files"


# --- what is kept --------------------------------------------------------------------------------


async def test_without_output_nothing_is_kept_of_it(queue: Queue) -> None:
    job, [done] = await run(queue, "echo secret; echo secret >&2; exit 4", no_output=True)
    assert job.failed_reason == "Command exited with code 4"
    assert done.exit_code == 4
    for stream in (done.stdout, done.stderr):
        assert (stream.head, stream.tail, stream.dropped) == (b"", b"", 7)


async def test_what_is_to_be_redacted_is_not_kept(queue: Queue, database: Database) -> None:
    await configure(queue, redact_output=["hunter[0-9]", "tok=.*"])
    _, [done] = await run(queue, "echo a hunter2 b; echo tok=1 2 >&2")
    assert done.stdout.whole() == b"a [redacted] b\n"
    assert done.stderr.whole() == b"[redacted]\n"


async def test_a_command_does_not_run_if_a_stored_pattern_would_stop_the_process(
    queue: Queue, database: Database, tmp_path: Path
) -> None:
    await configure(queue, redact_output=["(a+)+$"])
    async with working(queue):
        job = await ended(queue, await add(queue, f"touch {tmp_path}/ran"))
    assert "redact_output must be regular expressions" in str(job.failed_reason)
    assert not (tmp_path / "ran").exists()


async def test_no_more_output_is_kept_than_configured(queue: Queue) -> None:
    await configure(queue, max_output_size=10)
    _, [done] = await run(queue, "printf 123456789abcdefgh; printf short >&2")
    assert (done.stdout.head, done.stdout.tail, done.stdout.dropped) == (b"12345", b"defgh", 7)
    assert done.stderr.whole() == b"short"


async def test_output_need_not_be_text(queue: Queue) -> None:
    _, [done] = await run(queue, r"printf '\000\377\200'")
    assert done.stdout.whole() == b"\x00\xff\x80"


async def test_output_is_read_while_the_command_runs_and_its_pieces_go_with_its_end(
    queue: Queue, database: Database
) -> None:
    os.mkfifo("go")
    async with working(queue):
        job = await add(queue, "echo one; echo oops >&2; read line < go; echo two")
        heard: list[tuple[int, str, bytes]] = []

        async def has_said() -> bool:
            said = await output_after(queue.store, job, 0, 0)
            heard[:] = [(one.run, one.stream, one.data) for one in said]
            return len(heard) >= 2

        await until(has_said)
        assert sorted(heard) == [(1, "stderr", b"oops\n"), (1, "stdout", b"one\n")]
        assert await runs_of(queue.store, job) == []
        last = (await output_after(queue.store, job, 0, 0))[-1]
        assert await output_after(queue.store, job, last.run, last.number) == []
        await asyncio.to_thread(Path("go").write_text, "\n")
        await ended(queue, job)
    assert await output_after(queue.store, job, 0, 0) == []
    assert database.rows("output") == []
    [done] = await runs_of(queue.store, job)
    assert done.stdout.whole() == b"one\ntwo\n"


async def test_pieces_of_a_run_whose_end_nobody_wrote_go_with_the_next_one(
    queue: Queue, database: Database
) -> None:
    os.mkfifo("go")
    async with working(queue):
        job = await add(queue, "test -e again || { touch again; echo lost; read line < go; }")

        async def has_said() -> bool:
            return bool(await output_after(queue.store, job, 0, 0))

        await until(has_said)
        await take_away(queue)
        await ended(queue, job)
        assert database.rows("output") == []
        await asyncio.to_thread(Path("go").write_text, "\n")


async def test_a_job_whose_lock_was_lost_writes_nothing(queue: Queue) -> None:
    os.mkfifo("go")
    line = "test -e again && { echo second; exit; }; touch again; read line < go; echo first"
    async with working(queue):
        job = await add(queue, line)
        await until(Path("again").exists)
        await take_away(queue)
        await ended(queue, job)
        await asyncio.to_thread(Path("go").write_text, "\n")
    [done] = await runs_of(queue.store, job)
    assert (done.number, done.stdout.whole()) == (2, b"second\n")


async def test_what_a_command_says_after_its_job_was_lost_is_not_taken(
    queue: Queue, database: Database
) -> None:
    job = await add(queue, "true")
    request = WriteOutput(job.pk, 12_345, 1, [OutputChunk(1, "stdout", "aGVsbG8=")])
    assert await bridge.submit(queue.store, request) is False
    assert database.rows("output") == []


async def test_with_the_job_its_runs_and_output_are_deleted(
    queue: Queue, database: Database
) -> None:
    async with working(queue):
        job = await ended(queue, await add(queue, "echo hello"))
    database.write("insert into bullite_output values (?, 1, 1, 'stdout', 'aGVsbG8=')", job.pk)
    assert len(database.rows("runs")) == 1
    await queue.obliterate(force=True)
    assert database.rows("runs") == []
    assert database.rows("output") == []


# --- what they run with --------------------------------------------------------------------------


async def test_a_command_gets_no_variables_that_may_hold_our_secrets(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BULLITE_URL", "postgresql://me:pass@host/db")
    monkeypatch.setenv("QUEUECTL_SMTP_PASSWORD", "pass")
    monkeypatch.setenv("ORDINARY", "ordinary")
    _, [done] = await run(queue, "env", env={"MORE": "more"})
    names = {line.partition("=")[0] for line in done.stdout.whole().decode().splitlines()}
    ours = {name for name in names if name.startswith(("BULLITE_", "QUEUECTL_"))}
    assert ours == {"BULLITE_RUN"}
    assert {"ORDINARY", "MORE", "PATH"} <= names


async def test_a_variable_of_the_workers_is_passed_on_if_asked_for_by_name(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BULLITE_URL", "somewhere")
    _, [done] = await run(queue, "echo $BULLITE_URL", env_from=["BULLITE_URL"])
    assert done.stdout.whole() == b"somewhere\n"


async def test_a_command_runs_where_it_is_told_to_and_reads_what_it_is_given(queue: Queue) -> None:
    line = "mkdir there; printf hello > given"
    await run(queue, line)
    _, [done] = await run(queue, "basename $PWD; cat", cwd="there", stdin="given")
    assert done.stdout.whole() == b"there\nhello"


# --- retries -------------------------------------------------------------------------------------


async def wait_before_retry(queue: Queue, job: Job, made: int) -> int:
    """Ms that the job is to wait, after so many attempts."""

    async def is_waiting() -> bool:
        now = await again(queue, job)
        return now.state == "delayed" and now.attempts_made == made

    await until(is_waiting)
    now = await again(queue, job)
    failed = (await now.get_attempts())[-1]
    assert now.process_at is not None
    assert failed.ended_at is not None
    return round((now.process_at - failed.ended_at).total_seconds() * 1000)


async def test_the_configuration_counts_when_an_attempt_fails(queue: Queue) -> None:
    async with working(queue):
        job = await add(queue, "exit 1", retries=3)
        assert await wait_before_retry(queue, job, 1) == 2_000
        await configure(queue, backoff_base=50)
        await job.promote()
        assert await wait_before_retry(queue, job, 2) == 2_500_000
        await configure(queue, retry_delay_type="fixed", fixed_retry_delay=7.5)
        await job.promote()
        assert await wait_before_retry(queue, job, 3) == 7_500


async def test_how_often_is_retried_was_decided_when_the_job_was_added(queue: Queue) -> None:
    await at_once(queue)
    job = await add(queue, "exit 1", retries=2)
    await configure(queue, max_retries=9)
    async with working(queue):
        job = await ended(queue, job)
    assert (job.attempts_made, job.attempts) == (3, 3)
    assert job.failed_reason == "Command exited with code 1"


async def test_a_job_without_retries_runs_once(queue: Queue) -> None:
    job, runs = await run(queue, "exit 1", retries=0)
    assert (job.attempts_made, len(runs)) == (1, 1)


# --- cancelling ----------------------------------------------------------------------------------


async def test_a_cancelled_command_is_ended_with_all_it_started_and_what_it_said_is_kept(
    queue: Queue, mark: str
) -> None:
    async with working(queue):
        job = await add(queue, f"echo begun; setsid sleep {mark} & sleep {mark}", retries=5)
        await until(lambda: len(sleepers(mark)) == 2)
        await queue.cancel(job.id, "not wanted")
        job = await ended(queue, job)
        assert sleepers(mark) == []
    assert (job.outcome, job.failed_reason, job.attempts_made) == ("cancelled", "not wanted", 1)
    [done] = await runs_of(queue.store, job)
    assert (done.how, done.signal, done.stdout.whole()) == ("signalled", 15, b"begun\n")


async def test_a_command_that_is_deaf_is_killed_after_its_grace(queue: Queue, mark: str) -> None:
    await configure(queue, kill_grace=0.3)
    line = f"trap 'echo deaf' TERM; touch ready; while :; do sleep {mark}; done"
    async with working(queue):
        job = await add(queue, line)
        await until(Path("ready").exists)
        await until(lambda: bool(sleepers(mark)))
        await queue.cancel(job.id)
        job = await ended(queue, job)
    [done] = await runs_of(queue.store, job)
    assert (done.how, done.signal) == ("signalled", signal.SIGKILL)
    assert done.stdout.whole() == b"deaf\n"


async def test_a_worker_that_is_closed_by_force_ends_its_commands_at_no_cost(
    queue: Queue, mark: str
) -> None:
    crew = BuiltinProcessors(queue.store)
    worker = Worker(queue, crew.processors())
    job = await add(queue, f"trap '' TERM; sleep {mark} & sleep {mark}")
    await until(lambda: len(sleepers(mark)) == 2)
    crew.hurry()
    await worker.close(force=True)
    assert sleepers(mark) == []
    job = await again(queue, job)
    assert (job.state, job.attempts_made) == ("waiting", 0)


async def test_a_command_that_is_being_ended_is_hurried_too(queue: Queue, mark: str) -> None:
    await configure(queue, kill_grace=60)
    crew = BuiltinProcessors(queue.store)
    worker = Worker(queue, crew.processors())
    job = await add(queue, f"trap '' TERM; touch ready; sleep {mark} & sleep {mark}")
    await until(lambda: Path("ready").exists() and len(sleepers(mark)) == 2)
    await queue.cancel(job.id)
    await until(lambda: worker._pools[0].running()[0]._run.cancellation is not None)
    crew.hurry()
    await worker.close(force=True)
    assert sleepers(mark) == []
    assert (await again(queue, job)).outcome == "cancelled"


async def test_a_command_that_is_stopped_in_its_grace_is_ended_and_its_run_kept(
    queue: Queue, mark: str
) -> None:
    await configure(queue, kill_grace=60)
    crew = BuiltinProcessors(queue.store)
    worker = Worker(queue, crew.processors())
    job = await add(queue, f"trap 'touch told' TERM; while :; do sleep {mark}; done", timeout=1)
    await until(Path("told").exists)
    crew.hurry()
    await worker.close(force=True)
    assert sleepers(mark) == []
    job = await again(queue, job)
    assert (job.state, job.attempts_made) == ("waiting", 0)
    [done] = await runs_of(queue.store, job)
    assert (done.how, done.signal) == ("timed-out", signal.SIGKILL)


async def test_a_command_that_has_ended_completes_its_job_although_that_is_cancelled(
    queue: Queue, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "DRAINING", 60)
    crew = BuiltinProcessors(queue.store)
    async with Worker(queue, crew.processors()) as worker:
        job = await add(queue, f"sleep {mark} & echo $$ > pid")
        await until(lambda: has_left(Path("pid")) and len(sleepers(mark)) == 1)
        await queue.cancel(job.id)
        await until(lambda: worker._pools[0].running()[0]._run.cancellation is not None)
        for pid in sleepers(mark):
            os.kill(pid, signal.SIGKILL)
        job = await ended(queue, job)
    assert job.state == "completed"
    [done] = await runs_of(queue.store, job)
    assert (done.how, done.exit_code) == ("exited", 0)


# --- web hooks -----------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


async def call(queue: Queue, url: str, retries: int = 0, **data: Any) -> Job:
    options: Any = {"attempts": retries + 1, "retry_strategy": RETRIES}
    return await queue.add("http-webhook", {"url": url, **data}, **options)


async def test_the_answer_to_a_call_is_the_result_of_its_job(queue: Queue, server: Server) -> None:
    await configure(queue, allow_private_webhooks=True)
    async with working(queue):
        job = await ended(queue, await call(queue, server.url, body={"a": 1}, headers={"X-A": "b"}))
    assert (job.state, job.return_value) == ("completed", {"status": 200, "body": "ok"})
    [(method, path, headers, body)] = server.heard
    assert (method, path, json.loads(body)) == ("POST", "/hook", {"a": 1})
    assert headers["X-A"] == "b"
    assert headers["Bullite-Delivery"] == f"default:{job.pk}"
    assert "Bullite-Signature" not in headers


async def test_a_text_is_sent_as_it_is_and_with_the_method_asked_for(
    queue: Queue, server: Server
) -> None:
    await configure(queue, allow_private_webhooks=True)
    async with working(queue):
        await ended(queue, await call(queue, server.url, body="häßlich"))
        await ended(queue, await call(queue, server.url, method="GET"))
    assert [(heard[0], heard[3]) for heard in server.heard] == [
        ("POST", "häßlich".encode()),
        ("GET", b""),
    ]


async def test_calls_are_signed_with_the_secret_that_is_configured(
    queue: Queue, server: Server
) -> None:
    await configure(queue, allow_private_webhooks=True, webhook_secret="between us")
    async with working(queue):
        await ended(queue, await call(queue, server.url, body="hello"))
    [(_, _, headers, body)] = server.heard
    assert verify_signature(b"between us", body, headers["Bullite-Signature"])


async def test_a_private_address_is_not_called_unless_that_is_configured(
    queue: Queue, server: Server
) -> None:
    async with working(queue):
        job = await ended(queue, await call(queue, server.url, retries=5))
    assert (job.state, job.attempts_made, server.heard) == ("failed", 1, [])
    assert "private address" in (job.failed_reason or "")


async def test_a_refusal_by_the_server_is_final(queue: Queue, server: Server) -> None:
    await configure(queue, allow_private_webhooks=True)
    server.status = 404
    async with working(queue):
        job = await ended(queue, await call(queue, server.url, retries=5))
    assert (job.failed_reason, job.attempts_made) == ("127.0.0.1 answered 404", 1)
    assert len(server.heard) == 1


@pytest.mark.parametrize(("asked", "waited"), [("30", 30_000), ("1", 2_000)])
async def test_a_server_that_asks_for_time_gets_it(
    queue: Queue, server: Server, asked: str, waited: int
) -> None:
    await configure(queue, allow_private_webhooks=True)
    server.status, server.answers = 503, {"Retry-After": asked}
    async with working(queue):
        job = await call(queue, server.url, retries=5)
        assert await wait_before_retry(queue, job, 1) == waited


async def test_a_server_that_asks_for_time_gets_it_whatever_the_job_says(
    queue: Queue, server: Server
) -> None:
    await configure(queue, allow_private_webhooks=True)
    server.status, server.answers = 503, {"Retry-After": "30"}
    async with working(queue):
        backoff = {"type": "fixed", "delay": 1}
        job = await queue.add("http-webhook", {"url": server.url}, attempts=2, backoff=backoff)
        assert await wait_before_retry(queue, job, 1) == 30_000


async def test_a_call_that_failed_is_made_again_as_the_same_delivery(
    queue: Queue, server: Server
) -> None:
    await configure(queue, allow_private_webhooks=True)
    await at_once(queue)
    server.status = 500
    async with working(queue):
        job = await ended(queue, await call(queue, server.url, retries=2))
    assert (job.failed_reason, job.attempts_made) == ("127.0.0.1 answered 500", 3)
    deliveries = [heard[2]["Bullite-Delivery"] for heard in server.heard]
    assert deliveries == [f"default:{job.pk}"] * 3


async def test_a_call_may_have_an_id_in_any_language(queue: Queue, server: Server) -> None:
    await configure(queue, allow_private_webhooks=True)
    async with working(queue):
        first = await queue.add("http-webhook", {"url": server.url}, job_id="счёт №1")
        assert (await ended(queue, first)).state == "completed"
        await queue.remove(first.id)
        again = await queue.add("http-webhook", {"url": server.url}, job_id="счёт №1")
        assert (await ended(queue, again)).state == "completed"
    one, other = (heard[2]["Bullite-Delivery"] for heard in server.heard)
    assert one != other


async def test_a_server_that_takes_too_long_fails_the_call(queue: Queue) -> None:
    await configure(queue, allow_private_webhooks=True)
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/"
        async with working(queue):
            began = time.monotonic()
            job = await ended(queue, await call(queue, url, timeout=0.3))
    assert job.state == "failed"
    assert time.monotonic() - began < 10


# --- functions -----------------------------------------------------------------------------------

FUNCTIONS = """
import threading

def join(*words, between=" "):
    return between.join(words)

async def later(value):
    import asyncio
    await asyncio.sleep(0)
    return [value, threading.current_thread() is threading.main_thread()]

def sleep(seconds, environment):
    import subprocess
    environment = eval(environment)
    line = ["/bin/sleep", seconds]
    return subprocess.run(line, start_new_session=True, env=environment).returncode

def fail():
    raise LookupError("nothing there")

def stubborn():
    return object()
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"jobs_of_{os.getpid()}_{next(_numbers)}"
    Path(f"{name}.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(".")
    yield name
    sys.modules.pop(name, None)


async def apply(queue: Queue, function: str, retries: int = 0, **data: Any) -> Job:
    options: Any = {"attempts": retries + 1, "retry_strategy": RETRIES}
    return await queue.add("python-function", {"module": function, **data}, **options)


async def test_a_function_gets_its_arguments_and_its_value_is_the_result(
    queue: Queue, module: str
) -> None:
    async with working(queue, [module]):
        job = await apply(queue, f"{module}.join", args=["a", "b"], kwargs={"between": "+"})
        assert (await ended(queue, job)).return_value == "a+b"
        job = await apply(queue, f"{module}:join")
        assert (await ended(queue, job)).return_value == ""


async def test_a_coroutine_function_runs_beside_the_loop_of_the_worker(
    queue: Queue, module: str
) -> None:
    async with working(queue, [module]):
        job = await ended(queue, await apply(queue, f"{module}.later", args=[5]))
    assert job.return_value == [5, False]


@pytest.mark.parametrize("environment", ["None", "{}"])
async def test_what_a_function_started_is_not_taken_for_a_commands(
    queue: Queue, module: str, mark: str, environment: str
) -> None:
    async with working(queue, [module]) as crew:
        command = await add(queue, "touch began; sleep 300")
        await until(Path("began").exists)
        function = await apply(queue, f"{module}.sleep", args=[mark, environment])
        await until(lambda: sleepers(mark))
        crew.hurry()
        await queue.cancel(command.id)
        await ended(queue, command)
        [pid] = sleepers(mark)
        os.kill(pid, signal.SIGINT)
        assert (await ended(queue, function)).return_value == -signal.SIGINT


async def test_a_function_that_raises_is_tried_again(queue: Queue, module: str) -> None:
    await at_once(queue)
    async with working(queue, [module]):
        job = await ended(queue, await apply(queue, f"{module}.fail", retries=2))
    assert (job.failed_reason, job.attempts_made) == ("nothing there", 3)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("os.system", "'os.system' may not be run: its module was not allowed"),
        ("MODULE.threading.Thread", "may not be run"),
        ("MODULE.missing", "was not found: there is no missing"),
        ("MODULE", "names a module and no function"),
    ],
)
async def test_a_function_that_is_not_allowed_or_not_there_fails_for_good(
    queue: Queue, module: str, function: str, reason: str
) -> None:
    async with working(queue, [module]):
        name = function.replace("MODULE", module)
        job = await ended(queue, await apply(queue, name, args=["touch x"], retries=5))
    assert job.attempts_made == 1
    assert reason in (job.failed_reason or "")
    assert "x" not in os.listdir()


# --- notices -------------------------------------------------------------------------------------


@asynccontextmanager
async def telling(queue: Queue) -> AsyncIterator[Queue]:
    """Workers for jobs and for notices, as a worker process has them; the queue of the latter."""
    notices = Queue(NOTICES, queue.store)
    crew = BuiltinProcessors(queue.store)
    strategies = {RETRIES: crew.retry_strategy}
    async with (
        Worker(queue, crew.processors(), retry_strategies=strategies),
        Worker(notices, crew.processors(), retry_strategies=strategies),
    ):
        yield notices


async def fail(queue: Queue, target: str, retries: int = 0) -> Job:
    """A job that has failed, and somebody is told of."""
    line = "echo what it said; echo and more >&2; exit 3"
    options: Any = {"attempts": retries + 1, "retry_strategy": RETRIES}
    job = await queue.add("shell", {"command": line}, on_failure=notify_job(target), **options)
    return await ended(queue, job)


async def the_notice(notices: Queue) -> Job:
    found: list[Job] = []

    async def has_one() -> bool:
        found[:] = await notices.get_jobs(["completed", "failed", "delayed"])
        return bool(found)

    await until(has_one)
    [job] = found
    return job


async def test_a_command_is_run_when_a_job_has_failed_for_good(queue: Queue) -> None:
    await at_once(queue)
    line = "cat > told.tmp; echo $JOB_ID $JOB_EXIT_CODE $JOB_ATTEMPTS $JOB_REASON > env; "
    async with telling(queue) as notices:
        job = await fail(queue, line + "echo x >> times; mv told.tmp told", retries=1)
        assert (await the_notice(notices)).state == "completed"
    told = json.loads(await asyncio.to_thread(Path("told").read_text))
    assert (told["job_id"], told["queue"], told["attempts"]) == (job.id, "default", 2)
    assert (told["reason"], told["exit_code"]) == ("Command exited with code 3", 3)
    assert told["output_tail"] == "what it said\nand more\n"
    assert told["command"] == job.data["command"]
    variables = await asyncio.to_thread(Path("env").read_text)
    assert variables == f"{job.id} 3 2 Command exited with code 3\n"
    assert await asyncio.to_thread(Path("times").read_text) == "x\n"


async def test_a_url_is_called_when_a_job_has_failed(queue: Queue, server: Server) -> None:
    await configure(queue, allow_private_webhooks=True, webhook_secret="between us")
    async with telling(queue) as notices:
        job = await fail(queue, server.url)
        assert (await the_notice(notices)).state == "completed"
    [(_, _, headers, body)] = server.heard
    assert json.loads(body)["job_id"] == job.id
    assert verify_signature(b"between us", body, headers["Bullite-Signature"])


async def test_a_server_that_asks_for_time_before_it_is_told_gets_it(
    queue: Queue, server: Server
) -> None:
    await configure(queue, allow_private_webhooks=True)
    server.status, server.answers = 503, {"Retry-After": "80000"}
    async with telling(queue) as notices:
        await fail(queue, server.url)
        assert await wait_before_retry(notices, await the_notice(notices), 1) == 80_000_000


async def test_a_mail_is_sent_when_a_job_has_failed(queue: Queue) -> None:
    post = Post()
    with serving_mail(post) as mail:
        await configure(
            queue, smtp_host=mail.host, smtp_port=mail.port, smtp_sender="queue@example.com"
        )
        async with telling(queue) as notices:
            job = await fail(queue, "me@example.com")
            assert (await the_notice(notices)).state == "completed"
    [letter] = post.letters
    assert (letter["To"], letter["From"]) == ("me@example.com", "queue@example.com")
    assert letter["Subject"] == f"Job {job.id} of default failed: Command exited with code 3"
    assert "what it said" in letter.get_content()


async def test_a_notice_that_fails_is_tried_again_later(queue: Queue) -> None:
    async with telling(queue) as notices:
        await fail(queue, "exit 9")
        job = await the_notice(notices)
    assert (job.state, job.attempts) == ("delayed", 5)
    assert job.failed_reason == "The command that was to tell ended with exit code 9"


async def test_nobody_is_told_of_a_job_that_completes(queue: Queue) -> None:
    async with telling(queue) as notices:
        job = await queue.add("shell", {"command": "true"}, on_failure=notify_job("touch told"))
        await ended(queue, job)
    assert await notices.get_job_counts() == dict.fromkeys(await notices.get_job_counts(), 0)


async def test_of_a_job_that_is_gone_is_told_what_is_known(queue: Queue) -> None:
    failed = {
        "job_id": "77",
        "queue": "default",
        "failed_reason": None,
        "attempts_made": 2,
        "failed_at": 1_700_000_000_000,
    }
    told = await processors.failure_of(queue.store, failed)
    assert (told.job_id, told.attempts, told.command, told.output_tail) == ("77", 2, "", "")
