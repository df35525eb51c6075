"""The dispatcher of the queue document: jobs by queue and type, their numbers, old ones gone."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Protocol

from ..client.directory import queue_names
from ..client.job.job import Job
from ..client.queue.queue import Queue
from ..client.runtime.store import Store
from ..core.checks import check_duration, check_int
from ..core.job_options import BackoffRule, LowerFirst, check_priority
from ..errors import InvalidOption, InvalidOptionType
from ..worker.processors import is_async

DISPATCH_ATTEMPTS = 3
DISPATCH_BACKOFF: BackoffRule = {"type": "polynomial", "delay": 1_000}
"""What `dispatch` gives a job: three tries, the waits growing with the square of their number."""

FIGURES = ("pending", "processing", "completed", "failed")
"""What `stats` counts."""


class HandlesJobs(Protocol):
    """A class of workers, in the manner of the queue document."""

    queue_name: str

    def handle(self, payload: Any, job: Job) -> Any: ...


class Dispatcher:
    """Verbs over all queues of an application."""

    def queue(self, name: str) -> Queue:
        """The queue of that name."""
        raise NotImplementedError

    def stores(self) -> dict[str | None, Store]:
        """Where its queues are: those in files of their own by name, all others under None."""
        raise NotImplementedError

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
        """Add a job of a type to a queue; `delay` in seconds, lower priorities first.

        They are first in a queue of the order "high", too: there the job has the opposite number.
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
        """The same for many payloads: all, or none.

        More than 100,000 need `chunk`: then so many at a time, each chunk all or none.
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
        return await self.queue(queue).add_bulk(jobs, chunk=chunk)

    async def stats(self, queue: str | None = None) -> dict[str, int]:
        """How many jobs are pending (delayed ones included), processing, completed and failed, in
        a queue or in all there are. A queue that is not there is not made."""
        total = dict.fromkeys(FIGURES, 0)
        for name in await self.queue_names():
            if queue in (None, name):
                counts = await self.queue(name).get_job_counts()
                total["processing"] += counts.pop("active")
                total["completed"] += counts.pop("completed")
                total["failed"] += counts.pop("failed")
                total["pending"] += sum(counts.values())
        return total

    async def cleanup(self, older_than_days: float = 7) -> int:
        """Delete completed and failed jobs of all queues that ended so long ago, for good; how
        many."""
        number = older_than_days
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidOptionType(f"older_than_days must be a number, not {number!r}")
        if not 0 <= number <= MAX_DAYS:
            raise InvalidOption(
                f"older_than_days must be between 0 and {MAX_DAYS} days, not {number!r}"
            )
        deleted = 0
        for name in await self.queue_names():
            for state in ("completed", "failed"):
                deleted += await self.queue(name).purge(round(number * 86_400_000), state)
        return deleted

    async def queue_names(self) -> list[str]:
        """Return the names of all queues, also of those that this application did not create."""
        stores = self.stores()
        names: set[str] = set()
        for own, store in stores.items():
            found = set(await queue_names(store))
            names |= found - stores.keys() if own is None else found & {own}
        return sorted(names)


MAX_DAYS = 3_660


def _options(priority: int, delay: float | timedelta | str, max_attempts: int) -> dict[str, Any]:
    """The options of the jobs that are dispatched."""
    rank = check_priority(priority)
    return {
        "priority": LowerFirst(rank) if isinstance(rank, int) else rank,
        "delay": seconds_to_ms("delay", delay),
        "attempts": check_int("max_attempts", max_attempts, 1, 2**31 - 1),
        "backoff": DISPATCH_BACKOFF,
    }


def as_processor(handle: Callable[[Any, Job], Any]) -> Callable[[Job], Any]:
    """The `handle` of a worker class as a processor."""
    if is_async(handle):

        async def run(job: Job) -> Any:
            return await handle(job.data, job)

        return run

    def run_in_thread(job: Job) -> Any:
        return handle(job.data, job)

    return run_in_thread


def instantiate(kind: type[HandlesJobs]) -> HandlesJobs:
    """An object of a worker class."""
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise InvalidOptionType(
            f"{kind.__name__} cannot be made without arguments ({error}): register an object of it"
        ) from None
    return kind()


def takes_payload_and_job(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    return True


def seconds_to_ms(option: str, value: Any) -> int:
    """So many seconds, a timedelta or text, in ms."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return check_duration(option, value)
    if not math.isfinite(value) or not 0 <= value <= MAX_DAYS * 86_400:
        raise InvalidOption(
            f"{option} must be between 0 and {MAX_DAYS * 86_400:,} seconds, not {value!r}"
        )
    return check_duration(option, round(value * 1000))
