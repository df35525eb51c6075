"""Limits of a queue: global concurrency and rate limits, of the queue or of a key."""

from __future__ import annotations

from typing import Any

from ...core.checks import MAX_COUNT, Duration, check_duration, check_int, check_rate
from ...core.codec import encode_plain
from ...core.job_options import RateLimit, check_limit_key
from ...operations.rate_limits import BlockQueue, QueueLimits, Rate, SetConcurrency, SetRate
from ...operations.rate_limits_by_key import EVERY_KEY, RateWindow, SetKeyLimit, window_of
from ..runtime import bridge
from .reads import QueueReads


class LimitMethods(QueueReads):
    """The half of a queue that limits its workers, in whatever process they are."""

    # --- how many run ---

    async def set_global_concurrency(self, concurrency: int) -> None:
        """Let at most so many jobs run at a time, over all workers; what runs, runs on."""
        number = check_int("concurrency", concurrency, 1, MAX_COUNT)
        await self._ensure_open()
        await bridge.submit(self.store, SetConcurrency(self.key, number))

    async def get_global_concurrency(self) -> int | None:
        """How many jobs may run at a time over all workers; None if nothing limits that."""
        return (await self._limits()).concurrency

    async def remove_global_concurrency(self) -> bool:
        """Let workers run as many jobs as they want; False if nothing limited them."""
        await self._ensure_open()
        return await bridge.submit(self.store, SetConcurrency(self.key, None)) is not None

    async def is_maxed(self) -> bool:
        """Whether as many jobs run as the global concurrency allows."""
        limit = (await self._limits()).concurrency
        if limit is None:
            return False
        rows = await bridge.query(self.store, "count_active", {"queue": self.key})
        return bool(rows[0][0] >= limit)

    # --- how many begin ---

    async def set_global_rate_limit(self, max: int, duration: Duration) -> None:
        """Let at most `max` jobs begin in `duration`, over all workers.

        It beats the `max` of a worker's own limiter, whose `duration` beats this one.
        """
        limiter = _limiter({"max": max, "duration": duration})
        await self._ensure_open()
        await bridge.submit(self.store, SetRate(self.key, limiter))

    async def get_global_rate_limit(self) -> RateLimit | None:
        """{"max", "duration"}, in ms; None if there is none."""
        limits = await self._limits()
        return _shown(limits.max, limits.duration)

    async def remove_global_rate_limit(self) -> bool:
        """Let jobs begin as workers want; False if there was no limit."""
        await self._ensure_open()
        return await bridge.submit(self.store, SetRate(self.key, None)) is not None

    async def rate_limit(self, duration: Duration) -> None:
        """Let nothing begin for `duration`, in any process. In a processor, raise RateLimitError
        next: its job goes back to its place."""
        ms = check_duration("duration", duration, least=1)
        await self._ensure_open()
        await bridge.submit(self.store, BlockQueue(self.key, ms))

    async def get_rate_limit_ttl(
        self, max_jobs: int | None = None, *, key: str | None = None
    ) -> int:
        """Ms until jobs may begin again, or jobs of a key; 0 if some may now.

        `max_jobs` is the limit to judge by, such as that of a worker; else it is the queue's, or
        the key's. Without any, the time that the running window has left.
        """
        if max_jobs is not None:
            check_int("max_jobs", max_jobs, 1, MAX_COUNT)
        if key is not None:
            return (await self._window(check_limit_key(key))).ttl(self._now(), max_jobs)
        return (await self._limits()).blocked_for_ms(self._now(), max_jobs)

    async def remove_rate_limit_key(self) -> bool:
        """End the running window, also one set by `rate_limit`; False if none ran."""
        await self._ensure_open()
        ran: bool = await bridge.submit(self.store, BlockQueue(self.key, None))
        return ran

    # --- how many of a key begin ---

    async def set_rate_limit(self, key: str | None, max: int, duration: Duration) -> None:
        """Let at most `max` jobs that were added with this `limit_key` begin in `duration`.

        None stands for every key that has no limit of its own. Jobs of other keys, and those
        without one, are not held up.
        """
        limiter = _limiter({"max": max, "duration": duration})
        await self._ensure_open()
        await bridge.submit(self.store, SetKeyLimit(self.key, _stored(key), limiter))

    async def get_rate_limit(self, key: str | None) -> RateLimit | None:
        """What was set for this key, or with None for every key: {"max", "duration"}, or None."""
        params: dict[str, Any] = {"key": _stored(key)}
        await self._ensure_open()
        rows = await bridge.query(self.store, "key_limit", {**params, "queue": self.key})
        return _shown(*rows[0]) if rows else None

    async def remove_rate_limit(self, key: str | None) -> bool:
        """Remove the limit of a key, or with None that of every key; False if there was none."""
        stored = _stored(key)
        await self._ensure_open()
        return await bridge.submit(self.store, SetKeyLimit(self.key, stored, None)) is not None

    # --- underneath ---

    async def get_meta(self) -> dict[str, Any]:
        """What is stored about the queue beside its jobs; ages in ms, None is no limit."""
        meta = await super().get_meta()
        meta["max"], meta["duration"] = meta.pop("rate_max"), meta.pop("rate_duration")
        meta["max_rate"] = _shown(meta.pop("max_rate_count"), meta.pop("max_rate_duration"))
        return meta

    async def _limits(self) -> QueueLimits:
        await self._ensure_open()
        rows = await bridge.query(self.store, "limits", {"queue": self.key})
        return QueueLimits(*rows[0])

    async def _window(self, key: str) -> RateWindow:
        await self._ensure_open()
        params = {"queue": self.key, "keys": encode_plain([key]).decode()}
        return window_of(key, await bridge.query(self.store, "key_windows", params))

    def _now(self) -> int:
        return self.store.open().clock.now()


def _limiter(value: RateLimit) -> Rate:
    return Rate(*check_rate("limit", value))


def _stored(key: str | None) -> str:
    return EVERY_KEY if key is None else check_limit_key(key)


def _shown(max: int | None, duration: int | None) -> RateLimit | None:
    return None if max is None else {"max": max, "duration": duration or 0}
