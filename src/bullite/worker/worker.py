"""Worker: claims jobs of a queue, runs them and emits events; closes without losing a job."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar, overload

from ..client.job.job import Job, Wait
from ..client.queue.queue import Queue
from ..client.runtime import bridge
from ..client.runtime.emitter import Entry, Listener, OwnEmitter
from ..client.runtime.store import Store
from ..core.checks import Duration, check_bool, check_duration, check_int, check_rate
from ..core.decide_outcome import Raised, RetentionDefaults, Returned
from ..core.job_options import KeepJobs, RateLimit, check_keep
from ..core.names import check_name
from ..core.retention import retention_of
from ..core.states import CANCELLED, COMPLETE, FAIL, STALL, STALL_DELAYED, State
from ..engine.engine import Engine
from ..engine.subscription import WorkerIntervals
from ..errors import (
    InvalidOption,
    InvalidOptionType,
    JobCancelled,
    LostLock,
    StoreClosed,
    WrongProcess,
)
from ..operations.finish import FinishResult
from ..operations.rate_limits import Rate
from ..operations.transaction import LoggedEntries
from ..operations.workers import RegisterWorker
from .completer import OutcomeBatch
from .manual import ManualFetcher
from .pool import Pool
from .processors import (
    ANY,
    HandlerGroup,
    Processor,
    check_concurrency,
    check_processors,
    make_handler,
)
from .retry_strategies import BackoffStrategy, RetryStrategy, Strategies

log = logging.getLogger("bullite.worker")

CANCEL_GRACE = 1.0
"""Seconds that interrupted coroutines get to end when a worker is closed by force."""

_ordinals = itertools.count(1)
F = TypeVar("F", bound=Callable[..., Any])


class CallableBool(int):
    """True or False; BullMQ's users call it, Python's read it."""

    def __call__(self) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))


class Worker(OwnEmitter):
    """Runs `processor` for the jobs of `queue`, `concurrency` of them at a time.

    A processor takes `(job)`, `(job, token)` or `(job, token, signal)`. An `async def` runs on the
    event loop, a `def` in a thread. A mapping of names to processors takes only jobs of those
    names; `(processor, n)` gives one a concurrency of its own. Made inside a running event loop it
    starts at once, unless `autorun=False`; else with `run()` or `async with`. Without a processor,
    jobs are fetched by hand with `get_next_job`.
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
        own_name = f"{socket.gethostname()}:{os.getpid()}"
        self.name = check_name("the worker's name", own_name if name is None else name)
        self._concurrency = check_concurrency(concurrency)
        self._assignments = check_processors(processor)
        self._lock_duration = check_duration("lock_duration", lock_duration, least=100)
        self._renews = not check_bool("skip_lock_renewal", skip_lock_renewal)
        renew_every = self._lock_duration // 2
        if lock_renew_time is not None:
            renew_every = check_duration("lock_renew_time", lock_renew_time)
            self._renews = self._renews and renew_every > 0
        self._intervals = WorkerIntervals(
            renew_every=max(10, renew_every) if self._renews else self._lock_duration,
            poll_interval=check_duration("poll_interval", poll_interval, least=1),
            maintenance_interval=check_duration(
                "maintenance_interval", maintenance_interval, least=1
            ),
            stalled_interval=check_duration("stalled_interval", stalled_interval, least=1),
            checks_stalled=not check_bool("skip_stalled_check", skip_stalled_check),
            pause_after_error=None
            if run_retry_delay is None
            else check_duration("run_retry_delay", run_retry_delay),
            renewed=self._renewed,
        )
        self._max_stalled_count = check_int("max_stalled_count", max_stalled_count, 0, 2**31 - 1)
        self._stalled_backoff = check_bool("stalled_backoff", stalled_backoff)
        self._most_started = (
            None
            if max_started_attempts is None
            else check_int("max_started_attempts", max_started_attempts, 0, 2**31 - 1) or None
        )
        self._drain_delay = check_duration("drain_delay", drain_delay, least=1)
        self.rules = RetentionDefaults(
            _check_retention("remove_on_complete", remove_on_complete),
            _check_retention("remove_on_fail", remove_on_fail),
        )
        self._limiter = None if limiter is None else Rate(*check_rate("limiter", limiter))
        self._longest_rest = check_duration(
            "maximum_rate_limit_delay", maximum_rate_limit_delay, least=1
        )
        self._strategies = Strategies(retry_strategies, backoff_strategy)
        self._autorun = check_bool("autorun", autorun)
        self._pid = os.getpid()
        self._ordinal = next(_ordinals)
        self._pools: list[Pool] = []
        self.on_recorded: Callable[[OutcomeBatch, FinishResult], None] | None = None
        """Told of all verdicts once they are recorded, many at a time, on whatever thread."""
        self._manual: ManualFetcher | None = None
        self._has_listeners = False
        self._paused = self._closed = self._closing = False
        self._queue_empty = self._did_work = False
        self._life_task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        if self._assignments:
            self._start_if_asked()

    def _start_if_asked(self) -> None:
        if not self._autorun:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # no loop yet: run() or async with will start it
        self._start()

    # --- what it runs ----------------------------------------------------------------------------

    @overload
    def process(self, name: str, processor: F, *, concurrency: int | None = None) -> F: ...
    @overload
    def process(self, name: str, *, concurrency: int | None = None) -> Callable[[F], F]: ...
    def process(self, name: str, processor: Any = None, *, concurrency: int | None = None) -> Any:
        """Take jobs called `name` too, and run them with this function; a decorator without one."""
        if processor is None:
            return lambda function: self.process(name, function, concurrency=concurrency)
        check_name("a processor's name", name)
        taken = {known for assignment in self._assignments for known in assignment.handlers}
        if ANY in taken:
            raise InvalidOption("this worker has a processor for all names already")
        if name in taken:
            raise InvalidOption(f"this worker has a processor for {name!r} already")
        handler = make_handler(f"the processor of {name!r}", processor)
        limit = None if concurrency is None else check_concurrency(concurrency)
        if self._pools:
            # It works already: the newcomer gets a standing order of its own.
            self._assignments.append(HandlerGroup({name: handler}, limit or self._concurrency))
            self._open_pool(self._assignments[-1])
        elif limit is not None:
            self._assignments.append(HandlerGroup({name: handler}, limit))
        else:
            shared = next((a for a in self._assignments if a.concurrency is None), None)
            if shared is not None:
                self._assignments.remove(shared)
            handlers = {**(shared.handlers if shared else {}), name: handler}
            self._assignments.insert(0, HandlerGroup(handlers, None))
            self._start_if_asked()
        return processor

    @property
    def concurrency(self) -> int:
        """How many jobs it runs at a time; may be changed while it works."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self._concurrency = check_concurrency(value)
        for assignment, pool in zip(self._assignments, self._pools, strict=False):
            if assignment.concurrency is None:
                pool.change_concurrency(value)

    def __repr__(self) -> str:
        if self._closed:
            state = "closed"
        elif self._paused:
            state = "paused"
        else:
            state = "running" if self.is_running else "not started"
        return f"<Worker {self.name!r} of {self.queue.name!r}: {state}>"

    # --- starting and running --------------------------------------------------------------------

    @property
    def is_running(self) -> CallableBool:
        """Whether it works: it has begun, and is neither closed nor paused and idle."""
        task = self._life_task
        return CallableBool(task is not None and not task.done() and not self._idle_paused.is_set())

    @property
    def is_paused(self) -> CallableBool:
        return CallableBool(self._paused)

    async def run(self) -> None:
        """Work until `close` or `pause`; on a worker that runs already, wait until it ends."""
        if not self._assignments:
            raise InvalidOption("no processor is defined: pass one to Worker, or use process()")
        if self._life_task is None and self._closed:
            return
        life = self._start()
        resting = asyncio.create_task(self._idle_paused.wait())
        try:
            await asyncio.wait({life, resting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            resting.cancel()
        if life.done():
            await life

    async def wait_until_ready(self) -> None:
        """Wait until the worker is known to its queue; without `autorun` it takes none yet."""
        if self._assignments and self._autorun:
            self._start()
            if not await self._has_started() and self._life_task is not None:
                await self._life_task
            for pool in self._pools:
                await bridge.wait_registered(self._engine, pool.subscription)
        else:
            await self._fetcher()

    def _start(self) -> asyncio.Task[None]:
        if self._pid != os.getpid():
            raise WrongProcess("this worker was made before a fork; make a new one in this process")
        if self._life_task is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.get_ident()
            self._started, self._ended = asyncio.Event(), asyncio.Event()
            self._idle, self._force = asyncio.Event(), asyncio.Event()
            self._idle_paused = asyncio.Event()
            self._life_task = self._loop.create_task(
                self._run(), name=f"worker of {self.queue.name}"
            )
        return self._life_task

    async def _run(self) -> None:
        """Register, run jobs until closed, finish all runs, deregister."""
        try:
            await self.queue.wait_until_ready()
            self._engine: Engine = self.queue.store.open()
        except Exception as error:
            log.error("worker %s cannot start: %s", self.name, error)
            raise
        for assignment in self._assignments:
            self._open_pool(assignment)
        if self._manual is None:
            self._follow_stalls()
        elif not self._manual.used:
            await self._manual.close()  # it only stood for what is registered now
            self._manual = None
        if self._paused:
            self._idle_paused.set()
        self._started.set()
        self.emit("ready")
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            # The loop is ending without close(): claim nothing that nobody will run.
            self._closing = True
            for pool in self._pools:
                self._engine.subscriptions.pause(pool.subscription, _ignore)
                pool.stop(interrupt=True)
                self._engine.subscriptions.unsubscribe(pool.subscription, _ignore)
            raise

    def _follow_stalls(self) -> None:
        kinds = frozenset((STALL.name, STALL_DELAYED.name))
        self._engine.followers.follow(
            self.queue.key, self._hear_of_stalls, bridge.reply_target(), kinds
        )

    def _open_pool(self, assignment: HandlerGroup) -> None:
        concurrency = assignment.concurrency or self._concurrency
        pool = Pool(
            self,
            assignment,
            concurrency,
            self._engine,
            self._registration(assignment.names, concurrency),
            self._intervals,
            bridge.reply_target(),
            self._most_started,
        )
        pool.tell_begin(self.hears("active"))
        if self._paused:
            pool.subscription.paused = True
        self._pools.append(pool)
        self._engine.subscriptions.subscribe(pool.subscription)

    def _registration(self, names: tuple[str, ...] | None, concurrency: int) -> RegisterWorker:
        return RegisterWorker(
            queue=self.queue.key,
            name=self.name,
            names=names,
            lock_duration=self._lock_duration,
            max_stalled_count=self._max_stalled_count,
            pid=os.getpid(),
            host=socket.gethostname(),
            boot=self.queue.store.open().clock.boot,
            address=None,
            renews=self._renews,
            stalled_backoff=self._stalled_backoff,
            number=self._ordinal,
            concurrency=concurrency,
            limiter=self._limiter,
            longest_rest=self._longest_rest,
        )

    async def rate_limit(self, duration: Duration) -> None:
        """Let nothing of the queue begin for `duration`, as `queue.rate_limit`."""
        await self.queue.rate_limit(duration)

    # --- by hand ---------------------------------------------------------------------------------

    async def get_next_job(self, token: str | None = None, block: bool = True) -> Job | None:
        """Take the next job, to be ended by hand; waits up to `drain_delay` for one if `block`.

        `token` is a word of the caller's own that will stand for the job's token.
        """
        if self._pid != os.getpid():
            raise WrongProcess("this worker was made before a fork; make a new one in this process")
        if token is not None:
            check_name("token", token)
        limit = self._drain_delay / 1000 if check_bool("block", block) else 0
        if self._takes_nothing():
            return None
        hands = await self._fetcher(to_take=True)
        if self._takes_nothing():
            return None  # it was told so while it got ready
        job = await hands.fetch(limit)
        if job is not None:
            if token is not None:
                job._set_token_label(token)
            self.emit("active", job, State.WAITING.value)
        return job

    def _takes_nothing(self) -> bool:
        return self._paused or self._closed

    async def _fetcher(self, to_take: bool = False) -> ManualFetcher:
        await self.queue.wait_until_ready()
        if self._manual is None:
            self._engine = self.queue.store.open()
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
            registration = self._registration(None, self._concurrency)
            self._manual = ManualFetcher(self, self._engine, registration, self._intervals)
            self._follow_stalls()
            if self._closed:
                await self._close_manual()
                return self._manual
        hands = self._manual
        hands.used = hands.used or to_take
        await hands.ready()
        return hands

    # --- what its pools tell ---------------------------------------------------------------------

    def _on_started(self, job: Job) -> None:
        self._tell("active", job, State.WAITING.value)

    def _on_progress(self, job: Job, progress: Any) -> None:
        if self.hears("progress") or self.queue.hears("progress"):
            self._tell("progress", job, progress)
            self._in_loop(self.queue.emit, "progress", job.id, progress)

    def _on_late_error(self, job: Job, error: Exception) -> None:
        log.warning("job %s was moved or lost before its run ended: %s", job.id, error)
        self._tell("error", error)

    def _on_stuck(self, job: Job) -> None:
        log.error("job %s runs on although its timeout is over: it is stuck", job.id)
        self._tell("stuck", job)

    def strategy(self, job: Job, error: BaseException) -> Awaitable[Wait] | Wait:
        return self._strategies.ask(job, error)

    def _on_recorded(self, batch: OutcomeBatch, settled: FinishResult) -> None:
        """The verdicts on these runs are in the database, but for the jobs that were lost."""
        if self.on_recorded is not None:
            self.on_recorded(batch, settled)
        if batch.runs is not None or settled.lost:
            self._in_loop(self._report, batch, settled)

    def _report(self, batch: OutcomeBatch, settled: FinishResult) -> None:
        lost = set(settled.lost)
        for job in lost:
            message = f"job {job} was no longer held when its run ended; nothing was recorded"
            log.warning("%s", message)
            self._tell("error", LostLock(message))
        for verdict, run in zip(batch.outcomes, batch.runs or (), strict=False):
            if verdict.job in lost:
                continue
            active = State.ACTIVE.value
            if (problem := settled.overridden.get(verdict.job)) is not None:
                outcome = CANCELLED if isinstance(problem, JobCancelled) else verdict.outcome
                failed = verdict._replace(move=FAIL, reason=str(problem), outcome=outcome, delay=0)
                run.job._apply_outcome(failed, settled.at)
                self._tell("failed", run.job, problem, active)
                continue
            run.job._apply_outcome(verdict, settled.at)
            match run.result:
                case Returned(value) if verdict.move is COMPLETE:
                    self._tell("completed", run.job, value, active)
                case Raised(error):
                    self._tell("failed", run.job, error, active)
                case _ if verdict.reason is not None:
                    self._tell("failed", run.job, RuntimeError(verdict.reason), active)

    def _on_store_error(self, error: Exception) -> None:
        """The store failed; it is tried again."""
        self._tell("error", error)
        if self.queue.events.hears("error"):
            self._in_loop(self.queue.events.emit, "error", self.queue.name, self.name, error)

    def taken_away(self, jobs: Sequence[Job]) -> None:
        """These run here, and are not this worker's any more."""
        ids = [job.id for job in jobs]
        log.warning("worker %s runs jobs that were taken away: %s", self.name, ", ".join(ids))
        self._tell("lock-renewal-failed", ids)
        for job in jobs:
            job.abort(LostLock(f"job {job.id} was taken away from its worker"))

    def _on_claimed(self) -> None:
        self._did_work, self._queue_empty = True, False

    def _on_empty(self) -> None:
        self._queue_empty = True
        self._check_drained()

    def _check_drained(self) -> None:
        if (
            self._closing
            or self._paused
            or self.hears("drained")
            or self.queue.events.hears("drained")
        ):
            self._in_loop(self._check_idle)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        handles: list[asyncio.TimerHandle] = []
        self._in_loop(lambda: handles.append(self._loop.call_later(seconds, call)))

        def cancel() -> None:
            self._in_loop(_cancel_all, handles)

        return cancel

    def _renewed(self, kept: bool) -> None:
        """Leases were renewed, on the engine's thread."""
        if not (kept and self._renews and self.hears("locks-renewed")):
            return
        ids = [job.id for pool in self._pools for job in pool.running()]
        if ids:
            self._tell("locks-renewed", {"count": len(ids), "job_ids": ids})

    def _hear_of_stalls(self, logged: Sequence[LoggedEntries] | BaseException) -> None:
        if isinstance(logged, BaseException):
            return
        for entry in logged:
            for event in entry.events:
                id = event[0] if isinstance(event, tuple) else event
                self.emit("stalled", str(id), State.ACTIVE.value)

    def _tell(self, event: str, *arguments: Any) -> None:
        """Emit on the loop's thread, whatever thread this is."""
        if self.hears(event):
            self._in_loop(self.emit, event, *arguments)

    def _in_loop(self, call: Callable[..., Any], *arguments: Any) -> None:
        if threading.get_ident() == self._thread:
            call(*arguments)
            return
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to listen

    def add_entry(self, key: str, entry: Entry) -> None:
        super().add_entry(key, entry)
        self._notice_listeners()

    def forget(self, key: str, listener: Listener | None, scope: str | None = None) -> None:
        super().forget(key, listener, scope)
        self._notice_listeners()

    def _notice_listeners(self) -> None:
        """Looked up once here rather than for every job."""
        self._has_listeners = self.hears("completed", "failed")
        for pool in self._pools:
            pool.tell_begin(self.hears("active"))

    def running_jobs(self) -> list[Job]:
        """The jobs that it runs now."""
        return [job for pool in self._pools for job in pool.running()]

    # --- cancelling ------------------------------------------------------------------------------

    def cancel_job(self, job_id: str, reason: str | None = None) -> bool:
        """Cancel a job that this worker runs; whether it does. From its event loop's thread.

        A coroutine is cancelled, a function gets its signal. Unless it completes all the same, the
        job is failed, with the outcome `cancelled`, and not retried.
        """
        return self._cancel(lambda job: job.id == job_id, reason) > 0

    def cancel_all_jobs(self, reason: str | None = None) -> int:
        """The same for every job that this worker runs; how many it was."""
        return self._cancel(lambda job: True, reason)

    def _cancel(self, wanted: Callable[[Job], bool], reason: str | None) -> int:
        if reason is not None and not isinstance(reason, str):
            raise InvalidOptionType(f"reason must be text, not {reason!r}")
        why = reason or "the job was cancelled"
        return sum(pool.cancel_those(wanted, why) for pool in self._pools)

    # --- pausing ---------------------------------------------------------------------------------

    async def pause(self, do_not_wait_active: bool = False) -> None:
        """Take no more jobs until `resume`; waits for those that run, unless told not to."""
        check_bool("do_not_wait_active", do_not_wait_active)
        if self._paused or self._closed:
            return
        self._paused = True
        if self._manual is not None:
            await self._manual.pause()
        if self._life_task is not None and await self._has_started():
            await self._pause_fetching()
            for pool in self._pools:
                pool.return_unstarted()
            if not do_not_wait_active:
                await self._becomes_idle(None, None)
            self._check_idle()
        self.emit("paused")

    async def resume(self) -> None:
        """Take jobs again."""
        if not self._paused or self._closed:
            return
        self._paused = False
        if self._manual is not None:
            self._manual.resume()
        if self._life_task is not None:
            self._idle_paused.clear()
            for pool in self._pools:
                self._engine.subscriptions.resume(pool.subscription)
        self.emit("resumed")

    # --- leaving ---------------------------------------------------------------------------------

    async def close(self, force: bool = False, timeout: Duration | None = None) -> None:
        """Take no more jobs and end.

        Waits for the running jobs, at most `timeout`; then, or at once with `force`, interrupts
        coroutines and gives their jobs back at no cost. A thread cannot be interrupted: its job
        stays with it, and what it returns is recorded, until its process ends; then the job is
        given back, at no cost either.
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
        self._engine.followers.unfollow(self._hear_of_stalls)

    async def _has_started(self) -> bool:
        """Wait until the worker works; False if it failed to."""
        assert self._life_task is not None
        starting = asyncio.create_task(self._started.wait())
        await asyncio.wait({starting, self._life_task}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        return self._started.is_set()

    async def _leave(self) -> None:
        self._closing = True
        try:
            await self._pause_fetching()
            for pool in self._pools:
                pool.stop(interrupt=False)
            if not await self._becomes_idle(self._force, None):
                for pool in self._pools:
                    pool.stop(interrupt=True)
                if not await self._becomes_idle(None, CANCEL_GRACE):
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

    async def _pause_fetching(self) -> None:
        """After this no claim of the worker is under way."""
        for pool in self._pools:
            paused: asyncio.Future[Any] = self._loop.create_future()
            self._engine.subscriptions.pause(
                pool.subscription, bridge.Resolver(paused), bridge.reply_target()
            )
            await paused

    async def _becomes_idle(self, unless: asyncio.Event | None, limit: float | None) -> bool:
        """Wait until everything is settled, or until `unless`, or for so many seconds."""
        self._idle.clear()
        self._check_idle()
        waits = [asyncio.create_task(e.wait()) for e in (self._idle, unless) if e is not None]
        await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return self._idle.is_set()

    def _check_idle(self) -> None:
        if self._busy():
            return
        self._idle.set()
        if self._paused:
            self._idle_paused.set()
        if self._queue_empty and self._did_work:
            self._queue_empty = self._did_work = False
            self.emit("drained")
            self.queue.events.emit("drained", self.queue.name, self.name)

    def _busy(self) -> int:
        return sum(pool.busy() for pool in self._pools)

    async def _deregister(self) -> None:
        self._engine.followers.unfollow(self._hear_of_stalls)
        for pool in self._pools:
            gone: asyncio.Future[Any] = self._loop.create_future()
            self._engine.subscriptions.unsubscribe(
                pool.subscription, bridge.Resolver(gone), bridge.reply_target()
            )
            await gone

    async def __aenter__(self) -> Self:
        if self._assignments:
            self._start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def _ignore(answer: object) -> None:
    pass


def _cancel_all(handles: Sequence[asyncio.TimerHandle]) -> None:
    for handle in handles:
        handle.cancel()


def _check_queue(queue: Any, store: Any) -> Queue:
    if isinstance(queue, str):
        return Queue(queue, store)
    if not isinstance(queue, Queue):
        raise InvalidOptionType(f"a worker needs a Queue, or the name of one, not {queue!r}")
    if store is not None:
        raise InvalidOption("store goes with the name of a queue; a Queue has its own")
    return queue


def _check_retention(option: str, value: Any) -> Any:
    return None if value is None else retention_of(check_keep(option, value))
