"""A worker as the engine sees it: a standing order for jobs of one queue."""

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
"""Ms without any of a worker's jobs ending, after which it gives back what it fetched ahead."""


MIN_BACKOFF, MAX_BACKOFF = 1_000, 15_000
"""Ms between tries, of claims and of results, and between reports, while the database fails;
doubled each time."""


@dataclass(frozen=True, slots=True)
class WorkerIntervals:
    """How often things are to be done for a worker, in ms; the strictest of a process count."""

    renew_every: int = 15_000
    poll_interval: int = 1_000
    """The longest it goes without looking for jobs."""
    maintenance_interval: int = 1_000
    """The latest that housekeeping may be."""
    stalled_interval: int = 30_000
    """The latest that the jobs of lost workers may be looked for."""
    checks_stalled: bool = True
    pause_after_error: int | None = None
    """Between tries while the database fails; None for the usual."""
    renewed: Callable[[bool], None] = lambda kept: None
    """Told after every renewal whether the worker is still known; on the engine's thread. Which of
    its jobs were taken away is told apart."""


class CancelRunning(NamedTuple):
    """A job that its worker should stop."""

    job: int
    token: int
    reason: str


@dataclass(slots=True, eq=False)
class Subscription:
    """How many jobs a worker would take now, and where to put them.

    The engine fills it in whatever transaction finds work; the worker only says how many of its
    jobs have ended. `reply` gets a `Claimed`, or an exception when claiming failed.
    """

    registration: RegisterWorker
    concurrency: int
    """How many jobs it runs at a time; of a worker by hand, how many it is asked for just now."""
    reply: Reply
    target: ReplyTarget
    return_prefetched: Callable[[], None]
    """Makes the worker give back what it has not begun; called on the engine's thread."""
    intervals: WorkerIntervals
    stop: Callable[[Sequence[CancelRunning]], None]
    """Makes the worker stop jobs that are cancelled; called where `reply` is, perhaps more than
    once for a job."""
    timings: Sequence[RunTimings] = ()
    """What is measured of its runs."""
    manual: bool = False
    """Its jobs are run by somebody who asked for each: it never asks for more by itself."""
    prefetched: int = 0
    """How many jobs it may hold beyond those it runs; the worker sets it from what they take."""
    fair_share: float = math.inf
    """How many jobs waited for each worker of its queue when it last looked: it holds no more of
    them ahead, so that the others have something to do, too."""
    held: int = 0
    """How many jobs it was given that have not ended."""
    last_progress_at: int = 0
    """The lease time at which it was last given a job, or one of its jobs ended."""
    worker: int = 0
    """Its id in the database; 0 until it is registered."""
    needs_poll: bool = True
    """There may be something to take: nobody has looked since it last changed."""
    advertised_idle: bool = False
    """What other processes believe."""
    returned_until: int = 0
    """The last claim when a limit or a pause made it give back what it had fetched ahead. What that
    claim, or one before it, fetched ahead may still be on its way."""
    limited: bool = False
    """Limits hold for its queue, or for it: it holds no more than it runs."""
    next_report_at: int = 0
    """The lease time from which on it is told again that the database fails."""
    report_backoff: int = MIN_BACKOFF
    is_in_turn: bool = True
    """Whether it was not kept from looking the last time, by others who had the queue."""
    paused: bool = False
    runs: Callable[[], int] = lambda: 0
    """How many of its jobs run in this process, or have ended and are not recorded yet; may be
    asked on any thread."""
    holds: Callable[[], Set[tuple[int, int]]] = frozenset
    """The jobs, and their tokens, that it runs or is about to run; may be asked on any thread."""
    report_lost: Callable[[Set[tuple[int, int]]], None] = lambda lost: None
    """Told which of these were taken away from it; called where `reply` is, and again and again
    for one that runs on."""
    leaving: bool = False
    """It was told to stop: it stays on the register, starved, for as long as it holds jobs."""
    unregistered: bool = False
    """It was taken off the register, perhaps before it was on it."""

    def __post_init__(self) -> None:
        self.limited = self.registration.limiter is not None

    @property
    def queue(self) -> int:
        return self.registration.queue

    @property
    def demand(self) -> int:
        """How many jobs it would take now."""
        if self.paused or not self.worker:
            return 0
        ahead = 0 if self.limited else min(self.prefetched, self.fair_share)
        return max(0, self.concurrency + int(ahead) - self.held)

    @property
    def has_capacity(self) -> bool:
        return self.demand > 0

    def note_report(self, lease_now: int) -> None:
        """It is told that the database fails, and not again for a while: longer each time."""
        usual = self.intervals.pause_after_error
        self.next_report_at = lease_now + (self.report_backoff if usual is None else usual)
        self.report_backoff = min(2 * self.report_backoff, MAX_BACKOFF)

    def reset_reports(self) -> None:
        self.next_report_at, self.report_backoff = 0, MIN_BACKOFF

    def add_held(self, jobs: int, lease_now: int) -> None:
        """It was given jobs."""
        if self.manual:
            self.concurrency -= jobs
        else:
            self.held += jobs
        self.last_progress_at = lease_now

    def remove_held(self, jobs: int, lease_now: int) -> None:
        """So many of its jobs have ended."""
        self.held -= jobs
        self.last_progress_at = lease_now
        # Under a limit, that one has ended may be what others were waiting for.
        self.needs_poll = self.needs_poll or self.limited

    def prefetch_timeout_in(self, lease_now: int) -> int | None:
        """Ms until it should give back what it fetched ahead; None if it holds nothing ahead."""
        if self.held <= self.concurrency:
            return None
        return self.last_progress_at + PREFETCH_RETURN_AFTER - lease_now

    def prefetch_timed_out(self, lease_now: int) -> bool:
        due = self.prefetch_timeout_in(lease_now)
        return due is not None and due <= 0

    def accepts(self, names: Mapping[str, int]) -> bool:
        """Whether jobs of these names, of which "" means any, could be for this worker."""
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
