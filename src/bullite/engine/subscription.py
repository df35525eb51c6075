"""Subscriptions: the demand of one worker pool for jobs of one queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..operations.claim import Claim
from ..operations.workers import RegisterWorker
from .replies import Reply, ReplyTarget

if TYPE_CHECKING:
    from .metrics import RunTimings

PREFETCH_RETURN_AFTER = 40
"""Ms in which no job of a worker ended, after which it returns its prefetched jobs."""

MIN_BACKOFF, MAX_BACKOFF = 1_000, 15_000
"""Ms between tries of claims and of results, and between reports, while the database fails. They
are doubled each time."""


@dataclass(frozen=True, slots=True)
class WorkerIntervals:
    """Intervals that a worker demands, in ms; the shortest of a process count."""

    renew_every: int = 15_000
    poll_interval: int = 1_000
    """Between polls without a notification."""
    maintenance_interval: int = 1_000
    """By which maintenance may be late."""
    stalled_interval: int = 30_000
    """By which the recovery of lost workers may be late."""
    checks_stalled: bool = True
    pause_after_error: int | None = None
    """Between tries while the database fails; None for MIN_BACKOFF to MAX_BACKOFF."""
    renewed: Callable[[bool], None] = lambda kept: None
    """Called on the engine's thread after every renewal: True if the worker is still registered.
    Lost jobs are reported separately, by `report_lost`."""


class CancelRunning(NamedTuple):
    """A request to stop a running job that was cancelled."""

    job: int
    token: int
    reason: str


@dataclass(slots=True, eq=False)
class Subscription:
    """Demand of one worker pool for jobs of one queue.

    The engine claims up to `demand` jobs for it in any transaction. It calls `reply` with a
    `Claimed`, or with the exception if the claim failed. The pool reports how many jobs have ended.
    """

    registration: RegisterWorker
    concurrency: int
    """How many jobs it runs at a time; if `manual`, the number of callers that wait for a job."""
    reply: Reply
    target: ReplyTarget
    return_prefetched: Callable[[], None]
    """Makes the worker return prefetched jobs; called on the engine's thread."""
    intervals: WorkerIntervals
    stop: Callable[[Sequence[CancelRunning]], None]
    """Makes the worker stop cancelled jobs; called where `reply` is, perhaps more than once for a
    job."""
    timings: Sequence[RunTimings] = ()
    """Timings of its runs, one for each runner."""
    manual: bool = False
    """Jobs are claimed one by one, by callers of `get_next_job`."""
    prefetched: int = 0
    """How many jobs it may hold beyond those it runs; the worker sets it by their durations."""
    fair_share: float = math.inf
    """Waiting jobs per worker of its queue at its last claim. It prefetches no more than that, to
    leave jobs for the other workers."""
    held: int = 0
    """Number of claimed jobs that have not ended."""
    last_progress_at: int = 0
    """The lease time at which it last claimed a job, or one of its jobs ended."""
    worker: int = 0
    """Its id in the database; 0 until it is registered."""
    needs_poll: bool = True
    """The queue may have jobs: it has changed since the last claim."""
    advertised_idle: bool = False
    """Other processes see the worker as idle in the database, and notify it."""
    returned_until: int = 0
    """The last claim when a limit or a pause made it return its prefetched jobs. Jobs prefetched by
    that claim, or by an earlier one, may still be on their way to it."""
    limited: bool = False
    """Limits hold for its queue, or for it: it holds no more than it runs."""
    next_report_at: int = 0
    """The lease time from which on a failure of the database is reported to it again."""
    report_backoff: int = MIN_BACKOFF
    is_in_turn: bool = True
    """Its last claim was not skipped because another process had locked the queue."""
    paused: bool = False
    runs: Callable[[], int] = lambda: 0
    """How many of its jobs run in this process, or have ended and are not recorded yet; may be
    called on any thread."""
    holds: Callable[[], Set[tuple[int, int]]] = frozenset
    """The jobs, and their tokens, that it runs or is about to run; may be called on any thread."""
    report_lost: Callable[[Set[tuple[int, int]]], None] = lambda lost: None
    """Called with the jobs of `holds` that it has lost, where `reply` is called; called again for a
    job that runs on."""
    leaving: bool = False
    """The worker is stopping: it stays registered, without claims, while it holds jobs."""
    unregistered: bool = False
    """The worker was deregistered, perhaps before it was registered."""

    def __post_init__(self) -> None:
        self.limited = self.registration.limiter is not None

    @property
    def queue(self) -> int:
        return self.registration.queue

    @property
    def demand(self) -> int:
        """How many jobs it would claim now."""
        if self.paused or not self.worker:
            return 0
        extra = 0 if self.limited else min(self.prefetched, self.fair_share)
        return max(0, self.concurrency + int(extra) - self.held)

    @property
    def has_capacity(self) -> bool:
        return self.demand > 0

    def note_report(self, lease_now: int) -> None:
        """Note a report of a failure of the database: each next report waits longer."""
        usual = self.intervals.pause_after_error
        self.next_report_at = lease_now + (self.report_backoff if usual is None else usual)
        self.report_backoff = min(2 * self.report_backoff, MAX_BACKOFF)

    def reset_reports(self) -> None:
        self.next_report_at, self.report_backoff = 0, MIN_BACKOFF

    def add_held(self, jobs: int, lease_now: int) -> None:
        """Count claimed jobs."""
        if self.manual:
            self.concurrency -= jobs
        else:
            self.held += jobs
        self.last_progress_at = lease_now

    def remove_held(self, jobs: int, lease_now: int) -> None:
        """Count jobs that have ended."""
        self.held -= jobs
        self.last_progress_at = lease_now
        # Under a limit, the end of one job may allow the claim of another.
        self.needs_poll = self.needs_poll or self.limited

    def prefetch_timeout_in(self, lease_now: int) -> int | None:
        """Ms until it should return its prefetched jobs; None if it has none."""
        if self.held <= self.concurrency:
            return None
        return self.last_progress_at + PREFETCH_RETURN_AFTER - lease_now

    def prefetch_timed_out(self, lease_now: int) -> bool:
        due = self.prefetch_timeout_in(lease_now)
        return due is not None and due <= 0

    def accepts(self, names: Mapping[str, int]) -> bool:
        """Return True if this worker claims a job of these names; "" stands for any name."""
        mine = self.registration.names
        return mine is None or "" in names or any(name in names for name in mine)

    def claim(self, token: int, most: int) -> Claim:
        return Claim(
            queue=self.queue,
            worker=self.worker,
            names=self.registration.names,
            demand=min(self.demand, most),
            start_now=max(0, self.concurrency - self.held),
            lock_duration=self.registration.lock_duration,
            token=token,
            limiter=self.registration.limiter,
            max_block=self.registration.longest_rest,
        )
