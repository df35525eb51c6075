"""Any sequence of requests, deaths and waits leaves the store where a small model says.

The model knows nothing of transactions, indexes or kept counts: a job is a few fields, the line is
a sort. Two processes with a worker each take and settle jobs, a third one does everything else.

`pytest tests/operations/test_state_machine.py --hypothesis-profile long` looks much further.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bullite.core.decide_outcome import RunOutcome
from bullite.core.retention import Retention
from bullite.core.states import (
    BACK_OFF,
    COMPLETE,
    DELAY,
    DELETE,
    DELETE_ACTIVE,
    FAIL,
    PROMOTE,
    RELEASE,
    REMOVE,
    RESCHEDULE,
    RESTORE,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    RETRY_NOW,
    RETURN_UNSTARTED,
    Move,
    State,
)
from bullite.errors import BulliteError
from bullite.operations.add import NewJob
from bullite.operations.cancel_and_expire import Expire
from bullite.operations.queues import SetPaused
from bullite.operations.update import SetPriority
from tests.support.databases import DATABASES
from tests.support.harness import (
    LOCK_DURATION,
    Held,
    Process,
    Store,
    Worker,
    new_job,
    open_store,
)

AGAIN = (RETURN_UNSTARTED, RELEASE, DELAY, RETRY_NOW, BACK_OFF)
VERDICTS = (COMPLETE, FAIL, *AGAIN)
BY_HAND = (
    *(PROMOTE, RESCHEDULE, RETRY_FINISHED, RETRY_FINISHED_DELAYED, REMOVE, DELETE, DELETE_ACTIVE),
    *RESTORE.values(),
)
MAX_STALLED = 1

any_index = st.integers(0, 1_000)
"""Chooses among however many there are."""

any_job = st.builds(
    new_job,
    st.sampled_from("ab"),
    priority=st.integers(-1, 1),
    delay=st.sampled_from([0, 0, 50, 300]),
    lifo=st.sampled_from([False, False, True]),
    custom_id=st.sampled_from([None, None, None, "x", "y"]),
    expires=st.sampled_from([None, None, None, 55, 400]),
)

any_policy = st.sampled_from(
    [
        None,
        None,
        None,
        Retention(0),
        Retention(1),
        Retention(2, limit=1),
        Retention(age=50),
        Retention(3, age=400),
    ]
)

some_names = st.sampled_from([None, ("a",), ("b",), ("a", "b")])


@dataclass
class Job:
    """What the model knows of a job."""

    id: int
    name: str
    priority: int
    lifo: bool
    custom_id: str | None
    place: int
    queue: int
    expires_at: int | None
    state: str = "waiting"
    due_at: int | None = None
    run: Run | None = None
    """The last time it was taken."""
    lease_until: int = 0
    attempts_made: int = 0
    attempts_started: int = 0
    stalled_count: int = 0
    is_to_fail: bool = False
    removed_from: str | None = None
    finished_at: int | None = None
    history: int = 0
    """How many ended runs the store remembers beside the job's own row."""


@dataclass(eq=False)
class Run:
    """A job in the hands of a worker, or what is left of that."""

    crew: Crew
    held: Held


@dataclass(eq=False)
class Crew:
    """A worker, and whether it is still there."""

    worker: Worker
    lease_until: int
    names: tuple[str, ...] | None
    registered: bool = True
    alive: bool = True
    id: int = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.worker.id


class StoreMachine(RuleBasedStateMachine):
    kind: str

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._database = DATABASES[self.kind](Path(self._folder.name))
        self._opened = open_store(self._database)
        self.store: Store = self._opened.__enter__()
        self.clock = self.store.clock
        self.jobs: dict[int, Job] = {}
        self.runs: list[Run] = []
        self.gone: list[Crew] = []
        self.crews = [self._hire(self.store.process(), None) for _ in range(2)]
        self._last_place = 0
        self.queue = self.store.queue
        self.dead = self.store.home.open_queue("dead")
        self.buries = self.paused = False

    def teardown(self) -> None:
        try:
            self._drain()
            assert self.store.problems() == []
        finally:
            self._opened.__exit__(None, None, None)
            self._database.close()
            self._folder.cleanup()

    def _drain(self) -> None:
        """In the end, everything that waits is taken in the right order."""
        self.store.ask(SetPaused(self.queue, paused=False))
        taken = self.store.worker().claim(1_000)
        assert [held.id for held in taken] == [job.id for job in self._line(None)]

    # --- the model's arithmetic ---

    def _place(self, in_front: bool = False) -> int:
        self._last_place += 1
        return -self._last_place if in_front else self._last_place

    def _line(self, names: tuple[str, ...] | None) -> list[Job]:
        """Who waits, after those that are due have joined and those past their time have gone."""
        self._promote_due()
        self._expire_due()
        mine = [job for job in self._in("waiting") if names is None or job.name in names]
        return sorted(mine, key=lambda job: (job.priority, job.place))

    def _promote_due(self) -> None:
        due = [job for job in self._in("delayed") if (job.due_at or 0) <= self.clock.now()]
        for job in sorted(due, key=lambda job: (job.due_at, job.id)):
            self._promote(job)

    def _expire_due(self) -> int:
        """Expire overdue jobs; a job that was started once cannot expire."""
        late = [
            job
            for job in self._in("waiting") + self._in("delayed")
            if job.expires_at is not None and job.expires_at <= self.clock.now()
            if not job.attempts_started
        ]
        for job in late:
            job.state, job.due_at, job.finished_at = "failed", None, self.clock.now()
        return len(late)

    def _promote(self, job: Job) -> None:
        job.state, job.due_at, job.place = "waiting", None, self._place(job.lifo)

    def _in(self, state: str, queue: int | None = None) -> list[Job]:
        queue = queue or self.queue
        return [job for job in self.jobs.values() if (job.state, job.queue) == (state, queue)]

    def _with_custom_id(self, custom_id: str | None, queue: int | None = None) -> Job | None:
        queue = queue or self.queue
        same = [job for job in self.jobs.values() if job.custom_id == custom_id is not None]
        there = [job for job in same if job.queue == queue and job.state != "removed"]
        return next(iter(there), None)

    def _hire(self, process: Process, names: tuple[str, ...] | None) -> Crew:
        worker = process.worker(names=names, max_stalled_count=MAX_STALLED)
        return Crew(worker, self.clock.lease_now() + LOCK_DURATION, names)

    # --- adding ---

    @initialize(jobs=st.lists(any_job, min_size=3, max_size=5))
    def begin(self, jobs: list[NewJob]) -> None:
        self.add(jobs)

    @rule(jobs=st.lists(any_job, min_size=1, max_size=3))
    def add(self, jobs: list[NewJob]) -> None:
        for id, new in zip(self.store.add_all(*jobs), jobs, strict=True):
            existing = self._with_custom_id(new.custom_id)
            if existing is not None:
                assert id == existing.id
                continue
            assert id not in self.jobs
            place = self._place(bool(new.lifo))
            expires = new.rare_fields.expires if new.rare_fields is not None else None
            expires_at = None if expires is None else self.clock.now() + expires
            job = Job(
                *(id, new.name, new.priority, bool(new.lifo), new.custom_id),
                *(place, self.queue, expires_at),
            )
            if new.delay:
                job.state, job.due_at = "delayed", self.clock.now() + new.delay
            self.jobs[id] = job

    # --- taking and settling ---

    @rule(who=st.integers(0, 1), want=st.integers(1, 4))
    def claim(self, who: int, want: int) -> None:
        crew = self.crews[who]
        line = self._line(crew.names)
        expected = [] if self.paused else line[:want]
        taken = crew.worker.claim(want)
        assert [held.id for held in taken] == [job.id for job in expected]
        for job, held in zip(expected, taken, strict=True):
            assert bool(held.row.deferred_failure) is job.is_to_fail
            job.state = "active"
            job.attempts_started += 1
            job.lease_until = self.clock.lease_now() + LOCK_DURATION
            job.run = Run(crew, held)
            self.runs.append(job.run)

    @precondition(lambda self: self._current_runs())
    @rule(which=any_index, move=st.sampled_from([COMPLETE, FAIL]), keep=any_policy)
    def finish(self, which: int, move: Move, keep: Retention | None) -> None:
        self._end(which, move, keep=keep)

    @precondition(lambda self: self._current_runs())
    @rule(which=any_index, move=st.sampled_from(AGAIN))
    def hand_back(self, which: int, move: Move) -> None:
        self._end(which, move, delay=which % 100 + 1)

    def _end(self, which: int, move: Move, delay: int = 0, keep: Retention | None = None) -> None:
        runs = self._current_runs()
        run = runs[which % len(runs)]
        assert self._send(run, move, delay, keep) == []
        self._settle(self.jobs[run.held.id], move, delay, keep)

    def _current_runs(self) -> list[Run]:
        return [run for run in self.runs if run.crew.alive and self._held_by(run)]

    @precondition(lambda self: self._stale_runs())
    @rule(which=any_index, move=st.sampled_from(VERDICTS))
    def settle_too_late(self, which: int, move: Move) -> None:
        stale = self._stale_runs()
        run = stale[which % len(stale)]
        assert self._send(run, move, delay=1) == [run.held.id]
        assert run.crew.worker.progress(run.held) is False

    def _send(self, run: Run, move: Move, delay: int, keep: Retention | None = None) -> list[int]:
        held = run.held
        verdict = RunOutcome(
            held.id, held.token, move, delay, custom_id=held.row.custom_id, retention=keep
        )
        return run.crew.worker.process.settle(verdict)

    def _stale_runs(self) -> list[Run]:
        """Runs that lost their job, before all those whose job is in other hands now."""
        stale = [run for run in self.runs if run.crew.alive and not self._held_by(run)]
        again = [run for run in stale if self._is_active(run.held.id)]
        return again or stale

    def _is_active(self, id: int) -> bool:
        return id in self.jobs and self.jobs[id].state == "active"

    def _held_by(self, run: Run) -> Job | None:
        job = self.jobs.get(run.held.id)
        return job if job and job.state == "active" and job.run is run else None

    def _settle(self, job: Job, move: Move, delay: int, keep: Retention | None) -> None:
        job.state = str(move.target)
        if move not in (RETURN_UNSTARTED, RELEASE, DELAY):
            job.attempts_made += 1
        if move in (FAIL, RETRY_NOW, BACK_OFF):
            job.history += 1
        if move in (BACK_OFF, DELAY):
            job.due_at = self.clock.now() + delay
        if move is RETRY_NOW:
            self._promote_due()
            job.place = self._place(job.lifo)
        if move in (COMPLETE, FAIL):
            job.finished_at = self.clock.now()
            if move is COMPLETE or not self._bury(job):
                self._retain(job, keep)

    def _bury(self, job: Job) -> bool:
        """To the queue of dead letters, unless its id is taken there."""
        if self.buries and self._with_custom_id(job.custom_id, self.dead) is None:
            job.queue = self.dead
            return True
        return False

    def _retain(self, ended: Job, keep: Retention | None) -> None:
        if keep is None:
            return
        if keep.nothing:
            del self.jobs[ended.id]
            return
        if keep.age is not None:
            before = self.clock.now() - keep.age
            old = [job for job in self._finished(ended.state) if (job.finished_at or 0) <= before]
            self._forget(old[: keep.limit])
        if keep.count is not None:
            left = self._finished(ended.state)
            self._forget(left[: min(max(0, len(left) - keep.count), keep.limit)])

    def _finished(self, state: str) -> list[Job]:
        """The oldest first."""
        return sorted(self._in(state), key=lambda job: (job.finished_at or 0, job.id))

    def _forget(self, jobs: list[Job]) -> None:
        for job in jobs:
            del self.jobs[job.id]

    @precondition(lambda self: self._current_runs())
    @rule(which=any_index)
    def report_progress(self, which: int) -> None:
        runs = self._current_runs()
        run = runs[which % len(runs)]
        assert run.crew.worker.progress(run.held) is True

    # --- moves by hand ---

    @precondition(lambda self: self.jobs)
    @rule(which=any_index, move=st.sampled_from(BY_HAND))
    def move_by_hand(self, which: int, move: Move) -> None:
        job = list(self.jobs.values())[which % len(self.jobs)]
        allowed = job.state in move.sources
        if move in RESTORE.values():
            allowed = allowed and job.removed_from == move.target
            allowed = allowed and self._with_custom_id(job.custom_id, job.queue) is None
        if move in (RETRY_FINISHED, RETRY_FINISHED_DELAYED) and job.queue == self.dead:
            allowed = allowed and self._with_custom_id(job.custom_id) is None
        delay = which % 100 + 1
        assert self.store.move(move, job.id, delay=delay) == ([job.id] if allowed else [])
        if allowed:
            self._move(job, move, self.clock.now() + delay)

    def _move(self, job: Job, move: Move, due_at: int) -> None:
        if move in (DELETE, DELETE_ACTIVE):
            del self.jobs[job.id]
        elif move is REMOVE:
            job.removed_from, job.state = job.state, "removed"
        elif move is PROMOTE:
            self._promote(job)
        elif move is RESCHEDULE:
            job.due_at = due_at
        elif move in (RETRY_FINISHED, RETRY_FINISHED_DELAYED):
            job.history += job.state == "completed"
            job.queue, job.state, job.finished_at = self.queue, str(move.target), None
            job.is_to_fail, job.expires_at = False, None
            if move is RETRY_FINISHED:
                job.place = self._place(job.lifo)
            else:
                job.due_at = due_at
        else:
            job.state, job.removed_from = str(move.target), None

    # --- what is decided for jobs, and for the whole queue ---

    @precondition(lambda self: self.jobs)
    @rule(which=any_index, priority=st.integers(-1, 1), lifo=st.booleans())
    def change_priority(self, which: int, priority: int, lifo: bool) -> None:
        job = list(self.jobs.values())[which % len(self.jobs)]
        [answer] = self.store.ask_together(SetPriority(job.id, priority, False, lifo))
        if job.state in ("waiting", "delayed", "active"):
            assert answer == priority
            job.priority, job.place = priority, self._place(lifo)
        else:
            assert isinstance(answer, BulliteError)

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        assert self.store.ask(SetPaused(self.queue, paused)) is (paused != self.paused)
        self.paused = paused

    @rule(buries=st.booleans())
    def bury(self, buries: bool) -> None:
        self.buries = buries
        self.store.home.configure(dead_letter="dead" if buries else None)

    # --- time, death and recovery ---

    @rule(ms=st.sampled_from([1, 60, 500]), promote=st.booleans())
    def wait(self, ms: int, promote: bool) -> None:
        self.clock.advance(ms)
        if promote:
            self._promote_due()
            self.store.home.promote_due()

    @rule(ms=st.sampled_from([0, 60]))
    def expire(self, ms: int) -> None:
        self.clock.advance(ms)
        assert self.store.ask(Expire(self.queue)) == self._expire_due()

    @precondition(lambda self: self._current_runs())
    @rule(which=any_index, names=some_names, dies=st.booleans())
    def lose(self, which: int, names: tuple[str, ...] | None, dies: bool) -> None:
        """A worker goes while it holds jobs, alone or with its process; another one comes."""
        runs = self._current_runs()
        crew = runs[which % len(runs)].crew
        for who in [who for who in (0, 1) if self.crews[who] is crew]:
            if dies:
                self._kill(who, names)
            else:
                self._leave(who, names)

    def _kill(self, who: int, names: tuple[str, ...] | None) -> None:
        process = self.crews[who].worker.process
        self.store.kill(process)
        self.gone.append(self.crews[who])
        for crew in self.gone:
            if crew.worker.process is process:
                crew.alive = False
        self.crews[who] = self._hire(self.store.process(), names)

    def _leave(self, who: int, names: tuple[str, ...] | None) -> None:
        crew = self.crews[who]
        crew.worker.leave()
        crew.registered = False
        self.gone.append(crew)
        self.crews[who] = self._hire(crew.worker.process, names)

    @precondition(lambda self: self.gone)
    @rule(after=st.sampled_from([0, LOCK_DURATION + 1]))
    def recover(self, after: int) -> None:
        self.clock.advance(after)
        for crew in self.crews:
            crew.worker.process.renew()
        self.store.home.recover()
        now = self.clock.lease_now()
        dead = [crew for crew in self.gone if not crew.alive]
        lapsed = [crew for crew in self.gone if crew.alive and crew.lease_until < now]
        for crew in sorted(dead, key=lambda crew: crew.id):
            self._take_back(crew, before=2**62)
        for crew in sorted(lapsed, key=lambda crew: crew.id):
            self._take_back(crew, before=now)

    def _take_back(self, crew: Crew, before: int) -> None:
        held = [job for job in self._in("active") if job.run and job.run.crew is crew]
        lost = [job for job in held if job.lease_until < before]
        for job in sorted(lost, key=lambda job: -job.place):
            job.state, job.place = "waiting", self._place(in_front=True)
            job.stalled_count += 1
            job.history += 1
            job.is_to_fail = job.stalled_count > MAX_STALLED

    # --- what must hold after every step ---

    @invariant()
    def the_jobs_are_where_the_model_says(self) -> None:
        stored = {
            row["id"]: (
                *(row["state"], row["removed_from"], row["due_at"] if row["due_at"] else None),
                *(row["attempts_made"], row["attempts_started"], row["stalled_count"]),
                *(row["queue"], row["priority"], row["finished_at"]),
            )
            for row in self.store.database.rows("jobs")
        }
        assert stored == {
            job.id: (
                *(job.state, job.removed_from, job.due_at),
                *(job.attempts_made, job.attempts_started, job.stalled_count),
                *(job.queue, job.priority, job.finished_at),
            )
            for job in self.jobs.values()
        }

    @invariant()
    def the_ends_of_runs_are_remembered(self) -> None:
        stored = Counter(row["job"] for row in self.store.database.rows("attempts"))
        assert stored == {job.id: job.history for job in self.jobs.values() if job.history}

    @invariant()
    def the_counts_are_those_of_the_model(self) -> None:
        for queue in (self.queue, self.dead):
            assert self.store.counts(queue) == Counter(
                "prioritized" if job.state == "waiting" and job.priority else job.state
                for job in self.jobs.values()
                if job.state != State.REMOVED and job.queue == queue
            )

    @invariant()
    def the_store_finds_no_problems(self) -> None:
        assert self.store.problems() == []


EFFORT = {"sqlite": 1, "postgres": 5}
"""How many times as long a walk takes; it goes on as many fewer."""

for kind in DATABASES:
    machine = type(f"{kind.title()}Machine", (StoreMachine,), {"kind": kind})
    machine.TestCase.database = kind
    machine.TestCase.settings = settings(max_examples=settings().max_examples // EFFORT[kind])
    globals()[f"Test{kind.title()}"] = machine.TestCase
