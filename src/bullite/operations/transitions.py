"""Transitions of jobs: compare-and-swaps over sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.codec import as_json
from ..core.job_flags import COMMAND, DOWNSTREAM, STEPPED, TAGGED, UPSTREAM
from ..core.states import DELETE, Move, State
from ..database.driver import ANY_NAME, Conflict
from ..database.statements import move_statement, same_token_statement
from .queues import load_add_info, read_settings
from .transaction import Operation, Transaction


class LockedJob(NamedTuple):
    """A job whose row is locked: the columns of the statement `load_jobs_for_update`."""

    job: int
    queue: int
    state: str
    priority: int
    lifo: int
    due_at: int | None
    token: int | None
    nonce: int | None
    removed_from: str | None
    custom_id: str | None
    original_queue: int | None
    prefetched: int
    flags: int
    delay: int
    deferred_failure: str | None

    @property
    def public_id(self) -> int | str:
        return self.custom_id or self.job


def load_for_update(jobs: Sequence[int]) -> Operation[dict[int, LockedJob]]:
    """Lock the rows of these jobs. Return those that exist, by their pk."""
    result = yield "load_jobs_for_update", {"jobs": as_json(jobs)}
    return {one.job: one for one in map(LockedJob._make, result.rows)}


def transition(
    tx: Transaction,
    move: Move,
    source: State,
    asked: Mapping[int, Any] | Sequence[int],
    **more: Any,
) -> Operation[None]:
    """Make `move` for all jobs of `asked`. Raise Conflict if a state or a token differs.

    `asked` has the jobs; for a move that needs the claim token, their tokens; for a move with a
    value, such as a delay, pairs of [token, value].
    """
    params = {"now": tx.now, "nonce": tx.nonce, "expected": len(asked), **more}
    token = _one_token(asked)
    if token is None:
        params["jobs"] = as_json(asked)
        result = yield move_statement(move, source), params
    else:
        params |= {"jobs": as_json(list(asked)), "token": token}
        result = yield same_token_statement(move, source), params
    if result.changed != len(asked):
        raise Conflict(f"{move}: {result.changed} of {len(asked)} jobs were where they should be")


def _one_token(asked: Mapping[int, Any] | Sequence[int]) -> int | None:
    """Return the token that all jobs have, if it is the same for all and they have no values."""
    if not asked or not isinstance(asked, Mapping):
        return None
    tokens = list(asked.values())
    one: Any = tokens[0]
    return one if type(one) is int and tokens.count(one) == len(tokens) else None


def allocate_ids(count: int) -> Operation[Sequence[int]]:
    """Reserve `count` new numbers. Return them in ascending order."""
    if not count:
        return ()
    result = yield "take_numbers", {"count": count}
    # The statement returns a row with the first and the last number, or a row for each number;
    # the latter may have gaps.
    numbers = [number for row in result.rows for number in row]
    first, last = numbers[0], numbers[-1]
    if last - first + 1 == count:
        return range(first, last + 1)
    return sorted(numbers)


def move_to_queue(
    queue: int, target: int, jobs: Sequence[int], original_queue: int | None
) -> Operation[None]:
    """Move finished jobs to another queue; the caller changes the counts and writes the log."""
    here = yield from read_settings(queue)
    there = yield from read_settings(target)
    lanes = yield from load_add_info(target)
    yield (
        "move_to_queue",
        {
            "jobs": as_json(jobs),
            "queue": queue,
            "target": target,
            "original_queue": original_queue,
            "turn": 1 if here.priority_order == there.priority_order else -1,
            "by_name": lanes.by_name,
        },
    )
    yield "move_tags", {"jobs": as_json(jobs), "target": target}


def transition_to_queue_end(
    tx: Transaction, move: Move, source: State, jobs: Sequence[tuple[int, int]], **more: Any
) -> Operation[None]:
    """Make `move` to the end of the queue; jobs with `lifo` move to the front."""
    numbers = yield from allocate_ids(len(jobs))
    asked = {
        job: [0, -number if lifo else number]
        for number, (job, lifo) in zip(numbers, jobs, strict=True)
    }
    yield from transition(tx, move, source, asked, **more)


def delete_jobs(
    tx: Transaction, source: State, jobs: Mapping[int, int], move: Move = DELETE
) -> Operation[None]:
    """Delete jobs and their rows in other tables; `jobs` has the flags of each job."""
    params = {"jobs": as_json(list(jobs))}
    result = yield move_statement(move, source), params
    if result.changed != len(jobs):
        raise Conflict(
            f"delete: {result.changed} of {len(jobs)} jobs were where they had been seen"
        )
    for statement in ("delete_payloads", "delete_results", "delete_attempts", "delete_logs"):
        yield statement, params
    for flag, statement in _OTHER_ROWS:
        owners = [job for job, flags in jobs.items() if flags & flag]
        if owners:
            yield statement, {"jobs": as_json(owners)}


_OTHER_ROWS: tuple[tuple[int, str], ...] = (
    (UPSTREAM, "delete_links_of_removed"),
    (DOWNSTREAM, "delete_links_to"),
    (STEPPED, "delete_steps"),
    (STEPPED, "delete_signals"),
    (TAGGED, "delete_tags"),
    (COMMAND, "delete_runs"),
    (COMMAND, "delete_output"),
)
"""The statements that delete the rows of a job in other tables, by its flag."""


def count_out(tx: Transaction, queue: int, state: State, priorities: Sequence[int]) -> None:
    _count(tx, queue, state, priorities, -1)


def count_in(tx: Transaction, queue: int, state: State | None, priorities: Sequence[int]) -> None:
    _count(tx, queue, state, priorities, +1)
    if state is State.WAITING:
        tx.notify_ready(queue, ANY_NAME, len(priorities))


UNSORTED = ""
"""The lane of jobs in queues whose workers do not choose by name."""


def _count(
    tx: Transaction, queue: int, state: State | None, priorities: Sequence[int], sign: int
) -> None:
    if state is State.WAITING:
        tx.count_waiting(queue, priorities, sign)
    elif state is not None and state is not State.REMOVED:
        tx.count(queue, state.replace("-", "_"), sign * len(priorities))
