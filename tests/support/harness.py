"""A store to test against: a real database, time passed in, the engine's turns taken by hand.

Tests speak to a `Store`, to its `Process`es (each a driver and an engine without a thread) and to
their `Worker`s. Which database is underneath, only `databases.py` knows.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from bullite.core.decide_outcome import RunOutcome
from bullite.core.deduplication import DeduplicationRule
from bullite.core.event_log import UNCOUNTED
from bullite.core.job_flags import DEDUPLICATED, LIMITED
from bullite.core.job_record import JobRow
from bullite.core.states import (
    BACK_OFF,
    COMPLETE,
    DELAY,
    FAIL,
    RELEASE,
    RETRY_NOW,
    RETURN_UNSTARTED,
    Move,
)
from bullite.database import driver as drivers
from bullite.database.driver import Driver, Params, Reader, Result, Step
from bullite.engine.engine import Engine
from bullite.engine.maintenance import Maintenance
from bullite.engine.read_thread import ReadThread
from bullite.engine.replies import SAME_THREAD, Reply, ReplyTarget
from bullite.engine.result_waiters import AwaitedJob
from bullite.engine.subscription import CancelRunning, Subscription, WorkerIntervals
from bullite.errors import BulliteError
from bullite.operations.add import Added, AddJobs, NewJob, RareFields
from bullite.operations.add_flow import AddFlow, FlowAdded
from bullite.operations.claim import Claimed, Promote
from bullite.operations.finish import FinishRuns
from bullite.operations.flow_graph import Node
from bullite.operations.move import MoveJobs
from bullite.operations.queues import Configure, OpenQueue
from bullite.operations.rate_limits import MAX_BLOCK, Rate
from bullite.operations.retention import PruneQueue
from bullite.operations.transaction import Operation, Transaction
from bullite.operations.update import Progress
from bullite.operations.workers import RecoverStalled, RegisterWorker, RenewLeases
from tests.support.databases import Database

LOCK_DURATION = 30_000
QUEUE = "work"

COUNTED = (
    *("waiting", "prioritized", "delayed", "active"),
    *("waiting-children", "completed", "failed"),
)


class FakeClock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.boot = "this boot"
        self._passed = 0

    def now(self) -> int:
        return 1_700_000_000_000 + self._passed

    def lease_now(self) -> int:
        return 5_000_000 + self._passed

    def advance(self, ms: int) -> None:
        self._passed += ms


def new_job(
    name: str = "job",
    *,
    data: str = "null",
    custom_id: str | None = None,
    priority: int = 0,
    rank: int | None = None,
    lifo: bool = False,
    delay: int = 0,
    attempts: int = 3,
    opts: str | None = None,
    timestamp: int | None = None,
    run_at: int | None = None,
    expires: int | None = None,
    deduplication: DeduplicationRule | None = None,
    limit_key: str | None = None,
) -> NewJob:
    if deduplication is not None:
        opts = json.dumps({"deduplication": deduplication._asdict()})
    if limit_key is not None:
        opts = json.dumps({"limit_key": limit_key})
    return NewJob(
        name=name,
        custom_id=custom_id,
        rank=priority if rank is None else rank,
        priority=priority,
        lifo=int(lifo),
        delay=delay,
        attempts=attempts,
        data=data,
        opts=opts,
        rare_fields=RareFields(
            timestamp,
            run_at,
            expires,
            flags=(DEDUPLICATED if deduplication else 0) | (LIMITED if limit_key else 0),
            deduplication=deduplication,
        ),
    )


def node(job: NewJob | None = None, **ties: Any) -> Node:
    """A job of the usual queue, or of another, that is tied to others."""
    return Node(ties.pop("queue", 0), ties.pop("queue_name", QUEUE), job or new_job(), **ties)


class Held(NamedTuple):
    """A job in a worker's hands."""

    id: int
    token: int
    row: JobRow


class Event(NamedTuple):
    """One entry of the event log."""

    kind: str
    job: int | str | None
    """As users call it; None for an event of the queue."""
    detail: Any


class ThoroughEngine(Engine):
    """Takes turns until nothing is left of what is due by the clock."""

    def turn(self) -> None:
        super().turn()
        while self._maintenance.has_backlog() and not self.is_stopping:
            super().turn()


class Recorder:
    """A driver that remembers what was asked of it, and fails where it is told to."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.begun: list[bool] = []
        """For each transaction, whether it had to be durable."""
        self.fail_at: dict[str, Exception] = {}
        """The next statement of that name, or the next "commit", raises this instead."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def begin(self, durable: bool, foreseen: Sequence[Step] = ()) -> None:
        self._driver.begin(durable, foreseen)
        self.begun.append(durable)

    def execute(self, statement: str, params: Params) -> Result:
        if statement in self.fail_at:
            raise self.fail_at.pop(statement)
        return self._driver.execute(statement, params)

    def commit(self) -> None:
        if "commit" in self.fail_at:
            raise self.fail_at.pop("commit")
        self._driver.commit()


class Reads(ReadThread):
    """The thread for reads of an engine: it has none, and reads while the caller waits."""

    def __init__(self, driver: Recorder) -> None:
        super().__init__(driver.reader)
        self._driver = driver
        self._reader: Reader | None = None
        self.asked: list[tuple[str, Params]] = []
        self.is_slow = False
        """While it is, reads wait for `go_on`."""
        self._waiting: list[tuple[str, Params, Reply, ReplyTarget]] = []

    def read(self, statement: str, params: Params, reply: Reply, mailbox: ReplyTarget) -> None:
        self.asked.append((statement, params))
        self._waiting.append((statement, params, reply, mailbox))
        if not self.is_slow:
            self.go_on()

    def go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for statement, params, reply, mailbox in waiting:
            mailbox.deliver([(reply, self._answer(statement, params))])

    def _answer(self, statement: str, params: Params) -> Any:
        if statement in self._driver.fail_at:
            return self._driver.fail_at.pop(statement)
        self._reader = self._reader or self._driver.reader()
        return self._reader.read(statement, params).rows

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class Resting(Maintenance):
    """The scheduler service of an engine, at work only when a test calls for a chore."""

    def next_at(self) -> int:
        return 2**62


class Steps:
    """An operation driven by hand, so that something can happen in its middle."""

    def __init__(self, operation: Operation[Any], execute: Callable[..., Result]) -> None:
        self._operation = operation
        self._execute = execute
        self._result: Result | None = None

    def until(self, statement: str) -> Steps:
        """Run everything up to and including `statement`."""
        step: Any = None
        while step is None or step[0] != statement:
            step = self._operation.send(self._result)  # type: ignore[arg-type]
            self._result = self._execute(*step)
        return self

    def finish(self) -> Any:
        """Run the rest; what the operation returns."""
        try:
            while True:
                step = self._operation.send(self._result)  # type: ignore[arg-type]
                self._result = self._execute(*step)
        except StopIteration as stop:
            return stop.value


class OpenTransaction:
    """A transaction under way: operations run in it one after the other, or interleaved."""

    def __init__(self, process: Process, careful: bool) -> None:
        self._process = process
        self._books: list[Transaction] = []
        self.tx = self.tx_of(process, careful)

    def tx_of(self, process: Process, careful: bool = False) -> Transaction:
        """What an operation of `process` sees."""
        clock = process.clock
        tx = Transaction(clock.now(), clock.lease_now(), process.nonce, careful)
        self._books.append(tx)
        return tx

    def start(self, operation: Operation[Any]) -> Steps:
        return Steps(operation, self._process.driver.execute)

    def run(self, operation: Operation[Any]) -> Any:
        return self.start(operation).finish()

    def close_books(self) -> None:
        for tx in self._books:
            self.run(tx.write_counts_and_events())


class Process:
    """One process that uses the database."""

    def __init__(self, driver: Driver, clock: FakeClock) -> None:
        self.clock = clock
        self.nonce = driver.nonce
        self.driver = Recorder(driver)
        self.driver.open()
        self.reads = Reads(self.driver)
        self.engine = ThoroughEngine(self.driver, read_thread=self.reads)
        assert isinstance(self.engine._maintenance.schedule, Maintenance)
        self.engine._maintenance.schedule = Resting(self.driver)
        self.queue = self.open_queue(QUEUE)

    def close(self) -> None:
        self.reads.close()
        self.engine.close()

    # --- asking the engine ---

    def turn(self) -> None:
        """Let the engine take a turn, and one more for what it had read meanwhile."""
        reads = len(self.reads.asked)
        self.engine.turn()
        if len(self.reads.asked) > reads:
            self.engine.turn()

    def ask(self, request: Any) -> Any:
        """The answer to one request; raises what it is refused with."""
        [answer] = self.ask_together(request)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def ask_together(self, *requests: Any) -> list[Any]:
        """The answers, or exceptions, to requests that arrive in this order in one batch."""
        answers: dict[int, Any] = {}
        for index, request in enumerate(requests):
            self.engine.submit(request, lambda answer, i=index: answers.update({i: answer}))
        self.turn()
        return [answers[index] for index in range(len(requests))]

    def open_queue(self, name: str, order: str | None = None) -> int:
        number: int = self.ask(OpenQueue(name, order))[0]
        return number

    def add_all(self, *jobs: NewJob, queue: int | None = None) -> list[int]:
        queue = queue or self.queue
        added: Added = self.ask(AddJobs(queue, jobs, self.version(queue)))
        return list(added.ids)

    def grow(self, *nodes: Node) -> list[int]:
        """The numbers of the nodes' jobs; raises what the store answers instead."""
        placed = [node if node.queue else node._replace(queue=self.queue) for node in nodes]
        versions = {node.queue: self.version(node.queue) for node in placed}
        grown = self.ask(AddFlow(placed, versions))
        if isinstance(grown, BulliteError):
            raise grown
        assert isinstance(grown, FlowAdded)
        return list(grown.ids)

    def version(self, queue: int) -> int:
        """Of a queue's settings, which a producer must know."""
        version: int = self.driver.execute("add_info", {"queue": queue}).rows[0][1]
        return version

    def add(self, name: str = "job", *, queue: int | None = None, **options: Any) -> int:
        [job] = self.add_all(new_job(name, **options), queue=queue)
        return job

    def settle(self, *verdicts: RunOutcome) -> list[int]:
        """The jobs that were lost."""
        return list(self.ask(FinishRuns(self.queue, verdicts)).lost)

    def move(self, move: Move, *jobs: int, **options: Any) -> list[int]:
        """The jobs that moved."""
        moved: list[int] = self.ask(MoveJobs(move, jobs, **options))
        return moved

    def worker(
        self,
        *,
        queue: int | None = None,
        names: Sequence[str] | None = None,
        lock_duration: int = LOCK_DURATION,
        max_stalled_count: int = 1,
        renews: bool = True,
        stalled_backoff: bool = False,
        habits: WorkerIntervals = WorkerIntervals(),  # noqa: B008 - it is frozen
        by_hand: bool = False,
        limiter: Rate | None = None,
        longest_rest: int = MAX_BLOCK,
    ) -> Worker:
        """A new worker, registered."""
        registration = RegisterWorker(
            queue=queue or self.queue,
            name="a worker",
            names=None if names is None else tuple(names),
            lock_duration=lock_duration,
            max_stalled_count=max_stalled_count,
            pid=1,
            host="here",
            boot=self.clock.boot,
            address=None,
            renews=renews,
            stalled_backoff=stalled_backoff,
            limiter=limiter,
            longest_rest=longest_rest,
        )
        worker = Worker(self, registration, habits, by_hand)
        self.engine.turn()
        return worker

    # --- the scheduler service ---

    def chores(self, kind: type) -> list[Any]:
        """What the scheduler service would do now."""
        everything = Maintenance(self.driver).due(self.clock.lease_now())
        return [chore for chore in everything if isinstance(chore, kind)]

    def do_chores(self, kind: type) -> int:
        return sum(self.ask(chore) for chore in self.chores(kind))

    def recover(self) -> int:
        """Take back the jobs of dead workers and lapsed leases, once; how many."""
        return sum(self.ask(chore).jobs for chore in self.chores(RecoverStalled))

    def promote_due(self) -> int:
        return self.do_chores(Promote)

    def configure(self, queue: int | None = None, **changes: Any) -> None:
        self.ask(Configure(queue or self.queue, changes))

    def sweep(self, **settings: Any) -> int:
        """One small piece of a sweep under these settings; how much it deleted."""
        if settings:
            self.configure(**settings)
        swept: int = self.ask(PruneQueue(self.queue))
        return swept

    def renew(self) -> set[int]:
        registered: set[int] = self.ask(RenewLeases())
        return registered

    # --- transactions by hand ---

    @contextlib.contextmanager
    def transaction(self, careful: bool = False) -> Iterator[OpenTransaction]:
        """Committed at the end of the block, rolled back when it raises."""
        self.driver.begin(durable=True)
        try:
            opened = OpenTransaction(self, careful)
            yield opened
            opened.close_books()
            self.driver.commit()
        except BaseException:
            self.driver.rollback()
            raise


class Worker:
    """A worker of a process, fed by its engine."""

    def __init__(
        self, process: Process, registration: RegisterWorker, habits: WorkerIntervals, by_hand: bool
    ) -> None:
        self.process = process
        self.received: list[Held] = []
        self.errors: list[Exception] = []
        self.unloaded = 0
        self.stopped: list[CancelRunning] = []
        self.subscription = Subscription(
            registration,
            0,
            self._take,
            SAME_THREAD,
            self._unload,
            habits,
            self.stopped.extend,
            manual=by_hand,
        )
        process.engine.subscriptions.subscribe(self.subscription)

    @property
    def id(self) -> int:
        return self.subscription.worker

    def _take(self, claimed: Claimed | Exception) -> None:
        if isinstance(claimed, Exception):
            self.errors.append(claimed)
            return
        for row in claimed.rows:
            self.received.append(Held(row[0], claimed.token, JobRow(*row)))

    def _unload(self) -> None:
        self.unloaded += 1

    def wants(self, more: int, ahead: int = 0) -> None:
        """It has so many free slots; the engine fills them when it next turns."""
        self.subscription.concurrency = self.subscription.held + more
        self.subscription.prefetched = ahead

    def claim(self, want: int = 1, ahead: int = 0) -> list[Held]:
        """Look for up to `want` jobs to begin now, and `ahead` more, and take them."""
        before = len(self.received)
        self.wants(want, ahead)
        self.process.engine.poll_now()
        self.process.engine.turn()
        self.wants(0)
        if self.errors:
            raise self.errors.pop()
        return self.received[before:]

    def claim_one(self) -> Held:
        [held] = self.claim(1)
        return held

    def settle(self, move: Move, *held: Held, **details: Any) -> list[int]:
        queue = self.subscription.queue
        verdicts = [
            RunOutcome(
                h.id,
                h.token,
                move,
                **{"custom_id": h.row.custom_id, "flags": h.row.traits, **details},
            )
            for h in held
        ]
        return list(self.process.ask(FinishRuns(queue, verdicts)).lost)

    def complete(self, *held: Held, **details: Any) -> list[int]:
        return self.settle(COMPLETE, *held, **details)

    def fail(self, *held: Held, reason: str = "it broke", **details: Any) -> list[int]:
        return self.settle(FAIL, *held, reason=reason, stack="where it broke", **details)

    def back_off(self, *held: Held, delay: int = 1_000) -> list[int]:
        return self.settle(BACK_OFF, *held, delay=delay, reason="it broke", stack="where it broke")

    def retry(self, *held: Held) -> list[int]:
        return self.settle(RETRY_NOW, *held, reason="it broke", stack="where it broke")

    def give_back(self, *held: Held) -> list[int]:
        return self.settle(RETURN_UNSTARTED, *held)

    def release(self, *held: Held) -> list[int]:
        return self.settle(RELEASE, *held)

    def delay(self, *held: Held, delay: int = 1_000) -> list[int]:
        return self.settle(DELAY, *held, delay=delay)

    def progress(self, held: Held, progress: str = "1") -> bool:
        """Whether it was stored."""
        queue = self.subscription.queue
        stored: bool = self.process.ask(Progress(queue, held.id, held.token, progress))
        return stored

    def leave(self) -> None:
        """Go off the register, whatever is still held."""
        self.process.engine.subscriptions.unsubscribe(self.subscription, lambda answer: None)
        self.process.engine.turn()

    def leave_running(self) -> None:
        """Be told to stop while what is held still runs, and go on running it."""
        self.subscription.runs = lambda: self.subscription.held
        self.leave()

    def run_nothing(self) -> None:
        """What it ran has ended, or was ended with its process."""
        self.subscription.runs = lambda: 0

    def as_seen(self) -> drivers.WorkerRow:
        """Its row in the database, as a recovery sees it."""
        rows = self.process.driver.execute("workers", {}).rows
        [row] = [row for row in rows if row[0] == self.id]
        return drivers.WorkerRow(*row)


class Store:
    """A database, its first process, and a look at everything in it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = FakeClock()
        self._seeds = itertools.count(1)
        self._processes: list[Process] = []
        self.home = self.process()
        self.queue = self.home.queue
        self._reader = self.home.driver.reader()

    def process(self) -> Process:
        """Another process, with a nonce of its own."""
        random_bits = random.Random(next(self._seeds)).getrandbits
        process = Process(self.database.driver(self.clock, random_bits), self.clock)
        self._processes.append(process)
        return process

    def kill(self, process: Process) -> None:
        """Let a process die without a word: what it held, it still holds."""
        self.vanish(process)
        self.database.leave_corpse(process.nonce)

    def vanish(self, process: Process) -> None:
        """The same, and nothing is left to tell from that it is dead."""
        self.quit(process)
        self.database.clear_traces(process.nonce)

    def quit(self, process: Process) -> None:
        """Let a process close its store while its workers are still registered."""
        self._processes.remove(process)
        process.close()

    def close(self) -> None:
        self._reader.close()
        for process in self._processes:
            process.close()

    # --- shorthands for the first process ---

    def ask(self, request: Any) -> Any:
        return self.home.ask(request)

    def ask_together(self, *requests: Any) -> list[Any]:
        return self.home.ask_together(*requests)

    def add(self, name: str = "job", **options: Any) -> int:
        return self.home.add(name, **options)

    def add_all(self, *jobs: NewJob, queue: int | None = None) -> list[int]:
        return self.home.add_all(*jobs, queue=queue)

    def move(self, move: Move, *jobs: int, **options: Any) -> list[int]:
        return self.home.move(move, *jobs, **options)

    def grow(self, *nodes: Node) -> list[int]:
        return self.home.grow(*nodes)

    def worker(self, **options: Any) -> Worker:
        return self.home.worker(**options)

    # --- looking ---

    def state(self, job: int) -> str | None:
        """Where a job is; None if it does not exist."""
        row = self.row(job)
        return None if row is None else row.state

    def states(self, *jobs: int) -> list[str | None]:
        return [self.state(job) for job in jobs]

    def row(self, job: int, table: str = "jobs", key: str = "id") -> Any:
        """Everything stored about a job in one table; None if there is nothing."""
        found = self.database.rows(table, f"{key} = {job}")
        return SimpleNamespace(**found[0]) if found else None

    def result(self, job: int) -> Any:
        return self.row(job, "results", key="job")

    def counts(self, queue: int | None = None) -> dict[str, int]:
        """The kept counts, those that are not zero."""
        rows = self._reader.read("counts", {"queue": queue or self.queue}).rows
        return {name: count for name, count in zip(COUNTED, rows[0], strict=True) if count}

    def event_rows(self, queue: int | None = None) -> list[Any]:
        """The rows of the event log, as readers get them."""
        params = {"queue": queue or self.queue, "after": 0, "most": 1_000_000, **UNCOUNTED}
        names = ("id", "queue", "kind", "jobs", "total", "at")
        rows = self._reader.read("events_after", params).rows
        return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in rows]

    def events(self, queue: int | None = None) -> list[Event]:
        return [
            Event(row.kind, *(told[:2] if isinstance(told, list) else (told, None)))
            for row in self.event_rows(queue)
            for told in json.loads(row.jobs)
        ]

    def history(self, job: int) -> list[str]:
        """The moves a job made, as the event log tells them."""
        row = self.row(job)
        names = (job,) if row is None or row.custom_id is None else (row.custom_id,)
        return [event.kind for event in self.events() if event.job in names]

    def attempts(self, job: int) -> list[Any]:
        """How the runs of a job ended, first to last."""
        rows = self.database.rows("attempts", f"job = {job}")
        return [SimpleNamespace(**row) for row in sorted(rows, key=lambda row: row["number"])]

    def logs(self, job: int) -> list[str]:
        """The messages of a job's log."""
        rows = self.database.rows("logs", f"job = {job}")
        return [row["message"] for row in sorted(rows, key=lambda row: row["number"])]

    def read(self, statement: str, **params: Any) -> list[Any]:
        """The rows of a statement, as readers get them."""
        return list(self._reader.read(statement, params).rows)

    def watched(self, job: int) -> AwaitedJob:
        """What somebody who waits for a job knows of it."""
        row = self.row(job)
        return AwaitedJob(job, row.queue, row.custom_id or str(job))

    def workers(self) -> list[int]:
        return [row["id"] for row in self.database.rows("workers")]

    def everything(self) -> dict[str, list[dict[str, Any]]]:
        """All that is stored about jobs."""
        return {table: self.database.rows(table) for table in self.database.tables}

    def problems(self) -> list[str]:
        return self.database.problems()


@contextlib.contextmanager
def open_store(database: Database) -> Iterator[Store]:
    store = Store(database)
    try:
        yield store
    finally:
        store.close()
