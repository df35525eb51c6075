"""Verbs over all queues of an application: dispatch jobs by type, count them, delete old ones."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Protocol

from ..client.job.job import Job
from ..core.checks import check_duration, check_int
from ..core.job_options import BackoffRule, LowerFirst, check_priority
from ..errors import InvalidOption, InvalidOptionType
from ..worker.processors import is_async
from .queues import Queues

DISPATCH_ATTEMPTS = 3
DISPATCH_BACKOFF: BackoffRule = {"type": "polynomial", "delay": 1_000}
"""Jobs of `dispatch`: three attempts; the delay grows with the square of the attempts made."""

FIGURES = ("pending", "processing", "completed", "failed")
"""The counts of `stats`."""


class HandlesJobs(Protocol):
    """A worker class: it handles all jobs of one queue."""

    queue_name: str

    def handle(self, payload: Any, job: Job) -> Any: ...


class Dispatcher:
    """Adds jobs to any queue of an application, and counts and deletes the jobs of all."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    async def dispatch(
        self,
        queue: str,
        type: str,
        payload: Any = None,
        *,
        priority: int = 0,
        delay: float | timedelta | str = 0,
        max_attempts: int = DISPATCH_ATTEMPTS,
    ) -> Job:
        """Add a job of a type to a queue and return it. `delay` is in seconds.

        Lower priorities run first, also in a queue of the priority order "high": a job there gets
        the opposite number. A failed attempt is retried after 1, 4, 9 … seconds.
        """
        options = _options(priority, delay, max_attempts)
        [job] = await self._dispatch(queue, type, [payload], options)
        return job

    async def dispatch_many(
        self,
        queue: str,
        type: str,
        payloads: Iterable[Any],
        *,
        priority: int = 0,
        delay: float | timedelta | str = 0,
        max_attempts: int = DISPATCH_ATTEMPTS,
        chunk: int | None = None,
    ) -> list[Job]:
        """Add a job for each payload, all or none, with the options of `dispatch`.

        More than 100,000 need `chunk`, the number of jobs that are added at a time; then each
        chunk is added as a whole or not at all.
        """
        if isinstance(payloads, str | bytes | Mapping) or not isinstance(payloads, Iterable):
            raise InvalidOptionType(f"payloads must be a list of payloads, not {payloads!r}")
        options = _options(priority, delay, max_attempts)
        return await self._dispatch(queue, type, payloads, options, chunk)

    async def _dispatch(
        self,
        queue: str,
        type: str,
        payloads: Iterable[Any],
        options: Mapping[str, Any],
        chunk: int | None = None,
    ) -> list[Job]:
        jobs: Any = [{"name": type, "data": payload, "opts": options} for payload in payloads]
        return await self._queues.get(queue).add_bulk(jobs, chunk=chunk)

    async def stats(self, queue: str | None = None) -> dict[str, int]:
        """Return the number of pending, processing, completed and failed jobs.

        They are those of one queue, or of all. Delayed jobs are pending. A queue that does not
        exist is not created.
        """
        total = dict.fromkeys(FIGURES, 0)
        for name in await self._queues.names():
            if queue in (None, name):
                counts = await self._queues.get(name).get_job_counts()
                total["processing"] += counts.pop("active")
                total["completed"] += counts.pop("completed")
                total["failed"] += counts.pop("failed")
                total["pending"] += sum(counts.values())
        return total

    async def cleanup(self, older_than_days: float = 7) -> int:
        """Delete the jobs of all queues that completed or failed at least that many days ago.

        They cannot be restored. Return how many were deleted.
        """
        number = older_than_days
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidOptionType(f"older_than_days must be a number, not {number!r}")
        if not 0 <= number <= MAX_DAYS:
            raise InvalidOption(
                f"older_than_days must be between 0 and {MAX_DAYS} days, not {number!r}"
            )
        deleted = 0
        for name in await self._queues.names():
            for state in ("completed", "failed"):
                deleted += await self._queues.get(name).purge(round(number * 86_400_000), state)
        return deleted


MAX_DAYS = 3_660


def _options(priority: int, delay: float | timedelta | str, max_attempts: int) -> dict[str, Any]:
    """Return the job options of a dispatch."""
    rank = check_priority(priority)
    return {
        "priority": LowerFirst(rank) if isinstance(rank, int) else rank,
        "delay": seconds_to_ms("delay", delay),
        "attempts": check_int("max_attempts", max_attempts, 1, 2**31 - 1),
        "backoff": DISPATCH_BACKOFF,
    }


def as_processor(handle: Callable[[Any, Job], Any]) -> Callable[[Job], Any]:
    """Return a processor that calls the `handle` of a worker class."""
    if is_async(handle):

        async def run(job: Job) -> Any:
            return await handle(job.data, job)

        return run

    def run_in_thread(job: Job) -> Any:
        return handle(job.data, job)

    return run_in_thread


def instantiate(kind: type[HandlesJobs]) -> HandlesJobs:
    """Return an object of a worker class. Raise InvalidOptionType if that needs arguments."""
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise InvalidOptionType(
            f"{kind.__name__} cannot be made without arguments ({error}): register an object of it"
        ) from None
    return kind()


def takes_payload_and_job(function: Callable[..., Any]) -> bool:
    """Return whether a function can be called with two positional arguments."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    return True


def seconds_to_ms(option: str, value: Any) -> int:
    """Return ms for a number of seconds, a timedelta or a text such as "5m"."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return check_duration(option, value)
    if not math.isfinite(value) or not 0 <= value <= MAX_DAYS * 86_400:
        raise InvalidOption(
            f"{option} must be between 0 and {MAX_DAYS * 86_400:,} seconds, not {value!r}"
        )
    return check_duration(option, round(value * 1000))
