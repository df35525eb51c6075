"""The loader of a store's SQL file."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from bullite.core import job_flags
from bullite.core.states import MOVES, Move, State
from bullite.database.postgres.statements import SOURCE
from bullite.database.sqlite.statements import STATEMENTS
from bullite.database.statements import Statement, load, move_statement

TEMPLATES = """
-- template: move
update jobs set state = '{target}'{changes} where state = '{source}'{guards}

-- template: move_with_value
update taking jobs set state = '{target}'{changes} where state = '{source}'{guards}

-- template: move_without_token
update plain jobs set state = '{target}'{changes} where state = '{source}'{guards}

-- template: token_guard
and token = asked

-- template: same_token_guard
and token = one

-- template: token_with_value_guard
and token = asked in front

-- template: delete
delete from jobs where state = '{source}'
"""


def source_of(*blocks: str) -> str:
    """An SQL file in which every move changes something, and these blocks."""
    moves = [f"-- move: {move}\nx = 1" for move in MOVES if move.sources and move.target]
    return "\n".join([TEMPLATES, *moves, *blocks])


def test_a_statement_is_found_by_its_name_without_its_comments() -> None:
    loaded = load(source_of("-- name: one\nselect 1", "-- a remark\n-- name: two\nselect\n    2"))
    assert loaded["one"].text == "select 1"
    assert loaded["two"].text == "select\n    2"
    assert loaded["one"].flag is None


def test_flags_are_read() -> None:
    loaded = load(
        source_of("-- name: one (json_rows)\nselect 1", "-- name: two (multi_row)\nselect 2")
    )
    assert loaded["one"].flag == "json_rows"
    assert loaded["two"].flag == "multi_row"


def test_a_move_has_a_statement_for_each_state_it_starts_from() -> None:
    loaded = load(source_of())
    wanted = {move_statement(move, state) for move in MOVES for state in move.sources}
    assert {name for name in loaded if not name.endswith(":same_token")} == wanted
    assert "fail:active" in loaded


def test_compare_and_swap_compares_state_and_claim_token() -> None:
    loaded = load(source_of())
    assert loaded["fail:active"].text == (
        "update jobs set state = 'failed', x = 1 where state = 'active' and token = asked"
    )
    assert loaded["remove:delayed"].text == (
        "update plain jobs set state = 'removed', x = 1 where state = 'delayed'"
    )


def test_jobs_that_are_held_under_one_token_have_a_swap_of_their_own() -> None:
    source = source_of().replace("-- move: retry\nx = 1", "-- move: retry takes seq\nseq = 2")
    loaded = load(source)
    assert loaded["fail:active:same_token"].text == (
        "update plain jobs set state = 'failed', x = 1 where state = 'active' and token = one"
    )
    same_token = {name.partition(":")[0] for name in loaded if name.endswith(":same_token")}
    assert same_token == {move.name for move in MOVES if move.held and move.target} - {"retry"}


def test_a_move_that_takes_something_finds_its_token_in_front_of_it() -> None:
    source = source_of().replace("-- move: retry\nx = 1", "-- move: retry takes seq\nseq = 2")
    text = load(source)["retry:active"].text
    assert text.startswith("update taking jobs")
    assert text.endswith("seq = 2 where state = 'active' and token = asked in front")


def test_a_move_may_have_a_condition_of_its_own() -> None:
    source = source_of().replace("-- move: remove\nx = 1", "-- move: remove\nx = 1\nwhere y = 2")
    text = load(source)["remove:failed"].text
    assert text.endswith("set state = 'removed', x = 1 where state = 'failed' and y = 2")


def test_deleting_has_a_template_of_its_own() -> None:
    assert load(source_of())["delete:failed"].text == "delete from jobs where state = 'failed'"


@pytest.mark.parametrize(
    ("move", "state"),
    [(move, state) for move in MOVES for state in move.sources],
    ids=lambda part: str(part),
)
def test_the_sqlite_store_guards_every_move(move: Move, state: State) -> None:
    text = STATEMENTS[move_statement(move, state)].text
    assert f"state = '{state}'" in text
    assert ("bullite_jobs.token =" in text) == move.held
    assert ("bullite_jobs.nonce =" in text) == move.held


@pytest.mark.parametrize("name", [name for name in STATEMENTS if name.endswith(":same_token")])
def test_the_sqlite_store_compares_the_one_token_that_all_jobs_are_held_under(name: str) -> None:
    text = STATEMENTS[name].text
    assert "bullite_jobs.state = 'active'" in text
    assert "bullite_jobs.token = :token and bullite_jobs.nonce = :nonce" in text


def test_job_flags_are_filled_in_by_name() -> None:
    loaded = load(source_of("-- name: one\nselect traits & {cancelled}, traits & ~{tagged}"))
    assert loaded["one"].text == "select traits & 256, traits & ~64"


def test_every_job_flag_has_a_bit_and_a_name_of_its_own() -> None:
    bits = {
        name.lower(): bit
        for name, bit in vars(job_flags).items()
        if name.isupper() and isinstance(bit, int) and name != "PLAIN"
    }
    assert bits == job_flags.BY_NAME
    assert sorted(bits.values()) == [2**n for n in range(len(bits))]


@pytest.mark.parametrize("statements", [STATEMENTS, SOURCE], ids=["sqlite", "postgres"])
def test_statements_leave_no_name_in_braces(statements: dict[str, Statement]) -> None:
    left = {name for name, one in statements.items() if re.search(r"\{[a-z_]+\}", one.text)}
    assert left == set()


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_statements_name_job_flags_instead_of_their_bits(database: str) -> None:
    source = files(f"bullite.database.{database}") / "statements.sql"
    assert re.findall(r"traits\s*[&|]\s*~?\d+", source.read_text(encoding="utf-8")) == []
