"""Worker: claims jobs of a queue, runs them and emits events; closes without losing a job."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar, overload

from ..client.job.job import Job
from ..client.queue.queue import Queue
from ..client.runtime import bridge
from ..client.runtime.emitter import Entry, Listener, OwnEmitter
from ..client.runtime.store import Store
from ..core.checks import Duration, check_bool, check_duration
from ..core.job_options import KeepJobs, RateLimit
from ..core.names import check_name
from ..core.states import State
from ..engine.engine import Engine
from ..errors import InvalidOption, InvalidOptionType, StoreClosed, WrongProcess
from .activity import Activity
from .context import WorkerContext
from .event_loop import WorkerLoop
from .manual import ManualFetcher
from .notifications import Notifications
from .options import WorkerOptions
from .pool import Pool
from .processors import (
    ANY,
    HandlerGroup,
    Processor,
    check_concurrency,
    check_processors,
    make_handler,
)
from .retry_strategies import BackoffStrategy, RetryStrategy

log = logging.getLogger("bullite.worker")

CANCEL_GRACE = 1.0
"""Seconds that interrupted coroutines get to end when a worker is closed with `force`."""

_ordinals = itertools.count(1)
F = TypeVar("F", bound=Callable[..., Any])


class CallableBool(int):
    """True or False, as a property and, as in BullMQ, as a method."""

    def __call__(self) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))


class Worker(OwnEmitter):
    """Runs `processor` for the jobs of `queue`, `concurrency` of them at a time.

    A processor takes `(job)`, `(job, token)` or `(job, token, signal)`. An `async def` runs on the
    event loop, a `def` in a thread. A mapping of names to processors takes only jobs of those
    names; `(processor, n)` gives one a concurrency of its own. A worker that is made inside a
    running event loop starts immediately, unless `autorun=False`; else with `run()` or
    `async with`. Without a processor, jobs are fetched with `get_next_job`.
    """

    def __init__(
        self,
        queue: Queue | str,
        processor: Processor | Mapping[str, Processor | tuple[Processor, int]] | None = None,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        concurrency: int = 1,
        name: str | None = None,
        autorun: bool = True,
        lock_duration: Duration = 30_000,
        lock_renew_time: Duration | None = None,
        stalled_interval: Duration = 30_000,
        max_stalled_count: int = 1,
        stalled_backoff: bool = False,
        max_started_attempts: int | None = None,
        poll_interval: Duration = 1_000,
        maintenance_interval: Duration = 1_000,
        drain_delay: Duration = 5_000,
        run_retry_delay: Duration | None = None,
        skip_stalled_check: bool = False,
        skip_lock_renewal: bool = False,
        remove_on_complete: bool | int | KeepJobs | None = None,
        remove_on_fail: bool | int | KeepJobs | None = None,
        retry_strategies: Mapping[str, RetryStrategy] | None = None,
        backoff_strategy: BackoffStrategy | None = None,
        limiter: RateLimit | None = None,
        maximum_rate_limit_delay: Duration = 30_000,
    ) -> None:
        super().__init__()
        self._owns_queue = isinstance(queue, str)
        self.queue = _check_queue(queue, store)
        self._groups = check_processors(processor)
        self._options = WorkerOptions.checked(
            concurrency=concurrency,
            name=name,
            autorun=autorun,
            lock_duration=lock_duration,
            lock_renew_time=lock_renew_time,
            stalled_interval=stalled_interval,
            max_stalled_count=max_stalled_count,
            stalled_backoff=stalled_backoff,
            max_started_attempts=max_started_attempts,
            poll_interval=poll_interval,
            maintenance_interval=maintenance_interval,
            drain_delay=drain_delay,
            run_retry_delay=run_retry_delay,
            skip_stalled_check=skip_stalled_check,
            skip_lock_renewal=skip_lock_renewal,
            remove_on_complete=remove_on_complete,
            remove_on_fail=remove_on_fail,
            retry_strategies=retry_strategies,
            backoff_strategy=backoff_strategy,
            limiter=limiter,
            maximum_rate_limit_delay=maximum_rate_limit_delay,
        )
        self.name = self._options.name
        self._concurrency = self._options.concurrency
        self._loop = WorkerLoop()
        self._notifications = Notifications(self, self.queue, self.name, self._loop)
        self._activity = Activity(self._loop, self._notifications, self._busy)
        self._context = WorkerContext(
            queue=self.queue,
            ordinal=next(_ordinals),
            options=self._options,
            intervals=replace(self._options.intervals, renewed=self._locks_renewed),
            loop=self._loop,
            notifications=self._notifications,
            activity=self._activity,
        )
        self._pid = os.getpid()
        self._pools: list[Pool] = []
        self._manual: ManualFetcher | None = None
        self._closed = False
        self._life_task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._started, self._ended, self._force = asyncio.Event(), asyncio.Event(), asyncio.Event()
        if self._groups:
            self._start_if_autorun()

    def _start_if_autorun(self) -> None:
        if not self._options.autorun:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # no event loop runs yet: run() or `async with` starts it
        self._start()

    # --- processors ------------------------------------------------------------------------------

    @overload
    def process(self, name: str, processor: F, *, concurrency: int | None = None) -> F: ...
    @overload
    def process(self, name: str, *, concurrency: int | None = None) -> Callable[[F], F]: ...
    def process(self, name: str, processor: Any = None, *, concurrency: int | None = None) -> Any:
        """Run jobs called `name` with this function, too. Without `processor`, return a decorator.

        Raise InvalidOption if the worker has a processor for these jobs already.
        """
        if processor is None:
            return lambda function: self.process(name, function, concurrency=concurrency)
        check_name("a processor's name", name)
        taken = {known for group in self._groups for known in group.handlers}
        if ANY in taken:
            raise InvalidOption("this worker has a processor for all names already")
        if name in taken:
            raise InvalidOption(f"this worker has a processor for {name!r} already")
        handler = make_handler(f"the processor of {name!r}", processor)
        limit = None if concurrency is None else check_concurrency(concurrency)
        if self._pools:
            # The worker is running: the new processor gets a subscription of its own.
            self._groups.append(HandlerGroup({name: handler}, limit or self._concurrency))
            self._open_pool(self._groups[-1])
        elif limit is not None:
            self._groups.append(HandlerGroup({name: handler}, limit))
        else:
            shared = next((group for group in self._groups if group.concurrency is None), None)
            if shared is not None:
                self._groups.remove(shared)
            handlers = {**(shared.handlers if shared else {}), name: handler}
            self._groups.insert(0, HandlerGroup(handlers, None))
            self._start_if_autorun()
        return processor

    @property
    def concurrency(self) -> int:
        """The number of jobs that run at a time. It can be changed while the worker runs."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self._concurrency = check_concurrency(value)
        for group, pool in zip(self._groups, self._pools, strict=False):
            if group.concurrency is None:
                pool.change_concurrency(value)

    def __repr__(self) -> str:
        if self._closed:
            state = "closed"
        elif self._activity.paused:
            state = "paused"
        else:
            state = "running" if self.is_running else "not started"
        return f"<Worker {self.name!r} of {self.queue.name!r}: {state}>"

    # --- starting and running --------------------------------------------------------------------

    @property
    def is_running(self) -> CallableBool:
        """True from the start until the worker is closed, or is paused and runs no jobs."""
        task = self._life_task
        return CallableBool(
            task is not None and not task.done() and not self._activity.idle_paused.is_set()
        )

    @property
    def is_paused(self) -> CallableBool:
        """True between `pause()` and `resume()`."""
        return CallableBool(self._activity.paused)

    async def run(self) -> None:
        """Start the worker if it is not started, and wait until it is closed or paused.

        Raise the error of opening the database, and InvalidOption if there is no processor.
        """
        if not self._groups:
            raise InvalidOption("no processor is defined: pass one to Worker, or use process()")
        if self._life_task is None and self._closed:
            return
        life = self._start()
        resting = asyncio.create_task(self._activity.idle_paused.wait())
        try:
            await asyncio.wait({life, resting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            resting.cancel()
        if life.done():
            await life

    async def wait_until_ready(self) -> None:
        """Wait until the worker is registered; start it before, unless `autorun` is False."""
        if self._groups and self._options.autorun:
            self._start()
            if not await self._has_started() and self._life_task is not None:
                await self._life_task
            for pool in self._pools:
                await bridge.wait_registered(self._engine, pool.subscription)
        else:
            await self._fetcher()

    def _start(self) -> asyncio.Task[None]:
        self._check_process()
        if self._life_task is None:
            self._loop.attach()
            self._life_task = asyncio.create_task(self._run(), name=f"worker of {self.queue.name}")
        return self._life_task

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise WrongProcess("this worker was made before a fork; make a new one in this process")

    async def _run(self) -> None:
        """Register, run jobs until closed, finish all runs, deregister."""
        try:
            await self.queue.wait_until_ready()
            self._engine: Engine = self.queue.store.open()
        except Exception as error:
            log.error("worker %s cannot start: %s", self.name, error)
            raise
        for group in self._groups:
            self._open_pool(group)
        if self._manual is None:
            self._notifications.follow_stalls(self._engine)
        elif not self._manual.used:
            await self._manual.close()  # the pools are registered in its place
            self._manual = None
        if self._activity.paused:
            self._activity.idle_paused.set()
        self._started.set()
        self.emit("ready")
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            # The loop ends without close(): claim no job that would never run.
            self._activity.closing = True
            for pool in self._pools:
                self._engine.subscriptions.pause(pool.subscription, _ignore)
                pool.stop(interrupt=True)
                self._engine.subscriptions.unsubscribe(pool.subscription, _ignore)
            raise

    def _open_pool(self, group: HandlerGroup) -> None:
        pool = Pool(self._context, self._engine, group, group.concurrency or self._concurrency)
        pool.report_starts(self.hears("active"))
        pool.subscription.paused = self._activity.paused
        self._pools.append(pool)
        self._engine.subscriptions.subscribe(pool.subscription)

    async def rate_limit(self, duration: Duration) -> None:
        """Start no jobs of the queue for `duration`, in any process, as `queue.rate_limit`."""
        await self.queue.rate_limit(duration)

    # --- manual processing -----------------------------------------------------------------------

    async def get_next_job(self, token: str | None = None, block: bool = True) -> Job | None:
        """Claim the next job, which the caller finishes. Return None if there is none.

        If `block`, wait for a job up to `drain_delay`. `token` is a text of the caller that is
        accepted in place of the job's token.
        """
        self._check_process()
        if token is not None:
            check_name("token", token)
        timeout = self._options.drain_delay / 1000 if check_bool("block", block) else 0
        if self._claims_nothing():
            return None
        fetcher = await self._fetcher(for_job=True)
        if self._claims_nothing():
            return None  # paused or closed while the worker was registered
        job = await fetcher.fetch(timeout)
        if job is not None:
            if token is not None:
                job._run.label = token
            self.emit("active", job, State.WAITING.value)
        return job

    def _claims_nothing(self) -> bool:
        return self._activity.paused or self._closed

    async def _fetcher(self, for_job: bool = False) -> ManualFetcher:
        await self.queue.wait_until_ready()
        if self._manual is None:
            self._engine = self.queue.store.open()
            self._loop.attach()
            self._manual = ManualFetcher(self._context, self._engine, self._concurrency)
            self._notifications.follow_stalls(self._engine)
            if self._closed:
                await self._close_manual()
                return self._manual
        self._manual.used = self._manual.used or for_job
        await self._manual.ready()
        return self._manual

    # --- listeners and running jobs --------------------------------------------------------------

    def _add_entry(self, key: str, entry: Entry) -> None:
        super()._add_entry(key, entry)
        self._notice_listeners()

    def _forget(self, key: str, listener: Listener | None, scope: str | None = None) -> None:
        super()._forget(key, listener, scope)
        self._notice_listeners()

    def _notice_listeners(self) -> None:
        # Here, once: looking it up for every job would take longer.
        self._notifications.listeners_changed()
        for pool in self._pools:
            pool.report_starts(self.hears("active"))

    def running_jobs(self) -> list[Job]:
        """Return the jobs that run now."""
        return [job for pool in self._pools for job in pool.running()]

    def _locks_renewed(self, kept: bool) -> None:
        """The engine has renewed the leases of this worker. On the engine's thread."""
        if kept and self._options.renews_locks and self._notifications.has_renewal_listeners():
            self._notifications.locks_renewed(self.running_jobs())

    # --- cancelling ------------------------------------------------------------------------------

    def cancel_job(self, job_id: str, reason: str | None = None) -> bool:
        """Cancel a job of this worker. Return True if it has the job. From the loop's thread only.

        A coroutine is cancelled, the abort signal of a function is set. Unless the run completes
        even so, the job fails with the outcome `cancelled` and is not retried.
        """
        return self._cancel(lambda job: job.id == job_id, reason) > 0

    def cancel_all_jobs(self, reason: str | None = None) -> int:
        """Cancel all jobs of this worker, as `cancel_job` does. Return their number."""
        return self._cancel(lambda job: True, reason)

    def _cancel(self, matches: Callable[[Job], bool], reason: str | None) -> int:
        if reason is not None and not isinstance(reason, str):
            raise InvalidOptionType(f"reason must be text, not {reason!r}")
        why = reason or "the job was cancelled"
        return sum(pool.cancel_matching(matches, why) for pool in self._pools)

    # --- pausing ---------------------------------------------------------------------------------

    async def pause(self, do_not_wait_active: bool = False) -> None:
        """Claim no more jobs until `resume`. Wait for running jobs, unless `do_not_wait_active`."""
        check_bool("do_not_wait_active", do_not_wait_active)
        if self._activity.paused or self._closed:
            return
        self._activity.paused = True
        if self._manual is not None:
            await self._manual.pause()
        if self._life_task is not None and await self._has_started():
            await self._pause_claims()
            for pool in self._pools:
                pool.return_unstarted()
            if not do_not_wait_active:
                await self._activity.becomes_idle()
            self._activity.check()
        self.emit("paused")

    async def resume(self) -> None:
        """Claim jobs again."""
        if not self._activity.paused or self._closed:
            return
        self._activity.paused = False
        if self._manual is not None:
            self._manual.resume()
        if self._life_task is not None:
            self._activity.idle_paused.clear()
            for pool in self._pools:
                self._engine.subscriptions.resume(pool.subscription)
        self.emit("resumed")

    # --- closing ---------------------------------------------------------------------------------

    async def close(self, force: bool = False, timeout: Duration | None = None) -> None:
        """Claim no more jobs, wait for the running ones and deregister.

        After `timeout`, or immediately with `force`, coroutines are cancelled and their jobs return
        to the queue; no attempt is used. A thread cannot be interrupted: it keeps its job, and its
        outcome is recorded if the process lives until then. Else the job returns to the queue.
        """
        limit = None if timeout is None else check_duration("timeout", timeout) / 1000
        first = not self._closed
        self._closed = True
        if first:
            self.emit("closing", f"worker {self.name} is closing")
        if self._manual is not None:
            await self._close_manual()
        if self._life_task is not None:
            if await self._has_started():
                if self._leaving is None:
                    self._leaving = asyncio.create_task(self._leave())
                done, _ = await asyncio.wait({self._leaving}, timeout=0 if force else limit)
                if not done:
                    self._force.set()
                await asyncio.shield(self._leaving)
            await self._life_task
        if first:
            if self._owns_queue:
                await self.queue.close()
            self.emit("closed")

    async def _close_manual(self) -> None:
        assert self._manual is not None
        await self._manual.close()
        self._notifications.unfollow_stalls(self._engine)

    async def _has_started(self) -> bool:
        """Wait until the worker is started. Return False if starting failed."""
        assert self._life_task is not None
        starting = asyncio.create_task(self._started.wait())
        await asyncio.wait({starting, self._life_task}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        return self._started.is_set()

    async def _leave(self) -> None:
        self._activity.closing = True
        try:
            await self._pause_claims()
            for pool in self._pools:
                pool.stop(interrupt=False)
            if not await self._activity.becomes_idle(unless=self._force):
                for pool in self._pools:
                    pool.stop(interrupt=True)
                if not await self._activity.becomes_idle(timeout=CANCEL_GRACE):
                    log.warning(
                        "worker %s: %d of its jobs still run; what of them has not ended when this "
                        "process ends is given back",
                        self.name,
                        self._busy(),
                    )
            await self._deregister()
        except StoreClosed:
            log.warning("worker %s: its store was closed before it", self.name)
        finally:
            self._ended.set()

    def _busy(self) -> int:
        return sum(pool.busy() for pool in self._pools)

    async def _pause_claims(self) -> None:
        """Pause the subscriptions, and wait until no claim for them is in flight."""
        for pool in self._pools:
            paused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._engine.subscriptions.pause(
                pool.subscription, bridge.Resolver(paused), bridge.reply_target()
            )
            await paused

    async def _deregister(self) -> None:
        self._notifications.unfollow_stalls(self._engine)
        for pool in self._pools:
            gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._engine.subscriptions.unsubscribe(
                pool.subscription, bridge.Resolver(gone), bridge.reply_target()
            )
            await gone

    async def __aenter__(self) -> Self:
        if self._groups:
            self._start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def _ignore(reply: object) -> None:
    pass


def _check_queue(queue: Any, store: Any) -> Queue:
    if isinstance(queue, str):
        return Queue(queue, store)
    if not isinstance(queue, Queue):
        raise InvalidOptionType(f"a worker needs a Queue, or the name of one, not {queue!r}")
    if store is not None:
        raise InvalidOption("store goes with the name of a queue; a Queue has its own")
    return queue
