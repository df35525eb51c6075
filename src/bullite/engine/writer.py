"""The engine: one thread that writes, and commits everything asked for in the meantime at once.

Callers put requests into an inbox from any thread. A turn of the engine takes all that is there,
groups it, runs it in one transaction together with the claims of hungry workers, commits, and only
then answers. It knows nothing of SQL, and of jobs only that requests and appetites exist.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from ..errors import JobNotFound, StoreClosed, StoreError, StoreReplaced
from ..operations import adding, claiming, moving, settling, tending
from ..operations.tending import FOR_EVER
from ..operations.transaction import Operation, Transaction
from .appetite import Appetite
from .chores import Chore, Chores
from .contract import Driver, StatementRefused
from .mail import DIRECT, Ask, Mailbox, Reply
from .plan import group

log = logging.getLogger("bullite.engine")

T = TypeVar("T")
Spawn = Callable[[Callable[[], None], str], None]
"""Starts a thread that runs a function under a name."""

MOST_CLAIMED = 1_000
"""Jobs one worker may claim in one transaction."""

BATCH_ROWS = 2_000
"""A batch is closed once it holds so many jobs: a transaction is one lock for everybody."""

INBOX_ROWS = 20_000
"""Above so many jobs in the inbox, producers are made to wait."""

CHECK_EVERY = 250
"""Ms between looks for commits of others while somebody waits for jobs or results."""

CHECK_SOON = 5
"""The same, in the first second of a wait for which no wake-up will come."""

FIRST_PAUSE, LONGEST_PAUSE = 1_000, 15_000
"""Ms without claiming after the database failed; doubled each time."""

SLOW_LOCK, SLOW_TRANSACTION = 0.2, 1.0

OPERATIONS: dict[type, Callable[[Transaction, Any], Operation[Sequence[Any]]]] = {
    adding.AddJobs: adding.add,
    settling.Settle: settling.settle,
    settling.Progress: settling.record_progress,
    moving.MoveByHand: moving.move_by_hand,
    tending.OpenQueue: tending.open_queue,
    tending.Register: tending.register,
    tending.Deregister: tending.deregister,
    tending.Renew: tending.renew,
    tending.Recover: tending.recover,
    tending.Promote: tending.promote,
    tending.Sweep: tending.sweep,
}


def start_thread(run: Callable[[], None], name: str) -> None:
    threading.Thread(target=run, name=name, daemon=True).start()


class Engine:
    """One writer for one database."""

    def __init__(self, driver: Driver, spawn: Spawn = start_thread) -> None:
        self.driver = driver
        self.clock = driver.clock
        self.chores = Chores(driver)
        self._spawn = spawn
        self._inbox: deque[Ask] = deque()
        self._inbox_rows = 0
        self._waiting_for_room: deque[tuple[Reply, Mailbox]] = deque()
        self._appetites: list[Appetite] = []
        self._watched: dict[int, list[Ask]] = {}
        self._watched_since = 0
        self._due: dict[int, int] = {}
        self._token = 0
        self._paused_until = 0
        self._pause = FIRST_PAUSE
        self._stopping = False
        self._broken: StoreError | None = None
        self._stopped = threading.Event()
        self._asleep = False
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ring.setblocking(False)

    # --- asking, from any thread -----------------------------------------------------------------

    def submit(self, request: Any, reply: Reply, mailbox: Mailbox = DIRECT) -> None:
        """Put a request in; `reply` gets its answer, or the exception, after the commit."""
        self._put(Ask(request, reply, mailbox))

    def attach(self, appetite: Appetite) -> None:
        """Register a worker and feed it from now on."""
        self._put(Ask(_Attach(appetite), _ignore))

    def detach(self, appetite: Appetite, reply: Reply, mailbox: Mailbox = DIRECT) -> None:
        """Feed a worker no more and take it off the register; what it holds, it still holds."""
        self._put(Ask(_Detach(appetite), reply, mailbox))

    def starve(self, appetite: Appetite, reply: Reply, mailbox: Mailbox = DIRECT) -> None:
        """Feed a worker no more; answered when nothing it has not received is under way."""
        self._put(Ask(_Starve(appetite), reply, mailbox))

    def want(self, appetite: Appetite, more: int) -> None:
        """`more` slots of a worker became free."""
        self._put(Ask(_Want(appetite, more), _ignore))

    def watch(self, job: int, reply: Reply, mailbox: Mailbox) -> None:
        """`reply` gets (state, return value, failed reason) once the job is finished."""
        self._put(Ask(_Watch(job), reply, mailbox))

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def has_room(self) -> bool:
        """Whether a producer may put jobs in without waiting."""
        return self._inbox_rows < INBOX_ROWS

    def when_room(self, reply: Reply, mailbox: Mailbox) -> None:
        """`reply` is called once the inbox has drained enough."""
        self._waiting_for_room.append((reply, mailbox))
        self._ring_bell()

    def poke(self) -> None:
        """Make the engine look around now, as if somebody else had committed."""
        self._put(Ask(_Poke(), _ignore))

    def _put(self, ask: Ask) -> None:
        if self._stopping:
            ask.mailbox.deliver([(ask.reply, self._broken or StoreClosed("the store is closed"))])
            return
        self._inbox_rows += _rows(ask.request)
        self._inbox.append(ask)
        self._ring_bell()

    def _ring_bell(self) -> None:
        # The engine says it is asleep before its last look into the inbox, so a request is either
        # seen by that look or rings.
        if self._asleep:
            self._asleep = False
            try:
                self._ring.send(b"!")
            except OSError:
                pass  # full: it is ringing already; closed: nobody is there

    # --- the thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the database and start writing; raises what opening raises."""
        self.driver.open()
        self._spawn(self.run, "bullite-engine")

    def run(self) -> None:
        """Turn until closed and everything accepted is done."""
        try:
            while not (self._stopping and not self._inbox):
                self._sleep()
                self.turn()
        finally:
            self._leave()

    def close(self, timeout: float | None = None) -> None:
        """Finish what was accepted, then stop; waits for that."""
        self._stopping = True
        self._asleep = True
        self._ring_bell()
        self._stopped.wait(timeout)

    def _leave(self) -> None:
        self._stopping = True
        error = self._broken or StoreClosed("the store was closed")
        asks = [*self._inbox, *(ask for asks in self._watched.values() for ask in asks)]
        self._inbox.clear()
        self._watched.clear()
        self._deliver([(ask, error) for ask in asks])
        self.driver.close()
        self._bell.close()
        self._ring.close()
        self._stopped.set()

    def _sleep(self) -> None:
        """Wait for a request, a wake-up or the time of the next thing to do."""
        self._asleep = True
        if self._inbox or self._stopping or any(self._can_claim(a) for a in self._appetites):
            self._asleep = False
            return
        ears = self.driver.ears()
        ready, _, _ = select.select([self._bell.fileno(), *ears], [], [], self._timeout())
        self._asleep = False
        rung = self._bell.fileno() in ready
        if rung:
            self._bell.recv(4096)
        heard = self.driver.hear() if len(ready) > rung else set()
        if not ready and self._is_waited_for() and self.driver.changed():
            self._look_around()
        for queue in heard:
            self._look_into(queue)

    def _is_waited_for(self) -> bool:
        return bool(self._watched) or any(appetite.is_hungry for appetite in self._appetites)

    def _timeout(self) -> float | None:
        """Seconds until there is something to do, or None."""
        lease_now = self.clock.lease_now()
        times = []
        if self._appetites:
            times.append(self.chores.next_at() - lease_now)
        if self._due:
            times.append(min(self._due.values()) - self.clock.now())
        if self._is_waited_for():
            times.append(self._check_every(lease_now))
        if self._paused_until > lease_now:
            times.append(self._paused_until - lease_now)
        return max(0, min(times)) / 1000 if times else None

    def _check_every(self, lease_now: int) -> int:
        """Nobody wakes us for results, nor for jobs where there are no wake-ups: look sooner."""
        if not self._watched and self.driver.ears():
            return CHECK_EVERY
        waited = lease_now - self._watched_since
        return min(CHECK_EVERY, max(CHECK_SOON, waited // 20))

    # --- a turn ----------------------------------------------------------------------------------

    def turn(self) -> None:
        """One batch: everything there is to do now, in one transaction."""
        asks = self._take()
        if self._appetites and self.clock.lease_now() >= self.chores.next_at():
            asks += self._chores()
        self._stir_due()
        if asks or any(self._can_claim(appetite) for appetite in self._appetites):
            self._transact(asks)
        self._make_room()
        if self._broken is None:
            self._housekeep()

    def _take(self) -> list[Ask]:
        asks: list[Ask] = []
        rows = 0
        while self._inbox and rows < BATCH_ROWS:
            ask = self._inbox.popleft()
            rows += _rows(ask.request)
            if isinstance(ask.request, _Control):
                self._obey(ask.request, ask)
            else:
                asks.append(ask)
        self._inbox_rows = max(0, self._inbox_rows - rows)
        return asks

    def _chores(self) -> list[Ask]:
        try:
            due = self.chores.due(self.clock.lease_now())
        except StoreError as error:
            log.warning("the scheduler could not look: %s", error)
            return []
        return [Ask(chore, partial(self._done, chore)) for chore in due]

    def _done(self, chore: Chore, answer: Any) -> None:
        if isinstance(answer, BaseException):
            log.warning("%s failed: %s", type(chore).__name__.lower(), answer)
        elif isinstance(chore, tending.Renew):
            self._register_the_forgotten(answer)
        elif self.chores.again(chore, answer):
            self._inbox.append(Ask(chore, partial(self._done, chore)))
        elif isinstance(chore, tending.Recover) and chore.dead:
            self.driver.bury([chore.worker.nonce])

    def _register_the_forgotten(self, registered: set[int]) -> None:
        """A worker that others gave up on, because its lease ran out, starts anew."""
        for appetite in self._appetites:
            if appetite.worker and appetite.worker not in registered:
                log.error(
                    "worker %d lost its registration; its jobs were given to others",
                    appetite.worker,
                )
                self._register(appetite)

    def _stir_due(self) -> None:
        if self._due:
            now = self.clock.now()
            for queue in [queue for queue, due in self._due.items() if due <= now]:
                del self._due[queue]
                self._stir(queue, {"": 1})

    def _can_claim(self, appetite: Appetite) -> bool:
        return (
            appetite.stirred and appetite.is_hungry and self._paused_until <= self.clock.lease_now()
        )

    def _transact(self, asks: list[Ask]) -> None:
        """Run a batch. One bad request must not fail its neighbours."""
        try:
            self._attempt(asks)
        except StoreError as error:
            self._fail(asks, error)
        except Exception as error:
            if not asks:
                self._fail(asks, error)
            for ask in asks:
                self._alone(ask)

    def _alone(self, ask: Ask) -> None:
        try:
            self._attempt([ask], careful=True, claim=False)
        except StatementRefused as error:
            self._deliver([(ask, StoreError(f"the database refused the request: {error}"))])
        except Exception as error:
            if not isinstance(error, StoreError):
                log.exception("a request failed")
            self._fail([ask], error)

    def _fail(self, asks: list[Ask], error: Exception) -> None:
        if isinstance(error, StoreReplaced):
            self._broken = error
            self._stopping = True
        hungry = [appetite for appetite in self._appetites if self._can_claim(appetite)]
        if hungry:
            self._paused_until = self.clock.lease_now() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._deliver(
            [(ask, error) for ask in asks]
            + [(Ask(None, appetite.reply, appetite.mailbox), error) for appetite in hungry]
        )

    def _attempt(self, asks: list[Ask], careful: bool = False, claim: bool = True) -> None:
        """One transaction: all of `asks`, the claims of the hungry, the books; then the answers."""
        requests = [ask.request for ask in asks]
        groups = group(requests)
        answers: list[Any] = [None] * len(asks)
        started = time.perf_counter()
        self.driver.begin(durable=any(request.durable for request in requests))
        try:
            begun = time.perf_counter()
            tx = Transaction(self.clock.now(), self.clock.lease_now(), self.driver.nonce, careful)
            for indexes in groups:
                members = [requests[index] for index in indexes]
                operation = OPERATIONS[type(members[0])](tx, members)
                for index, answer in zip(indexes, self._drive(operation), strict=True):
                    answers[index] = answer
            served = self._serve(tx) if claim else []
            self._drive(tx.close_books())
            self._announce(tx, served)
            self.driver.commit()
        except BaseException:
            self.driver.rollback()
            raise
        self.driver.wake()
        self._after(tx, served)
        self._deliver([*zip(asks, answers, strict=True), *self._finished(requests)])
        _warn_if_slow(begun - started, time.perf_counter() - begun)

    def _drive(self, operation: Operation[T]) -> T:
        execute = self.driver.execute
        try:
            step = next(operation)
            while True:
                step = operation.send(execute(*step))
        except StopIteration as stop:
            result: T = stop.value
            return result

    # --- feeding workers -------------------------------------------------------------------------

    def _serve(self, tx: Transaction) -> list[tuple[Appetite, claiming.Claimed]]:
        """Claim for every worker that has free slots and may find something."""
        served = []
        for appetite in self._appetites:
            names = tx.ready.get(appetite.queue)
            if names and appetite.takes(names):
                appetite.stirred = True
            if self._can_claim(appetite):
                self._token += 1
                request = appetite.claim(self._token, MOST_CLAIMED)
                [claimed] = self._drive(claiming.claim(tx, [request]))
                served.append((appetite, claimed))
                self._tell_hunger(appetite, len(claimed.rows), claimed.drained)
        return served

    def _tell_hunger(self, appetite: Appetite, taken: int, drained: bool) -> None:
        hungry = drained and appetite.want > taken
        if hungry != appetite.told_hungry:
            self.driver.hungry(appetite.worker, hungry)

    def _announce(
        self, tx: Transaction, served: Sequence[tuple[Appetite, claiming.Claimed]]
    ) -> None:
        """Have as many idle workers elsewhere woken as there are jobs left for them."""
        left = {queue: (sum(names.values()), names) for queue, names in tx.ready.items()}
        for appetite, claimed in served:
            number, names = left.get(appetite.queue, (0, {}))
            left[appetite.queue] = (number - len(claimed.rows), names)
            if not claimed.drained:
                left[appetite.queue] = (max(1, number - len(claimed.rows)), {"": 1})
        for queue in tx.delayed:
            left.setdefault(queue, (1, {"": 1}))
        for queue, (number, names) in left.items():
            if number > 0:
                self.driver.announce(queue, names, number)

    def _after(self, tx: Transaction, served: Sequence[tuple[Appetite, claiming.Claimed]]) -> None:
        """The transaction is committed: what it means for appetites and timers."""
        self._pause = FIRST_PAUSE
        for queue, names in tx.ready.items():
            self._stir(queue, names)
        for queue, due in tx.delayed.items():
            self._expect(queue, due)
        for appetite, claimed in served:
            appetite.want -= len(claimed.rows)
            appetite.stirred = not claimed.drained
            appetite.told_hungry = claimed.drained and appetite.want > 0
            if claimed.next_due is not None:
                self._expect(appetite.queue, claimed.next_due)
            if claimed.rows and not appetite.mailbox.alive():
                self._abandon(appetite)
        by_mailbox = [(Ask(None, a.reply, a.mailbox), c) for a, c in served if c.rows]
        self._deliver(by_mailbox)

    def _expect(self, queue: int, due: int) -> None:
        """Arm the timer for a delayed job, if a worker of its queue lives here."""
        if any(appetite.queue == queue for appetite in self._appetites):
            self._due[queue] = min(due, self._due.get(queue, due))

    def _stir(self, queue: int, names: dict[str, int]) -> None:
        for appetite in self._appetites:
            if appetite.queue == queue and appetite.takes(names):
                appetite.stirred = True

    def _look_around(self) -> None:
        """Somebody else committed: see whether it is of interest here."""
        for queue in {a.queue for a in self._appetites if a.is_hungry and not a.stirred}:
            self._look_into(queue)
        self._check_watched(list(self._watched))

    def _look_into(self, queue: int) -> None:
        """See, without the write lock, whether a queue has something to take, now or later."""
        try:
            ready, due = self.driver.execute("outlook", {"queue": queue}).rows[0]
        except StoreError as error:
            log.warning("could not look for jobs: %s", error)
            return
        if ready:
            self._stir(queue, {"": 1})
        if due is not None:
            self._expect(queue, due)

    # --- control messages ------------------------------------------------------------------------

    def _obey(self, control: _Control, ask: Ask) -> None:
        match control:
            case _Want(appetite, more):
                appetite.want += more
            case _Starve(appetite):
                appetite.want = -FOR_EVER
                self._deliver([(ask, None)])
            case _Attach(appetite):
                self._appetites.append(appetite)
                self.chores.renew_every = min(a.renew_every for a in self._appetites)
                self._register(appetite)
            case _Detach(appetite):
                self._forget(appetite)
                self._inbox.appendleft(
                    Ask(tending.Deregister(appetite.worker), ask.reply, ask.mailbox)
                )
            case _Watch(job):
                self._watched_since = self.clock.lease_now()
                self._watched.setdefault(job, []).append(ask)
                self._check_watched([job])
            case _Poke():
                self.driver.changed()
                self._look_around()

    def _register(self, appetite: Appetite) -> None:
        appetite.worker = 0
        appetite.told_hungry = False
        appetite.registration.address = self.driver.listen()

        def registered(answer: Any) -> None:
            if isinstance(answer, BaseException):
                appetite.mailbox.deliver([(appetite.reply, answer)])
                time.sleep(0)  # let others run; the next turn tries again
                self._inbox.append(Ask(appetite.registration, registered))
            else:
                appetite.worker = answer
                appetite.stirred = True

        self._inbox.appendleft(Ask(appetite.registration, registered))

    def _forget(self, appetite: Appetite) -> None:
        if appetite in self._appetites:
            self._appetites.remove(appetite)
        if not any(a.queue == appetite.queue for a in self._appetites):
            self._due.pop(appetite.queue, None)

    def _abandon(self, appetite: Appetite) -> None:
        """A worker whose event loop is gone can finish nothing: leave it to its lease."""
        log.error(
            "the event loop of a worker of queue %d is closed; its jobs will be recovered",
            appetite.queue,
        )
        self._forget(appetite)
        self._inbox.append(Ask(tending.Deregister(appetite.worker), _ignore))

    # --- watching for results --------------------------------------------------------------------

    def _finished(self, requests: Sequence[Any]) -> list[tuple[Ask, Any]]:
        """The answers for those who wait for a job that this transaction finished."""
        if not self._watched:
            return []
        settled = [r for r in requests if isinstance(r, settling.Settle)]
        jobs = [v.job for request in settled for v in request.verdicts if v.job in self._watched]
        return self._results(jobs) if jobs else []

    def _check_watched(self, jobs: list[int]) -> None:
        if jobs:
            self._deliver(self._results(jobs))

    def _results(self, jobs: list[int]) -> list[tuple[Ask, Any]]:
        params = {"jobs": moving.as_json(jobs)}
        try:
            finished = self.driver.execute("finished_among", params).rows
            existing = {row[0] for row in self.driver.execute("existing_among", params).rows}
        except StoreError as error:
            log.warning("could not look for results: %s", error)
            return []
        answers: list[tuple[Ask, Any]] = []
        for job, *result in finished:
            answers += [(ask, result) for ask in self._watched.pop(job, ())]
        for job in set(jobs) - existing:
            gone = JobNotFound(f"job {job} does not exist any more")
            answers += [(ask, gone) for ask in self._watched.pop(job, ())]
        return answers

    # --- around ----------------------------------------------------------------------------------

    def _deliver(self, answers: Sequence[tuple[Ask, Any]]) -> None:
        by_mailbox: dict[Mailbox, list[tuple[Reply, Any]]] = {}
        for ask, answer in answers:
            by_mailbox.setdefault(ask.mailbox, []).append((ask.reply, answer))
        for mailbox, replies in by_mailbox.items():
            mailbox.deliver(replies)

    def _make_room(self) -> None:
        if self._waiting_for_room and self._inbox_rows <= INBOX_ROWS // 2:
            waiting = list(self._waiting_for_room)
            self._waiting_for_room.clear()
            self._deliver([(Ask(None, reply, mailbox), None) for reply, mailbox in waiting])

    def _housekeep(self) -> None:
        try:
            self.driver.housekeep(urgent=False)
        except StoreError as error:
            log.warning("housekeeping failed: %s", error)


class _Control:
    """A message to the engine itself that needs no transaction."""

    __slots__ = ()


class _Want(_Control):
    __slots__ = __match_args__ = ("appetite", "more")

    def __init__(self, appetite: Appetite, more: int) -> None:
        self.appetite = appetite
        self.more = more


class _Starve(_Control):
    __slots__ = __match_args__ = ("appetite",)

    def __init__(self, appetite: Appetite) -> None:
        self.appetite = appetite


class _Attach(_Control):
    __slots__ = __match_args__ = ("appetite",)

    def __init__(self, appetite: Appetite) -> None:
        self.appetite = appetite


class _Detach(_Control):
    __slots__ = __match_args__ = ("appetite",)

    def __init__(self, appetite: Appetite) -> None:
        self.appetite = appetite


class _Watch(_Control):
    __slots__ = __match_args__ = ("job",)

    def __init__(self, job: int) -> None:
        self.job = job


class _Poke(_Control):
    __slots__ = __match_args__ = ()


def _rows(request: Any) -> int:
    """How many jobs a request brings along."""
    if isinstance(request, adding.AddJobs):
        return len(request.jobs)
    return 1


def _ignore(answer: Any) -> None:
    if isinstance(answer, BaseException):
        log.warning("%s", answer)


_last_warning = 0.0


def _warn_if_slow(waited: float, took: float) -> None:
    global _last_warning
    if waited < SLOW_LOCK and took < SLOW_TRANSACTION:
        return
    now = time.monotonic()
    if now - _last_warning >= 1:
        _last_warning = now
        log.warning("waited %d ms for the write lock, wrote for %d ms", waited * 1000, took * 1000)
