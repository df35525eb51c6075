"""Every state a job can be in and every move it can make, in one table.

The table drives the compare-and-swap of each move, the CHECK constraint of the schema, the names
in the event log, the diagram in the documentation and the conformance tests. Nothing else in the
package may decide that a job can go from one state to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a job can be, in BullMQ's words."""

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    WAITING_CHILDREN = "waiting-children"
    COMPLETED = "completed"
    FAILED = "failed"
    REMOVED = "removed"
    """Taken out by hand and restorable for a while: not counted, not found."""


VISIBLE_STATES = tuple(state for state in State if state is not State.REMOVED)

#: The words of the source documents, accepted wherever a state is.
ALIASES = {
    "wait": State.WAITING,
    "pending": State.WAITING,
    "processing": State.ACTIVE,
    "dead": State.FAILED,
}


def state_named(word: str) -> State | None:
    """The state a user means: any case, `_` or `-`, BullMQ's word or an alias; None if unknown."""
    plain = word.strip().lower().replace("_", "-")
    if plain in ALIASES:
        return ALIASES[plain]
    visible = {state.value: state for state in VISIBLE_STATES}
    return visible.get(plain)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One step a job can make. Each is unique: moves are compared by identity."""

    name: str
    sources: tuple[State, ...]
    """The states it may start from; empty for a job that does not exist yet."""
    target: State | None
    """The state it ends in; None when the job is deleted for good."""
    held: bool = False
    """Only the holder of the job's token may make it."""
    events: tuple[str, ...] = ()
    """What listeners hear, in causal order."""

    def __str__(self) -> str:
        return self.name


_W, _D, _A, _C, _F, _R = (
    State.WAITING,
    State.DELAYED,
    State.ACTIVE,
    State.COMPLETED,
    State.FAILED,
    State.REMOVED,
)

ADD = Move("add", (), _W, events=("added", "waiting"))
ADD_DELAYED = Move("add_delayed", (), _D, events=("added", "delayed"))
PROMOTE = Move("promote", (_D,), _W, events=("promoted", "waiting"))
CLAIM = Move("claim", (_W,), _A, events=("active",))
COMPLETE = Move("complete", (_A,), _C, held=True, events=("completed",))
FAIL = Move("fail", (_A,), _F, held=True, events=("failed",))
BACK_OFF = Move("back_off", (_A,), _D, held=True, events=("failed", "delayed"))
RETRY = Move("retry", (_A,), _W, held=True, events=("failed", "waiting"))
GIVE_BACK = Move("give_back", (_A,), _W, held=True, events=("waiting",))
STALL = Move("stall", (_A,), _W, held=True, events=("stalled", "waiting"))
REVIVE = Move("revive", (_C, _F), _W, events=("waiting",))
REMOVE = Move("remove", (_W, _D, _C, _F), _R, events=("removed",))
RESTORE_WAITING = Move("restore_waiting", (_R,), _W, events=("waiting",))
RESTORE_DELAYED = Move("restore_delayed", (_R,), _D, events=("delayed",))
RESTORE_COMPLETED = Move("restore_completed", (_R,), _C)
RESTORE_FAILED = Move("restore_failed", (_R,), _F)
DELETE = Move("delete", (_C, _F, _R), None)

MOVES = (
    ADD,
    ADD_DELAYED,
    PROMOTE,
    CLAIM,
    COMPLETE,
    FAIL,
    BACK_OFF,
    RETRY,
    GIVE_BACK,
    STALL,
    REVIVE,
    REMOVE,
    RESTORE_WAITING,
    RESTORE_DELAYED,
    RESTORE_COMPLETED,
    RESTORE_FAILED,
    DELETE,
)

#: A removed job goes back to where it was taken from.
RESTORE = {
    move.target: move
    for move in (RESTORE_WAITING, RESTORE_DELAYED, RESTORE_COMPLETED, RESTORE_FAILED)
}


def diagram() -> str:
    """The table of moves as a Mermaid state diagram; the documentation holds a copy."""
    lines = ["stateDiagram-v2"]
    for move in MOVES:
        target = move.target.name if move.target else "[*]"
        sources = [state.name for state in move.sources] or ["[*]"]
        lines += [f"    {source} --> {target}: {move}" for source in sources]
    return "\n".join(lines)
