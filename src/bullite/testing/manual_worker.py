"""A worker that takes one job, runs it and settles it when it is told to, never by itself."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..client.job.job import Job, claimed_jobs
from ..client.queue.queue import Queue
from ..client.runtime import bridge
from ..client.runtime.blocking import BlockingFuture
from ..core.decide_outcome import Raised, Result, decide
from ..engine.replies import SAME_THREAD
from ..engine.subscription import MIN_BACKOFF, Subscription
from ..errors import InvalidOption
from ..operations.claim import Claimed
from ..operations.finish import FinishResult
from ..worker.completer import Completer, EndedRun, OutcomeBatch
from ..worker.processors import ANY, Handler
from ..worker.runner import LoopRunner, ThreadRunner, is_suspension
from ..worker.worker import Worker


def check_worker_options(options: Mapping[str, Any]) -> None:
    """Refuse what is no option of a worker; whether its values are right, it says itself."""
    unknown = options.keys() - inspect.signature(Worker).parameters.keys()
    if unknown:
        raise InvalidOption(f"{min(unknown)!r} is no option of a Worker")


class StepLoopRunner(LoopRunner):
    """Runs one coroutine processor and says what that came to."""

    async def run(self, job: Job) -> Result | None:
        # A task of its own: what a job sets in its context stays there.
        await asyncio.create_task(self._run_to_its_end(job))
        return self._concluded

    async def _run_to_its_end(self, job: Job) -> None:
        try:
            result = await self._run_checked(job)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # it is the test that is told to end
            result = Raised(error)
        except Exception as error:
            result = Raised(error)
        except BaseException as error:
            if not is_suspension(error):
                raise
            result = Raised(error)
        await self._finish_checked(job, result)

    def _end(self, job: Job, result: Result | None) -> None:
        self._concluded = result


class StepThreadRunner(ThreadRunner):
    """Runs one plain function and says what that came to; called in a thread without a loop."""

    def run(self, job: Job) -> Result | None:
        ran = self._run(job)
        needs_care = job.moving is not None or isinstance(ran, Raised)
        return self._conclude(job, ran) if needs_care else ran


class ImmediateCompleter(Completer):
    """Sends verdicts for a worker whose slots nobody counts."""

    def settle(self, batch: OutcomeBatch) -> None:
        self._send_again(batch, MIN_BACKOFF)


class StepWorker(Worker):
    """The rules and options of a real worker, its runners and its settler; but no life."""

    def __init__(
        self, queue: Queue, handlers: Mapping[str, Handler], name: str, options: Mapping[str, Any]
    ) -> None:
        super().__init__(queue, None, name=name, autorun=False, **options)
        self._handlers = handlers
        self.names = None if ANY in handlers else tuple(handlers)
        self.next_due: int | None = None
        """When there may be something to take, as the last claim found."""
        self._lost = False
        in_loop = {ANY: Handler(self._call_processor, True)}
        self._on_the_loop = StepLoopRunner(in_loop, 1, self, self._most_started)
        in_thread = {ANY: Handler(self._call_processor, False)}
        self._in_a_thread = StepThreadRunner(in_thread, 1, self, self._most_started)

    def _handler_of(self, job: Job) -> Handler:
        return self._handlers.get(job.name) or self._handlers[ANY]

    def _call_processor(self, job: Job) -> Any:
        return self._handler_of(job).call(job)

    async def start(self) -> None:
        """Go on the register of the queue."""
        await self.queue.wait_until_ready()
        self._engine = self.queue.store.open()
        self._subscription = Subscription(
            self._registration(self.names, 1),
            0,
            _nothing,
            SAME_THREAD,
            _nothing,
            self._intervals,
            _nothing,
            manual=True,
        )
        self._engine.subscriptions.subscribe(self._subscription)
        self._completer = ImmediateCompleter(
            self._engine,
            self._subscription,
            _nothing,
            self._on_recorded,
            self._on_store_error,
            _nothing,
        )

    def stop(self) -> None:
        """Off the register."""
        self._engine.subscriptions.unsubscribe(self._subscription, _nothing)

    def take(self) -> Job | None:
        """The next job in line, claimed; None if there is none."""
        while True:
            answer: BlockingFuture[Claimed] = BlockingFuture()
            self._engine.subscriptions.claim_one(self._subscription, answer, SAME_THREAD)
            claimed = answer.result()
            if claimed.rows or claimed.exhausted or claimed.paused:
                break  # otherwise it did as much as one transaction may, and there is more
        self.next_due = claimed.next_due
        if not claimed.rows:
            return None
        [job] = claimed_jobs(self.queue, claimed, self, self.name)
        return job

    async def run_job(self, job: Job) -> Result | None:
        """What its run means; None if the run has moved the job by itself."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        if self._handler_of(job).in_loop:
            return await self._on_the_loop.run(job)
        return await bridge.run_in_thread(partial(self._in_a_thread.run, job))

    def settle(self, job: Job, result: Result) -> bool:
        """Record what a run came to; whether the job was still this worker's."""
        verdict = decide(job, result, self.queue.random, self.rules)
        self._lost = False
        part = (verdict, EndedRun(job, result), job.command_end)
        self._completer.settle(OutcomeBatch.of([part]))
        return not self._lost

    def _on_recorded(self, batch: OutcomeBatch, settled: FinishResult) -> None:
        self._lost = bool(settled.lost)
        super()._on_recorded(batch, settled)

    # --- what runners tell their master; nobody waits for it here ---

    def returned(self, job: Job, value: Any) -> None:
        """Told by the return of `run_job` instead."""

    def ended(self, job: Job, result: Result | None) -> None:
        """The same."""


def _nothing(*answer: object) -> None:
    pass
