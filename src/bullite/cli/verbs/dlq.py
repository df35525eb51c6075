"""`dlq list|show|retry|purge`: dead jobs, in their own or in a dead-letter queue."""

from __future__ import annotations

from typing import Any

import click

from ...client.job.job import Job
from ...client.queue.queue import Queue
from ...core.states import State
from .. import times
from ..bulk import Fits, dead_letter_queues, purge_all, retry_all
from ..console import CommandError, job_argument, one_line, queue_option, verb, yes_option
from ..job_details import attempt_facts
from ..job_format import DEAD, as_json, description_of, status_of
from ..masking import secrets_option
from ..session import Session
from .manage import check_which, delay_option, keep_attempts_option, print_counts, retry_each

ATTEMPT_KEYS = ("number", "started_at", "ended_at", "worker", "outcome", "error")

MAX_READ = 1_000
"""Failed jobs that are read at a time."""


@click.group()
def dlq() -> None:
    """Dead jobs: those that failed and have no attempts left."""


@dlq.command("list")
@queue_option(help="Those of this queue; of all unless given.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="The newest so many.",
)
@secrets_option
@verb
def list_(session: Session, queue: str | None, limit: int) -> None:
    """List dead jobs, the newest first."""
    jobs = [
        job
        for found, fits in dead_letter_queues(session, queue)
        for job in _dead(session, found, fits, limit)
    ]
    jobs.sort(key=lambda job: (job.finished_on or 0, job.pk), reverse=True)
    del jobs[limit:]
    if session.console.as_json:
        session.console.data([as_json(job) for job in jobs])
        return
    columns = ("ID", "QUEUE", "ATTEMPTS", "DIED", "COMMAND", "REASON")
    session.console.table(columns, [_row(job, session.console.on_terminal) for job in jobs])
    if not jobs:
        session.console.note("no dead jobs")


def _dead(session: Session, queue: Queue, fits: Fits, limit: int) -> list[Job]:
    """Return the newest dead jobs of a queue."""
    jobs: list[Job] = []
    cursor: str | None = None
    while len(jobs) < limit:
        found = session.wait(queue.find(state=State.FAILED.value, limit=MAX_READ, cursor=cursor))
        jobs += [job for job in found.jobs if fits(job)]
        cursor = found.cursor
        if cursor is None:
            break
    return jobs[:limit]


def _row(job: Job, on_terminal: bool) -> list[str]:
    queue = job.queue_name
    return [
        job.id,
        f"{queue} (from {job.original_queue})" if job.original_queue else queue,
        f"{job.attempts_made}/{job.attempts}",
        times.stamp(job.finished_at, on_terminal),
        one_line(description_of(job), 40),
        one_line(job.failed_reason or "-", 60),
    ]


@dlq.command()
@job_argument()
@queue_option(help="The queue it is in, where its id alone is not enough.")
@secrets_option
@verb
def show(session: Session, job_id: str, queue: str | None) -> None:
    """Show a dead job, with each of its attempts."""
    _, job = session.job(job_id, queue)
    if status_of(job) != DEAD:
        raise CommandError(f"job {job_id} is not dead but {status_of(job)}; see `queuectl show`")
    facts_of_all = [attempt_facts(attempt) for attempt in session.wait(job.get_attempts())]
    attempts = [{key: facts[key] for key in ATTEMPT_KEYS} for facts in facts_of_all]
    if session.console.as_json:
        session.console.data({**as_json(job), "attempts_log": attempts})
    else:
        _print_job(session, job, attempts)


def _print_job(session: Session, job: Job, attempts: list[dict[str, Any]]) -> None:
    facts = {
        "Job": job.id,
        "Queue": job.queue_name,
        "From": job.original_queue,
        "Command": description_of(job),
        "Attempts": f"{job.attempts_made}/{job.attempts}",
        "Died": times.iso(job.finished_at),
        "Outcome": job.outcome,
        "Reason": job.failed_reason,
    }
    for name, value in facts.items():
        if value is not None:
            session.console.line(f"{name}: {one_line(value, 10_000)}")
    for attempt in attempts:
        when, how = attempt["ended_at"] or "-", attempt["error"] or attempt["outcome"] or "-"
        session.console.line(f"Attempt {attempt['number']}: {when} {one_line(how, 1_000)}")


@dlq.command()
@job_argument(many=True, required=False)
@click.option("--all", "every", is_flag=True, help="All dead jobs.")
@queue_option(help="The queue they are of; with --all, all queues unless given.")
@delay_option
@keep_attempts_option
@verb
def retry(
    session: Session,
    job_ids: tuple[str, ...],
    every: bool,
    queue: str | None,
    delay: str | None,
    keep_attempts: bool,
) -> None:
    """Let dead jobs run again, with all their attempts, in the queue they came from."""
    wait = check_which(job_ids, every, delay)
    if not every:
        retry_each(session, job_ids, queue, wait, keep_attempts, only=DEAD)
        return
    retried = retry_all(session, _lists(session, queue), wait, keep_attempts)
    print_counts(session, "retried", retried)


@dlq.command()
@queue_option(help="Those of this queue; of all unless given.")
@click.option("--older-than", metavar="7d", help="Only those that died longer ago than that.")
@yes_option
@verb
def purge(session: Session, queue: str | None, older_than: str | None, yes: bool) -> None:
    """Delete dead jobs for good. What other jobs still wait for stays."""
    age = 0 if older_than is None else times.duration("--older-than", older_than)
    places = _lists(session, queue)
    where = f"of the queue {queue!r}" if queue else "of all queues"
    which = f" older than {older_than}" if older_than else ""
    session.console.confirm(f"Delete the dead jobs {where}{which} for good?", yes)
    print_counts(session, "deleted", purge_all(session, places, age))


def _lists(session: Session, queue: str | None) -> list[tuple[Queue, str, Fits]]:
    return [(place, State.FAILED.value, fits) for place, fits in dead_letter_queues(session, queue)]
