"""Manual processing: a caller fetches jobs one by one and finishes each itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from ..client.job.job import Job, claimed_jobs
from ..client.queue.base import pk_of
from ..client.runtime import bridge
from ..core.decide_outcome import Unstarted, decide
from ..engine.engine import Engine
from ..engine.subscription import Subscription
from ..operations.claim import Claimed
from ..operations.finish import FinishRuns
from .context import WorkerContext


class ManualFetcher:
    """The subscription of a worker that claims one job per call of `get_next_job`."""

    def __init__(self, worker: WorkerContext, engine: Engine, concurrency: int) -> None:
        self._queue = worker.queue
        self._notifications = worker.notifications
        self._job_owner = worker.job_owner()
        self._engine = engine
        self._target = bridge.reply_target()
        self._waiting: deque[FetchCall] = deque()
        self.used = False
        """`get_next_job` was called."""
        self._subscription = Subscription(
            worker.registration(None, concurrency),
            0,
            self._on_claimed,
            self._target,
            _ignore,
            worker.intervals,
            _ignore,
            manual=True,
        )
        engine.subscriptions.subscribe(self._subscription)

    async def ready(self) -> None:
        """Wait until the worker is registered."""
        await bridge.wait_registered(self._engine, self._subscription)

    async def fetch(self, timeout: float) -> Job | None:
        """Claim the next job. Return None if there is none within `timeout` seconds."""
        job = await self._await(self._claim_one, None)
        if job is not None or timeout <= 0 or self._subscription.paused:
            return job
        return await self._await(self._request_job, timeout)

    async def _await(self, start: Callable[[FetchCall], None], timeout: float | None) -> Job | None:
        """Await a job. One that comes after the timeout is returned to the queue."""
        call = FetchCall(self)
        start(call)
        try:
            return await asyncio.wait_for(call.future, timeout)
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            call.cancelled()
            raise
        finally:
            call.has_ended = True
            if call in self._waiting:
                self._waiting.remove(call)
                self._engine.subscriptions.cancel_request_job(self._subscription)

    def _claim_one(self, call: FetchCall) -> None:
        self._engine.subscriptions.claim_one(self._subscription, call, self._target)

    def _request_job(self, call: FetchCall) -> None:
        self._waiting.append(call)
        self._engine.subscriptions.request_job(self._subscription)

    def _on_claimed(self, claimed: Claimed | BaseException) -> None:
        """Give each waiting call one job."""
        if isinstance(claimed, BaseException):
            if isinstance(claimed, Exception):
                self._notifications.store_failed(claimed)
            return
        for job in self.jobs(claimed):
            if self._waiting:
                self._waiting.popleft().give(job)
            else:
                self.return_job(job)

    def jobs(self, claimed: Claimed) -> list[Job]:
        """Return the claimed jobs."""
        return claimed_jobs(self._queue, claimed, self._job_owner)

    def return_job(self, job: Job) -> None:
        """Return a job to the queue as if it had not been claimed."""
        outcome = decide(job, Unstarted(), self._queue.random)
        self._engine.submit(FinishRuns(pk_of(self._queue), (outcome,)), _ignore)

    async def pause(self) -> None:
        """Claim no jobs until `resume`. Waiting calls return None."""
        paused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._engine.subscriptions.pause(self._subscription, bridge.Resolver(paused), self._target)
        await paused
        while self._waiting:
            self._waiting.popleft().give(None)
            self._engine.subscriptions.cancel_request_job(self._subscription)

    def resume(self) -> None:
        """Claim jobs again."""
        self._engine.subscriptions.resume(self._subscription)

    async def close(self) -> None:
        """Deregister the worker; the fetched jobs stay locked until their leases end."""
        await self.pause()
        gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._engine.subscriptions.unsubscribe(
            self._subscription, bridge.Resolver(gone), self._target
        )
        await gone


class FetchCall:
    """One call of `get_next_job`, which may have ended when its job is claimed."""

    def __init__(self, fetcher: ManualFetcher) -> None:
        self._fetcher = fetcher
        self.has_ended = False
        self.future: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()

    def __call__(self, claimed: Any) -> None:
        """Receive the reply to `claim_one`."""
        if isinstance(claimed, BaseException):
            if not self.future.done():
                self.future.set_exception(claimed)
            return
        jobs = [] if claimed is None else self._fetcher.jobs(claimed)
        self.give(jobs[0] if jobs else None)

    def give(self, job: Job | None) -> None:
        """Resolve the call; return the job to the queue if the call has ended."""
        if not self.has_ended and not self.future.done():
            self.future.set_result(job)
        elif job is not None:
            self._fetcher.return_job(job)

    def cancelled(self) -> None:
        """The caller was cancelled: return a job that it was given and has not received."""
        if self.future.done() and not self.future.cancelled():
            job = self.future.result()
            if job is not None:
                self._fetcher.return_job(job)


def _ignore(*reply: object) -> None:
    pass
