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
from typing import Any, TypeVar, overload

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
from .base import JobBase

T = TypeVar("T")
Key = tuple[str, str, int]

_inside: ContextVar[str | None] = ContextVar("bullite_step", default=None)
"""The step that runs."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step, sleep or wait of a job that was recorded."""

    kind: str
    """`step`, `sleep` or `event`."""
    name: str
    """Empty for a sleep without a name."""
    number: int
    """The index among the sleeps, or the waits, of that name; it starts at 1."""
    value: Any
    """The result of the step, or the payload of the event."""
    started_at: datetime
    """Time at which it was first recorded."""
    ended_at: datetime | None
    """None while the job sleeps or waits."""
    until: datetime | None
    """When the sleep, or the timeout of the wait, ends."""


class DurableSteps(JobBase):
    """A job, and its durable steps."""

    __slots__ = ()

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        **kwargs: Any,
    ) -> Pending[T]: ...
    @overload
    def step(
        self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any
    ) -> Pending[T]: ...
    def step(
        self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Pending[Any]:
        """Call `function` and store its result; a later run gets the stored result instead.

        The result must be JSON. It is synced to disk before it is returned, as parsed from its
        JSON. A step that raises is not stored. Within a run, the same name is the same step.
        """
        check_name("the name of a step", name)
        if not callable(function):
            raise InvalidOptionType(
                f"the step {name!r} must be given a function and its arguments, not {function!r}"
            )
        return run_of(self, "step").step(name, function, args, kwargs)

    def sleep(self, duration: Duration, *, name: str | None = None) -> Pending[None]:
        """Suspend the job: this run ends, and the next one, after `duration`, continues from here.

        Sleeps are identified by their order in the run, or among those of one `name`; each
        suspends the job once. Meanwhile the job is delayed. Uses no attempt.
        """
        ms = check_duration("duration", duration)
        called = "" if name is None else check_name("the name of a sleep", name)
        run = run_of(self, "sleep")
        return Pending.from_plan(run.sleep(called, run.number(SLEEP, called), ms))

    def wait_event(self, name: str, timeout: Duration | None = None) -> Pending[Any]:
        """Suspend the job until the event is sent to it. Return the payload of the event.

        An event that was sent before is used immediately; one wait uses one event. Meanwhile the
        job is delayed. Uses no attempt. Raise EventTimedOut if none is sent within `timeout`.
        """
        check_name("the name of an event", name)
        ms = None if timeout is None else check_duration("timeout", timeout)
        run = run_of(self, "wait_event")
        return Pending.from_plan(run.wait_event(name, run.number(EVENT, name), ms))

    def send_event(self, name: str, payload: Any = None) -> Pending[bool]:
        """Send the job an event. Return True if the job was waiting for it.

        Otherwise the event is stored for the next `wait_event` of that name. Raise IllegalMove if
        the job is finished.
        """
        check_name("the name of an event", name)
        text = encode_limited(payload, "the payload of the event ", repr(name))
        return Pending(self._store, SendEvent(self.pk, name, text), bool)

    def get_steps(self) -> Pending[list[Step]]:
        """Return the recorded steps, sleeps and waits, in the order in which they started."""
        return Pending.from_plan(_read_steps(self))


def run_of(job: JobBase, verb: str) -> StepContext:
    """Return the steps of the run that holds a job. Raise IllegalMove if it is not held here."""
    run = job._run
    if not run.token_number:
        raise IllegalMove(
            f"job {job.id} is not run here: job.{verb} works in the processor that runs the job"
        )
    if run.steps is None:
        run.steps = StepContext(job)
    return run.steps


class StepContext:
    """The steps of one run."""

    def __init__(self, job: JobBase) -> None:
        self._job = job
        self._known: dict[Key, str | None] | None = None
        """Stored results as JSON, once they were read."""
        self._row_numbers: Iterator[int] = count(1)
        self._met: Counter[tuple[str, str]] = Counter()
        self._underway: dict[str, Pending[Any]] = {}
        self._pausing: Pending[Any] | None = None
        self._suspended: str | None = None

    def number(self, kind: str, name: str) -> int:
        """Count a sleep or wait of this name. Return its index in the run."""
        self._met[kind, name] += 1
        return self._met[kind, name]

    def _load(self) -> Plan[dict[Key, str | None]]:
        """Read the results of earlier runs, once, and only if the job has steps."""
        if self._known is None and self._job._flags & STEPPED:
            rows = yield Pending.from_query(self._job._store, "steps", {"job": self._job.pk})
            if self._known is None:
                self._known = {
                    (kind, name, number): value
                    for kind, name, number, value, _, _, ended_at in rows
                    if ended_at is not None
                }
                self._row_numbers = count(len(rows) + 1)
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
        request = RecordStep(job.pk, job._run.token_number, name, next(self._row_numbers), text)
        yield Pending(job._store, request, _nothing)
        job._start_recorded()
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
        """Suspend the job, or return the stored result if the sleep or wait is over."""
        if (step := _inside.get()) is not None:
            raise IllegalMove(f"job {self._job.id} cannot be put off inside of its step {step!r}")
        known = yield from self._load()
        # Steps that run concurrently finish first: after the suspension nothing is stored.
        while (other := self._pausing or next(iter(self._underway.values()), None)) is not None:
            yield other
        self._go_on()
        if (kind, name, number) in known:
            return known[kind, name, number]
        job, row_number = self._job, next(self._row_numbers)
        request = Suspend(
            *(job._queue._pk, job.pk, job._run.token_number, kind, name, number, row_number, ms),
            ahead=job._run.prefetched,
            custom_id=job.custom_id,
        )
        self._pausing = pausing = Pending(job._store, request, self._paused)
        try:
            answer: StepDone | Suspended = yield pausing
        finally:
            if self._pausing is pausing:  # it failed, or this run was cancelled
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
            self._job._run.moving = pausing
            self._suspended_until(answer)
        return answer

    def _suspended_until(self, answer: Suspended) -> None:
        job = self._job
        outcome = RunOutcome(job.pk, job._run.token_number, DELAY, answer.until - answer.at)
        job._apply_outcome(outcome, answer.at)
        self._suspended = f"job {job.id} goes on at {moment_of(answer.until).isoformat()}"


def _read_steps(job: JobBase) -> Plan[list[Step]]:
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
