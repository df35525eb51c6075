"""What the rows of the event log mean to listeners."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.core.event_log import Event, events_of_move, unfold
from bullite.core.states import MOVES, Move

DETAILS: dict[str, Any] = {
    "add": [7, "mail"],
    "add_delayed": [7, ["mail", 500]],
    "delay": [7, 500],
    "reschedule": [7, 500],
    "complete": [7, 1],
    "fail": [7, ["no", 3, "error"]],
    "back_off": [7, ["no", 1, 500]],
    "retry": [7, ["no", 1, 500]],
    "expire": [7, ["waiting", "too late"]],
    "cancel": [7, ["waiting", "not wanted"]],
    "revive": [7, "failed"],
    "revive_delayed": [7, ["failed", 500]],
    "remove": [7, "waiting"],
    "restore_delayed": [7, 500],
}
"""An entry of every kind of row that tells more than the job."""


def told(kind: str, *entries: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, event.payload) for event in unfold(1, 1, kind, entries)]


@pytest.mark.parametrize("move", [move for move in MOVES if move.events], ids=str)
def test_a_row_of_a_move_tells_the_events_of_the_table(move: Move) -> None:
    events = list(unfold(1, 1, move.name, [DETAILS.get(move.name, 7)]))
    assert tuple(event.name for event in events) == move.events
    assert {event.payload["job_id"] for event in events} == {"7"}


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_the_size_of_a_row_is_known_without_reading_it(move: Move) -> None:
    assert events_of_move(move.name) == len(move.events)


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("progress", [7, 50]),
        ("log_added", [7, {"message": "hello"}]),
        ("duplicated", "mine"),
        ("paused", [None, None]),
        ("resumed", [None, None]),
        ("drained", [None, None]),
        ("cleaned", [None, 4]),
        ("dead_lettered", [7, ["a", "b"]]),
        ("deduplicated", [7, ["x", 8]]),
        ("custom", [None, ["lunch", {"at": 12}]]),
    ],
)
def test_a_row_of_anything_else_tells_one_event_an_entry(kind: str, entry: Any) -> None:
    assert events_of_move(kind) == len(told(kind, entry)) == 1


def test_events_are_numbered_within_their_row() -> None:
    events = list(unfold(12, 3, "add", [[7, "mail"], ["mine", "call"]]))
    assert [event.id for event in events] == ["12-0", "12-1", "12-2", "12-3"]
    assert events[2] == Event("12-2", 3, "added", {"job_id": "mine", "name": "call"})


def test_the_events_of_a_job_stand_together() -> None:
    names = [(event.name, event.payload["job_id"]) for event in unfold(1, 1, "promote", [7, 8])]
    assert names == [("promoted", "7"), ("waiting", "7"), ("promoted", "8"), ("waiting", "8")]


def test_where_a_job_came_from_is_told() -> None:
    assert told("claim", 7) == [("active", {"job_id": "7", "prev": "waiting"})]
    assert told("revive", [7, "completed"]) == [("waiting", {"job_id": "7", "prev": "completed"})]
    assert told("remove", [7, "delayed"]) == [("removed", {"job_id": "7", "prev": "delayed"})]


def test_a_completion_tells_its_value() -> None:
    assert told("complete", [7, {"n": 1}]) == [
        ("completed", {"job_id": "7", "return_value": {"n": 1}, "prev": "active"})
    ]
    assert told("complete", 7)[0][1]["return_value"] is None


def test_a_value_that_was_left_out_is_said_to_be() -> None:
    [long], [short] = (list(unfold(1, 1, "complete", [entry])) for entry in ([7, None, 1], [7, 5]))
    assert (long.payload["return_value"], long.truncated) == (None, True)
    assert (short.payload["return_value"], short.truncated) == (5, False)


def test_a_failure_for_good_is_final() -> None:
    failed, exhausted = told("fail", [7, ["no", 3, "timed-out"]])
    assert failed[1]["final"] is True
    assert (failed[1]["failed_reason"], failed[1]["outcome"]) == ("no", "timed-out")
    assert exhausted == ("retries-exhausted", {"job_id": "7", "attempts_made": 3})


@pytest.mark.parametrize(("kind", "then"), [("back_off", "delayed"), ("retry", "waiting")])
def test_a_failure_that_is_tried_again_is_not(kind: str, then: str) -> None:
    failed, attempt, moved, scheduled = told(kind, [7, ["no", 2, 500]])
    assert (failed[0], failed[1]["final"]) == ("failed", False)
    assert attempt[1] == {"job_id": "7", "failed_reason": "no", "attempts_made": 2}
    assert (moved[0], moved[1]["prev"]) == (then, "active")
    assert scheduled == ("retry-scheduled", {"job_id": "7", "delay": 500})


def test_an_expiry_is_a_failure_of_its_own_sort() -> None:
    [(name, payload)] = told("expire", [7, ["delayed", "too late"]])
    assert (name, payload["prev"], payload["outcome"]) == ("failed", "delayed", "expired")
    assert payload["final"] is True


def test_an_event_of_the_queue_names_no_job() -> None:
    assert told("paused", [None, None]) == [("paused", {})]
    assert told("cleaned", [None, 4]) == [("cleaned", {"count": 4})]


def test_an_event_of_the_users_own_is_as_it_was_published() -> None:
    [event] = unfold(1, 1, "custom", [[None, ["lunch", {"at": 12}]]])
    assert (event.name, event.payload, event.is_custom) == ("lunch", {"at": 12}, True)
    assert not any(event.is_custom for event in unfold(1, 1, "paused", [[None, None]]))


def test_names_are_spelled_with_hyphens() -> None:
    assert told("log_added", [7, {"m": 1}])[0][0] == "log-added"
    assert told("dead_lettered", [7, ["a", "b"]]) == [
        ("dead-lettered", {"job_id": "7", "from": "a", "to": "b"})
    ]
