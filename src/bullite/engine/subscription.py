"""A worker as the engine sees it: a standing order for jobs of one queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..operations.claim import Claim
from ..operations.workers import RegisterWorker
from .replies import Mailbox, Reply

if TYPE_CHECKING:
    from .metrics import Readings

UNLOAD_AFTER = 40
"""Ms without any of a worker's jobs ending, after which it gives back what it fetched ahead."""


FIRST_PAUSE, LONGEST_PAUSE = 1_000, 15_000
"""Ms between tries, of claims and of results, and between reports, while the database fails;
doubled each time."""


@dataclass(frozen=True, slots=True)
class Habits:
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


class Stop(NamedTuple):
    """A job that its worker should stop."""

    job: int
    token: int
    reason: str


@dataclass(slots=True, eq=False)
class Appetite:
    """How many jobs a worker would take now, and where to put them.

    The engine fills it in whatever transaction finds work; the worker only says how many of its
    jobs have ended. `reply` gets a `Claimed`, or an exception when claiming failed.
    """

    registration: RegisterWorker
    concurrency: int
    """How many jobs it runs at a time; of a worker by hand, how many it is asked for just now."""
    reply: Reply
    mailbox: Mailbox
    unload: Callable[[], None]
    """Makes the worker give back what it has not begun; called on the engine's thread."""
    habits: Habits
    stop: Callable[[Sequence[Stop]], None]
    """Makes the worker stop jobs that are cancelled; called where `reply` is, perhaps more than
    once for a job."""
    readings: Sequence[Readings] = ()
    """What is measured of its runs."""
    by_hand: bool = False
    """Its jobs are run by somebody who asked for each: it never asks for more by itself."""
    ahead: int = 0
    """How many jobs it may hold beyond those it runs; the worker sets it from what they take."""
    share: float = math.inf
    """How many jobs waited for each worker of its queue when it last looked: it holds no more of
    them ahead, so that the others have something to do, too."""
    held: int = 0
    """How many jobs it was given that have not ended."""
    moved_at: int = 0
    """The lease time at which it was last given a job, or one of its jobs ended."""
    worker: int = 0
    """Its id in the database; 0 until it is registered."""
    stirred: bool = True
    """There may be something to take: nobody has looked since it last changed."""
    told_hungry: bool = False
    """What other processes believe."""
    unloaded_until: int = 0
    """The last claim when a limit or a pause made it give back what it had fetched ahead. What that
    claim, or one before it, fetched ahead may still be on its way."""
    limited: bool = False
    """Limits hold for its queue, or for it: it holds no more than it runs."""
    told_again_at: int = 0
    """The lease time from which on it is told again that the database fails."""
    told_pause: int = FIRST_PAUSE
    is_in_turn: bool = True
    """Whether it was not kept from looking the last time, by others who had the queue."""
    starved: bool = False
    runs: Callable[[], int] = lambda: 0
    """How many of its jobs run in this process, or have ended and are not recorded yet; may be
    asked on any thread."""
    holds: Callable[[], Set[tuple[int, int]]] = frozenset
    """The jobs, and their tokens, that it runs or is about to run; may be asked on any thread."""
    lose: Callable[[Set[tuple[int, int]]], None] = lambda lost: None
    """Told which of these were taken away from it; called where `reply` is, and again and again
    for one that runs on."""
    leaving: bool = False
    """It was told to stop: it stays on the register, starved, for as long as it holds jobs."""
    left: bool = False
    """It was taken off the register, perhaps before it was on it."""

    def __post_init__(self) -> None:
        self.limited = self.registration.limiter is not None

    @property
    def queue(self) -> int:
        return self.registration.queue

    @property
    def want(self) -> int:
        """How many jobs it would take now."""
        if self.starved or not self.worker:
            return 0
        ahead = 0 if self.limited else min(self.ahead, self.share)
        return max(0, self.concurrency + int(ahead) - self.held)

    @property
    def is_hungry(self) -> bool:
        return self.want > 0

    def told_of_trouble(self, lease_now: int) -> None:
        """It is told that the database fails, and not again for a while: longer each time."""
        usual = self.habits.pause_after_error
        self.told_again_at = lease_now + (self.told_pause if usual is None else usual)
        self.told_pause = min(2 * self.told_pause, LONGEST_PAUSE)

    def knows_of_no_trouble(self) -> None:
        self.told_again_at, self.told_pause = 0, FIRST_PAUSE

    def took(self, jobs: int, lease_now: int) -> None:
        """It was given jobs."""
        if self.by_hand:
            self.concurrency -= jobs
        else:
            self.held += jobs
        self.moved_at = lease_now

    def ended(self, jobs: int, lease_now: int) -> None:
        """So many of its jobs have ended."""
        self.held -= jobs
        self.moved_at = lease_now
        # Under a limit, that one has ended may be what others were waiting for.
        self.stirred = self.stirred or self.limited

    def unload_in(self, lease_now: int) -> int | None:
        """Ms until it should give back what it fetched ahead; None if it holds nothing ahead."""
        if self.held <= self.concurrency:
            return None
        return self.moved_at + UNLOAD_AFTER - lease_now

    def is_stuck(self, lease_now: int) -> bool:
        due = self.unload_in(lease_now)
        return due is not None and due <= 0

    def takes(self, names: Mapping[str, int]) -> bool:
        """Whether jobs of these names, of which "" means any, could be for this worker."""
        mine = self.registration.names
        return mine is None or "" in names or any(name in names for name in mine)

    def claim(self, token: int, most: int) -> Claim:
        return Claim(
            queue=self.queue,
            worker=self.worker,
            names=self.registration.names,
            demand=min(self.want, most),
            start_now=max(0, self.concurrency - self.held),
            lock_duration=self.registration.lock_duration,
            token=token,
            limiter=self.registration.limiter,
            max_block=self.registration.longest_rest,
        )
