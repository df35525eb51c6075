"""The base of all requests to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

TOGETHER, ALONE_BESIDE_OTHERS, ALONE = 0, 1, 2
"""A request may share a transaction with others; only if the database has one writer at a time;
never."""


class Request(msgspec.Struct):
    """A request to the engine.

    It is a Struct, because a dataclass takes ten times as long to define, and there are dozens.
    """

    durable: ClassVar[bool] = True
    """The engine replies only when the transaction is on the disk."""
    barrier: ClassVar[bool] = False
    """No later request is carried out before it."""
    reply_before_claims: ClassVar[bool] = True
    """The caller must have the reply before jobs start that the request has made ready."""
    apart: ClassVar[int] = TOGETHER
    """Maintenance has a transaction of its own, so that no other request waits for it or is undone
    with it. So has a request that locks queues or workers: those are locked before jobs."""
    keeps_order: ClassVar[bool] = False
    """Several requests for one job may share a group, because they are carried out in order."""

    def job_ids(self) -> Sequence[int]:
        """The jobs that the request changes."""
        return ()
