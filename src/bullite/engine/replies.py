"""Delivery of replies from the engine's thread to the callers.

A reply target is one destination of replies, such as an event loop. All replies of a batch for one
target are delivered together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

log = logging.getLogger("bullite.engine")

Reply = Callable[[Any], None]
"""Called with the reply, or with the exception; must not block and must not raise."""


class ReplyTarget(Protocol):
    """A destination of replies."""

    def deliver(self, answers: Sequence[tuple[Reply, Any]]) -> None:
        """Deliver replies; called on the engine's thread."""

    def alive(self) -> bool:
        """Return whether delivered replies can still be read."""


class SameThread:
    """Delivers replies on the engine's own thread."""

    def deliver(self, answers: Sequence[tuple[Reply, Any]]) -> None:
        for reply, answer in answers:
            try:
                reply(answer)
            except Exception:
                log.exception("an answer could not be delivered")

    def alive(self) -> bool:
        return True


SAME_THREAD = SameThread()


class RequestMerger(Protocol):
    """Makes few requests of many parts, which came to the inbox one by one."""

    def merge(self, parts: Sequence[Any]) -> Sequence[PendingRequest]:
        """The requests for parts that came one after the other; called on the engine's thread."""


class PendingRequest:
    """A request that waits for its reply, and the destination of that reply."""

    __slots__ = ("reply", "request", "target")

    def __init__(self, request: Any, reply: Reply, mailbox: ReplyTarget = SAME_THREAD) -> None:
        self.request = request
        self.reply = reply
        self.target = mailbox
