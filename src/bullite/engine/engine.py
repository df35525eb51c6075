"""The engine: a writer thread that batches requests into transactions (group commit).

A turn takes all requests from the inbox and groups them. It executes them in one transaction, with
the claims of workers that have capacity. It replies after the commit. The engine contains no SQL,
and maps each request to the operation that executes it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar

from ..core.job_record import JobRow
from ..core.log_throttle import ThrottledLog
from ..database.driver import (
    Conflict,
    Driver,
    InvalidData,
    NotTogether,
    OutOfOrder,
    Params,
    Result,
    Step,
    TransactionAborted,
)
from ..errors import ENDING, RequestRefused, StoreBusy, StoreClosed, StoreError
from ..operations import add, finish, workers
from ..operations.claim import never_delayed_or_retried
from ..operations.registry import OPERATIONS
from ..operations.transaction import Operation, Transaction
from .batching import group, split
from .dispatcher import LOOKING, WRITING, Dispatcher, Served
from .held_locks import HeldLocks, LockRequest
from .inbox import Inbox
from .lock_order import NOTHING_AHEAD, Ahead, LockOrder, locked_ahead
from .maintenance import Chore, Maintenance
from .metrics import MetricsBuffer
from .read_thread import ReadThread
from .replies import SAME_THREAD, PendingRequest, Reply, ReplyTarget, RequestMerger
from .result_waiters import AwaitedJob, ResultWaiters
from .subscription import Subscription
from .threads import Spawn, start_thread

log = logging.getLogger("bullite.engine")

T = TypeVar("T")

CHECK_EVERY = 250
"""Ms between checks for commits of other processes while workers or callers wait."""

CHECK_SOON = 5
"""The same, at the beginning of a wait for which no notification is sent."""

POLL_INTERVAL = 1_000
"""Ms after which a worker with capacity polls, even if no change was noticed."""

MAX_TRIES = 30
"""How often a transaction is run again that the database undoes."""

MAX_POSTPONED = 5
"""How often one piece of housekeeping is; what is due by the clock comes again by itself."""

MAX_CONFLICTS = 5
"""How often one request is, that looked first and yet found something else than it saw."""

MAX_BACKOFF = 0.2
"""Seconds before it is run again, at most; less, and by chance, the first times."""

SLOW_LOCK, SLOW_STATEMENT = 0.2, 0.1
"""Seconds worth a warning."""

_CREATED_AT = JobRow._fields.index("created_at")


class Engine:
    """One writer for one database."""

    def __init__(self, driver: Driver, spawn: Spawn = start_thread) -> None:
        self.driver = driver
        self.clock = driver.clock
        self._spawn = spawn
        self._inbox = Inbox()
        self._maintenance = Maintenance(driver)
        self._backlog: deque[_MaintenanceTask] = deque()
        self._order: LockOrder | None = None
        self._dispatcher = Dispatcher(driver)
        self.metrics = MetricsBuffer()
        self.read_thread = ReadThread(driver.reader, spawn, self._end)
        self._result_waiters = ResultWaiters(driver, self._read_for_watchers)
        self.held_locks = HeldLocks(driver, self.submit)
        self._check_at = self._check_from = self._poll_at = 0
        self._poll_interval = POLL_INTERVAL
        self._maintenance_users = 0
        self._followers: list[tuple[int, frozenset[str] | None, PendingRequest]] = []
        self._is_running = self._stopping = self._is_alerted = False
        self._broken: StoreError | None = None
        self._leaving: list[Subscription] = []
        """Subscriptions of workers that are stopping and still hold jobs."""
        self._deregister_leaving_at = 0
        self._leave_callbacks: list[Callable[[], None]] = []
        self._exiting = False
        self._stopped = threading.Event()
        self._throttled_log = ThrottledLog(log)
        self._slow_log = ThrottledLog(log, every=1)

    # --- asking, from any thread -----------------------------------------------------------------

    def submit(self, request: Any, reply: Reply, mailbox: ReplyTarget = SAME_THREAD) -> None:
        """Put a request in; `reply` gets its answer, or the exception, after the commit."""
        self.submit_all([PendingRequest(request, reply, mailbox)])

    def submit_all(self, asks: Sequence[PendingRequest]) -> None:
        """Put requests in together: they will be carried out in one transaction."""
        if self._stopping:
            error = self._broken or StoreClosed("the store is closed")
            self._deliver([(ask, error) for ask in asks])
        else:
            self._inbox.put(asks)
            self._refuse_if_closed()

    def submit_merged(self, joiner: RequestMerger, part: Any, hurry: bool = True) -> None:
        """Put in what `joiner` makes a request of, with other parts that come meanwhile."""
        if self._stopping:
            self.submit_all(joiner.merge([part]))
        else:
            # A caller of `result()` may wait for the job that this part finishes.
            self._inbox.put_fragment(joiner, part, hurry or bool(self._result_waiters))
            self._refuse_if_closed()

    def _refuse_if_closed(self) -> None:
        """The engine has left: answer what was put in since."""
        if self._inbox.is_closed:
            error = self._broken or StoreClosed("the store was closed")
            self._deliver([(ask, error) for ask in self._inbox.drain()])
            self._deliver(self._inbox.waiters_to_release())

    def finish_runs(
        self, settle: finish.FinishRuns, reply: Reply, mailbox: ReplyTarget, worker: Subscription
    ) -> None:
        """Settle runs of a worker and, in the same transaction, fill the slots they leave."""
        order = EngineCall(partial(self._ended, worker, len(settle.outcomes)))
        self.submit_all(
            [PendingRequest(order, _ignore_reply), PendingRequest(settle, reply, mailbox)]
        )

    def ended(self, worker: Subscription, jobs: int) -> None:
        """Runs of a worker ended with nothing left to settle: their slots are free."""
        self.submit(EngineCall(partial(self._ended, worker, jobs)), _ignore_reply)

    def subscribe(self, subscription: Subscription) -> None:
        """Register a worker and claim jobs for it from now on."""
        self.submit(EngineCall(partial(self._subscribe, subscription)), _ignore)

    def pause_subscription(
        self, subscription: Subscription, reply: Reply, mailbox: ReplyTarget = SAME_THREAD
    ) -> None:
        """Pause a subscription. Reply once no claim for it is in flight."""
        self.submit(EngineCall(partial(self._pause_subscription, subscription)), reply, mailbox)

    def unsubscribe(
        self, subscription: Subscription, reply: Reply, mailbox: ReplyTarget = SAME_THREAD
    ) -> None:
        """Deregister a worker; the jobs that it holds stay locked until its lease ends.

        A worker that still runs jobs is deregistered when their runs have ended. Its lease is
        renewed until then.
        """
        self.submit(EngineCall(partial(self._unsubscribe, subscription)), reply, mailbox)

    def change_concurrency(self, subscription: Subscription, concurrency: int) -> None:
        """Change the number of jobs that a worker runs at a time."""
        self.submit(
            EngineCall(partial(self._change_concurrency, subscription, concurrency)), _ignore_reply
        )

    def resume_subscription(self, subscription: Subscription) -> None:
        """Claim jobs for a paused subscription again."""
        self.submit(EngineCall(partial(self._resume_subscription, subscription)), _ignore_reply)

    def request_job(self, subscription: Subscription) -> None:
        """Claim one job more for a manual subscription, as soon as there is one."""
        self.submit(EngineCall(partial(self._request_job, subscription, 1)), _ignore_reply)

    def cancel_request_job(self, subscription: Subscription) -> None:
        """Withdraw one `request_job`: its caller waits no more."""
        self.submit(EngineCall(partial(self._request_job, subscription, -1)), _ignore_reply)

    def claim_one(self, subscription: Subscription, reply: Reply, mailbox: ReplyTarget) -> None:
        """Claim one job for a manual subscription; `reply` gets a `Claimed` of one job or none."""
        self.submit(EngineCall(partial(self._claim_one, subscription)), reply, mailbox)

    def change_maintenance_users(self, more: int) -> None:
        """Run maintenance even without workers: each user adds 1, and subtracts it when done."""
        self.submit(EngineCall(partial(self._change_maintenance_users, more)), _ignore_reply)

    def follow(
        self, queue: int, reply: Reply, mailbox: ReplyTarget, kinds: frozenset[str] | None = None
    ) -> None:
        """`reply` gets what this process logs of these kinds, as a list of `LoggedEntries`."""
        self.submit(EngineCall(partial(self._follow, queue, kinds)), reply, mailbox)

    def unfollow(self, reply: Reply) -> None:
        self.submit(EngineCall(partial(self._unfollow, reply)), _ignore_reply)

    def watch(self, job: AwaitedJob, reply: Reply, mailbox: ReplyTarget) -> None:
        """`reply` gets [state, return value, failed reason] once the job is finished."""
        self.submit(EngineCall(partial(self._watch, job)), reply, mailbox)

    def unwatch(self, job: int, reply: Reply) -> None:
        """End the wait that `watch` began with this reply."""
        self.submit(EngineCall(partial(self._unwatch, job, reply)), _ignore_reply)

    def acquire_lock_call(self, grant: LockRequest, instead_of: int | None) -> EngineCall:
        """Return the call that acquires a named lock, if it has no other holder."""
        return EngineCall(partial(self.held_locks.take, grant, instead_of))

    def release_lock_call(self, grant: LockRequest) -> EngineCall:
        """Return the call that releases a named lock."""
        return EngineCall(partial(self.held_locks.release, grant))

    def extend_lock_call(self, grant: LockRequest, ttl: int) -> EngineCall:
        """Return the call that holds a named lock for `ttl` from now."""
        return EngineCall(partial(self.held_locks.extend, grant, ttl))

    def abandon(self, grant: LockRequest) -> None:
        """Give up a request for a named lock: its caller waits no more."""
        self.submit(EngineCall(partial(self.held_locks.abandon, grant)), _ignore_reply)

    def poll_now(self) -> None:
        """Make the engine poll now, as if another process had committed."""
        self.submit(EngineCall(self._poll), _ignore)

    def has_room(self) -> bool:
        """Whether a producer may put jobs in without waiting."""
        return self._inbox.has_room()

    def when_room(self, reply: Reply, mailbox: ReplyTarget) -> None:
        """`reply` is called once the inbox has drained enough."""
        self._inbox.when_room(reply, mailbox)
        self._refuse_if_closed()

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def still_runs(self) -> bool:
        """Whether workers that have left still run jobs in this process."""
        return any(subscription.runs() for subscription in list(self._leaving))

    def when_all_left(self, call: Callable[[], None]) -> None:
        """`call` is called on the engine's thread once no worker that left holds a job."""
        self.submit(EngineCall(partial(self._add_leave_callback, call)), _ignore_reply)

    # --- the thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the database and start writing; raises what opening raises."""
        try:
            self.driver.open()
        except BaseException:
            self._inbox.close()
            self._inbox.release()
            raise
        self._is_running = True
        self._spawn(self.run, "bullite-engine")

    def run(self) -> None:
        """Turn until closed and everything accepted is done."""
        try:
            while not self._stopping or (self._inbox and self._broken is None):
                self._sleep()
                self.turn()
        except BaseException as error:
            log.exception("the engine failed")
            self._broken = StoreError(f"the engine failed: {error!r}; reopen the store")
        finally:
            self._leave()

    def close(self, timeout: float | None = None, exiting: bool = False) -> None:
        """Finish what was accepted, then stop; waits for that.

        Workers that still run jobs are told to stop: when this process ends, these jobs have not
        stalled. `exiting`: it is about to.
        """
        self._exiting = exiting
        if self._is_running:
            self._inbox.put([PendingRequest(EngineCall(self._leave_all), _ignore_reply)])
        self._stopping = True
        if self._is_running:
            self._inbox.put([PendingRequest(EngineCall(self._record), _ignore)])
            self._refuse_if_closed()
            self._stopped.wait(timeout)
        elif not self._stopped.is_set():
            self._leave()

    def _leave(self) -> None:
        self._stopping = True
        error = self._broken or StoreClosed("the store was closed")
        self.held_locks.forget_all()
        self._deliver([(ask, error) for ask in self._result_waiters.everyone()])
        self._inbox.close()
        self._refuse_if_closed()
        self.driver.close(self.still_runs(), self._exiting)
        self._inbox.release()
        self._stopped.set()

    def _sleep(self) -> None:
        """Wait for a request, a wake-up or the time of the next thing to do."""
        if self._inbox.has_urgent() or self._stopping:
            return
        if self._is_alerted or self._dispatcher.wants_to_claim():
            return
        if self._inbox.sleep(self.driver.notification_fds(), self._timeout()):
            heard = self.driver.read_notifications()
            for queue in heard.ready:
                self._dispatcher.mark_ready(queue)
            self._is_alerted = heard.is_alerted
        self._poll_if_due()

    def _timeout(self) -> float | None:
        """Seconds until there is something to do; None if nothing will be."""
        if self._backlog:
            return 0
        lease_now = self.clock.lease_now()
        times = []
        if self._has_maintenance():
            times.append(self._maintenance.next_at() - lease_now)
        if self._is_waited_for():
            times.append(self._check_at - lease_now)
        if (next_feeding := self._dispatcher.next_at()) is not None:
            times.append(next_feeding)
        if (next_renewal := self.held_locks.next_at()) is not None:
            times.append(next_renewal - lease_now)
        return max(0, min(times)) / 1000 if times else None

    def _has_maintenance(self) -> bool:
        return bool(self._dispatcher) or self._maintenance_users > 0

    def _is_waited_for(self) -> bool:
        return bool(self._result_waiters) or self._dispatcher.has_capacity()

    def _poll_if_due(self) -> None:
        """Every now and then, see whether others have committed: wake-ups may get lost."""
        lease_now = self.clock.lease_now()
        if lease_now < self._check_from or not self._is_waited_for():
            return
        interval = self._check_interval(lease_now)
        self._check_at = lease_now + interval
        # Early rather than late: an idle engine then wakes up for this and for chores at once.
        self._check_from = lease_now + interval // 2
        if self.driver.changed() or lease_now >= self._poll_at:
            self._poll_at = lease_now + self._poll_interval
            self._poll()

    def _check_interval(self, lease_now: int) -> int:
        if not self._result_waiters and self.driver.notification_fds():
            cheap = self.driver.notices_changes
            return min(CHECK_EVERY, self._poll_interval) if cheap else self._poll_interval
        # Results have no notifications, nor have jobs on some drivers: check sooner.
        waited = lease_now - self._result_waiters.since
        return min(CHECK_EVERY, max(CHECK_SOON, waited // 20))

    def _poll(self, ask: PendingRequest | None = None) -> None:
        self._dispatcher.poll_queues()
        self._deliver_results(self._result_waiters.check)

    def _deliver_results(self, look: Callable[[], list[tuple[PendingRequest, Any]]]) -> None:
        """Read the jobs that callers of `watch` wait for, and deliver their replies."""
        try:
            results = look()
        except ENDING as error:
            self._fail([], error)
        else:
            self._deliver(results)

    def _read_for_watchers(
        self, statement: str, params: Params, gone: Sequence[AwaitedJob]
    ) -> None:
        def found(answer: Any) -> None:
            self.submit(EngineCall(partial(self._ends_found, gone, answer)), _ignore_reply)

        self.read_thread.read(statement, params, found, SAME_THREAD)

    def _end(self, error: StoreError) -> None:
        """A reader found that the store must be opened again; called on its thread."""

        def end(ask: PendingRequest) -> None:
            self._fail([], error)

        self.submit(EngineCall(end), _ignore_reply)

    def _ends_found(self, gone: Sequence[AwaitedJob], found: Any, ask: PendingRequest) -> None:
        self._deliver_results(partial(self._result_waiters.ends_found, gone, found))

    # --- a turn ----------------------------------------------------------------------------------

    def turn(self) -> None:
        """One batch: everything there is to do now; then a piece of what is due by the clock."""
        if self._leaving:
            self._release_closed_loops()
        asks = self._run_calls(self._inbox.take(patiently=self._can_wait_for_more()))
        self._deliver_results(self._result_waiters.check_noted)
        asks += self._registrations()
        if self._has_maintenance() and self._maintenance.are_due(self.clock.lease_now()):
            self._enqueue_maintenance(self._due_maintenance() + self._record_if_due())
        asks += self.held_locks.due(self.clock.lease_now())
        if self._leaving:
            asks += self._deregister_leaving()
        self._dispatcher.mark_due_ready()
        self._dispatcher.return_stuck_prefetched()
        self._cancel_running_jobs()
        self._report_failures()
        if asks or self._dispatcher.wants_to_claim():
            self._run_batch(asks)
            # Apart from the transaction: its answers are true, whatever becomes of this.
            self._deliver_results(self._result_waiters.check_noted)
            self._dispatcher.poll_newly_idle()
        self._run_maintenance()
        self._deliver(self._inbox.waiters_to_release())
        if self._broken is None:
            self._checkpoint_if_due()

    def _can_wait_for_more(self) -> bool:
        """Whether what is in no hurry may wait for more of its kind."""
        return not self._stopping and self._dispatcher.all_prefetchers_progressing()

    def _record_if_due(self) -> list[PendingRequest]:
        due = self._dispatcher and self._maintenance.record_is_due(self.clock.lease_now())
        return self._record() if due else []

    def _record(self, ask: PendingRequest | None = None) -> list[PendingRequest]:
        """Write down what was measured."""
        record = self.metrics.record(self._dispatcher.all(), self.clock.now())
        return [] if record is None else [PendingRequest(record, _ignore)]

    def _report_failures(self) -> None:
        """Report failed reads to the workers, also to idle ones."""
        error, self._dispatcher.trouble = self._dispatcher.trouble, None
        if error is not None:
            self._deliver(self._dispatcher.troubled(LOOKING, error))

    def _cancel_running_jobs(self) -> None:
        if not self._dispatcher.holds_jobs():
            self._is_alerted = False
            return
        if self._is_alerted or self._maintenance.stops_are_due(self.clock.lease_now()):
            self._is_alerted = False
            self._deliver(self._dispatcher.cancel_running_jobs())

    def _run_calls(self, asks: list[PendingRequest]) -> list[PendingRequest]:
        """Carry out the orders that concern the engine itself; the rest needs a transaction."""
        requests: list[PendingRequest] = []
        for ask in asks:
            if not isinstance(ask.request, EngineCall):
                requests.append(ask)
                continue
            try:
                requests += ask.request.carry_out(ask) or ()
            except StoreError as error:
                self._fail([ask], error)
        return requests

    def _subscribe(self, subscription: Subscription, ask: PendingRequest) -> None:
        self._dispatcher.add(subscription)
        self._apply_intervals()

    def _apply_intervals(self) -> None:
        """Do things as often as the strictest worker wants."""
        if not self._dispatcher:
            return
        habits = self._dispatcher.strictest_intervals()
        self._poll_interval = habits.poll_interval
        self._maintenance.renew_within(habits.renew_every, self.clock.lease_now())
        self._maintenance.recovers = habits.checks_stalled or self._maintenance_users > 0
        self._maintenance.maintenance_interval = min(
            habits.maintenance_interval, habits.stalled_interval
        )

    def _change_concurrency(
        self, subscription: Subscription, concurrency: int, ask: PendingRequest
    ) -> list[PendingRequest]:
        subscription.concurrency = subscription.registration.concurrency = concurrency
        subscription.needs_poll = True
        return [
            PendingRequest(
                workers.SetWorkerConcurrency(subscription.worker, concurrency), _ignore_reply
            )
        ]

    def _resume_subscription(self, subscription: Subscription, ask: PendingRequest) -> None:
        subscription.paused = False
        subscription.needs_poll = True

    def _request_job(self, subscription: Subscription, more: int, ask: PendingRequest) -> None:
        subscription.concurrency = max(0, subscription.concurrency + more)
        subscription.needs_poll = True

    def _claim_one(self, subscription: Subscription, ask: PendingRequest) -> list[PendingRequest]:
        if subscription.paused:
            self._deliver([(ask, None)])
            return []
        claim = self._dispatcher.claim_manually(subscription)
        return [PendingRequest(claim, ask.reply, ask.target)]

    def _change_maintenance_users(self, more: int, ask: PendingRequest) -> None:
        self._maintenance_users += more
        self._maintenance.recovers = True
        self._apply_intervals()

    def _follow(self, queue: int, kinds: frozenset[str] | None, ask: PendingRequest) -> None:
        # Followers whose event loop is closed cannot unfollow, and would be kept for ever.
        self._followers = [each for each in self._followers if each[2].target.alive()]
        self._followers.append((queue, kinds, ask))

    def _unfollow(self, reply: Reply, ask: PendingRequest) -> None:
        self._followers = [follower for follower in self._followers if follower[2].reply != reply]

    def _entries_for_followers(self, tx: Transaction) -> list[tuple[PendingRequest, Any]]:
        """Return the entries that the transaction logged, for each follower."""
        logged = tx.logged()
        return [
            (ask, mine)
            for queue, kinds, ask in self._followers
            if (
                mine := [
                    entry
                    for entry in logged
                    if entry.queue == queue and (kinds is None or entry.kind in kinds)
                ]
            )
        ]

    def _ended(self, subscription: Subscription, jobs: int, ask: PendingRequest) -> None:
        subscription.remove_held(jobs, self.clock.lease_now())

    def _pause_subscription(self, subscription: Subscription, ask: PendingRequest) -> None:
        subscription.paused = True
        self._deliver([(ask, None)])

    def _unsubscribe(self, subscription: Subscription, ask: PendingRequest) -> list[PendingRequest]:
        last = self._record()  # an engine that has stopped cannot be asked for its metrics
        subscription.unregistered = True
        if subscription.worker and subscription.runs():
            return [*last, self._start_leaving(subscription, ask)]
        self._dispatcher.remove(subscription)
        self._apply_intervals()
        return [
            *last,
            PendingRequest(workers.DeregisterWorker(subscription.worker), ask.reply, ask.target),
        ]

    # --- workers that leave ---

    def _start_leaving(self, subscription: Subscription, ask: PendingRequest) -> PendingRequest:
        """Have it marked as leaving; it is off the register at once if it holds nothing."""
        subscription.paused = subscription.leaving = True
        self._leaving.append(subscription)
        leave = workers.DeregisterWorker(subscription.worker, leaving=True)
        return PendingRequest(leave, partial(self._marked_as_leaving, subscription, ask))

    def _marked_as_leaving(
        self, subscription: Subscription, ask: PendingRequest, answer: Any
    ) -> None:
        self._deregistered_leaving(subscription, answer)
        self._deliver([(ask, answer)])

    def _leave_all(self, ask: PendingRequest) -> list[PendingRequest]:
        """Begin to stop the workers that still run jobs, because the engine closes."""
        return [
            self._start_leaving(subscription, ask)
            for subscription in self._dispatcher.all()
            if subscription.worker and subscription.runs() and not subscription.leaving
        ]

    def _release_closed_loops(self) -> None:
        """Redirect replies from closed event loops: a stopping worker still needs its replies."""
        for subscription in self._leaving:
            if not subscription.target.alive():
                subscription.target = SAME_THREAD

    def _deregister_leaving(self) -> list[PendingRequest]:
        """Take workers off the register that hold nothing any more."""
        if self.clock.lease_now() < self._deregister_leaving_at and all(
            a.runs() for a in self._leaving
        ):
            return []
        self._deregister_leaving_at = self.clock.lease_now() + POLL_INTERVAL
        return [
            PendingRequest(
                workers.DeregisterWorker(subscription.worker, True),
                partial(self._deregistered_leaving, subscription),
            )
            for subscription in self._leaving
        ]

    def _deregistered_leaving(self, subscription: Subscription, answer: Any) -> None:
        if answer is True and subscription in self._leaving:
            self._leaving.remove(subscription)
            self._dispatcher.remove(subscription)
            self._apply_intervals()
            self._call_if_all_left()

    def _add_leave_callback(self, call: Callable[[], None], ask: PendingRequest) -> None:
        self._leave_callbacks.append(call)
        self._call_if_all_left()

    def _call_if_all_left(self) -> None:
        if not self._leaving:
            calls, self._leave_callbacks = self._leave_callbacks, []
            for call in calls:
                call()

    def _unwatch(self, job: int, reply: Reply, ask: PendingRequest) -> None:
        self._result_waiters.remove(job, reply)

    def _watch(self, job: AwaitedJob, ask: PendingRequest) -> None:
        self._result_waiters.add(job, ask)
        self._check_at = self._check_from = 0

    def _registrations(self) -> list[PendingRequest]:
        subscriptions = self._dispatcher.unregistered() if self._dispatcher else []
        try:
            for subscription in subscriptions:
                subscription.registration.address = self.driver.listen(subscription.queue)
        except StoreError as error:
            self._fail([], error)
            return []
        return [PendingRequest(a.registration, partial(self._registered, a)) for a in subscriptions]

    def _registered(self, subscription: Subscription, answer: Any) -> None:
        if not isinstance(answer, BaseException):
            subscription.worker = answer
            subscription.needs_poll = True
            self.driver.registered()

    def _due_maintenance(self) -> list[PendingRequest]:
        abandoned = self._dispatcher.with_dead_loop()
        for subscription in abandoned:
            log.error("the event loop of worker %d is closed; it is given up", subscription.worker)
            self._dispatcher.remove(subscription)
        if abandoned:
            self._followers = [each for each in self._followers if each[2].target.alive()]
        chores = self._maintenance.due(self.clock.lease_now())
        if self._maintenance.trouble is None:
            self._dispatcher.works(LOOKING)
        else:
            what = "the scheduler could not look into the database"
            self._warn_or_end(LOOKING, what, self._maintenance.trouble)
        for chore in chores:
            if isinstance(chore, workers.RecoverStalled):
                chore.worker = self._dispatcher.apply_stall_limit(chore.worker)
        asks = [PendingRequest(chore, partial(self._maintenance_done, chore)) for chore in chores]
        return asks + [
            PendingRequest(workers.DeregisterWorker(a.worker), _ignore) for a in abandoned
        ]

    def _maintenance_done(self, chore: Chore, answer: Any) -> None:
        if isinstance(answer, BaseException):
            self._throttled_log.warning("%s failed: %s", type(chore).__name__.lower(), answer)
            if isinstance(chore, workers.RenewLeases) or isinstance(answer, StoreError):
                self._deliver(self._dispatcher.troubled(WRITING, answer))
        elif isinstance(chore, workers.RenewLeases):
            self._dispatcher.check_registered(answer)
            self._deliver(self._dispatcher.taken_away())
        elif self._maintenance.again(chore, answer):
            self._backlog.append(
                _MaintenanceTask(PendingRequest(chore, partial(self._maintenance_done, chore)))
            )

    # --- housekeeping ----------------------------------------------------------------------------

    def _enqueue_maintenance(self, asks: Sequence[PendingRequest]) -> None:
        """What is due comes before what is left of earlier housekeeping, unless it is that."""
        waiting = [piece.ask.request for piece in self._backlog]
        new = [_MaintenanceTask(ask) for ask in asks if ask.request not in waiting]
        self._backlog.extendleft(reversed(new))

    def _run_maintenance(self) -> None:
        """Carry out one piece of what is due by the clock, in a transaction of its own.

        Results and claims are not undone with it, and wait for one piece at most.
        """
        if not self._backlog or self._broken is not None:
            return
        piece = self._backlog.popleft()
        try:
            self._run_transaction([piece.ask], serves=False)
        except TransactionAborted as error:
            piece.tries += 1
            if piece.tries < MAX_POSTPONED:
                log.debug("housekeeping is put off: %s", error)
                self._backlog.append(piece)
            else:
                self._deliver([(piece.ask, StoreBusy(f"undone {piece.tries} times ({error})"))])
        except ENDING as error:
            self._fail([piece.ask], error)
        except StoreError as error:
            self._deliver([(piece.ask, error)])
        except Exception as error:
            log.debug("housekeeping is run again, with care: %s", error)
            self._run_single(piece.ask)

    # --- transactions ----------------------------------------------------------------------------

    def _run_batch(self, asks: list[PendingRequest]) -> None:
        """Run a batch, in as few transactions as may be, and see that claims are in one of them."""
        parts = split([ask.request for ask in asks], self.driver.has_other_writers)
        for indexes, is_apart in parts:
            self._run_together([asks[index] for index in indexes], serves=not is_apart)
        if not parts[-1].is_apart and not (asks and self._dispatcher.are_held_off()):
            return
        if self._dispatcher.wants_to_claim():
            self._run_together([])

    def _run_together(self, asks: list[PendingRequest], serves: bool = True) -> None:
        """Run a transaction. One bad request must not fail its neighbours."""
        try:
            self._run_with_retries(asks, serves=serves)
        except NotTogether as error:
            log.debug("requests are carried out one group after the other: %s", error)
            for indexes in group([ask.request for ask in asks]):
                self._run_together([asks[index] for index in indexes], serves=False)
        except StoreError as error:
            self._fail(asks, error)
        except Exception as error:
            log.debug("a batch is run again, one by one: %s", error)
            if not asks:
                self._fail(asks, error)
            for ask in asks:
                self._run_single(ask)
            if asks and serves and self._dispatcher.wants_to_claim():
                self._run_together([])

    def _run_single(self, ask: PendingRequest) -> None:
        try:
            self._run_with_retries([ask], careful=True)
        except StoreError as error:
            self._fail([ask], error)
        except InvalidData as error:
            refused = RequestRefused(f"the database refused the request: {error}")
            self._deliver([(ask, refused)])
        except Exception as error:
            log.exception("a request failed")
            self._deliver([(ask, error)])

    def _fail(self, asks: list[PendingRequest], error: Exception) -> None:
        told = self._dispatcher.after_failure(error)
        if isinstance(error, ENDING):
            if self._broken is None:
                told = self._dispatcher.report_to_all(error)
            self._broken = error
            self._stopping = True
        self._deliver([(ask, error) for ask in asks] + told)

    def _run_with_retries(
        self, asks: list[PendingRequest], careful: bool = False, serves: bool = True
    ) -> None:
        """Run a transaction, and again while only the moment was wrong for it."""
        if self._broken is not None:
            raise self._broken
        ahead = NOTHING_AHEAD
        for tries in count(1):
            try:
                self._run_transaction(asks, careful, serves, ahead)
                return
            except NotTogether:
                raise
            except OutOfOrder as error:
                if tries >= MAX_TRIES:
                    raise StoreBusy(f"undone {tries} times in a row ({error})") from error
                ahead = ahead.and_what_stopped(error)
                continue  # it waits for what it needs
            except TransactionAborted as error:
                if tries >= MAX_TRIES:
                    raise StoreBusy(
                        f"undone {tries} times in a row ({error}); nothing was written"
                    ) from error
                log.debug("a transaction is run again: %s", error)
            except Conflict as error:
                if not careful:
                    raise
                if tries >= MAX_CONFLICTS:
                    raise InvalidData(str(error)) from error
            time.sleep(random.uniform(0, min(MAX_BACKOFF, 0.001 * 2**tries)))

    def _run_transaction(
        self,
        asks: list[PendingRequest],
        careful: bool = False,
        serves: bool = True,
        ahead: Ahead = NOTHING_AHEAD,
    ) -> None:
        """Run one transaction, then deliver the replies.

        It executes `asks` and the claims of workers with capacity, and writes counters and event
        log rows.
        """
        requests = [ask.request for ask in asks]
        groups = group(requests)
        answers: list[Any] = [None] * len(asks)
        started = time.perf_counter()
        if requests and self.driver.has_other_writers:
            ahead = locked_ahead(requests, groups, ahead)
        foreseen = () if any(ahead) else self._first_statements(requests, groups)
        self.driver.begin(any(r.durable for r in requests), foreseen)
        waited = time.perf_counter() - started
        if waited > SLOW_LOCK:
            self._slow_log.warning("waited %d ms for the write lock", waited * 1e3)
        try:
            if self.driver.has_other_writers:
                self._order = LockOrder(self._timed, ahead)
            tx = Transaction(self.clock.now(), self.clock.lease_now(), self.driver.nonce, careful)
            for indexes in groups:
                if self._order is not None:
                    self._order.begin_group()
                members = [requests[index] for index in indexes]
                operation = OPERATIONS[type(members[0])](tx, members)
                for index, answer in zip(indexes, self._drive(operation), strict=True):
                    answers[index] = answer
            if self._order is not None:
                self._order.begin_group(claims=True)
            served = (
                self._dispatcher.claim_for_subscribers(tx, self._drive)
                if serves and not careful
                else ()
            )
            self._drive(tx.write_counts_and_events())
            self._dispatcher.notify_others(tx, served)
            for queue, nonce in tx.stopping:
                if nonce == self.driver.nonce:
                    self._is_alerted = True
                else:
                    self.driver.queue_cancel_notification(queue, nonce)
            sync_due = self.driver.commit()
        except BaseException:
            self.driver.rollback()
            raise
        self.driver.send_notifications()
        # Where others write meanwhile there is no such lock: it was the way to the server.
        ended = sum(completed + failed for completed, failed in tx.ended.values())
        self.metrics.transacted(ended, 0 if self.driver.has_other_writers else waited)
        for queue, (completed, failed) in tx.ended.items():
            self.metrics.ended(queue, tx.now, completed, failed)
        self._measure_waits(served)
        told = self._entries_for_followers(tx) if self._followers else ()
        jobs = self._dispatcher.after_commit(tx, served)
        if sync_due:
            if jobs and not told and not any(r.reply_before_claims for r in requests):
                self._deliver(jobs)  # a claim need not be on the disk
                jobs = []
            self.driver.sync()
        results = self._result_waiters.settled(requests, answers)
        # Deliver replies before claims: `add()` must return before the job's processor starts.
        self._deliver([*told, *zip(asks, answers, strict=True), *jobs, *results])

    def _measure_waits(self, served: Served) -> None:
        """How long the jobs waited that were taken: as long as the one in their middle."""
        for subscription, claimed in served:
            if claimed.rows:
                row = claimed.rows[len(claimed.rows) // 2]
                if never_delayed_or_retried(row):
                    waited = claimed.claimed_at - row[_CREATED_AT]
                    jobs = len(claimed.rows)
                    self.metrics.waited(subscription.queue, claimed.claimed_at, waited, jobs)

    def _first_statements(self, requests: list[Any], groups: list[list[int]]) -> Sequence[Step]:
        """What the first operation will ask, where that is worth knowing."""
        if not requests:
            return self._dispatcher.first_statements()
        first = [requests[index] for index in groups[0]]
        return add.first_statements(first) if type(first[0]) is add.AddJobs else ()

    def _drive(self, operation: Operation[T]) -> T:
        execute = self._timed if self._order is None else self._order.execute
        try:
            step = next(operation)
            while True:
                try:
                    answer = execute(*step)
                except OutOfOrder as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _timed(self, statement: str, params: Params) -> Result:
        began = time.perf_counter()
        result = self.driver.execute(statement, params)
        took = time.perf_counter() - began
        if took > SLOW_STATEMENT:
            self._slow_log.warning("the statement %s took %d ms", statement, took * 1e3)
        return result

    # --- around ----------------------------------------------------------------------------------

    def _deliver(self, answers: Sequence[tuple[PendingRequest, Any]]) -> None:
        by_mailbox: dict[ReplyTarget, list[tuple[Reply, Any]]] = {}
        for ask, answer in answers:
            by_mailbox.setdefault(ask.target, []).append((ask.reply, answer))
        for mailbox, replies in by_mailbox.items():
            mailbox.deliver(replies)

    def _checkpoint_if_due(self) -> None:
        try:
            self.driver.checkpoint_if_due()
        except StoreError as error:
            self._warn_or_end(WRITING, "housekeeping failed", error)

    def _warn_or_end(self, what: str, message: str, error: StoreError) -> None:
        """Log an error that no request caused, and report it to the workers."""
        if isinstance(error, ENDING):
            log.error("%s: %s", message, error)
            self._fail([], error)
        else:
            self._throttled_log.warning(f"{message}: %s", error)
            self._deliver(self._dispatcher.troubled(what, error))


class _MaintenanceTask:
    """A piece of housekeeping, and how often it was undone."""

    __slots__ = ("ask", "tries")

    def __init__(self, ask: PendingRequest) -> None:
        self.ask = ask
        self.tries = 0


class EngineCall:
    """A message to the engine itself; may give requests to be carried out in its place."""

    __slots__ = ("carry_out",)

    def __init__(
        self, carry_out: Callable[[PendingRequest], Sequence[PendingRequest] | None]
    ) -> None:
        self.carry_out = carry_out


def _ignore_reply(answer: Any) -> None:
    """Ignore the reply: errors are reported elsewhere."""


def _ignore(answer: Any) -> None:
    if isinstance(answer, BaseException) and not isinstance(answer, StoreClosed):
        log.warning("%s", answer)
