"""Bulk retry and deletion: jobs are chosen one by one, moved in batches, with a progress bar."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from shlex import quote
from typing import Any

from ..client.job.job import Job
from ..client.queue.queue import Queue
from ..client.queue.search import OUTCOMES
from ..core.states import State
from .console import InvalidInput, pluralize
from .job_format import COMPLETED, DEAD, lists_of, status_of
from .session import Session

BATCH = 500
"""Jobs that are retried in one transaction."""

POLL_EVERY = 0.1
"""Seconds between two updates of the progress bar."""

Fits = Callable[[Job], bool]

OnProgress = Callable[[int], None]
"""Called with the number of jobs done so far."""


def finished_jobs(word: str) -> tuple[str, Fits]:
    """Return the state that a word for finished jobs means, and which jobs of it."""
    lists, status = lists_of(word)
    name = lists[0]
    if name in OUTCOMES:
        return State.FAILED.value, lambda job: job.outcome == name
    if name in (State.COMPLETED, State.FAILED):
        return name, lambda job: status is None or status_of(job) == status
    ended = ", ".join((COMPLETED, DEAD, *OUTCOMES))
    raise InvalidInput(f"--state must be of jobs that have ended, one of {ended}; not {word!r}")


def dead_letter_queues(session: Session, queue: str | None) -> list[tuple[Queue, Fits]]:
    """Return the queues that hold the dead jobs of a queue, or of all, and which jobs those are."""
    if queue is None:
        return [(each, _is_dead) for each in session.queues(None)]
    own = session.queue(queue)
    found: list[tuple[Queue, Fits]] = [(own, _is_dead)]
    dead_letter = session.wait(own.get_meta())["dead_letter"]
    if dead_letter is not None and dead_letter in session.queue_names():
        found.append((session.queue(dead_letter), lambda job: _is_dead(job, own.name)))
    return found


def _is_dead(job: Job, came_from: str | None = None) -> bool:
    return status_of(job) == DEAD and came_from in (None, job.original_queue)


def retry_all(
    session: Session, lists: list[tuple[Queue, str, Fits]], delay: int, keep_attempts: bool
) -> dict[str, int]:
    """Retry all fitting jobs of these lists. Return the number by queue."""
    until = session.now()  # for all lists: a job that is retried and dies again is not chosen twice
    left: list[str] = []

    async def retry(queue: Queue, name: str, fits: Fits, on_progress: OnProgress) -> int:
        wanted: dict[str, None] = {}

        def choose(job: Job) -> bool:
            if is_chosen := fits(job):
                wanted[job.id] = None
            return is_chosen

        retried = await queue.retry_jobs(
            BATCH,
            name,
            until,
            delay=delay,
            reset_attempts=not keep_attempts,
            fits=choose,
            on_piece=on_progress,
        )
        for job_id in wanted.keys() - set(retried):
            left.append(f"queuectl retry {quote(job_id)} --queue {quote(queue.name)}")
        return len(retried)

    retried = _in_all(session, "retried", lists, retry)
    if left:
        jobs = pluralize(len(left), "job was", "jobs were")
        session.console.note(f"{jobs} not retried: `{min(left)}` tells why")
    return retried


def purge_all(
    session: Session, lists: list[tuple[Queue, str, Fits]], older_than: int
) -> dict[str, int]:
    """Delete all fitting jobs of these lists permanently. Return the number by queue."""

    async def purge(queue: Queue, name: str, fits: Fits, on_progress: OnProgress) -> int:
        return await queue.purge(older_than, name, fits=fits, on_piece=on_progress)

    return _in_all(session, "deleted", lists, purge)


def _in_all(
    session: Session,
    label: str,
    lists: list[tuple[Queue, str, Fits]],
    act: Callable[[Queue, str, Fits, OnProgress], Coroutine[Any, Any, int]],
) -> dict[str, int]:
    """Act on all lists with a progress bar. Return the number of jobs by queue."""
    bar = session.console.progress(label, None)
    done: dict[str, int] = {}
    for queue, name, fits in lists:
        before = sum(done.values())

        def on_progress(number: int, before: int = before) -> None:
            bar.at(before + number)

        if number := session.wait(act(queue, name, fits, on_progress)):
            done[queue.name] = done.get(queue.name, 0) + number
    bar.end()
    return done


def run_with_progress(
    session: Session, label: str, work: Coroutine[Any, Any, None], left: Callable[[], int]
) -> int:
    """Run `work` with a progress bar from `left()`. Return by how much `left()` has shrunk."""
    before = left()
    bar = session.console.progress(label, before)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            session.wait(work)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(POLL_EVERY)
        bar.at(max(0, before - left()))
    bar.end()
    if errors:
        raise errors[0]
    return max(0, before - left())
