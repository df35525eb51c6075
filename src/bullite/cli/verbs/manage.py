"""`cancel`, `retry`, `promote`, `remove`, `restore`; `pause`, `resume`, `cleanup`, `drain`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ...client.directory import queues_that_removed
from ...client.queue.queue import Queue
from ...core.states import PRIORITIZED, State
from ...errors import IllegalMove
from .. import times
from ..bulk import finished_jobs, purge_all, retry_all, run_with_progress
from ..console import (
    CommandError,
    InvalidInput,
    job_argument,
    pluralize,
    queue_argument,
    queue_option,
    state_option,
    verb,
    yes_option,
)
from ..job_format import COMPLETED, DEAD, FAILED, status_of
from ..session import Session, check_only_one

F = TypeVar("F", bound=Callable[..., Any])

Acted = dict[str, Any]


def delay_option(function: F) -> F:
    return click.option("--delay", metavar="5m", help="Not before that has passed.")(function)


def keep_attempts_option(function: F) -> F:
    text = "Count the attempts made so far, too: it gets one more run."
    return click.option("--keep-attempts", is_flag=True, help=text)(function)


def act_on_each(session: Session, job_ids: tuple[str, ...], act: Callable[[str], Acted]) -> None:
    """Call `act` for each job and print what was done; in JSON as one array."""
    done: list[Acted] = []

    def one(job_id: str) -> None:
        acted = act(job_id)
        done.append(acted)
        if not session.console.as_json:
            session.console.done(f"{acted['id']}: {acted['done']}", acted)

    try:
        session.for_each(job_ids, one)
    finally:
        if session.console.as_json:
            session.console.data(done)


def acted(job_id: str, queue: Queue, done: str) -> Acted:
    return {"id": job_id, "queue": queue.name, "done": done}


def print_counts(session: Session, done: str, by_queue: dict[str, int]) -> None:
    """Print how many jobs of each queue something was done to."""
    total = sum(by_queue.values())
    details = ", ".join(f"{name} {number}" for name, number in by_queue.items())
    text = f"{done} {pluralize(total, 'job', 'jobs')}" + (
        f" ({details})" if len(by_queue) > 1 else ""
    )
    session.console.done(text, {"done": done, "jobs": total, "queues": by_queue})


# --- jobs ----------------------------------------------------------------------------------------


def _status(session: Session, home: Queue, job_id: str) -> str:
    """Read the status of a job."""
    _, job = session.job(job_id, home.name)
    return status_of(job)


@click.command()
@job_argument(many=True)
@click.option("--reason", metavar="TEXT", help="Why; kept as the reason of its failure.")
@queue_option(help="The queue they are in, where an id alone is not enough.")
@verb
def cancel(
    session: Session, job_ids: tuple[str, ...], reason: str | None, queue: str | None
) -> None:
    """Cancel jobs; they are not retried.

    A waiting job fails immediately. A running command gets SIGTERM, then SIGKILL.
    """

    def end(job_id: str) -> Acted:
        home, job = session.job(job_id, queue)
        try:
            ended = session.wait(home.cancel(job.id, reason))
        except IllegalMove:
            raise CommandError(
                f"job {job_id} is {_status(session, home, job_id)} already"
            ) from None
        return acted(job.id, home, "cancelled" if ended else "told to end")

    act_on_each(session, job_ids, end)


@click.command()
@job_argument(many=True, required=False)
@click.option("--all", "every", is_flag=True, help="All that have ended in this state.")
@state_option(help="With --all: dead unless given.")
@queue_option(help="The queue they are in; with --all, all queues unless given.")
@delay_option
@keep_attempts_option
@verb
def retry(
    session: Session,
    job_ids: tuple[str, ...],
    every: bool,
    state: str | None,
    queue: str | None,
    delay: str | None,
    keep_attempts: bool,
) -> None:
    """Let dead, cancelled or completed jobs run again, with all their attempts.

    A job of a dead-letter queue goes back to where it came from.
    """
    wait = check_which(job_ids, every, delay)
    if not every and state is not None:
        raise InvalidInput("--state goes with --all")
    if not every:
        retry_each(session, job_ids, queue, wait, keep_attempts)
        return
    name, fits = finished_jobs(state or DEAD)
    lists = [(each, name, fits) for each in session.queues(queue)]
    print_counts(session, "retried", retry_all(session, lists, wait, keep_attempts))


def check_which(job_ids: tuple[str, ...], every: bool, delay: str | None) -> int:
    """That jobs were named, or all of them meant; the delay in ms."""
    if bool(job_ids) == every:
        raise InvalidInput("name jobs by their ids, or say --all" + ("; not both" if every else ""))
    return 0 if delay is None else times.duration("--delay", delay)


def retry_each(
    session: Session,
    job_ids: tuple[str, ...],
    queue: str | None,
    delay: int,
    keep_attempts: bool,
    only: str | None = None,
) -> None:
    """Let jobs run again; with `only`, those of this status."""

    def revive(job_id: str) -> Acted:
        home, job = session.job(job_id, queue)
        status = status_of(job)
        if status == FAILED:
            raise CommandError(
                f"job {job_id} waits for its retry already; `queuectl promote {job_id}` runs it now"
            )
        if only is not None and status != only:
            raise CommandError(f"job {job_id} is not {only} but {status}")
        again = home.retry_job(job.id, delay=delay, reset_attempts=not keep_attempts)
        try:
            back = session.wait(again)
        except IllegalMove:
            raise CommandError(
                f"job {job_id} is {_status(session, home, job_id)}: "
                "only completed, dead or cancelled jobs can be retried"
            ) from None
        return {**acted(job.id, home, "retried"), "queue": back.queue_name}

    act_on_each(session, job_ids, revive)


@click.command()
@job_argument(many=True)
@queue_option(help="The queue they are in, where an id alone is not enough.")
@verb
def promote(session: Session, job_ids: tuple[str, ...], queue: str | None) -> None:
    """Let jobs that wait for their time, or for a retry, run now."""

    def now(job_id: str) -> Acted:
        home, job = session.job(job_id, queue)
        try:
            job.promote().result()
        except IllegalMove:
            raise CommandError(
                f"job {job_id} is {_status(session, home, job_id)}: "
                "only jobs that wait for their time or for a retry can be promoted"
            ) from None
        return acted(job.id, home, "promoted")

    act_on_each(session, job_ids, now)


@click.command()
@job_argument(many=True)
@queue_option(help="The queue they are in, where an id alone is not enough.")
@yes_option
@verb
def remove(session: Session, job_ids: tuple[str, ...], queue: str | None, yes: bool) -> None:
    """Remove jobs, and their children; `queuectl restore` brings them back for 24 hours.

    Running jobs are not removed.
    """
    session.store()
    session.console.confirm(f"Remove {_jobs_text(job_ids)}?", yes)

    def remove_one(job_id: str) -> Acted:
        home, job = session.job(job_id, queue)
        job.remove().result()
        return acted(job.id, home, "removed")

    act_on_each(session, job_ids, remove_one)


def _jobs_text(job_ids: tuple[str, ...]) -> str:
    return f"job {job_ids[0]}" if len(job_ids) == 1 else f"{len(job_ids)} jobs"


@click.command()
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
@queue_option(help="The queue they were in, where an id alone is not enough.")
@verb
def restore(session: Session, job_ids: tuple[str, ...], queue: str | None) -> None:
    """Restore removed jobs to the state they had."""

    def restore_one(job_id: str) -> Acted:
        home = _queue_that_removed(session, job_id, queue)
        job = session.wait(home.restore(job_id))
        return acted(job.id, home, "restored")

    act_on_each(session, job_ids, restore_one)


def _queue_that_removed(session: Session, job_id: str, queue: str | None) -> Queue:
    """Return the queue that a job was removed from."""
    names = [queue] if queue else session.wait(queues_that_removed(session.store(), job_id))
    if not names:
        raise CommandError(f"no job {job_id} was removed of late")
    check_only_one(f"jobs {job_id} were removed from", names)
    return session.queue(names[0])


# --- a whole queue -------------------------------------------------------------------------------


@click.command()
@queue_argument
@verb
def pause(session: Session, queue: str | None) -> None:
    """Let QUEUE hand out no jobs until it is resumed; what runs, runs on."""
    home = session.queue(queue)
    session.wait(home.pause())
    session.console.done(f"paused {home.name}", {"queue": home.name, "paused": True})


@click.command()
@queue_argument
@verb
def resume(session: Session, queue: str | None) -> None:
    """Let QUEUE hand out jobs again."""
    home = session.queue(queue)
    session.wait(home.resume())
    session.console.done(f"resumed {home.name}", {"queue": home.name, "paused": False})


@click.command()
@click.option("--older-than", metavar="7d", required=True, help="Ended longer ago than that.")
@state_option(default=COMPLETED, help="completed unless given.")
@queue_option(help="All queues unless given.")
@yes_option
@verb
def cleanup(session: Session, older_than: str, state: str, queue: str | None, yes: bool) -> None:
    """Delete old jobs that have ended, for good: completed, dead, cancelled, expired.

    What other jobs still wait for stays.
    """
    age = times.duration("--older-than", older_than)
    name, fits = finished_jobs(state)
    lists = [(each, name, fits) for each in session.queues(queue)]
    where = f"of the queue {queue!r}" if queue else "of all queues"
    session.console.confirm(f"Delete {state} jobs {where} older than {older_than} for good?", yes)
    print_counts(session, "deleted", purge_all(session, lists, age))


@click.command()
@queue_argument
@click.option("--delayed", is_flag=True, help="Also those that wait for their time.")
@yes_option
@verb
def drain(session: Session, queue: str | None, delayed: bool, yes: bool) -> None:
    """Remove the jobs of QUEUE that wait; `queuectl restore` brings them back for 24 hours."""
    home = session.queue(queue)
    lists = [State.WAITING.value, PRIORITIZED, *([State.DELAYED.value] if delayed else [])]

    def left() -> int:
        return session.wait(home.get_job_count_by_types(*lists))

    if waiting := left():
        jobs = pluralize(waiting, "job that waits", "jobs that wait")
        session.console.confirm(f"Remove the {jobs} in {home.name!r}?", yes)
    gone = run_with_progress(session, "removed", home.drain(delayed), left)
    print_counts(session, "removed", {home.name: gone})
