"""What all requests to the engine have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

TOGETHER, ALONE_BESIDE_OTHERS, ALONE = 0, 1, 2
"""Whether a request shares a transaction with others: it may; it may where there is one writer at a
time; it must not."""


class Request(msgspec.Struct):
    """Anything that can be asked of the engine.

    A Struct: there are dozens of them, and a dataclass takes ten times as long to make.
    """

    durable: ClassVar[bool] = True
    """Whether its answer may be given only when it is on the disk."""
    barrier: ClassVar[bool] = False
    """Whether nothing that came after it may be carried out before it."""
    reply_before_claims: ClassVar[bool] = True
    """Whether somebody may wait for its answer who must have it before jobs begin that it freed."""
    apart: ClassVar[int] = TOGETHER
    """Housekeeping has a transaction of its own, so that nothing waits for it or is undone with it;
    what changes queues and workers has one, because it locks them, which comes before jobs."""
    keeps_order: ClassVar[bool] = False
    """Whether several for one job may share a group, because they are carried out in order."""

    def job_ids(self) -> Sequence[int]:
        """The jobs it touches."""
        return ()
