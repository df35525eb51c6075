"""Options of a worker, checked when it is made."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.checks import Duration, check_bool, check_duration, check_int, check_rate
from ..core.decide_outcome import RetentionDefaults
from ..core.job_options import KeepJobs, RateLimit, check_keep
from ..core.names import check_name
from ..core.retention import Retention, retention_of
from ..engine.subscription import WorkerIntervals
from ..operations.rate_limits import Rate
from .processors import check_concurrency
from .retry_strategies import BackoffStrategy, RetryStrategy, Strategies

MAX_COUNT = 2**31 - 1
"""The largest number of attempts, and of stalls, that the database holds."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker; durations are in ms."""

    name: str
    autorun: bool
    concurrency: int
    """When it starts; it can be changed while the worker runs."""
    lock_duration: int
    renews_locks: bool
    intervals: WorkerIntervals
    max_stalled_count: int
    stalled_backoff: bool
    max_started_attempts: int | None
    drain_delay: int
    retention_defaults: RetentionDefaults
    strategies: Strategies
    limiter: Rate | None
    maximum_rate_limit_delay: int

    @classmethod
    def checked(
        cls,
        *,
        concurrency: int,
        name: str | None,
        autorun: bool,
        lock_duration: Duration,
        lock_renew_time: Duration | None,
        stalled_interval: Duration,
        max_stalled_count: int,
        stalled_backoff: bool,
        max_started_attempts: int | None,
        poll_interval: Duration,
        maintenance_interval: Duration,
        drain_delay: Duration,
        run_retry_delay: Duration | None,
        skip_stalled_check: bool,
        skip_lock_renewal: bool,
        remove_on_complete: bool | int | KeepJobs | None,
        remove_on_fail: bool | int | KeepJobs | None,
        retry_strategies: Mapping[str, RetryStrategy] | None,
        backoff_strategy: BackoffStrategy | None,
        limiter: RateLimit | None,
        maximum_rate_limit_delay: Duration,
    ) -> WorkerOptions:
        """Check the arguments of `Worker`. Raise InvalidOption or InvalidOptionType."""
        lock = check_duration("lock_duration", lock_duration, least=100)
        renews = not check_bool("skip_lock_renewal", skip_lock_renewal)
        renew_every = lock // 2
        if lock_renew_time is not None:
            renew_every = check_duration("lock_renew_time", lock_renew_time)
            renews = renews and renew_every > 0
        return cls(
            name=check_name("the worker's name", default_name() if name is None else name),
            autorun=check_bool("autorun", autorun),
            concurrency=check_concurrency(concurrency),
            lock_duration=lock,
            renews_locks=renews,
            intervals=WorkerIntervals(
                renew_every=max(10, renew_every) if renews else lock,
                poll_interval=check_duration("poll_interval", poll_interval, least=1),
                maintenance_interval=check_duration(
                    "maintenance_interval", maintenance_interval, least=1
                ),
                stalled_interval=check_duration("stalled_interval", stalled_interval, least=1),
                checks_stalled=not check_bool("skip_stalled_check", skip_stalled_check),
                pause_after_error=None
                if run_retry_delay is None
                else check_duration("run_retry_delay", run_retry_delay),
            ),
            max_stalled_count=check_int("max_stalled_count", max_stalled_count, 0, MAX_COUNT),
            stalled_backoff=check_bool("stalled_backoff", stalled_backoff),
            max_started_attempts=None
            if max_started_attempts is None
            else check_int("max_started_attempts", max_started_attempts, 0, MAX_COUNT) or None,
            drain_delay=check_duration("drain_delay", drain_delay, least=1),
            retention_defaults=RetentionDefaults(
                _check_retention("remove_on_complete", remove_on_complete),
                _check_retention("remove_on_fail", remove_on_fail),
            ),
            strategies=Strategies(retry_strategies, backoff_strategy),
            limiter=None if limiter is None else Rate(*check_rate("limiter", limiter)),
            maximum_rate_limit_delay=check_duration(
                "maximum_rate_limit_delay", maximum_rate_limit_delay, least=1
            ),
        )


def default_name() -> str:
    """Return the name of a worker that is given none: its host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _check_retention(option: str, value: Any) -> Retention | None:
    return None if value is None else retention_of(check_keep(option, value))
