"""After a job has failed permanently: its dead-letter queue, automatic retry, on-failure jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..core.codec import as_json, decode
from ..core.decide_outcome import RunOutcome
from ..core.event_log import DEAD_LETTERED
from ..core.job_flags import ON_FAILURE, ON_FAILURE_JOB
from ..core.states import RETRY_FINISHED
from .add import NewJob, RareFields, add_within
from .move import MoveJobs, move_jobs
from .queues import Settings, find_or_make, may_keep_house, read_settings, retries_of_dead_letters
from .request import ALONE, Request
from .transaction import Event, Operation, Transaction
from .transitions import move_to_queue

MAX_RETRIED = 500
"""Failed jobs that one transaction retries; the rest follow in the next."""


def move_to_dead_letter(
    tx: Transaction, queue: int, settings: Settings, outcomes: Sequence[RunOutcome]
) -> Operation[set[int]]:
    """Move these failed jobs to the dead-letter queue of their queue, if it has one.

    The jobs stay failed and keep id and history. A job stays in its queue if its custom id is
    taken in the dead-letter queue. Return the jobs that moved.
    """
    if settings.dead_letter is None or settings.dead_letter == settings.name or not outcomes:
        return set()
    target = yield from find_or_make(tx, settings.dead_letter)
    wanted = [outcome.custom_id for outcome in outcomes if outcome.custom_id]
    params = {"queue": target, "custom_ids": as_json(wanted)}
    found = (yield "taken_custom_ids", params).rows if wanted else ()
    taken = {custom_id for custom_id, _ in found}
    moving = [outcome for outcome in outcomes if outcome.custom_id not in taken]
    if not moving:
        return set()
    jobs = [outcome.job for outcome in moving]
    yield from move_to_queue(queue, target, jobs, original_queue=queue)
    tx.count(queue, "failed", -len(jobs))
    tx.count(target, "failed", len(jobs))
    route = [settings.name, settings.dead_letter]
    events: list[Event] = [(outcome.public_id, route) for outcome in moving]
    tx.log(queue, DEAD_LETTERED, events)
    tx.log(target, DEAD_LETTERED, list(events))
    there = yield from read_settings(target)
    yield from schedule_auto_retry(target, retries_of_dead_letters(settings, there), jobs)
    return set(jobs)


def add_failure_jobs(
    tx: Transaction, settings: Settings, outcomes: Sequence[RunOutcome]
) -> Operation[None]:
    """Add the on-failure jobs that the queue and the options of the failed jobs name."""
    # A failed on-failure job adds none: two queues that name each other would never stop.
    outcomes = [outcome for outcome in outcomes if not outcome.flags & ON_FAILURE_JOB]
    wanted: list[tuple[RunOutcome, Any]] = []
    if settings.on_failure is not None:
        wanted += [(outcome, decode(settings.on_failure)) for outcome in outcomes]
    with_on_failure = [outcome for outcome in outcomes if outcome.flags & ON_FAILURE]
    if with_on_failure:
        found = yield "job_options", {"jobs": as_json([outcome.job for outcome in with_on_failure])}
        options = {job: decode(opts) for job, opts in found.rows if opts is not None}
        wanted += [(v, options[v.job]["on_failure"]) for v in with_on_failure if v.job in options]
    notices: dict[str, list[NewJob]] = defaultdict(list)
    for outcome, notice in wanted:
        notices[notice["queue"]].append(_failure_job(tx, settings.name, outcome, notice))
    # Every process adds in the same order of queues: adding may lock rows of each.
    for name, jobs in sorted(notices.items()):
        yield from add_within(tx, (yield from find_or_make(tx, name)), jobs)


def _failure_job(tx: Transaction, queue: str, outcome: RunOutcome, notice: Any) -> NewJob:
    about = {
        "job_id": str(outcome.public_id),
        "queue": queue,
        "failed_reason": outcome.reason,
        "attempts_made": outcome.attempts_made,
        "outcome": outcome.outcome,
        "failed_at": tx.now,
    }
    options = {"backoff": notice["backoff"]} if notice.get("backoff") else {}
    return NewJob(
        name=notice["name"],
        custom_id=None,
        rank=0,
        priority=0,
        lifo=0,
        delay=0,
        attempts=notice.get("attempts", 1),
        data=as_json({**notice.get("data", {}), "failed": about}),
        opts=as_json(options) if options else None,
        rare_fields=RareFields(flags=ON_FAILURE_JOB),
    )


class RetryFailedDue(Request):
    """Retry the failed jobs of a queue whose automatic retry is due. Reply with their number."""

    queue: int
    apart = ALONE


def retry_failed_due(tx: Transaction, requests: Sequence[RetryFailedDue]) -> Operation[list[int]]:
    replies: list[int] = []
    for request in requests:
        if not (yield from may_keep_house(request.queue, "revive")):
            replies.append(0)
            continue
        found = yield "auto_retry_due", {"queue": request.queue, "now": tx.now, "most": MAX_RETRIED}
        jobs = [job for [job] in found.rows]
        if jobs:
            [moved] = yield from move_jobs(
                tx, [MoveJobs(RETRY_FINISHED, jobs, forget_attempts=True)]
            )
            yield "count_auto_retries", {"jobs": as_json(moved)}
            left = sorted(set(jobs).difference(moved))
            if left:  # their custom ids are taken in the queues they failed in: they stay
                params = {"queue": request.queue, "jobs": as_json(left)}
                yield "schedule_auto_retry", {**params, "after": None, "times": 0}
        replies.append(len(jobs))
    return replies


def schedule_auto_retry(queue: int, settings: Settings, jobs: Sequence[int]) -> Operation[None]:
    """Set when these failed jobs of a queue are retried, if `settings` retry failed jobs."""
    if settings.retry_failed_after is not None and jobs:
        yield (
            "schedule_auto_retry",
            {
                "queue": queue,
                "jobs": as_json(jobs),
                "after": settings.retry_failed_after,
                "times": settings.retry_failed_times,
            },
        )
