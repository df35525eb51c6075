"""How answers travel from the engine's thread to whoever asked.

A mailbox stands for one place that answers go to, such as an event loop: all the answers of a
batch for one place are handed over together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

log = logging.getLogger("bullite.engine")

Reply = Callable[[Any], None]
"""Takes the answer, or the exception in its place; must not block and must not raise."""


class ReplyTarget(Protocol):
    """A place that answers go to."""

    def deliver(self, answers: Sequence[tuple[Reply, Any]]) -> None:
        """Hand over; called on the engine's thread."""

    def alive(self) -> bool:
        """Whether anybody will ever read what is delivered."""


class SameThread:
    """Answers are handed over on the engine's own thread."""

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
    """A request on its way, and where its answer goes."""

    __slots__ = ("reply", "request", "target")

    def __init__(self, request: Any, reply: Reply, mailbox: ReplyTarget = SAME_THREAD) -> None:
        self.request = request
        self.reply = reply
        self.target = mailbox
