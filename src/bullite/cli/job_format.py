"""The JSON form of a job, and its status: queuectl's own words for states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..client.queue.search import OUTCOMES
from ..commands.job_types import describe
from ..core.job_record import JobRecord
from ..core.states import (
    CANCELLED,
    EXPIRED,
    PRIORITIZED,
    SHOWN_STATES,
    State,
    plain_word,
    state_named,
)
from ..errors import InvalidOption
from .masking import masked_data, masked_text
from .times import iso

PENDING, PROCESSING, COMPLETED, FAILED, DEAD = (
    *("pending", "processing", "completed", "failed", "dead"),
)
STATUSES = (PENDING, PROCESSING, COMPLETED, FAILED, DEAD, CANCELLED, EXPIRED)
"""queuectl's own words for states: `status` in JSON. `state` is the library's."""


def status_of(job: JobRecord) -> str:
    """Return the status of a job: failed means waiting for a retry, dead no attempts left."""
    if job.state == State.COMPLETED:
        return COMPLETED
    if job.state == State.ACTIVE:
        return PROCESSING
    if job.state == State.FAILED:
        return job.outcome if job.outcome in (CANCELLED, EXPIRED) else DEAD
    return FAILED if job.state == State.DELAYED and job.attempts_made else PENDING


def statuses_worth_a_column(
    counts: Iterable[Mapping[str, int]], on_terminal: bool
) -> Sequence[str]:
    """Return the statuses to show: all for programs; without rare, empty ones on a terminal."""
    if not on_terminal:
        return STATUSES
    counted = [*counts]
    rare = (CANCELLED, EXPIRED)
    return [word for word in STATUSES if word not in rare or any(one[word] for one in counted)]


def lists_of(word: str) -> tuple[list[str], str | None]:
    """Return the states that a user's word means, and the status that the jobs must have."""
    plain = plain_word(word)
    if plain == PENDING:
        states = [State.WAITING, PRIORITIZED, State.DELAYED, State.WAITING_CHILDREN]
        return [str(state) for state in states], PENDING
    if plain == FAILED:
        return [State.DELAYED.value], FAILED
    if plain == DEAD:
        return [State.FAILED.value], DEAD
    if plain in OUTCOMES:
        return [plain], None
    state = state_named(plain)
    if state is not None:
        return [state.value], None
    if plain == PRIORITIZED:
        return [PRIORITIZED], None
    known = ", ".join(dict.fromkeys([*STATUSES, *SHOWN_STATES, *OUTCOMES]))
    raise InvalidOption(f"unknown state {word!r}; the states are: {known}")


def duration_of(job: JobRecord) -> int | None:
    """Return the ms of the last run; None if it has not ended."""
    if job.processed_at is None or job.finished_at is None:
        return None
    return round((job.finished_at - job.processed_at).total_seconds() * 1000)


def description_of(job: JobRecord) -> str:
    """Return what a job does, in one line, with secrets masked."""
    return masked_text(describe(job.name, job.data))


def as_json(job: JobRecord) -> dict[str, Any]:
    """Return the JSON form of a job, which stays the same between versions."""
    data = job.data if isinstance(job.data, dict) else {}
    return {
        "id": job.id,
        "queue": job.queue_name,
        "name": job.name,
        "state": job.state,
        "status": status_of(job),
        "outcome": job.outcome,
        "command": description_of(job),
        "data": masked_data(job.name, job.data),
        "priority": job.priority,
        "attempts_made": job.attempts_made,
        "attempts": job.attempts,
        "max_retries": job.attempts - 1,
        "timeout": data.get("timeout"),
        "tags": list(job.tags),
        "created_at": iso(job.created_at),
        "updated_at": iso(job.updated_at),
        "run_at": iso(job.process_at),
        "started_at": iso(job.processed_at),
        "finished_at": iso(job.finished_at),
        "duration_ms": duration_of(job),
        "failed_reason": job.failed_reason,
        "return_value": job.return_value,
        "progress": job.progress,
        "worker": job.locked_by,
        "original_queue": job.original_queue,
    }
