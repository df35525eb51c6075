"""The end of runs: moves that need the claim token of a job, and what they store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from ..core.codec import as_json
from ..core.decide_outcome import RunOutcome
from ..core.event_log import MAX_COPIED_LENGTH
from ..core.job_flags import CANCELLED as CANCELLED_FLAG
from ..core.job_flags import DEDUPLICATED, DOWNSTREAM, UPSTREAM
from ..core.states import (
    BACK_OFF,
    CANCELLED,
    CLAIM,
    COMPLETE,
    DELAY,
    ERROR,
    FAIL,
    RELEASE,
    RETRY_NOW,
    RETURN_UNSTARTED,
    Move,
    State,
)
from ..database.driver import ANY_NAME, Conflict
from ..errors import BulliteError, JobCancelled
from . import dependencies
from .after_failure import add_failure_jobs, move_to_dead_letter, schedule_auto_retry
from .cancel_and_expire import end_cancelled, retention_of_failed
from .claim import promote_due
from .command_output import CommandExit, record_exits
from .deduplicate_release import release
from .queues import read_settings
from .rate_limits import read_limits
from .request import Request
from .retention import apply_retention
from .transaction import Event, Operation, Transaction
from .transitions import LockedJob, allocate_ids, load_for_update, transition


class FinishRuns(Request):
    """Record how runs of jobs of one queue ended. Reply with a FinishResult."""

    queue: int
    outcomes: Sequence[RunOutcome]
    commands: Sequence[CommandExit] = ()
    """The exits of commands that some of the runs were."""
    reply_before_claims = False

    def job_ids(self) -> Sequence[int]:
        return [outcome.job for outcome in self.outcomes]


class FinishResult(NamedTuple):
    """The result of recording the outcomes of a request."""

    lost: Sequence[int]
    """Jobs whose claim was lost: their outcomes were rejected."""
    at: int
    overridden: Mapping[int, BulliteError] = {}
    """Jobs whose outcome was replaced, with the error: children were pending or failed, or the job
    was cancelled meanwhile. A manual completion is rejected; any other becomes a failure."""
    ttl: int = 0
    """If jobs were released: ms for which a rate limit lets no job of the queue start."""


_NO_JOBS: tuple[int, ...] = ()

# Read for every job that ends: itemgetter by position is much faster than access by name.
_JOB_AND_TOKEN = itemgetter(RunOutcome._fields.index("job"), RunOutcome._fields.index("token"))
_JOB, _MOVE, _VALUE, _AGAIN, _PREFETCHED, _CUSTOM_ID, _RETENTION, _FLAGS = (
    itemgetter(RunOutcome._fields.index(field))
    for field in ("job", "move", "value", "again", "prefetched", "custom_id", "retention", "flags")
)


def finish_runs(tx: Transaction, requests: Sequence[FinishRuns]) -> Operation[list[FinishResult]]:
    lost: set[tuple[int, int]] = set()
    overridden: dict[int, BulliteError] = {}
    ttls: dict[int, int] = {}
    commands = [command for request in requests for command in request.commands]
    if commands:
        yield from record_exits(tx, commands)
    for (queue, asked), outcomes in _group_by_queue_and_move(requests).items():
        if (
            tx.verify_first
            or any(map(_AGAIN, outcomes))
            or _know_of_a_cancellation(asked, outcomes)
        ):
            outcomes = yield from _still_held(tx, outcomes, lost, overridden)
        for (move, flags), alike in _group_by_move_and_flags(outcomes).items():
            if move is COMPLETE and flags & DOWNSTREAM:
                alike, refused = yield from _may_complete(tx, alike, overridden)
                if refused:
                    yield from _finish_group(tx, queue, FAIL, flags, refused)
            if alike:
                yield from _finish_group(tx, queue, move, flags, alike)
        if asked is RELEASE:
            ttls[queue] = (yield from read_limits(queue)).blocked_for_ms(tx.now, None)
    if not lost and not overridden and not ttls:
        return [FinishResult(_NO_JOBS, tx.now)] * len(requests)
    return [
        FinishResult(
            [v.job for v in request.outcomes if (v.job, v.token) in lost],
            tx.now,
            {v.job: overridden[v.job] for v in request.outcomes if v.job in overridden},
            ttls.get(request.queue, 0),
        )
        for request in requests
    ]


def _know_of_a_cancellation(move: Move, outcomes: Sequence[RunOutcome]) -> bool:
    """Return True if the worker knows of a cancellation, so that the plain swap would conflict."""
    return move in (FAIL, BACK_OFF, RETRY_NOW) and any(v.outcome == CANCELLED for v in outcomes)


def locked_in_turns(requests: Sequence[FinishRuns]) -> set[int]:
    """Return the jobs of these requests if more than one statement locks their rows; else none."""
    outcomes = [outcome for request in requests for outcome in request.outcomes]
    kinds = set(map(_MOVE, outcomes)), set(map(_FLAGS, outcomes))
    queues = {request.queue for request in requests}
    is_one = len(kinds[0]) == len(kinds[1]) == len(queues) == 1
    if is_one and not outcomes[0].flags & UPSTREAM:
        return set()
    return set(map(_JOB, outcomes))


def _group_by_queue_and_move(
    requests: Sequence[FinishRuns],
) -> dict[tuple[int, Move], list[RunOutcome]]:
    queues: dict[int, dict[Move, list[RunOutcome]]] = {}
    for request in requests:
        moves = queues.setdefault(request.queue, defaultdict(list))
        if len(set(map(_MOVE, request.outcomes))) == 1:
            moves[request.outcomes[0].move] += request.outcomes
            continue
        for outcome in request.outcomes:
            moves[outcome.move].append(outcome)
    return {(queue, move): v for queue, moves in queues.items() for move, v in moves.items()}


def _group_by_move_and_flags(
    outcomes: list[RunOutcome],
) -> dict[tuple[Move, int], list[RunOutcome]]:
    groups: dict[tuple[Move, int], list[RunOutcome]] = defaultdict(list)
    if len(set(map(_FLAGS, outcomes))) == 1 and len(set(map(_MOVE, outcomes))) == 1:
        return {(outcomes[0].move, outcomes[0].flags): outcomes}
    for outcome in outcomes:
        groups[outcome.move, outcome.flags].append(outcome)
    return groups


def _still_held(
    tx: Transaction,
    outcomes: list[RunOutcome],
    lost: set[tuple[int, int]],
    overridden: dict[int, BulliteError],
) -> Operation[list[RunOutcome]]:
    """Return the outcomes whose claim is valid; add the claims of the others to `lost`.

    An outcome that was recorded before, with only the reply lost, is neither: the row still has its
    token. The returned outcomes have the present flags of their jobs.
    """
    rows = yield from load_for_update([outcome.job for outcome in outcomes])
    held: dict[int, RunOutcome] = {}
    for outcome in outcomes:
        row = rows.get(outcome.job)
        if row is None or (row.token, row.nonce) != (outcome.token, tx.nonce):
            lost.add((outcome.job, outcome.token))
        elif row.state == State.ACTIVE:
            held.setdefault(outcome.job, outcome._replace(flags=row.flags))
        elif not (outcome.again and _already_applied(outcome, row)):
            lost.add((outcome.job, outcome.token))
    if any(outcome.flags & CANCELLED_FLAG for outcome in held.values()):
        return (yield from _apply_cancellation(held, rows, overridden))
    return list(held.values())


def _already_applied(outcome: RunOutcome, row: LockedJob) -> bool:
    """Return True if the outcome was recorded before, and only the reply was lost."""
    if row.flags & CANCELLED_FLAG and outcome.move is not COMPLETE:
        return row.state == State.FAILED
    return row.state == outcome.move.target


def _apply_cancellation(
    outcomes: Mapping[int, RunOutcome],
    rows: Mapping[int, LockedJob],
    overridden: dict[int, BulliteError],
) -> Operation[list[RunOutcome]]:
    """Replace the outcomes of jobs that were cancelled meanwhile, except completions."""
    cancelled = {
        job: outcome
        for job, outcome in outcomes.items()
        if outcome.flags & CANCELLED_FLAG and outcome.move in (FAIL, BACK_OFF, RETRY_NOW)
    }
    retried = [job for job, outcome in cancelled.items() if outcome.move is not FAIL]
    found = yield "job_options", {"jobs": as_json(retried)}
    keeps = {job: retention_of_failed(opts) for job, opts in found.rows}
    for job, outcome in cancelled.items():
        reason = rows[job].deferred_failure or CANCELLED
        if outcome.outcome != CANCELLED and not outcome.manual:
            overridden[job] = JobCancelled(reason)
        cancelled[job] = outcome._replace(
            move=FAIL,
            delay=0,
            reason=reason,
            outcome=CANCELLED,
            retention=keeps.get(job, outcome.retention),
        )
    return list({**outcomes, **cancelled}.values())


def _may_complete(
    tx: Transaction, outcomes: list[RunOutcome], overridden: dict[int, BulliteError]
) -> Operation[tuple[list[RunOutcome], list[RunOutcome]]]:
    """Return the completions that children allow, and failures in place of the others.

    A refused manual completion is neither: its caller gets the error and still holds the job.
    """
    errors = yield from dependencies.completion_blockers(tx, [outcome.job for outcome in outcomes])
    overridden |= errors
    done = [outcome for outcome in outcomes if outcome.job not in errors]
    refused = [
        outcome._replace(
            move=FAIL, value=None, reason=str(errors[outcome.job]), retention=None, outcome=ERROR
        )
        for outcome in outcomes
        if outcome.job in errors and not outcome.manual
    ]
    if any(outcome.flags & CANCELLED_FLAG for outcome in refused):
        rows = yield from load_for_update([outcome.job for outcome in refused])
        failing = {outcome.job: outcome for outcome in refused}
        refused = yield from _apply_cancellation(failing, rows, overridden)
    return done, refused


def _finish_group(
    tx: Transaction, queue: int, move: Move, flags: int, outcomes: list[RunOutcome]
) -> Operation[None]:
    """Make one move for many jobs with the same flags, in one compare-and-swap.

    All jobs are expected to be held, with the flags that their workers know. If one is not, the
    compare-and-swap raises Conflict and the engine repeats the transaction with `verify_first`. So
    the common case loads no job beforehand.
    """
    if move is RETRY_NOW:
        # Jobs that became due while this one ran come before it.
        yield from promote_due(tx, queue)
    asked = yield from _transition_values(move, outcomes)
    if len(asked) != len(outcomes):
        raise Conflict("two outcomes for one job")
    yield from transition(tx, move, State.ACTIVE, asked, traits=flags)
    tx.count_runs_ended(queue, len(outcomes))
    if move is COMPLETE or move is FAIL:
        is_complete = move is COMPLETE
        tx.count_finished(queue, len(outcomes) * is_complete, len(outcomes) * (not is_complete))
    if any(map(_PREFETCHED, outcomes)):
        tx.log(queue, CLAIM.name, [v.custom_id or v.job for v in outcomes if v.prefetched])
    yield from _count_arrivals(tx, queue, move, outcomes)
    if move.events:
        tx.log(queue, move.name, _events(tx, move, outcomes))
    if flags & UPSTREAM and move in (COMPLETE, FAIL):
        outcomes = yield from _resolve_dependents(tx, move, outcomes)
    if flags & DEDUPLICATED and move in (COMPLETE, FAIL):
        yield from release(tx, [outcome.job for outcome in outcomes])
    yield from _write_results(tx, queue, move, outcomes)
    if move in (RELEASE, RETURN_UNSTARTED, DELAY):
        yield from end_cancelled(tx, [outcome.job for outcome in outcomes])


def _resolve_dependents(
    tx: Transaction, move: Move, outcomes: list[RunOutcome]
) -> Operation[list[RunOutcome]]:
    """Resolve the links of jobs that others depend on; keep jobs that still are depended on."""
    if move is COMPLETE:
        yield from dependencies.on_completed(tx, {v.job: v.value for v in outcomes})
        return outcomes
    leaving = {v.job for v in outcomes if v.retention is not None and v.retention.nothing}
    needed = yield from dependencies.on_failed(tx, {v.job: v.reason for v in outcomes}, leaving)
    return [v._replace(retention=None) if v.job in needed else v for v in outcomes]


def _transition_values(move: Move, outcomes: list[RunOutcome]) -> Operation[dict[int, Any]]:
    if move in (BACK_OFF, DELAY):
        return {v.job: [v.token, v.delay] for v in outcomes}
    if move is RETRY_NOW:
        numbers = yield from allocate_ids(len(outcomes))
        return {v.job: [v.token, number] for number, v in zip(numbers, outcomes, strict=True)}
    return dict(map(_JOB_AND_TOKEN, outcomes))


def _count_arrivals(
    tx: Transaction, queue: int, move: Move, outcomes: list[RunOutcome]
) -> Operation[None]:
    if move in (RETRY_NOW, RELEASE, RETURN_UNSTARTED):
        rows = yield from load_for_update([outcome.job for outcome in outcomes])
        tx.count_waiting(queue, [row.priority for row in rows.values()], +1)
        tx.notify_ready(queue, ANY_NAME, len(rows))
        return
    assert move.target is not None
    tx.count(queue, move.target.value, len(outcomes))
    if move.target is State.DELAYED:
        tx.notify_due(queue, tx.now + min(outcome.delay for outcome in outcomes))


def _events(tx: Transaction, move: Move, outcomes: list[RunOutcome]) -> list[Event]:
    if move is COMPLETE:
        if not (any(map(_VALUE, outcomes)) or any(map(_CUSTOM_ID, outcomes))):
            return list(map(_JOB, outcomes))
        return [
            v.job if v.value is None and v.custom_id is None else _completed(v) for v in outcomes
        ]
    if move is FAIL:
        return [_failed(v) for v in outcomes]
    if move in (BACK_OFF, RETRY_NOW):
        return [(v.public_id, [v.reason, v.attempts_made, tx.now + v.delay]) for v in outcomes]
    if move is DELAY:
        return [(v.public_id, tx.now + v.delay) for v in outcomes]
    return [v.public_id for v in outcomes]


def _completed(outcome: RunOutcome) -> Any:
    """Return the log entry of a completed job that has a result or a custom id.

    The third item is 1 if the result is too long for the log, so that readers fetch it. The fourth
    is the pk of a job with a custom id.
    """
    value = outcome.value
    too_long = value is not None and len(value) > MAX_COPIED_LENGTH
    copied = None if value is None or too_long else msgspec.Raw(value.encode())
    if outcome.custom_id is not None:
        return (outcome.custom_id, copied, int(too_long), outcome.job)
    return (outcome.job, copied, 1) if too_long else (outcome.job, copied)


def _failed(outcome: RunOutcome) -> Event:
    details = [outcome.reason, outcome.attempts_made, outcome.outcome]
    if outcome.custom_id is None:
        return (outcome.job, details)
    return (outcome.custom_id, [*details, outcome.job])


def _write_results(
    tx: Transaction, queue: int, move: Move, outcomes: list[RunOutcome]
) -> Operation[None]:
    """Write results and history, then apply retention."""
    if move is COMPLETE:
        if any(map(_VALUE, outcomes)):
            yield "write_values", [(v.job, v.value) for v in outcomes if v.value is not None]
        if any(map(_RETENTION, outcomes)):
            ended = [(v.job, v.flags, v.retention) for v in outcomes]
            yield from apply_retention(tx, queue, State.COMPLETED, ended)
    elif move in (FAIL, BACK_OFF, RETRY_NOW):
        yield "write_failures", [(v.job, v.reason, v.outcome) for v in outcomes]
        yield from _write_history(tx, [v for v in outcomes if not v.unrun])
        unrun = [v.job for v in outcomes if v.unrun]
        if unrun:
            yield "forget_start", {"jobs": as_json(unrun)}
        if move is FAIL:
            deserving = [v for v in outcomes if v.outcome != CANCELLED]
            settings = yield from read_settings(queue)
            yield from add_failure_jobs(tx, settings, deserving)
            dead_lettered = yield from move_to_dead_letter(tx, queue, settings, deserving)
            staying = [v.job for v in deserving if v.job not in dead_lettered]
            yield from schedule_auto_retry(queue, settings, staying)
            kept = [(v.job, v.flags, v.retention) for v in outcomes if v.job not in dead_lettered]
            yield from apply_retention(tx, queue, State.FAILED, kept)


def _write_history(tx: Transaction, outcomes: list[RunOutcome]) -> Operation[None]:
    if not outcomes:
        return
    ended = [[v.job, v.outcome, v.reason, v.stack] for v in outcomes]
    yield "write_attempts", {"attempts": as_json(ended), "now": tx.now}
    for outcome in outcomes:
        if outcome.stack_limit is not None:
            yield "forget_stacks", {"job": outcome.job, "keep": outcome.stack_limit}
