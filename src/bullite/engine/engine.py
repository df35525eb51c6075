"""The engine: one thread that writes, and commits everything asked for in the meantime at once.

A turn of the engine takes all that is in the inbox, groups it, runs it in one transaction together
with the claims of hungry workers, commits, and only then answers. It knows nothing of SQL, and of
requests only which operation carries them out.
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
from ..operations import (
    add,
    add_flow,
    auto_retry,
    cancel,
    children,
    command_output,
    expire,
    finish,
    key_values,
    locks,
    metrics,
    move,
    open_queue,
    prune,
    queue_settings,
    rate_limits,
    rate_limits_by_key,
    scheduler_ticks,
    schedulers,
    steps,
    update,
    workers,
)
from ..operations import claim as claiming
from ..operations import deduplicate_release as releasing
from ..operations.request import split
from ..operations.transaction import Operation, Transaction
from .batching import group
from .dispatcher import LOOKING, WRITING, Feeding, Served
from .held_locks import Grant, Keeping
from .inbox import Inbox
from .lock_order import NOTHING_AHEAD, Ahead, LockOrder, locked_ahead
from .maintenance import Chore, Chores
from .metrics import Gauges
from .read_thread import ReadingThread
from .replies import DIRECT, Ask, Joiner, Mailbox, Reply
from .result_waiters import Watched, Watchers
from .subscription import Appetite
from .threads import Spawn, start_thread

log = logging.getLogger("bullite.engine")

T = TypeVar("T")

CHECK_EVERY = 250
"""Ms between looks for commits of others while somebody waits for jobs or results."""

CHECK_SOON = 5
"""The same, in the first moments of a wait for which no wake-up will come."""

POLL_INTERVAL = 1_000
"""Ms after which a hungry worker has a look, whether anything seems to have changed or not."""

MOST_TRIES = 30
"""How often a transaction is run again that the database undoes."""

MOST_PUT_OFF = 5
"""How often one piece of housekeeping is; what is due by the clock comes again by itself."""

MOST_CONFLICTS = 5
"""How often one request is, that looked first and yet found something else than it saw."""

LONGEST_REST = 0.2
"""Seconds before it is run again, at most; less, and by chance, the first times."""

SLOW_LOCK, SLOW_STATEMENT = 0.2, 0.1
"""Seconds worth a warning."""

_CREATED_AT = JobRow._fields.index("created_at")

OPERATIONS: dict[type, Callable[[Transaction, Any], Operation[Sequence[Any]]]] = {
    add.AddJobs: add.add,
    add_flow.AddFlow: add_flow.add_flow,
    children.AwaitChildren: children.await_children,
    children.DetachFromParent: children.detach_from_parent,
    children.RemoveUnprocessedChildren: children.remove_unprocessed_children,
    finish.FinishRuns: finish.finish_runs,
    update.Progress: update.record_progress,
    update.SetData: update.set_data,
    update.SetPriority: update.set_priority,
    update.ExtendLease: update.extend_leases,
    update.AddLog: update.add_logs,
    update.ClearLogs: update.clear_logs,
    move.MoveJobs: move.move_jobs,
    move.MoveListed: move.move_listed,
    move.MoveJob: move.move_job,
    cancel.Cancel: cancel.cancel,
    command_output.WriteOutput: command_output.write_output,
    key_values.UpdateKeyValue: key_values.update_key_value,
    metrics.WriteMetrics: metrics.write_metrics,
    auto_retry.RetryFailedDue: auto_retry.retry_failed_due,
    releasing.FreeKey: releasing.free_key,
    releasing.FreeKeyOf: releasing.free_key_of,
    open_queue.OpenQueue: open_queue.open_queue,
    queue_settings.Configure: queue_settings.configure,
    queue_settings.SetPaused: queue_settings.set_paused,
    queue_settings.PublishEvent: queue_settings.publish_event,
    queue_settings.LogCleaned: queue_settings.log_cleaned,
    queue_settings.TrimEvents: queue_settings.trim_events,
    queue_settings.ResetQueue: queue_settings.reset_queue,
    workers.RegisterWorker: workers.register_worker,
    workers.DeregisterWorker: workers.deregister_worker,
    workers.SetWorkerConcurrency: workers.set_worker_concurrency,
    workers.RenewLeases: workers.renew_leases,
    workers.RecoverStalled: workers.recover_stalled,
    claiming.Claim: claiming.claim,
    claiming.Promote: claiming.promote,
    expire.Expire: expire.expire,
    schedulers.UpsertSchedulers: schedulers.upsert_schedulers,
    schedulers.RemoveScheduler: schedulers.remove_scheduler,
    schedulers.DeleteSchedulers: schedulers.delete_schedulers,
    schedulers.EnableScheduler: schedulers.enable_scheduler,
    schedulers.RunScheduler: schedulers.run_scheduler,
    scheduler_ticks.CatchUpScheduler: scheduler_ticks.catch_up,
    rate_limits.SetConcurrency: rate_limits.set_concurrency,
    rate_limits.SetRate: rate_limits.set_rate,
    rate_limits.BlockQueue: rate_limits.block_queue,
    rate_limits_by_key.SetKeyLimit: rate_limits_by_key.set_key_limit,
    prune.PruneQueue: prune.prune_queues,
    prune.Purge: prune.purge,
    steps.RecordStep: steps.record_steps,
    steps.Suspend: steps.suspend,
    steps.SendEvent: steps.send_events,
    locks.TakeLock: locks.take_locks,
    locks.RenewLocks: locks.renew_locks,
    locks.ExtendLock: locks.extend_locks,
    locks.ReleaseLock: locks.release_locks,
    locks.PruneLocks: locks.prune_locks,
}


class Engine:
    """One writer for one database."""

    def __init__(self, driver: Driver, spawn: Spawn = start_thread) -> None:
        self.driver = driver
        self.clock = driver.clock
        self._spawn = spawn
        self._inbox = Inbox()
        self._chores = Chores(driver)
        self._backlog: deque[_Piece] = deque()
        self._order: LockOrder | None = None
        self._feeding = Feeding(driver)
        self.gauges = Gauges()
        self.reading = ReadingThread(driver.reader, spawn, self._end)
        self._watchers = Watchers(driver, self._read_for_watchers)
        self.keeping = Keeping(driver, self.submit)
        self._check_at = self._check_from = self._look_at = 0
        self._poll_interval = POLL_INTERVAL
        self._caretakers = 0
        self._followers: list[tuple[int, frozenset[str] | None, Ask]] = []
        self._is_running = self._stopping = self._is_alerted = False
        self._broken: StoreError | None = None
        self._leaving: list[Appetite] = []
        """Workers that were told to stop and still hold jobs."""
        self._see_off_at = 0
        self._waiting_for_leavers: list[Callable[[], None]] = []
        self._exiting = False
        self._stopped = threading.Event()
        self._seldom = ThrottledLog(log)
        self._slow = ThrottledLog(log, every=1)

    # --- asking, from any thread -----------------------------------------------------------------

    def submit(self, request: Any, reply: Reply, mailbox: Mailbox = DIRECT) -> None:
        """Put a request in; `reply` gets its answer, or the exception, after the commit."""
        self.submit_all([Ask(request, reply, mailbox)])

    def submit_all(self, asks: Sequence[Ask]) -> None:
        """Put requests in together: they will be carried out in one transaction."""
        if self._stopping:
            error = self._broken or StoreClosed("the store is closed")
            self._deliver([(ask, error) for ask in asks])
        else:
            self._inbox.put(asks)
            self._refuse_if_closed()

    def submit_with_others(self, joiner: Joiner, part: Any, hurry: bool = True) -> None:
        """Put in what `joiner` makes a request of, with other parts that come meanwhile."""
        if self._stopping:
            self.submit_all(joiner.join([part]))
        else:
            # Somebody who waits for the end of a job may wait for this one's.
            self._inbox.put_part(joiner, part, hurry or bool(self._watchers))
            self._refuse_if_closed()

    def _refuse_if_closed(self) -> None:
        """The engine has left: answer what was put in since."""
        if self._inbox.is_closed:
            error = self._broken or StoreClosed("the store was closed")
            self._deliver([(ask, error) for ask in self._inbox.drain()])
            self._deliver(self._inbox.make_room())

    def settle(
        self, settle: finish.FinishRuns, reply: Reply, mailbox: Mailbox, worker: Appetite
    ) -> None:
        """Settle runs of a worker and, in the same transaction, fill the slots they leave."""
        order = _Order(partial(self._ended, worker, len(settle.outcomes)))
        self.submit_all([Ask(order, _accept), Ask(settle, reply, mailbox)])

    def ended(self, worker: Appetite, jobs: int) -> None:
        """Runs of a worker ended with nothing left to settle: their slots are free."""
        self.submit(_Order(partial(self._ended, worker, jobs)), _accept)

    def attach(self, appetite: Appetite) -> None:
        """Register a worker and feed it from now on."""
        self.submit(_Order(partial(self._attach, appetite)), _ignore)

    def starve(self, appetite: Appetite, reply: Reply, mailbox: Mailbox = DIRECT) -> None:
        """Feed a worker no more; answered when nothing it has not received is under way."""
        self.submit(_Order(partial(self._starve, appetite)), reply, mailbox)

    def detach(self, appetite: Appetite, reply: Reply, mailbox: Mailbox = DIRECT) -> None:
        """Take a worker off the register; what it holds, it still holds, until its lease ends.

        One that still runs jobs leaves when their runs have ended: its lease is renewed until then.
        """
        self.submit(_Order(partial(self._detach, appetite)), reply, mailbox)

    def change_concurrency(self, appetite: Appetite, concurrency: int) -> None:
        """Let a worker run more or fewer jobs at a time from now on."""
        self.submit(_Order(partial(self._change_concurrency, appetite, concurrency)), _accept)

    def feed(self, appetite: Appetite) -> None:
        """Feed a starved worker again."""
        self.submit(_Order(partial(self._feed, appetite)), _accept)

    def serve_one(self, appetite: Appetite) -> None:
        """Feed a worker by hand one job more, when there is one."""
        self.submit(_Order(partial(self._serve, appetite, 1)), _accept)

    def serve_no_more(self, appetite: Appetite) -> None:
        """Somebody who asked a worker by hand for a job waits no more."""
        self.submit(_Order(partial(self._serve, appetite, -1)), _accept)

    def claim_now(self, appetite: Appetite, reply: Reply, mailbox: Mailbox) -> None:
        """`reply` gets a `Claimed` with one job for a worker by hand, or with none."""
        self.submit(_Order(partial(self._claim_now, appetite)), reply, mailbox)

    def take_care(self, more: int) -> None:
        """Do the chores even if no worker lives here, while somebody wants that: +1, then -1."""
        self.submit(_Order(partial(self._take_care, more)), _accept)

    def follow(
        self, queue: int, reply: Reply, mailbox: Mailbox, kinds: frozenset[str] | None = None
    ) -> None:
        """`reply` gets what this process logs of these kinds, as a list of `LoggedEntries`."""
        self.submit(_Order(partial(self._follow, queue, kinds)), reply, mailbox)

    def unfollow(self, reply: Reply) -> None:
        self.submit(_Order(partial(self._unfollow, reply)), _accept)

    def watch(self, job: Watched, reply: Reply, mailbox: Mailbox) -> None:
        """`reply` gets [state, return value, failed reason] once the job is finished."""
        self.submit(_Order(partial(self._watch, job)), reply, mailbox)

    def unwatch(self, job: int, reply: Reply) -> None:
        """Who watched with this reply waits no more."""
        self.submit(_Order(partial(self._unwatch, job, reply)), _accept)

    def taking(self, grant: Grant, instead_of: int | None) -> _Order:
        """To be submitted: take a named lock, if nobody else holds it."""
        return _Order(partial(self.keeping.take, grant, instead_of))

    def releasing(self, grant: Grant) -> _Order:
        """To be submitted: let go of a named lock."""
        return _Order(partial(self.keeping.release, grant))

    def extending(self, grant: Grant, ttl: int) -> _Order:
        """To be submitted: hold a named lock for `ttl` from now."""
        return _Order(partial(self.keeping.extend, grant, ttl))

    def abandon(self, grant: Grant) -> None:
        """Nobody waits for a named lock any more that was asked for."""
        self.submit(_Order(partial(self.keeping.abandon, grant)), _accept)

    def poke(self) -> None:
        """Make the engine look around now, as if somebody else had committed."""
        self.submit(_Order(self._look_around), _ignore)

    def has_room(self) -> bool:
        """Whether a producer may put jobs in without waiting."""
        return self._inbox.has_room()

    def when_room(self, reply: Reply, mailbox: Mailbox) -> None:
        """`reply` is called once the inbox has drained enough."""
        self._inbox.when_room(reply, mailbox)
        self._refuse_if_closed()

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def still_runs(self) -> bool:
        """Whether workers that have left still run jobs in this process."""
        return any(appetite.runs() for appetite in list(self._leaving))

    def when_all_left(self, call: Callable[[], None]) -> None:
        """`call` is called on the engine's thread once no worker that left holds a job."""
        self.submit(_Order(partial(self._note_waiting_for_leavers, call)), _accept)

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
            self._inbox.put([Ask(_Order(self._leave_all), _accept)])
        self._stopping = True
        if self._is_running:
            self._inbox.put([Ask(_Order(self._record), _ignore)])
            self._refuse_if_closed()
            self._stopped.wait(timeout)
        elif not self._stopped.is_set():
            self._leave()

    def _leave(self) -> None:
        self._stopping = True
        error = self._broken or StoreClosed("the store was closed")
        self.keeping.forget_all()
        self._deliver([(ask, error) for ask in self._watchers.everyone()])
        self._inbox.close()
        self._refuse_if_closed()
        self.driver.close(self.still_runs(), self._exiting)
        self._inbox.release()
        self._stopped.set()

    def _sleep(self) -> None:
        """Wait for a request, a wake-up or the time of the next thing to do."""
        if self._inbox.is_urgent() or self._stopping:
            return
        if self._is_alerted or self._feeding.wants_to_claim():
            return
        if self._inbox.sleep(self.driver.notification_fds(), self._timeout()):
            heard = self.driver.read_notifications()
            for queue in heard.ready:
                self._feeding.stir(queue)
            self._is_alerted = heard.is_alerted
        self._check_for_others()

    def _timeout(self) -> float | None:
        """Seconds until there is something to do; None if nothing will be."""
        if self._backlog:
            return 0
        lease_now = self.clock.lease_now()
        times = []
        if self._has_chores():
            times.append(self._chores.next_at() - lease_now)
        if self._is_waited_for():
            times.append(self._check_at - lease_now)
        if (next_feeding := self._feeding.next_at()) is not None:
            times.append(next_feeding)
        if (next_renewal := self.keeping.next_at()) is not None:
            times.append(next_renewal - lease_now)
        return max(0, min(times)) / 1000 if times else None

    def _has_chores(self) -> bool:
        return bool(self._feeding) or self._caretakers > 0

    def _is_waited_for(self) -> bool:
        return bool(self._watchers) or self._feeding.is_hungry()

    def _check_for_others(self) -> None:
        """Every now and then, see whether others have committed: wake-ups may get lost."""
        lease_now = self.clock.lease_now()
        if lease_now < self._check_from or not self._is_waited_for():
            return
        interval = self._check_interval(lease_now)
        self._check_at = lease_now + interval
        # Early rather than late: an idle engine then wakes up for this and for chores at once.
        self._check_from = lease_now + interval // 2
        if self.driver.changed() or lease_now >= self._look_at:
            self._look_at = lease_now + self._poll_interval
            self._look_around()

    def _check_interval(self, lease_now: int) -> int:
        if not self._watchers and self.driver.notification_fds():
            cheap = self.driver.notices_changes
            return min(CHECK_EVERY, self._poll_interval) if cheap else self._poll_interval
        # Nobody wakes us for results, nor for jobs where there are no wake-ups: look sooner.
        waited = lease_now - self._watchers.since
        return min(CHECK_EVERY, max(CHECK_SOON, waited // 20))

    def _look_around(self, ask: Ask | None = None) -> None:
        self._feeding.look_around()
        self._tell_results(self._watchers.check)

    def _tell_results(self, look: Callable[[], list[tuple[Ask, Any]]]) -> None:
        """Look for what callers of `watch` wait for, and tell them."""
        try:
            results = look()
        except ENDING as error:
            self._fail([], error)
        else:
            self._deliver(results)

    def _read_for_watchers(self, statement: str, params: Params, gone: Sequence[Watched]) -> None:
        def found(answer: Any) -> None:
            self.submit(_Order(partial(self._ends_found, gone, answer)), _accept)

        self.reading.read(statement, params, found, DIRECT)

    def _end(self, error: StoreError) -> None:
        """A reader found that the store must be opened again; called on its thread."""

        def end(ask: Ask) -> None:
            self._fail([], error)

        self.submit(_Order(end), _accept)

    def _ends_found(self, gone: Sequence[Watched], found: Any, ask: Ask) -> None:
        self._tell_results(partial(self._watchers.ends_found, gone, found))

    # --- a turn ----------------------------------------------------------------------------------

    def turn(self) -> None:
        """One batch: everything there is to do now; then a piece of what is due by the clock."""
        if self._leaving:
            self._free_from_loops()
        asks = self._obey(self._inbox.take(patiently=self._has_time()))
        self._tell_results(self._watchers.check_noted)
        asks += self._registrations()
        if self._has_chores() and self._chores.are_due(self.clock.lease_now()):
            self._put_in_front(self._due_chores() + self._record_if_due())
        asks += self.keeping.due(self.clock.lease_now())
        if self._leaving:
            asks += self._see_off()
        self._feeding.stir_due()
        self._feeding.unload_the_stuck()
        self._stop_the_cancelled()
        self._tell_trouble()
        if asks or self._feeding.wants_to_claim():
            self._transact(asks)
            # Apart from the transaction: its answers are true, whatever becomes of this.
            self._tell_results(self._watchers.check_noted)
            self._feeding.look_again()
        self._keep_house()
        self._deliver(self._inbox.make_room())
        if self._broken is None:
            self._housekeep()

    def _has_time(self) -> bool:
        """Whether what is in no hurry may wait for more of its kind."""
        return not self._stopping and self._feeding.will_be_heard_of()

    def _record_if_due(self) -> list[Ask]:
        due = self._feeding and self._chores.record_is_due(self.clock.lease_now())
        return self._record() if due else []

    def _record(self, ask: Ask | None = None) -> list[Ask]:
        """Write down what was measured."""
        record = self.gauges.record(self._feeding.all(), self.clock.now())
        return [] if record is None else [Ask(record, _ignore)]

    def _tell_trouble(self) -> None:
        """Tell workers of looks that failed, also those that have nothing to do."""
        error, self._feeding.trouble = self._feeding.trouble, None
        if error is not None:
            self._deliver(self._feeding.troubled(LOOKING, error))

    def _stop_the_cancelled(self) -> None:
        if not self._feeding.holds_jobs():
            self._is_alerted = False
            return
        if self._is_alerted or self._chores.stops_are_due(self.clock.lease_now()):
            self._is_alerted = False
            self._deliver(self._feeding.stop_the_cancelled())

    def _obey(self, asks: list[Ask]) -> list[Ask]:
        """Carry out the orders that concern the engine itself; the rest needs a transaction."""
        requests: list[Ask] = []
        for ask in asks:
            if not isinstance(ask.request, _Order):
                requests.append(ask)
                continue
            try:
                requests += ask.request.carry_out(ask) or ()
            except StoreError as error:
                self._fail([ask], error)
        return requests

    def _attach(self, appetite: Appetite, ask: Ask) -> None:
        self._feeding.add(appetite)
        self._take_up_habits()

    def _take_up_habits(self) -> None:
        """Do things as often as the strictest worker wants."""
        if not self._feeding:
            return
        habits = self._feeding.habits()
        self._poll_interval = habits.poll_interval
        self._chores.renew_within(habits.renew_every, self.clock.lease_now())
        self._chores.recovers = habits.checks_stalled or self._caretakers > 0
        self._chores.maintenance_interval = min(
            habits.maintenance_interval, habits.stalled_interval
        )

    def _change_concurrency(self, appetite: Appetite, concurrency: int, ask: Ask) -> list[Ask]:
        appetite.concurrency = appetite.registration.concurrency = concurrency
        appetite.stirred = True
        return [Ask(workers.SetWorkerConcurrency(appetite.worker, concurrency), _accept)]

    def _feed(self, appetite: Appetite, ask: Ask) -> None:
        appetite.starved = False
        appetite.stirred = True

    def _serve(self, appetite: Appetite, more: int, ask: Ask) -> None:
        appetite.concurrency = max(0, appetite.concurrency + more)
        appetite.stirred = True

    def _claim_now(self, appetite: Appetite, ask: Ask) -> list[Ask]:
        if appetite.starved:
            self._deliver([(ask, None)])
            return []
        claim = self._feeding.claim_by_hand(appetite)
        return [Ask(claim, ask.reply, ask.mailbox)]

    def _take_care(self, more: int, ask: Ask) -> None:
        self._caretakers += more
        self._chores.recovers = True
        self._take_up_habits()

    def _follow(self, queue: int, kinds: frozenset[str] | None, ask: Ask) -> None:
        # Those whose event loop has ended cannot unfollow any more, and would be kept for ever.
        self._followers = [each for each in self._followers if each[2].mailbox.alive()]
        self._followers.append((queue, kinds, ask))

    def _unfollow(self, reply: Reply, ask: Ask) -> None:
        self._followers = [follower for follower in self._followers if follower[2].reply != reply]

    def _told(self, tx: Transaction) -> list[tuple[Ask, Any]]:
        """What the transaction logged, for those who follow."""
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

    def _ended(self, appetite: Appetite, jobs: int, ask: Ask) -> None:
        appetite.ended(jobs, self.clock.lease_now())

    def _starve(self, appetite: Appetite, ask: Ask) -> None:
        appetite.starved = True
        self._deliver([(ask, None)])

    def _detach(self, appetite: Appetite, ask: Ask) -> list[Ask]:
        last = self._record()  # nobody asks for its readings when it is gone
        appetite.left = True
        if appetite.worker and appetite.runs():
            return [*last, self._begin_to_leave(appetite, ask)]
        self._feeding.remove(appetite)
        self._take_up_habits()
        return [*last, Ask(workers.DeregisterWorker(appetite.worker), ask.reply, ask.mailbox)]

    # --- workers that leave ---

    def _begin_to_leave(self, appetite: Appetite, ask: Ask) -> Ask:
        """Have it marked as leaving; it is off the register at once if it holds nothing."""
        appetite.starved = appetite.leaving = True
        self._leaving.append(appetite)
        leave = workers.DeregisterWorker(appetite.worker, leaving=True)
        return Ask(leave, partial(self._marked_as_leaving, appetite, ask))

    def _marked_as_leaving(self, appetite: Appetite, ask: Ask, answer: Any) -> None:
        self._seen_off(appetite, answer)
        self._deliver([(ask, answer)])

    def _leave_all(self, ask: Ask) -> list[Ask]:
        """The engine is closed: workers that run something are told to stop."""
        return [
            self._begin_to_leave(appetite, ask)
            for appetite in self._feeding.all()
            if appetite.worker and appetite.runs() and not appetite.leaving
        ]

    def _free_from_loops(self) -> None:
        """Who is left of a worker whose event loop is closed needs answers all the same."""
        for appetite in self._leaving:
            if not appetite.mailbox.alive():
                appetite.mailbox = DIRECT

    def _see_off(self) -> list[Ask]:
        """Take workers off the register that hold nothing any more."""
        if self.clock.lease_now() < self._see_off_at and all(a.runs() for a in self._leaving):
            return []
        self._see_off_at = self.clock.lease_now() + POLL_INTERVAL
        return [
            Ask(workers.DeregisterWorker(appetite.worker, True), partial(self._seen_off, appetite))
            for appetite in self._leaving
        ]

    def _seen_off(self, appetite: Appetite, answer: Any) -> None:
        if answer is True and appetite in self._leaving:
            self._leaving.remove(appetite)
            self._feeding.remove(appetite)
            self._take_up_habits()
            self._tell_if_all_left()

    def _note_waiting_for_leavers(self, call: Callable[[], None], ask: Ask) -> None:
        self._waiting_for_leavers.append(call)
        self._tell_if_all_left()

    def _tell_if_all_left(self) -> None:
        if not self._leaving:
            calls, self._waiting_for_leavers = self._waiting_for_leavers, []
            for call in calls:
                call()

    def _unwatch(self, job: int, reply: Reply, ask: Ask) -> None:
        self._watchers.remove(job, reply)

    def _watch(self, job: Watched, ask: Ask) -> None:
        self._watchers.add(job, ask)
        self._check_at = self._check_from = 0

    def _registrations(self) -> list[Ask]:
        appetites = self._feeding.unregistered() if self._feeding else []
        try:
            for appetite in appetites:
                appetite.registration.address = self.driver.listen(appetite.queue)
        except StoreError as error:
            self._fail([], error)
            return []
        return [Ask(a.registration, partial(self._registered, a)) for a in appetites]

    def _registered(self, appetite: Appetite, answer: Any) -> None:
        if not isinstance(answer, BaseException):
            appetite.worker = answer
            appetite.stirred = True
            self.driver.registered()

    def _due_chores(self) -> list[Ask]:
        abandoned = self._feeding.abandoned()
        for appetite in abandoned:
            log.error("the event loop of worker %d is closed; it is given up", appetite.worker)
            self._feeding.remove(appetite)
        if abandoned:
            self._followers = [each for each in self._followers if each[2].mailbox.alive()]
        chores = self._chores.due(self.clock.lease_now())
        if self._chores.trouble is None:
            self._feeding.works(LOOKING)
        else:
            what = "the scheduler could not look into the database"
            self._warn_or_end(LOOKING, what, self._chores.trouble)
        for chore in chores:
            if isinstance(chore, workers.RecoverStalled):
                chore.worker = self._feeding.judge(chore.worker)
        asks = [Ask(chore, partial(self._done, chore)) for chore in chores]
        return asks + [Ask(workers.DeregisterWorker(a.worker), _ignore) for a in abandoned]

    def _done(self, chore: Chore, answer: Any) -> None:
        if isinstance(answer, BaseException):
            self._seldom.warning("%s failed: %s", type(chore).__name__.lower(), answer)
            if isinstance(chore, workers.RenewLeases) or isinstance(answer, StoreError):
                self._deliver(self._feeding.troubled(WRITING, answer))
        elif isinstance(chore, workers.RenewLeases):
            self._feeding.check_registered(answer)
            self._deliver(self._feeding.taken_away())
        elif self._chores.again(chore, answer):
            self._backlog.append(_Piece(Ask(chore, partial(self._done, chore))))

    # --- housekeeping ----------------------------------------------------------------------------

    def _put_in_front(self, asks: Sequence[Ask]) -> None:
        """What is due comes before what is left of earlier housekeeping, unless it is that."""
        waiting = [piece.ask.request for piece in self._backlog]
        new = [_Piece(ask) for ask in asks if ask.request not in waiting]
        self._backlog.extendleft(reversed(new))

    def _keep_house(self) -> None:
        """Carry out one piece of what is due by the clock, in a transaction of its own.

        Results and claims are not undone with it, and wait for one piece at most.
        """
        if not self._backlog or self._broken is not None:
            return
        piece = self._backlog.popleft()
        try:
            self._attempt([piece.ask], serves=False)
        except TransactionAborted as error:
            piece.tries += 1
            if piece.tries < MOST_PUT_OFF:
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
            self._attempt_alone(piece.ask)

    # --- transactions ----------------------------------------------------------------------------

    def _transact(self, asks: list[Ask]) -> None:
        """Run a batch, in as few transactions as may be, and see that claims are in one of them."""
        parts = split([ask.request for ask in asks], self.driver.has_other_writers)
        for indexes, is_apart in parts:
            self._transact_together([asks[index] for index in indexes], serves=not is_apart)
        if not parts[-1].is_apart and not (asks and self._feeding.are_held_off()):
            return
        if self._feeding.wants_to_claim():
            self._transact_together([])

    def _transact_together(self, asks: list[Ask], serves: bool = True) -> None:
        """Run a transaction. One bad request must not fail its neighbours."""
        try:
            self._persist(asks, serves=serves)
        except NotTogether as error:
            log.debug("requests are carried out one group after the other: %s", error)
            for indexes in group([ask.request for ask in asks]):
                self._transact_together([asks[index] for index in indexes], serves=False)
        except StoreError as error:
            self._fail(asks, error)
        except Exception as error:
            log.debug("a batch is run again, one by one: %s", error)
            if not asks:
                self._fail(asks, error)
            for ask in asks:
                self._attempt_alone(ask)
            if asks and serves and self._feeding.wants_to_claim():
                self._transact_together([])

    def _attempt_alone(self, ask: Ask) -> None:
        try:
            self._persist([ask], careful=True)
        except StoreError as error:
            self._fail([ask], error)
        except InvalidData as error:
            refused = RequestRefused(f"the database refused the request: {error}")
            self._deliver([(ask, refused)])
        except Exception as error:
            log.exception("a request failed")
            self._deliver([(ask, error)])

    def _fail(self, asks: list[Ask], error: Exception) -> None:
        told = self._feeding.failed(error)
        if isinstance(error, ENDING):
            if self._broken is None:
                told = self._feeding.tell_all(error)
            self._broken = error
            self._stopping = True
        self._deliver([(ask, error) for ask in asks] + told)

    def _persist(self, asks: list[Ask], careful: bool = False, serves: bool = True) -> None:
        """Run a transaction, and again while only the moment was wrong for it."""
        if self._broken is not None:
            raise self._broken
        ahead = NOTHING_AHEAD
        for tries in count(1):
            try:
                self._attempt(asks, careful, serves, ahead)
                return
            except NotTogether:
                raise
            except OutOfOrder as error:
                if tries >= MOST_TRIES:
                    raise StoreBusy(f"undone {tries} times in a row ({error})") from error
                ahead = ahead.and_what_stopped(error)
                continue  # it waits for what it needs
            except TransactionAborted as error:
                if tries >= MOST_TRIES:
                    raise StoreBusy(
                        f"undone {tries} times in a row ({error}); nothing was written"
                    ) from error
                log.debug("a transaction is run again: %s", error)
            except Conflict as error:
                if not careful:
                    raise
                if tries >= MOST_CONFLICTS:
                    raise InvalidData(str(error)) from error
            time.sleep(random.uniform(0, min(LONGEST_REST, 0.001 * 2**tries)))

    def _attempt(
        self,
        asks: list[Ask],
        careful: bool = False,
        serves: bool = True,
        ahead: Ahead = NOTHING_AHEAD,
    ) -> None:
        """One transaction: all of `asks`, the claims of the hungry, the books; then the answers."""
        requests = [ask.request for ask in asks]
        groups = group(requests)
        answers: list[Any] = [None] * len(asks)
        started = time.perf_counter()
        if requests and self.driver.has_other_writers:
            ahead = locked_ahead(requests, groups, ahead)
        foreseen = () if any(ahead) else self._foreseen(requests, groups)
        self.driver.begin(any(r.durable for r in requests), foreseen)
        waited = time.perf_counter() - started
        if waited > SLOW_LOCK:
            self._slow.warning("waited %d ms for the write lock", waited * 1e3)
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
            served = self._feeding.serve(tx, self._drive) if serves and not careful else ()
            self._drive(tx.write_counts_and_events())
            self._feeding.announce(tx, served)
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
        self.gauges.transacted(ended, 0 if self.driver.has_other_writers else waited)
        for queue, (completed, failed) in tx.ended.items():
            self.gauges.ended(queue, tx.now, completed, failed)
        self._measure_waits(served)
        told = self._told(tx) if self._followers else ()
        jobs = self._feeding.committed(tx, served)
        if sync_due:
            if jobs and not told and not any(r.reply_before_claims for r in requests):
                self._deliver(jobs)  # a claim need not be on the disk
                jobs = []
            self.driver.sync()
        results = self._watchers.settled(requests, answers)
        # Answers first: who added a job hears of that before it is begun.
        self._deliver([*told, *zip(asks, answers, strict=True), *jobs, *results])

    def _measure_waits(self, served: Served) -> None:
        """How long the jobs waited that were taken: as long as the one in their middle."""
        for appetite, claimed in served:
            if claimed.rows:
                row = claimed.rows[len(claimed.rows) // 2]
                if claiming.never_delayed_or_retried(row):
                    waited = claimed.claimed_at - row[_CREATED_AT]
                    jobs = len(claimed.rows)
                    self.gauges.waited(appetite.queue, claimed.claimed_at, waited, jobs)

    def _foreseen(self, requests: list[Any], groups: list[list[int]]) -> Sequence[Step]:
        """What the first operation will ask, where that is worth knowing."""
        if not requests:
            return self._feeding.foreseen()
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
            self._slow.warning("the statement %s took %d ms", statement, took * 1e3)
        return result

    # --- around ----------------------------------------------------------------------------------

    def _deliver(self, answers: Sequence[tuple[Ask, Any]]) -> None:
        by_mailbox: dict[Mailbox, list[tuple[Reply, Any]]] = {}
        for ask, answer in answers:
            by_mailbox.setdefault(ask.mailbox, []).append((ask.reply, answer))
        for mailbox, replies in by_mailbox.items():
            mailbox.deliver(replies)

    def _housekeep(self) -> None:
        try:
            self.driver.checkpoint_if_due()
        except StoreError as error:
            self._warn_or_end(WRITING, "housekeeping failed", error)

    def _warn_or_end(self, what: str, message: str, error: StoreError) -> None:
        """No request met the error: warn of it, and tell the workers."""
        if isinstance(error, ENDING):
            log.error("%s: %s", message, error)
            self._fail([], error)
        else:
            self._seldom.warning(f"{message}: %s", error)
            self._deliver(self._feeding.troubled(what, error))


class _Piece:
    """A piece of housekeeping, and how often it was undone."""

    __slots__ = ("ask", "tries")

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.tries = 0


class _Order:
    """A message to the engine itself; may give requests to be carried out in its place."""

    __slots__ = ("carry_out",)

    def __init__(self, carry_out: Callable[[Ask], Sequence[Ask] | None]) -> None:
        self.carry_out = carry_out


def _accept(answer: Any) -> None:
    """Whatever becomes of it is told elsewhere."""


def _ignore(answer: Any) -> None:
    if isinstance(answer, BaseException) and not isinstance(answer, StoreClosed):
        log.warning("%s", answer)
