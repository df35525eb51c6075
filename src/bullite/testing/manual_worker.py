"""A worker that claims a job, runs it or records its outcome only when it is called."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..client.job.job import Job, claimed_jobs
from ..client.queue.queue import Queue
from ..client.runtime import bridge
from ..client.runtime.blocking import BlockingFuture
from ..core.decide_outcome import Raised, Result, decide
from ..engine.replies import SAME_THREAD
from ..engine.subscription import Subscription
from ..errors import InvalidOption
from ..operations.claim import Claimed
from ..operations.finish import FinishResult
from ..worker.completer import Completer
from ..worker.control_errors import is_suspension
from ..worker.loop_runner import LoopRunner
from ..worker.outcome_batch import EndedRun, OutcomeBatch
from ..worker.processors import ANY, Handler
from ..worker.thread_runner import ThreadRunner
from ..worker.worker import Worker


def check_worker_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidOption for an option that workers do not have; a worker checks the values."""
    unknown = options.keys() - inspect.signature(Worker).parameters.keys()
    if unknown:
        raise InvalidOption(f"{min(unknown)!r} is no option of a Worker")


class StepLoopRunner(LoopRunner):
    """Runs one coroutine processor and returns its result."""

    async def run(self, job: Job) -> Result | None:
        # A task of its own, so that context variables which the job sets stay there.
        await asyncio.create_task(self._run_to_its_end(job))
        return self._concluded

    async def _run_to_its_end(self, job: Job) -> None:
        try:
            result = await self._run_checked(job)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the test was cancelled, not the job
            result = Raised(error)
        except Exception as error:
            result = Raised(error)
        except BaseException as error:
            if not is_suspension(error):
                raise
            result = Raised(error)
        await self._finish_checked(job, result)

    def end(self, job: Job, result: Result | None) -> None:
        self._concluded = result


class StepThreadRunner(ThreadRunner):
    """Runs one plain function and returns its result; called in a thread without a loop."""

    def run(self, job: Job) -> Result | None:
        ran = self._run(job)
        needs_check = job._run.moving is not None or isinstance(ran, Raised)
        return self._conclude(job, ran) if needs_check else ran


class ImmediateCompleter(Completer):
    """Sends the outcome of one run, without counting it."""

    def record(self, job: Job, result: Result) -> None:
        outcome = decide(job, result, self._random, self._retention)
        part = (outcome, EndedRun(job, result), job._run.command_end)
        self._send_again(OutcomeBatch.of_threads([part]))


class StepWorker:
    """The options, runners and completer of a worker, which claims and runs nothing by itself."""

    def __init__(
        self, queue: Queue, handlers: Mapping[str, Handler], name: str, options: Mapping[str, Any]
    ) -> None:
        self.queue = queue
        self._handlers = handlers
        self._context = Worker(queue, None, name=name, autorun=False, **options)._context
        self._context.notifications.recorded_hooks.append(self._note_lost)
        self.next_due: int | None = None
        """When there may be a job to claim, as the last claim found."""
        self._lost = False

    def _handler_of(self, job: Job) -> Handler:
        return self._handlers.get(job.name) or self._handlers[ANY]

    def _call_processor(self, job: Job) -> Any:
        return self._handler_of(job).call(job)

    async def start(self) -> None:
        """Register the worker."""
        await self.queue.wait_until_ready()
        self._engine = self.queue.store.open()
        names = None if ANY in self._handlers else tuple(self._handlers)
        self._subscription = Subscription(
            self._context.registration(names, 1),
            0,
            _ignore,
            SAME_THREAD,
            _ignore,
            self._context.intervals,
            _ignore,
            manual=True,
        )
        self._engine.subscriptions.subscribe(self._subscription)
        self._completer = ImmediateCompleter(
            self._context, self._engine, self._subscription, _ignore
        )
        in_loop = {ANY: Handler(self._call_processor, True)}
        self._loop_runner = StepLoopRunner(in_loop, 1, self._context, self._completer)
        in_thread = {ANY: Handler(self._call_processor, False)}
        self._thread_runner = StepThreadRunner(in_thread, 1, self._context, self._completer)

    def stop(self) -> None:
        """Deregister the worker."""
        self._engine.subscriptions.unsubscribe(self._subscription, _ignore)

    def take(self) -> Job | None:
        """Claim the next job. Return None if there is none."""
        while True:
            answer: BlockingFuture[Claimed] = BlockingFuture()
            self._engine.subscriptions.claim_one(self._subscription, answer, SAME_THREAD)
            claimed = answer.result()
            if claimed.rows or claimed.exhausted or claimed.paused:
                break  # else one transaction did as much as it may, and there is more to do
        self.next_due = claimed.next_due
        if not claimed.rows:
            return None
        [job] = claimed_jobs(self.queue, claimed, self._context.job_owner())
        return job

    async def run_job(self, job: Job) -> Result | None:
        """Run a claimed job and return its result; None if the run has moved the job itself."""
        self._context.loop.attach()
        if self._handler_of(job).in_loop:
            return await self._loop_runner.run(job)
        return await bridge.run_in_thread(partial(self._thread_runner.run, job))

    def settle(self, job: Job, result: Result) -> bool:
        """Record the outcome of a run. Return False if the job was lost."""
        self._lost = False
        self._completer.record(job, result)
        return not self._lost

    def _note_lost(self, batch: OutcomeBatch, result: FinishResult) -> None:
        self._lost = bool(result.lost)


def _ignore(*reply: object) -> None:
    pass
