"""Delivery of replies from the engine's thread to the callers.

A reply target is one destination of replies, such as an event loop. All replies of a batch for one
target are delivered together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ..errors import StoreClosed

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
                log.exception("a reply could not be delivered")

    def alive(self) -> bool:
        return True


SAME_THREAD = SameThread()


class PendingRequest:
    """A request that waits for its reply, and the destination of that reply."""

    __slots__ = ("reply", "request", "target")

    def __init__(self, request: Any, reply: Reply, target: ReplyTarget = SAME_THREAD) -> None:
        self.request = request
        self.reply = reply
        self.target = target


Answered = tuple[PendingRequest, Any]
"""A request, and its reply or the exception."""


def deliver(answered: Iterable[Answered]) -> None:
    """Deliver replies: those for one target together."""
    by_target: dict[ReplyTarget, list[tuple[Reply, Any]]] = {}
    for pending, answer in answered:
        by_target.setdefault(pending.target, []).append((pending.reply, answer))
    for target, replies in by_target.items():
        target.deliver(replies)


def ignore_reply(answer: Any) -> None:
    """Ignore the reply: errors are reported elsewhere, or do not matter."""


def log_failure(answer: Any) -> None:
    """Log a warning if the request failed."""
    if isinstance(answer, BaseException) and not isinstance(answer, StoreClosed):
        log.warning("%s", answer)


class RequestMerger(Protocol):
    """Merges fragments, which were submitted one by one, into few requests."""

    def merge(self, parts: Sequence[Any]) -> Sequence[PendingRequest]:
        """Return the requests for fragments, in their order; called on the engine's thread."""
