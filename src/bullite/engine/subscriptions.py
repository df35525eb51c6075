"""Subscriptions of this process: workers subscribe, pause, resume and unsubscribe.

Their threads submit the changes. The engine makes them on its own thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from ..database.driver import Driver
from ..errors import StoreError
from ..operations.finish import FinishRuns
from ..operations.workers import DeregisterWorker, SetWorkerConcurrency
from .calls import EngineCall, Submit, call
from .dispatcher import Dispatcher
from .failures import Failures
from .leaving_workers import LeavingWorkers
from .replies import (
    SAME_THREAD,
    PendingRequest,
    Reply,
    ReplyTarget,
    deliver,
    ignore_reply,
    log_failure,
)
from .subscription import Subscription

log = logging.getLogger("bullite.engine")


class Subscriptions:
    """Changes of the dispatcher's subscriptions.

    `intervals_changed` is called when a worker came or went. `write_metrics` returns the request
    that writes what was measured.
    """

    def __init__(
        self,
        driver: Driver,
        dispatcher: Dispatcher,
        failures: Failures,
        submit: Submit,
        intervals_changed: Callable[[], None],
        write_metrics: Callable[[], list[PendingRequest]],
    ) -> None:
        self.leaving = LeavingWorkers(driver.clock, submit, self._remove)
        self._driver = driver
        self._dispatcher = dispatcher
        self._failures = failures
        self._submit = submit
        self._intervals_changed = intervals_changed
        self._write_metrics = write_metrics

    # --- from any thread ---

    def subscribe(self, subscription: Subscription) -> None:
        """Register a worker and claim jobs for it from now on."""
        self._submit(call(partial(self._subscribe, subscription), log_failure))

    def unsubscribe(
        self, subscription: Subscription, reply: Reply, target: ReplyTarget = SAME_THREAD
    ) -> None:
        """Deregister a worker; the jobs that it holds stay locked until its lease ends.

        A worker that still runs jobs is deregistered when their runs have ended. Its lease is
        renewed until then.
        """
        self._submit(call(partial(self._unsubscribe, subscription), reply, target))

    def pause(
        self, subscription: Subscription, reply: Reply, target: ReplyTarget = SAME_THREAD
    ) -> None:
        """Pause a subscription. Reply once no claim for it is in flight."""
        self._submit(call(partial(self._pause, subscription), reply, target))

    def resume(self, subscription: Subscription) -> None:
        """Claim jobs for a paused subscription again."""
        self._submit(call(partial(self._resume, subscription)))

    def change_concurrency(self, subscription: Subscription, concurrency: int) -> None:
        """Change the number of jobs that a worker runs at a time."""
        self._submit(call(partial(self._change_concurrency, subscription, concurrency)))

    def request_job(self, subscription: Subscription) -> None:
        """Claim one more job for a manual subscription, as soon as there is one."""
        self._submit(call(partial(self._request_job, subscription, 1)))

    def cancel_request_job(self, subscription: Subscription) -> None:
        """Withdraw one `request_job`: its caller waits no more."""
        self._submit(call(partial(self._request_job, subscription, -1)))

    def claim_one(self, subscription: Subscription, reply: Reply, target: ReplyTarget) -> None:
        """Claim one job for a manual subscription; `reply` gets a `Claimed` of one job or none."""
        self._submit(call(partial(self._claim_one, subscription), reply, target))

    def finish_runs(
        self, request: FinishRuns, reply: Reply, target: ReplyTarget, subscription: Subscription
    ) -> None:
        """Finish runs of a worker and, in the same transaction, fill the slots they leave."""
        ended = EngineCall(partial(self._runs_ended, subscription, len(request.outcomes)))
        self._submit([PendingRequest(ended, ignore_reply), PendingRequest(request, reply, target)])

    def runs_ended(self, subscription: Subscription, jobs: int) -> None:
        """Free the slots of runs that have nothing left to finish."""
        self._submit(call(partial(self._runs_ended, subscription, jobs)))

    # --- on the engine's thread ---

    def registrations(self) -> list[PendingRequest]:
        """Return the requests that register the workers which are not, or not any more."""
        subscriptions = self._dispatcher.unregistered() if self._dispatcher else []
        try:
            for subscription in subscriptions:
                subscription.registration.address = self._driver.listen(subscription.queue)
        except StoreError as error:
            self._failures.fail([], error)
            return []
        return [
            PendingRequest(each.registration, partial(self._registered, each))
            for each in subscriptions
        ]

    def remove_dead_loops(self) -> list[PendingRequest]:
        """Remove workers whose event loop is closed. Return the requests that deregister them."""
        dead = self._dispatcher.with_dead_loop()
        for subscription in dead:
            log.error("the event loop of worker %d is closed; it is given up", subscription.worker)
            self._dispatcher.remove(subscription)
        return [PendingRequest(DeregisterWorker(each.worker), log_failure) for each in dead]

    def leave_all(self, pending: PendingRequest) -> list[PendingRequest]:
        """Return the requests that mark workers with running jobs as leaving: the engine closes."""
        return [
            self.leaving.add(subscription, pending)
            for subscription in self._dispatcher.all()
            if subscription.worker and subscription.runs() and not subscription.leaving
        ]

    def _subscribe(self, subscription: Subscription, pending: PendingRequest) -> None:
        self._dispatcher.add(subscription)
        self._intervals_changed()

    def _registered(self, subscription: Subscription, answer: Any) -> None:
        if not isinstance(answer, BaseException):
            subscription.worker = answer
            subscription.needs_poll = True
            self._driver.registered()

    def _unsubscribe(
        self, subscription: Subscription, pending: PendingRequest
    ) -> list[PendingRequest]:
        last = self._write_metrics()  # a stopped engine writes no metrics
        subscription.unregistered = True
        if subscription.worker and subscription.runs():
            return [*last, self.leaving.add(subscription, pending)]
        self._remove(subscription)
        deregister = DeregisterWorker(subscription.worker)
        return [*last, PendingRequest(deregister, pending.reply, pending.target)]

    def _remove(self, subscription: Subscription) -> None:
        self._dispatcher.remove(subscription)
        self._intervals_changed()

    def _pause(self, subscription: Subscription, pending: PendingRequest) -> None:
        subscription.paused = True
        deliver([(pending, None)])

    def _resume(self, subscription: Subscription, pending: PendingRequest) -> None:
        subscription.paused = False
        subscription.needs_poll = True

    def _change_concurrency(
        self, subscription: Subscription, concurrency: int, pending: PendingRequest
    ) -> list[PendingRequest]:
        subscription.concurrency = subscription.registration.concurrency = concurrency
        subscription.needs_poll = True
        change = SetWorkerConcurrency(subscription.worker, concurrency)
        return [PendingRequest(change, ignore_reply)]

    def _request_job(self, subscription: Subscription, more: int, pending: PendingRequest) -> None:
        subscription.concurrency = max(0, subscription.concurrency + more)
        subscription.needs_poll = True

    def _claim_one(
        self, subscription: Subscription, pending: PendingRequest
    ) -> list[PendingRequest]:
        if subscription.paused:
            deliver([(pending, None)])
            return []
        claim = self._dispatcher.claim_manually(subscription)
        return [PendingRequest(claim, pending.reply, pending.target)]

    def _runs_ended(self, subscription: Subscription, jobs: int, pending: PendingRequest) -> None:
        subscription.remove_held(jobs, self._driver.clock.lease_now())
