"""A worker as the engine sees it: a standing order for jobs of one queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..operations.claiming import Claim
from ..operations.tending import Register
from .mail import Mailbox, Reply


@dataclass(slots=True, eq=False)
class Appetite:
    """How many jobs a worker would take now, and where to put them.

    The engine fills it in whatever transaction finds work; the worker only says when slots become
    free. `reply` gets a `Claimed`, or an exception when claiming failed.
    """

    registration: Register
    reply: Reply
    mailbox: Mailbox
    renew_every: int
    want: int = 0
    worker: int = 0
    """Its id in the database; 0 until it is registered."""
    stirred: bool = True
    """There may be something to take: nobody has looked since it last changed."""
    told_hungry: bool = False
    """What other processes believe."""

    @property
    def queue(self) -> int:
        return self.registration.queue

    @property
    def is_hungry(self) -> bool:
        return self.want > 0 and self.worker > 0

    def grow(self, more: int, _: object = None) -> None:
        """So many more slots are free."""
        self.want += more

    def starve(self) -> None:
        """It takes nothing more, whatever slots become free."""
        self.want = -(1 << 62)

    def takes(self, names: Mapping[str, int]) -> bool:
        """Whether jobs of these names, of which "" means any, could be for this worker."""
        mine = self.registration.names
        return mine is None or "" in names or any(name in names for name in mine)

    def claim(self, token: int, most: int) -> Claim:
        return Claim(
            queue=self.queue,
            worker=self.worker,
            names=self.registration.names,
            want=min(self.want, most),
            lock_duration=self.registration.lock_duration,
            token=token,
        )
