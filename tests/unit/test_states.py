"""The table of states and moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullite.core import states
from bullite.core.states import (
    ALIASES,
    BACK_OFF,
    DELETE_ACTIVE,
    MOVES,
    RESCHEDULE,
    RESTORE,
    RESTORE_COMPLETED,
    RESTORE_FAILED,
    RETRY_NOW,
    VISIBLE_STATES,
    Move,
    State,
    state_named,
)


@pytest.mark.parametrize("state", VISIBLE_STATES)
@pytest.mark.parametrize("spelling", [str, str.upper, str.title, lambda s: s.replace("-", "_")])
def test_a_state_is_known_however_it_is_spelled(state: State, spelling: object) -> None:
    assert callable(spelling)
    assert state_named(spelling(state.value)) is state


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("pending", State.WAITING),
        ("PENDING", State.WAITING),
        ("wait", State.WAITING),
        ("Processing", State.ACTIVE),
        ("dead", State.FAILED),
        (" active ", State.ACTIVE),
    ],
)
def test_a_state_is_known_by_its_other_names(word: str, state: State) -> None:
    assert state_named(word) is state


@pytest.mark.parametrize("word", ["", "stalled", "removed", "waitingchildren", "prioritized"])
def test_other_words_are_no_states(word: str) -> None:
    assert state_named(word) is None


def test_no_alias_hides_a_state() -> None:
    assert not set(ALIASES) & {state.value for state in State}


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_a_move_goes_somewhere_else(move: Move) -> None:
    assert move is RESCHEDULE or move.target not in move.sources
    assert len(set(move.sources)) == len(move.sources)
    assert move.sources or move.target


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_only_running_jobs_are_held(move: Move) -> None:
    assert move.held == (State.ACTIVE in move.sources and move is not DELETE_ACTIVE)


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_what_a_move_is_called_is_its_own(move: Move) -> None:
    assert any(each is move for each in vars(states).values())
    assert [other.name for other in MOVES].count(move.name) == 1
    assert str(move) == move.name


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_listeners_hear_where_the_job_ended(move: Move) -> None:
    if move.events and move not in (RESTORE_COMPLETED, RESTORE_FAILED):
        assert move.target is not None
        assert move.target.value in move.events


@pytest.mark.parametrize("move", [BACK_OFF, RETRY_NOW], ids=str)
def test_listeners_hear_of_the_failure_before_its_retry(move: Move) -> None:
    assert move.target is not None
    heard = ("failed", "attempt-failed", move.target.value, "retry-scheduled")
    assert move.events == heard


def test_nobody_hears_of_what_nobody_asked_for() -> None:
    silent = [move for move in MOVES if not move.events]
    assert silent == [states.RETURN_UNSTARTED, states.DELETE, DELETE_ACTIVE]


def test_every_state_can_be_reached_and_left() -> None:
    for state in State:
        assert any(move.target is state for move in MOVES)
        assert any(state in move.sources for move in MOVES)


def test_what_is_removed_goes_back_to_where_it_came_from() -> None:
    assert set(RESTORE) == set(states.REMOVE.sources)
    for target, move in RESTORE.items():
        assert (move.sources, move.target) == ((State.REMOVED,), target)


def test_the_documentation_shows_this_table() -> None:
    document = Path(__file__).parents[2] / "docs" / "architecture.md"
    assert f"```mermaid\n{states.diagram()}\n```" in document.read_text(encoding="utf-8")
