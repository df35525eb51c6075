"""The base of all requests to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

TOGETHER, ALONE_BESIDE_OTHERS, ALONE = 0, 1, 2
"""A request may share a transaction with other requests always, only if the database has one writer
at a time, or never."""


class Request(msgspec.Struct):
    """A request to the engine.

    It is a Struct, because a dataclass takes ten times as long to define, and there are dozens.
    """

    durable: ClassVar[bool] = True
    """The engine replies only after the transaction was written to disk."""
    barrier: ClassVar[bool] = False
    """The engine executes no later request before this one."""
    reply_before_claims: ClassVar[bool] = True
    """The caller must get the reply before jobs start that the request has made ready."""
    apart: ClassVar[int] = TOGETHER
    """Maintenance has a transaction of its own, so that no other request waits for it or is rolled
    back with it. A request that locks queues or workers has one, too: they are locked before jobs.
    """
    keeps_order: ClassVar[bool] = False
    """Several requests for one job may share a batch, because they are executed in order."""

    def job_ids(self) -> Sequence[int]:
        """Return the jobs that the request changes."""
        return ()
