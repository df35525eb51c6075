"""`output`, `logs`, `wait`: output of commands, job logs, waiting for jobs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from ...client.job.job import Job
from ...commands.config import configuration
from ...commands.history import CommandRun, runs_of
from ...commands.job_types import COMMAND, FUNCTION, WEBHOOK
from ...core.clock import moment_of
from ...core.states import State
from ...errors import JobFailed, JobNotFound
from .. import times
from ..console import (
    EXIT_JOB_FAILED,
    EXIT_TIMED_OUT,
    CommandError,
    escape_control,
    job_argument,
    one_line,
    queue_option,
    verb,
)
from ..follow_output import ENDED, POLL_EVERY, follow_output, keeps_output, state_of
from ..job_format import as_json, description_of, duration_of, status_of
from ..session import Session

WAIT_NOTICE_AFTER = 2.0
"""Seconds after which `--wait` prints why the job has not started."""


@click.command()
@job_argument()
@queue_option()
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Of that run, not the last.")
@click.option("--follow", "-f", is_flag=True, help="Go on until it has ended.")
@click.option("--raw", is_flag=True, help="Only what it said, byte for byte.")
@verb
def output(
    session: Session,
    job_id: str,
    queue: str | None,
    attempt: int | None,
    follow: bool,
    raw: bool,
) -> None:
    """Show a job, and what its command said."""
    found, job = session.job(job_id, queue)
    if follow and job.state not in ENDED:
        follow_output(session, job, raw)
        now = session.wait(found.get_job(job.id))
        session.console.note(f"job {job.id} is {'gone' if now is None else status_of(now)}")
        return
    runs = session.wait(runs_of(session.store(), job))
    run = _chosen(job, runs, attempt)
    if session.console.as_json:
        session.console.data({**as_json(job), "runs": [_run_as_json(one) for one in runs]})
    elif raw:
        if run is not None:
            _write_raw(run)
    else:
        _show(session, job, run)
        _explain_gaps(session, job, [] if run is None else [run])


def _chosen(job: Job, runs: list[CommandRun], attempt: int | None) -> CommandRun | None:
    if attempt is None:
        return runs[-1] if runs else None
    for run in runs:
        if run.number == attempt:
            return run
    raise CommandError(f"job {job.id} has no output of attempt {attempt}")


def _write_raw(run: CommandRun) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(run.stdout.whole())
    sys.stdout.buffer.flush()
    sys.stderr.flush()
    sys.stderr.buffer.write(run.stderr.whole())
    sys.stderr.buffer.flush()


def _show(session: Session, job: Job, run: CommandRun | None) -> None:
    """Print a job and the output of one run."""
    line = session.console.line
    data = job.data if isinstance(job.data, dict) else {}
    line(f"--- Job {escape_control(job.id)} ---")
    line(f"Command: {escape_control(description_of(job))}")
    line(f"State: {status_of(job)}")
    line(f"Priority: {job.priority}")
    line(f"Attempts: {job.attempts_made}/{job.attempts}")
    if data.get("timeout") is not None:
        line(f"Timeout: {escape_control(str(data['timeout']))}s")
    for label, when in (("Started", job.processed_at), ("Completed", job.finished_at)):
        if when is not None:
            line(f"{label}: {times.iso(when)}")
    if (ms := duration_of(job)) is not None:
        line(f"Duration: {ms}ms")
    line(f"Created: {times.iso(job.created_at)}")
    if job.failed_reason is not None:
        line(f"Error: {escape_control(job.failed_reason)}")
    if run is not None and run.exit_code not in (None, 0):
        line(f"Exit code: {run.exit_code}")
    line()
    line("--- Output ---")
    line("STDOUT:")
    line(_text(b"" if run is None else run.stdout.whole()))
    line()
    line("STDERR:")
    line(_text(b"" if run is None else run.stderr.whole()))


def _text(data: bytes) -> str:
    return escape_control(data.decode("utf-8", "replace").rstrip("\n"))


def _explain_gaps(session: Session, job: Job, runs: Sequence[CommandRun]) -> None:
    """Print why redaction drops whole lines where output was cut."""
    has_gaps = any(run.stdout.dropped or run.stderr.dropped for run in runs)
    if not has_gaps or not keeps_output(job):
        return
    if session.wait(configuration(session.store()))["redact_output"]:
        session.console.note(
            "a line that was cut is left out: what is left of it cannot be checked for what "
            "redact_output takes out"
        )


def _run_as_json(run: CommandRun) -> dict[str, Any]:
    return {
        "attempt": run.number,
        "started_at": times.iso(run.began_at),
        "ended_at": times.iso(run.ended_at),
        "how": run.how,
        "exit_code": run.exit_code,
        "signal": run.signal,
        "stdout": run.stdout.whole().decode("utf-8", "replace"),
        "stdout_dropped_bytes": run.stdout.dropped,
        "stderr": run.stderr.whole().decode("utf-8", "replace"),
        "stderr_dropped_bytes": run.stderr.dropped,
    }


@click.command()
@job_argument()
@queue_option()
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@click.option("--raw", is_flag=True, help="Do not escape control bytes.")
@verb
def logs(session: Session, job_id: str, queue: str | None, follow: bool, raw: bool) -> None:
    """Show the lines that a job has logged."""
    found, job = session.job(job_id, queue)
    printed = 0
    while True:
        ended = session.wait(state_of(job)) in (*ENDED, "unknown")
        page = session.wait(found.get_job_logs(job.id, printed, -1))
        for entry in page["logs"]:
            printed += 1
            _log_line(session, entry, raw)
        session.console.flush()
        if not follow or ended:
            break
        time.sleep(POLL_EVERY)
    if not printed:
        hint = f"; `queuectl output {job.id}` shows what the command said"
        session.console.note("no log lines" + (hint if job.name == COMMAND else ""))


def _log_line(session: Session, entry: dict[str, Any], raw: bool) -> None:
    if session.console.as_json:
        session.console.data(entry)
        return
    when = times.iso(moment_of(entry["timestamp"]))
    message = entry["message"] if raw else escape_control(entry["message"])
    session.console.line(f"{when} {entry['level']} {message}")


@click.command()
@job_argument(many=True)
@queue_option()
@click.option("--timeout", metavar="TIME", help="Give up after that, with exit code 124.")
@verb
def wait(
    session: Session, job_ids: tuple[str, ...], queue: str | None, timeout: str | None
) -> None:
    """Wait until jobs have ended; exit code 3 if one failed."""
    limit = None if timeout is None else times.duration("--timeout", timeout)
    deadline = None if limit is None else time.monotonic() + limit / 1000
    failed = False
    jobs = [session.job(job_id, queue) for job_id in job_ids]
    for found, job in jobs:
        left = None if deadline is None else max(1, round((deadline - time.monotonic()) * 1000))
        failed = not _wait_for_success(session, job, left) or failed
        now = session.wait(found.get_job(job.id)) or job
        text = f"{now.id} {status_of(now)}"
        if now.failed_reason:
            text += f": {one_line(now.failed_reason, 200)}"
        session.console.done(text, as_json(now))
        session.console.flush()
    if failed:
        raise click.exceptions.Exit(EXIT_JOB_FAILED)


def _wait_for_success(session: Session, job: Job, limit: int | None) -> bool:
    if job.state in ENDED:
        return job.state == State.COMPLETED
    try:
        session.wait(job.result(timeout=limit))
    except JobFailed:
        return False
    except JobNotFound:
        raise CommandError(f"job {job.id} is gone: what came of it is not known") from None
    except TimeoutError:
        session.console.note(f"job {job.id} has not ended yet")
        raise click.exceptions.Exit(EXIT_TIMED_OUT) from None
    return True


def wait_and_show(session: Session, job: Job, raw: bool) -> None:
    """Wait for a job that was just added, and print the output of its command meanwhile."""
    session.console.note(f"waiting for job {job.id}")
    try:
        if not session.console.as_json:
            follow_output(session, job, raw, _start_notice(session, job))
        succeeded = _wait_for_success(session, job, None)
    except KeyboardInterrupt:
        session.console.note(f"job {job.id} stays queued: `queuectl cancel {job.id}` cancels it")
        raise
    _, now = session.job(job.id, job.queue_name)
    _print_end(session, now, succeeded)
    if not succeeded:
        raise click.exceptions.Exit(EXIT_JOB_FAILED)


def _start_notice(session: Session, job: Job) -> Callable[[str], None]:
    """Return a callback for job states that prints once why the job has not started."""
    due = time.monotonic() + WAIT_NOTICE_AFTER

    def on_state(state: str) -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        due = math.inf
        if state != State.ACTIVE:
            session.console.note(session.wait(session.queue(job.queue_name).why(job.id)))

    return on_state


def _print_end(session: Session, job: Job, succeeded: bool) -> None:
    """Print how a job ended whose output is printed already."""
    runs = session.wait(runs_of(session.store(), job))
    if session.console.as_json:
        session.console.data({**as_json(job), "runs": [_run_as_json(one) for one in runs]})
        return
    _explain_gaps(session, job, runs)
    if not succeeded:
        session.console.note(f"job {job.id} failed: {job.failed_reason}")
    elif job.name in (WEBHOOK, FUNCTION):
        session.console.data(job.return_value)
