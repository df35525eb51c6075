"""Jobs that are added because others failed for good: how somebody hears of dead letters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..core.codec import as_json, decode
from ..core.decide_outcome import RunOutcome
from ..core.job_flags import NOTICE, TELLING
from .add import NewJob, RareFields, add_within
from .open_queue import find_or_make
from .queue_settings import Settings
from .transaction import Operation, Transaction


def add_failure_jobs(
    tx: Transaction, settings: Settings, verdicts: Sequence[RunOutcome]
) -> Operation[None]:
    """Add what the queue, and what the jobs themselves, want to be added when they fail."""
    # Two queues that tell each other of their failures would never come to an end.
    verdicts = [verdict for verdict in verdicts if not verdict.flags & NOTICE]
    wanted: list[tuple[RunOutcome, Any]] = []
    if settings.on_failure is not None:
        wanted += [(verdict, decode(settings.on_failure)) for verdict in verdicts]
    telling = [verdict for verdict in verdicts if verdict.flags & TELLING]
    if telling:
        found = yield "job_options", {"jobs": as_json([verdict.job for verdict in telling])}
        options = {row[0]: decode(row[1]) for row in found.rows if row[1] is not None}
        wanted += [(v, options[v.job]["on_failure"]) for v in telling if v.job in options]
    notices: dict[str, list[NewJob]] = defaultdict(list)
    for verdict, notice in wanted:
        notices[notice["queue"]].append(_notice(tx, settings.name, verdict, notice))
    # In one order in every process: there may be locks behind the queues.
    for name, jobs in sorted(notices.items()):
        yield from add_within(tx, (yield from find_or_make(tx, name)), jobs)


def _notice(tx: Transaction, queue: str, verdict: RunOutcome, notice: Any) -> NewJob:
    about = {
        "job_id": str(verdict.public_id),
        "queue": queue,
        "failed_reason": verdict.reason,
        "attempts_made": verdict.attempts_made,
        "outcome": verdict.outcome,
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
        rare_fields=RareFields(flags=NOTICE),
    )
