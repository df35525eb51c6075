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
    """A queue whose workers, in all processes, share limits."""

    # --- concurrency ---

    async def set_global_concurrency(self, concurrency: int) -> None:
        """Limit the active jobs of the queue over all workers; running jobs are not stopped."""
        number = check_int("concurrency", concurrency, 1, MAX_COUNT)
        await self._ensure_open()
        await bridge.submit(self.store, SetConcurrency(self._pk, number))

    async def get_global_concurrency(self) -> int | None:
        """Return the maximum number of active jobs over all workers; None if there is none."""
        return (await self._limits()).concurrency

    async def remove_global_concurrency(self) -> bool:
        """Remove the global concurrency. Return False if there was none."""
        await self._ensure_open()
        return await bridge.submit(self.store, SetConcurrency(self._pk, None)) is not None

    async def is_maxed(self) -> bool:
        """Return True if as many jobs are active as the global concurrency allows."""
        limit = (await self._limits()).concurrency
        if limit is None:
            return False
        [[running]] = await bridge.query(self.store, "count_active", {"queue": self._pk})
        return bool(running >= limit)

    # --- rate of the queue ---

    async def set_global_rate_limit(self, max: int, duration: Duration) -> None:
        """Let at most `max` jobs start in `duration`, over all workers.

        If a worker has a limiter of its own, its `duration` and this `max` hold for it.
        """
        limiter = _limiter({"max": max, "duration": duration})
        await self._ensure_open()
        await bridge.submit(self.store, SetRate(self._pk, limiter))

    async def get_global_rate_limit(self) -> RateLimit | None:
        """Return the rate limit as {"max", "duration"}, in ms; None if there is none."""
        limits = await self._limits()
        return _shown(limits.max, limits.duration)

    async def remove_global_rate_limit(self) -> bool:
        """Remove the global rate limit. Return False if there was none."""
        await self._ensure_open()
        return await bridge.submit(self.store, SetRate(self._pk, None)) is not None

    async def rate_limit(self, duration: Duration) -> None:
        """Let no job of the queue start for `duration`, in any process. In a processor, raise
        RateLimitError next: its job returns to its position."""
        ms = check_duration("duration", duration, least=1)
        await self._ensure_open()
        await bridge.submit(self.store, BlockQueue(self._pk, ms))

    async def get_rate_limit_ttl(
        self, max_jobs: int | None = None, *, key: str | None = None
    ) -> int:
        """Return the ms until a job, or a job of a key, may start; 0 if one may start now.

        `max_jobs` is used instead of the limit of the queue or the key, such as that of a worker.
        Without any limit, return the ms until the current window ends.
        """
        if max_jobs is not None:
            check_int("max_jobs", max_jobs, 1, MAX_COUNT)
        if key is not None:
            return (await self._window(check_limit_key(key))).ttl(self._now(), max_jobs)
        return (await self._limits()).blocked_for_ms(self._now(), max_jobs)

    async def remove_rate_limit_key(self) -> bool:
        """End the current window of the queue, also one set by `rate_limit`.

        Return False if there is none.
        """
        await self._ensure_open()
        ran: bool = await bridge.submit(self.store, BlockQueue(self._pk, None))
        return ran

    # --- rate of a key ---

    async def set_rate_limit(self, key: str | None, max: int, duration: Duration) -> None:
        """Let at most `max` jobs that were added with this `limit_key` start in `duration`.

        None sets the limit of each key that has none of its own. Jobs of other keys, and jobs
        without one, start all the same.
        """
        limiter = _limiter({"max": max, "duration": duration})
        await self._ensure_open()
        await bridge.submit(self.store, SetKeyLimit(self._pk, _stored(key), limiter))

    async def get_rate_limit(self, key: str | None) -> RateLimit | None:
        """Return the limit set for this key, or with None for every key; None if there is none."""
        params: dict[str, Any] = {"key": _stored(key)}
        await self._ensure_open()
        rows = await bridge.query(self.store, "key_limit", {**params, "queue": self._pk})
        return _shown(*rows[0]) if rows else None

    async def remove_rate_limit(self, key: str | None) -> bool:
        """Remove the limit of a key, or with None of every key. Return False if there was none."""
        stored = _stored(key)
        await self._ensure_open()
        return await bridge.submit(self.store, SetKeyLimit(self._pk, stored, None)) is not None

    # --- underneath ---

    async def get_meta(self) -> dict[str, Any]:
        """Return the settings and state of the queue; ages in ms, None is no limit."""
        meta = await super().get_meta()
        meta["max"], meta["duration"] = meta.pop("rate_max"), meta.pop("rate_duration")
        meta["max_rate"] = _shown(meta.pop("max_rate_count"), meta.pop("max_rate_duration"))
        return meta

    async def _limits(self) -> QueueLimits:
        await self._ensure_open()
        rows = await bridge.query(self.store, "limits", {"queue": self._pk})
        return QueueLimits(*rows[0])

    async def _window(self, key: str) -> RateWindow:
        await self._ensure_open()
        params = {"queue": self._pk, "keys": encode_plain([key]).decode()}
        return window_of(key, await bridge.query(self.store, "key_windows", params))

    def _now(self) -> int:
        return self.store.open().clock.now()


def _limiter(value: RateLimit) -> Rate:
    return Rate(*check_rate("limit", value))


def _stored(key: str | None) -> str:
    return EVERY_KEY if key is None else check_limit_key(key)


def _shown(max: int | None, duration: int | None) -> RateLimit | None:
    return None if max is None else {"max": max, "duration": duration or 0}
