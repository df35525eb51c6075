"""Leaving workers: deregister workers that stop when the last of their jobs has ended.

Functions of a closed worker may still run in their threads. Until they have returned, the worker
stays registered, without claims, and its lease is renewed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.clock import Clock
from ..operations.workers import DeregisterWorker
from .calls import Submit, call
from .replies import SAME_THREAD, PendingRequest, deliver
from .subscription import Subscription

TRY_EVERY = 1_000
"""Ms between tries to deregister them, unless one has no jobs any more."""


class LeavingWorkers:
    """The leaving workers of this process. `left` is called when one is deregistered."""

    def __init__(self, clock: Clock, submit: Submit, left: Callable[[Subscription], None]) -> None:
        self._clock = clock
        self._submit = submit
        self._left = left
        self._leaving: list[Subscription] = []
        self._try_at = 0
        self._callbacks: list[Callable[[], None]] = []

    # --- from any thread ---

    def still_run(self) -> bool:
        """Return True if one of them still runs jobs in this process."""
        return any(subscription.runs() for subscription in list(self._leaving))

    def when_all_left(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the engine's thread once there is none."""
        self._submit(call(partial(self._add_callback, callback)))

    # --- on the engine's thread ---

    def __bool__(self) -> bool:
        return bool(self._leaving)

    def add(self, subscription: Subscription, pending: PendingRequest) -> PendingRequest:
        """Return the request that marks a worker as leaving, or deregisters it without jobs."""
        subscription.paused = subscription.leaving = True
        self._leaving.append(subscription)
        leave = DeregisterWorker(subscription.worker, leaving=True)
        return PendingRequest(leave, partial(self._marked, subscription, pending))

    def redirect_replies(self) -> None:
        """Redirect replies from closed event loops: a leaving worker still needs its replies."""
        for subscription in self._leaving:
            if not subscription.target.alive():
                subscription.target = SAME_THREAD

    def due(self) -> list[PendingRequest]:
        """Return the requests that deregister those without jobs."""
        lease_now = self._clock.lease_now()
        if lease_now < self._try_at and all(leaving.runs() for leaving in self._leaving):
            return []
        self._try_at = lease_now + TRY_EVERY
        return [
            PendingRequest(
                DeregisterWorker(subscription.worker, True),
                partial(self._deregistered, subscription),
            )
            for subscription in self._leaving
        ]

    def _marked(self, subscription: Subscription, pending: PendingRequest, answer: Any) -> None:
        self._deregistered(subscription, answer)
        deliver([(pending, answer)])

    def _deregistered(self, subscription: Subscription, answer: Any) -> None:
        if answer is True and subscription in self._leaving:
            self._leaving.remove(subscription)
            self._left(subscription)
            self._call_if_all_left()

    def _add_callback(self, callback: Callable[[], None], pending: PendingRequest) -> None:
        self._callbacks.append(callback)
        self._call_if_all_left()

    def _call_if_all_left(self) -> None:
        if not self._leaving:
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback()
