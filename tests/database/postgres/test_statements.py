"""The SQL of the PostgreSQL store: the same statements as the SQLite store has, and as guarded."""

from __future__ import annotations

import re

import pytest

from bullite.core.states import MOVES, Move, State
from bullite.database.postgres.statements import SOURCE, statements
from bullite.database.sqlite.statements import STATEMENTS as SQLITE
from bullite.database.statements import move_statement

OURS = {name: statements("bullite")[name] for name in SOURCE}

ONLY_SQLITE = {
    "idle_worker_addresses": "wake-ups go to addresses of processes",
    "address_of_process": "the same",
}
ONLY_POSTGRES = {
    "add_to_counts": "each process counts in a row of its own",
    "fold_counts": "the same",
    "mark": "the answer to a commit may be lost",
    "give_up": "the same",
    "leave": "processes are known by what they wrote",
    "forget_processes": "the same",
    "processes": "the same",
    "clock": "the time is the server's",
    "clock_unsynced": "the same",
    "housekeeper": "any role may hold an advisory lock",
    "skip_events": "a commit that was not synced may be lost with the server",
    "notify": "wake-ups go through the server",
    "alert": "the same",
    "lock_queues": "rows are locked in one order",
    "lock_jobs": "the same",
    "lock_keys": "the same",
    "count_jobs": "the same",
    "lock_queue_limits_now": "the same",
    "end_of_settled": "writers work side by side",
}

MOVED = [(move, state) for move in MOVES for state in move.sources]


def words(text: bytes) -> str:
    return " ".join(text.decode().split())


def test_both_stores_have_the_same_statements_but_for_a_few():
    assert set(SQLITE) - set(OURS) == set(ONLY_SQLITE)
    assert set(OURS) - set(SQLITE) == set(ONLY_POSTGRES)


@pytest.mark.parametrize("name", sorted(set(SQLITE) & set(OURS)))
def test_a_statement_takes_the_same_parameters_in_both_stores(name):
    ours = set(re.findall(r"%\((\w+)\)s", OURS[name].text.decode()))
    theirs = set(re.findall(r"(?<!:):(\w+)", SQLITE[name].text))

    # Each may look at what every statement is given, whether the other does or not.
    given = {"counted", "seen"} if name == "events_after" else set[str]()
    assert ours - theirs <= {"nonce", "expected", "settled", *given}


@pytest.mark.parametrize(("move", "state"), MOVED, ids=lambda part: str(part))
def test_every_move_is_guarded_by_the_state_it_starts_from(move: Move, state: State):
    text = words(OURS[move_statement(move, state)].text)

    assert re.search(rf"where .*\bstate (\|\| '' )?= '{state}'", text)


@pytest.mark.parametrize(("move", "state"), MOVED, ids=lambda part: str(part))
def test_a_held_job_is_moved_only_with_its_token_and_the_number_of_its_process(
    move: Move, state: State
):
    text = words(OURS[move_statement(move, state)].text)

    assert ("and j.token = asked.token" in text) == move.held
    assert ("and j.nonce = %(nonce)s" in text) == move.held


@pytest.mark.parametrize(
    ("move", "state"), [pair for pair in MOVED if pair[0].target], ids=lambda part: str(part)
)
def test_a_move_that_does_not_find_all_its_jobs_stops_the_transaction(move: Move, state: State):
    text = words(OURS[move_statement(move, state)].text)

    assert "select case when count(*) = %(expected)s then 1 else ('bullite undoes" in text


@pytest.mark.parametrize("name", OURS)
def test_a_statement_has_the_same_text_prepared_as_not(name):
    statement = OURS[name]
    if not statement.parameters:
        return
    numbered = statement.prepare.decode().partition(" as ")[2]
    for number, parameter in enumerate(statement.parameters, start=1):
        numbered = re.sub(rf"\${number}\b", f"%({parameter})s", numbered)

    assert numbered.encode() == statement.text


def test_names_of_prepared_statements_are_not_cut_off():
    assert max(len(statement.name) for statement in OURS.values()) <= 63


@pytest.mark.parametrize("name", OURS)
def test_every_table_is_named_with_its_schema(name):
    text = re.sub(r"'[^']*'", "", OURS[name].text.decode())
    unnamed = re.findall(
        r"(?<![\w.\"])bullite_(?:jobs|payloads|results|events|queues|workers)\b", text
    )

    assert unnamed == []


@pytest.mark.parametrize(
    "name",
    ["due", "next_in_lane", "claimable_jobs", "expired", "trash_to_delete", "jobs_with_limit_key"],
)
def test_what_is_looked_up_to_be_moved_is_locked_and_what_others_locked_is_passed_over(name):
    assert re.search(r"for update (of j )?skip locked$", words(OURS[name].text))


def test_what_a_caller_names_is_waited_for_in_the_order_of_ids():
    assert words(OURS["load_jobs_for_update"].text).endswith("order by id for update")
