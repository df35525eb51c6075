"""States of a job and the moves between them, in one table; the words for how a job ended.

The table drives the compare-and-swap of each move, the CHECK constraint of the schema, the names
in the event log, the diagram in the documentation and the conformance tests. Nothing else in the
package decides which transitions a job may make.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The states of a job, in BullMQ's words."""

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    WAITING_CHILDREN = "waiting-children"
    COMPLETED = "completed"
    FAILED = "failed"
    REMOVED = "removed"
    """Removed by an operator, and restorable for `trash_age`: not counted, not found."""


VISIBLE_STATES = tuple(state for state in State if state is not State.REMOVED)

#: The words of the source documents, accepted wherever a state is.
ALIASES = {
    "wait": State.WAITING,
    "pending": State.WAITING,
    "processing": State.ACTIVE,
    "dead": State.FAILED,
}


def plain_word(word: str) -> str:
    """Return a state or outcome that a user wrote, in our spelling."""
    return word.strip().lower().replace("_", "-")


def state_named(word: str) -> State | None:
    """Return the state of this name: any case, `_` or `-`, or an alias; None if unknown."""
    plain = plain_word(word)
    if plain in ALIASES:
        return ALIASES[plain]
    visible = {state.value: state for state in VISIBLE_STATES}
    return visible.get(plain)


COMPLETED, ERROR, TIMED_OUT = "completed", "error", "timed-out"
CANCELLED, EXPIRED, STALLED = "cancelled", "expired", "stalled"
"""The outcomes: how the run of a job, or a job without a run, ended."""

PRIORITIZED = "prioritized"
"""Waiting with a priority: no state of its own, but shown, listed and counted as one."""

#: The states that users see and that are counted, in the order of the columns of counts.
SHOWN_STATES = (
    State.WAITING.value,
    PRIORITIZED,
    State.DELAYED.value,
    State.ACTIVE.value,
    State.WAITING_CHILDREN.value,
    State.COMPLETED.value,
    State.FAILED.value,
)


def shown_state(state: str, priority: int) -> str:
    """Return the name that users see for a job in `state`."""
    return PRIORITIZED if priority and state == State.WAITING else state


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A transition of a job. Each is unique: moves are compared by identity."""

    name: str
    sources: tuple[State, ...]
    """The states before the move; empty for a job that does not exist yet."""
    target: State | None
    """The state after the move; None if the job is deleted."""
    held: bool = False
    """Only the holder of the job's token may make it."""
    events: tuple[str, ...] = ()
    """The events it emits, in causal order; a move without events is not logged."""

    def __str__(self) -> str:
        return self.name


_W, _D, _A, _P, _C, _F, _R = (
    State.WAITING,
    State.DELAYED,
    State.ACTIVE,
    State.WAITING_CHILDREN,
    State.COMPLETED,
    State.FAILED,
    State.REMOVED,
)

ADD = Move("add", (), _W, events=("added", "waiting"))
ADD_DELAYED = Move("add_delayed", (), _D, events=("added", "delayed"))
ADD_WAITING_CHILDREN = Move("add_blocked", (), _P, events=("added", "waiting-children"))
PROMOTE = Move("promote", (_D,), _W, events=("promoted", "waiting"))
RESCHEDULE = Move("reschedule", (_D,), _D, events=("delayed",))
EXPIRE = Move("expire", (_W, _D, _P), _F, events=("failed",))
CANCEL = Move("cancel", (_W, _D, _P), _F, events=("failed",))
CLAIM = Move("claim", (_W,), _A, events=("active",))
COMPLETE = Move("complete", (_A,), _C, held=True, events=("completed",))
FAIL = Move("fail", (_A,), _F, held=True, events=("failed", "retries-exhausted"))
BACK_OFF = Move(
    "back_off",
    (_A,),
    _D,
    held=True,
    events=("failed", "attempt-failed", "delayed", "retry-scheduled"),
)
RETRY_NOW = Move(
    "retry", (_A,), _W, held=True, events=("failed", "attempt-failed", "waiting", "retry-scheduled")
)
DELAY = Move("delay", (_A,), _D, held=True, events=("delayed",))
WAIT_FOR_CHILDREN = Move("await", (_A,), _P, held=True, events=("waiting-children",))
DEPENDENCIES_DONE = Move(
    "free", (_P,), _W, events=("dependencies-completed", "promoted", "waiting")
)
DEPENDENCIES_DONE_DELAYED = Move(
    "free_delayed", (_P,), _D, events=("dependencies-completed", "delayed")
)
RELEASE_FROM_DEPENDENCIES = Move("let_go", (_P,), _W, events=("waiting",))
"""A dependency failed: the job runs, or fails, without waiting for its other dependencies."""
RELEASE_FROM_DEPENDENCIES_DELAYED = Move("let_go_delayed", (_P,), _D, events=("delayed",))
RELEASE = Move("release", (_A,), _W, held=True, events=("waiting",))
RETURN_UNSTARTED = Move("give_back", (_A,), _W, held=True)
STALL = Move("stall", (_A,), _W, held=True, events=("stalled", "waiting"))
STALL_DELAYED = Move("stall_delayed", (_A,), _D, held=True, events=("stalled", "delayed"))
RETRY_FINISHED = Move("revive", (_C, _F), _W, events=("waiting",))
RETRY_FINISHED_DELAYED = Move("revive_delayed", (_C, _F), _D, events=("delayed",))
REMOVE = Move("remove", (_W, _D, _P, _C, _F), _R, events=("removed",))
RESTORE_WAITING = Move("restore_waiting", (_R,), _W, events=("restored", "waiting"))
RESTORE_DELAYED = Move("restore_delayed", (_R,), _D, events=("restored", "delayed"))
RESTORE_WAITING_CHILDREN = Move(
    "restore_blocked", (_R,), _P, events=("restored", "waiting-children")
)
RESTORE_COMPLETED = Move("restore_completed", (_R,), _C, events=("restored",))
RESTORE_FAILED = Move("restore_failed", (_R,), _F, events=("restored",))
DELETE = Move("delete", (_W, _D, _P, _C, _F, _R), None)
DELETE_ACTIVE = Move("tear_away", (_A,), None)
"""A running job is deleted with its queue: the outcome of its worker will be rejected."""

MOVES = (
    ADD,
    ADD_DELAYED,
    ADD_WAITING_CHILDREN,
    PROMOTE,
    RESCHEDULE,
    EXPIRE,
    CANCEL,
    CLAIM,
    COMPLETE,
    FAIL,
    BACK_OFF,
    RETRY_NOW,
    DELAY,
    WAIT_FOR_CHILDREN,
    DEPENDENCIES_DONE,
    DEPENDENCIES_DONE_DELAYED,
    RELEASE_FROM_DEPENDENCIES,
    RELEASE_FROM_DEPENDENCIES_DELAYED,
    RELEASE,
    RETURN_UNSTARTED,
    STALL,
    STALL_DELAYED,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    REMOVE,
    RESTORE_WAITING,
    RESTORE_DELAYED,
    RESTORE_WAITING_CHILDREN,
    RESTORE_COMPLETED,
    RESTORE_FAILED,
    DELETE,
    DELETE_ACTIVE,
)

#: The move that restores a removed job, by the state from which it was removed.
RESTORE = {
    move.target: move
    for move in (
        RESTORE_WAITING,
        RESTORE_DELAYED,
        RESTORE_WAITING_CHILDREN,
        RESTORE_COMPLETED,
        RESTORE_FAILED,
    )
}


def diagram() -> str:
    """Return the table of moves as a Mermaid state diagram; the documentation has a copy."""
    lines = ["stateDiagram-v2"]
    for move in MOVES:
        target = move.target.name if move.target else "[*]"
        sources = [state.name for state in move.sources] or ["[*]"]
        lines += [f"    {source} --> {target}: {move}" for source in sources]
    return "\n".join(lines)
