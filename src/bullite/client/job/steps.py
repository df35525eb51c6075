"""Durable steps of a job: results that its next run reuses, sleeps, and waits for events."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeVar, overload

from ...core.checks import Duration, check_duration, encode_limited
from ...core.clock import moment_of
from ...core.codec import decode
from ...core.decide_outcome import RunOutcome
from ...core.job_flags import STEPPED
from ...core.names import check_name
from ...core.states import DELAY
from ...errors import EventTimedOut, IllegalMove, InvalidOptionType, JobSuspended
from ...operations.steps import (
    EVENT,
    SLEEP,
    STEP,
    RecordStep,
    SendEvent,
    StepDone,
    Suspend,
    Suspended,
)
from ..runtime.pending import Pending, Plan, is_in_loop
from ..runtime.store import Store

T = TypeVar("T")
Key = tuple[str, str, int]

_inside: ContextVar[str | None] = ContextVar("bullite_step", default=None)
"""The step that is being done."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a job's runs have done, or are at."""

    kind: str
    """`step`, `sleep` or `event`."""
    name: str
    """Of a sleep, empty unless it was given one."""
    number: int
    """Which sleep, or which wait, of that name."""
    value: Any
    """What the step gave, or the event brought."""
    started_at: datetime
    """When it was recorded first."""
    ended_at: datetime | None
    """None while the job sleeps or waits."""
    until: datetime | None
    """When the sleep ends, or the patience of the wait."""


class RunningJob(Protocol):
    """A job, as far as its steps need to know it."""

    token_number: int
    prefetched: bool
    moving: Pending[None] | None
    run: StepContext

    @property
    def pk(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def custom_id(self) -> str | None: ...
    @property
    def flags(self) -> int: ...
    @property
    def _store(self) -> Store: ...
    @property
    def _queue_key(self) -> int: ...
    def _add_flags(self, traits: int) -> None: ...
    def _apply_outcome(self, verdict: RunOutcome, at: int) -> None: ...


class DurableSteps:
    """The verbs of a job that concern its steps."""

    __slots__ = ()

    @overload
    def step(
        self: RunningJob,
        name: str,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        **kwargs: Any,
    ) -> Pending[T]: ...
    @overload
    def step(
        self: RunningJob, name: str, function: Callable[..., T], *args: Any, **kwargs: Any
    ) -> Pending[T]: ...
    def step(
        self: RunningJob, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Pending[Any]:
        """Call `function` once in the life of the job: a later run gets what it gave then.

        What it gives must be JSON, and comes back as that; it is on the disk before it does. A step
        that raises is not remembered. The same name in one run is the same step.
        """
        check_name("the name of a step", name)
        if not callable(function):
            raise InvalidOptionType(
                f"the step {name!r} must be given a function and its arguments, not {function!r}"
            )
        return run_of(self, "step").step(name, function, args, kwargs)

    def sleep(self: RunningJob, duration: Duration, *, name: str | None = None) -> Pending[None]:
        """End this run; the next one, `duration` from now, goes on from here. Costs no attempt.

        A run knows its sleeps by their order, or by their order among those of one `name`: each is
        slept through once. Meanwhile the job is delayed.
        """
        ms = check_duration("duration", duration)
        called = "" if name is None else check_name("the name of a sleep", name)
        run = run_of(self, "sleep")
        return Pending.from_plan(run.sleep(called, run.number(SLEEP, called), ms))

    def wait_event(self: RunningJob, name: str, timeout: Duration | None = None) -> Pending[Any]:
        """End this run until somebody sends the job this event; what the event brought.

        An event that was sent before is taken at once, each by one wait. EventTimedOut if none
        comes within `timeout`. Meanwhile the job is delayed; it costs no attempt.
        """
        check_name("the name of an event", name)
        ms = None if timeout is None else check_duration("timeout", timeout)
        run = run_of(self, "wait_event")
        return Pending.from_plan(run.wait_event(name, run.number(EVENT, name), ms))

    def send_event(self: RunningJob, name: str, payload: Any = None) -> Pending[bool]:
        """Send the job an event; whether it was waiting for it. If not, it is kept until it does.

        IllegalMove if the job is finished.
        """
        check_name("the name of an event", name)
        text = encode_limited(payload, "the payload of the event ", repr(name))
        return Pending(self._store, SendEvent(self.pk, name, text), bool)

    def get_steps(self: RunningJob) -> Pending[list[Step]]:
        """What its runs have done and need not do again, in the order in which it was begun."""
        return Pending.from_plan(_read_steps(self))


def run_of(job: RunningJob, verb: str) -> StepContext:
    """What the run that holds a job knows of its steps."""
    if not job.token_number:
        raise IllegalMove(
            f"job {job.id} is not run here: job.{verb} works in the processor that runs the job"
        )
    try:
        return job.run
    except AttributeError:
        job.run = StepContext(job)
        return job.run


class StepContext:
    """One run of a job on its way through its steps."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job
        self._known: dict[Key, str | None] | None = None
        """What need not be done again, once it was read: values as JSON."""
        self._places: Iterator[int] = count(1)
        self._met: Counter[tuple[str, str]] = Counter()
        self._underway: dict[str, Pending[Any]] = {}
        self._pausing: Pending[Any] | None = None
        self._suspended: str | None = None

    def number(self, kind: str, name: str) -> int:
        """Which sleep or wait of this name the run has come to."""
        self._met[kind, name] += 1
        return self._met[kind, name]

    def _load(self) -> Plan[dict[Key, str | None]]:
        """What earlier runs did; read once, and only if there is something to read."""
        if self._known is None and self._job.flags & STEPPED:
            rows = yield Pending.from_query(self._job._store, "steps", {"job": self._job.pk})
            if self._known is None:
                self._known = {(*row[:3],): row[3] for row in rows if row[6] is not None}
                self._places = count(len(rows) + 1)
        if self._known is None:
            self._known = {}
        return self._known

    def _go_on(self) -> None:
        if self._suspended is not None:
            raise JobSuspended(self._suspended)

    # --- steps ---

    def step(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
    ) -> Pending[Any]:
        if name in self._underway:
            return self._underway[name]
        plan = self._step(name, function, args, kwargs)
        pending = Pending.from_plan(plan, then=partial(self._underway.pop, name, None))
        if is_in_loop():
            self._underway[name] = pending
        return pending

    def _step(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
    ) -> Plan[Any]:
        try:
            while self._pausing is not None:
                yield self._pausing
            known = yield from self._load()
            self._go_on()
            text = known.get((STEP, name, 1))
            if text is None:
                with _as_step(name):
                    value = function(*args, **kwargs)
                    if inspect.isawaitable(value):
                        value = yield value
                text = yield from self._record(name, value)
            return decode(text)
        finally:
            self._underway.pop(name, None)

    def _record(self, name: str, value: Any) -> Plan[str]:
        job, text = self._job, encode_limited(value, "the result of the step ", repr(name))
        request = RecordStep(job.pk, job.token_number, name, next(self._places), text)
        yield Pending(job._store, request, _nothing)
        job.prefetched = False  # it was told with this that it has begun
        job._add_flags(STEPPED)
        assert self._known is not None
        return self._known.setdefault((STEP, name, 1), text) or text

    # --- sleeping and waiting ---

    def sleep(self, name: str, number: int, ms: int) -> Plan[None]:
        yield from self._pause(SLEEP, name, number, ms)

    def wait_event(self, name: str, number: int, ms: int | None) -> Plan[Any]:
        value = yield from self._pause(EVENT, name, number, ms)
        if value is None:
            raise EventTimedOut(f"the event {name!r} did not come to job {self._job.id} in time")
        return decode(value)

    def _pause(self, kind: str, name: str, number: int, ms: int | None) -> Plan[str | None]:
        """What the event brought, when there is nothing to wait for (any more)."""
        if (step := _inside.get()) is not None:
            raise IllegalMove(f"job {self._job.id} cannot be put off inside of its step {step!r}")
        known = yield from self._load()
        # What was begun beside this is finished first: it would be done in vain.
        while (other := self._pausing or next(iter(self._underway.values()), None)) is not None:
            yield other
        self._go_on()
        if (kind, name, number) in known:
            return known[kind, name, number]
        job, place = self._job, next(self._places)
        request = Suspend(
            *(job._queue_key, job.pk, job.token_number, kind, name, number, place, ms),
            ahead=job.prefetched,
            custom_id=job.custom_id,
        )
        self._pausing = pausing = Pending(job._store, request, self._paused)
        try:
            answer: StepDone | Suspended = yield pausing
        finally:
            if self._pausing is pausing:  # it failed, or this run was told to end
                self._pausing = None
        self._go_on()
        assert isinstance(answer, StepDone)
        known[kind, name, number] = answer.value
        return answer.value

    def _paused(self, answer: StepDone | Suspended) -> StepDone | Suspended:
        """Apply the reply to the job; the first coroutine that awaits it does so."""
        pausing, self._pausing = self._pausing, None
        self._job._add_flags(STEPPED)
        if isinstance(answer, Suspended):
            self._job.moving = pausing
            self._suspended_until(answer)
        return answer

    def _suspended_until(self, answer: Suspended) -> None:
        job = self._job
        verdict = RunOutcome(job.pk, job.token_number, DELAY, answer.until - answer.at)
        job._apply_outcome(verdict, answer.at)
        self._suspended = f"job {job.id} goes on at {moment_of(answer.until).isoformat()}"


def _read_steps(job: RunningJob) -> Plan[list[Step]]:
    rows = yield Pending.from_query(job._store, "steps", {"job": job.pk})
    return [
        Step(
            kind,
            name,
            number,
            None if value is None else decode(value),
            moment_of(at),
            None if ended_at is None else moment_of(ended_at),
            None if due_at is None else moment_of(due_at),
        )
        for kind, name, number, value, due_at, at, ended_at in rows
    ]


@contextmanager
def _as_step(name: str) -> Iterator[None]:
    token = _inside.set(name)
    try:
        yield
    finally:
        _inside.reset(token)


def _nothing(answer: Any) -> None:
    pass
