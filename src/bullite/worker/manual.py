"""Manual processing: a caller fetches jobs one by one and finishes each itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..client.job.job import Job, claimed_jobs
from ..client.runtime import bridge
from ..core.decide_outcome import Unstarted, decide
from ..engine.engine import Engine
from ..engine.subscription import Subscription, WorkerIntervals
from ..operations.claim import Claimed
from ..operations.finish import FinishRuns
from ..operations.workers import RegisterWorker

if TYPE_CHECKING:
    from .worker import Worker


class ManualFetcher:
    """The subscription of a worker that claims one job per call of `get_next_job`."""

    def __init__(
        self, worker: Worker, engine: Engine, registration: RegisterWorker, habits: WorkerIntervals
    ) -> None:
        self._worker = worker
        self._engine = engine
        self._mailbox = bridge.reply_target()
        self._waiting: deque[FetchCall] = deque()
        self.used = False
        """Whether a job was ever asked for."""
        self._subscription = Subscription(
            registration, 0, self._receive, self._mailbox, _nothing, habits, _nothing, manual=True
        )
        engine.subscriptions.subscribe(self._subscription)

    async def ready(self) -> None:
        """Wait until the worker is registered."""
        await bridge.wait_registered(self._engine, self._subscription)

    async def fetch(self, limit: float) -> Job | None:
        """The next job; None if there is none within so many seconds."""
        taken = await self._ask(lambda taker: self._engine.subscriptions.claim_one(
            self._subscription, taker, self._mailbox
        ), None)  # fmt: skip
        if taken is not None or limit <= 0 or self._subscription.paused:
            return taken
        return await self._ask(self._wait, limit)

    async def _ask(self, ask: Callable[[FetchCall], None], limit: float | None) -> Job | None:
        """Wait for what is asked for; a job that comes when nobody waits any more goes back."""
        taker = FetchCall(self)
        ask(taker)
        try:
            return await asyncio.wait_for(taker.future, limit)
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            taker.give_up()
            raise
        finally:
            taker.left = True
            if taker in self._waiting:
                self._waiting.remove(taker)
                self._engine.subscriptions.cancel_request_job(self._subscription)

    def _wait(self, taker: FetchCall) -> None:
        self._waiting.append(taker)
        self._engine.subscriptions.request_job(self._subscription)

    def _receive(self, claimed: Claimed | BaseException) -> None:
        """Jobs for those who wait: one each."""
        if isinstance(claimed, BaseException):
            if isinstance(claimed, Exception):
                self._worker._on_store_error(claimed)
            return
        for job in self.jobs(claimed):
            if self._waiting:
                self._waiting.popleft().give(job)
            else:
                self.return_job(job)

    def jobs(self, claimed: Claimed) -> list[Job]:
        return claimed_jobs(self._worker.queue, claimed, self._worker, self._worker.name)

    def return_job(self, job: Job) -> None:
        verdict = decide(job, Unstarted(), self._worker.queue.random)
        self._engine.submit(FinishRuns(self._worker.queue.key, (verdict,)), _nothing)

    async def pause(self) -> None:
        """Nothing more until `feed`; those who wait get nothing."""
        paused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._engine.subscriptions.pause(self._subscription, bridge.Resolver(paused), self._mailbox)
        await paused
        while self._waiting:
            self._waiting.popleft().give(None)
            self._engine.subscriptions.cancel_request_job(self._subscription)

    def resume(self) -> None:
        self._engine.subscriptions.resume(self._subscription)

    async def close(self) -> None:
        """Off the register; what was taken is still its takers', until its lease ends."""
        await self.pause()
        gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._engine.subscriptions.unsubscribe(
            self._subscription, bridge.Resolver(gone), self._mailbox
        )
        await gone


class FetchCall:
    """Somebody who asked for a job, and may have gone when it comes."""

    def __init__(self, hands: ManualFetcher) -> None:
        self._hands = hands
        self.left = False
        self.future: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()

    def __call__(self, claimed: Any) -> None:
        """The answer to a claim for one job."""
        if isinstance(claimed, BaseException):
            if not self.future.done():
                self.future.set_exception(claimed)
            return
        jobs = [] if claimed is None else self._hands.jobs(claimed)
        self.give(jobs[0] if jobs else None)

    def give(self, job: Job | None) -> None:
        if not self.left and not self.future.done():
            self.future.set_result(job)
        elif job is not None:
            self._hands.return_job(job)

    def give_up(self) -> None:
        """Wait no more; a job that was given and not taken goes back."""
        if self.future.done() and not self.future.cancelled():
            job = self.future.result()
            if job is not None:
                self._hands.return_job(job)


def _nothing(*answer: object) -> None:
    pass
