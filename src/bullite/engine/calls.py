"""Calls: functions that the engine's thread runs for other threads, beside its requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .replies import SAME_THREAD, PendingRequest, Reply, ReplyTarget, ignore_reply

Submit = Callable[[Sequence[PendingRequest]], None]
"""Submits requests and calls to the engine, which takes them together."""


class EngineCall:
    """A function that the engine runs before the transaction of its batch.

    It may return requests, which are executed in its place.
    """

    __slots__ = ("function",)

    def __init__(
        self, function: Callable[[PendingRequest], Sequence[PendingRequest] | None]
    ) -> None:
        self.function = function


def call(
    function: Callable[[PendingRequest], Sequence[PendingRequest] | None],
    reply: Reply = ignore_reply,
    target: ReplyTarget = SAME_THREAD,
) -> list[PendingRequest]:
    """Return what submits a function. It replies itself, or has its requests reply."""
    return [PendingRequest(EngineCall(function), reply, target)]
