"""Many jobs at once: chosen by a look at each, moved in pieces, with a bar for those who wait."""

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

PIECE = 500
"""Jobs that are retried in one transaction."""

GLANCE = 0.1
"""Seconds between two looks at how far something is."""

Fits = Callable[[Job], bool]

Tell = Callable[[int], None]
"""Called with how many it was done to so far."""


def finished_jobs(word: str) -> tuple[str, Fits]:
    """The list of ended jobs that a user's word for a state means, and which of them."""
    lists, status = lists_of(word)
    name = lists[0]
    if name in OUTCOMES:
        return State.FAILED.value, lambda job: job.outcome == name
    if name in (State.COMPLETED, State.FAILED):
        return name, lambda job: status is None or status_of(job) == status
    ended = ", ".join((COMPLETED, DEAD, *OUTCOMES))
    raise InvalidInput(f"--state must be of jobs that have ended, one of {ended}; not {word!r}")


def dead_letter_queues(session: Session, queue: str | None) -> list[tuple[Queue, Fits]]:
    """Where the dead jobs of a queue, or of all, lie, and which of those that do are theirs."""
    if queue is None:
        return [(each, _is_dead) for each in session.queues(None)]
    own = session.queue(queue)
    places: list[tuple[Queue, Fits]] = [(own, _is_dead)]
    letters = session.wait(own.get_meta())["dead_letter"]
    if letters is not None and letters in session.queue_names():
        places.append((session.queue(letters), lambda job: _is_dead(job, own.name)))
    return places


def _is_dead(job: Job, came_from: str | None = None) -> bool:
    return status_of(job) == DEAD and came_from in (None, job.original_queue)


def retry_all(
    session: Session, places: list[tuple[Queue, str, Fits]], delay: int, keep_attempts: bool
) -> dict[str, int]:
    """Let all ended jobs of these lists run again that fit; how many of each queue."""
    until = session.now()  # in all of them: what was tried, and died in another, had its run
    left: list[str] = []

    async def retry(queue: Queue, name: str, fits: Fits, tell: Tell) -> int:
        wanted: dict[str, None] = {}

        def choose(job: Job) -> bool:
            if is_chosen := fits(job):
                wanted[job.id] = None
            return is_chosen

        retried = await queue.retry_jobs(
            PIECE,
            name,
            until,
            delay=delay,
            reset_attempts=not keep_attempts,
            fits=choose,
            on_piece=tell,
        )
        for job_id in wanted.keys() - set(retried):
            left.append(f"queuectl retry {quote(job_id)} --queue {quote(queue.name)}")
        return len(retried)

    retried = _in_all(session, "retried", places, retry)
    if left:
        jobs = pluralize(len(left), "job was", "jobs were")
        session.talk.note(f"{jobs} not retried: `{min(left)}` tells why")
    return retried


def purge_all(
    session: Session, places: list[tuple[Queue, str, Fits]], older_than: int
) -> dict[str, int]:
    """Delete all ended jobs of these lists for good that fit; how many of each queue."""

    async def purge(queue: Queue, name: str, fits: Fits, tell: Tell) -> int:
        return await queue.purge(older_than, name, fits=fits, on_piece=tell)

    return _in_all(session, "deleted", places, purge)


def _in_all(
    session: Session,
    label: str,
    places: list[tuple[Queue, str, Fits]],
    act: Callable[[Queue, str, Fits, Tell], Coroutine[Any, Any, int]],
) -> dict[str, int]:
    """Act on the jobs of all these lists that fit; on how many of each queue it was done."""
    bar = session.talk.progress(label, None)
    done: dict[str, int] = {}
    for queue, name, fits in places:
        before = sum(done.values())

        def tell(number: int, before: int = before) -> None:
            bar.at(before + number)

        if number := session.wait(act(queue, name, fits, tell)):
            done[queue.name] = done.get(queue.name, 0) + number
    bar.end()
    return done


def watched(
    session: Session, label: str, work: Coroutine[Any, Any, None], left: Callable[[], int]
) -> int:
    """Do what says nothing of how far it is, and look meanwhile; by how much less is left then."""
    before = left()
    bar = session.talk.progress(label, before)
    problems: list[BaseException] = []

    def carry_out() -> None:
        try:
            session.wait(work)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=carry_out, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(GLANCE)
        bar.at(max(0, before - left()))
    bar.end()
    if problems:
        raise problems[0]
    return max(0, before - left())
