"""How SQLite carries out the statements: the cost of a move never depends on jobs elsewhere."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from bullite.core.states import MOVES
from bullite.database.sqlite.statements import STATEMENTS
from bullite.database.statements import move_statement
from tests.support.databases import SQLiteDatabase
from tests.support.harness import open_store

Plan = Callable[[str], list[str]]

MOVE_STATEMENTS = [move_statement(move, source) for move in MOVES for source in move.sources]

BY_INDEX = {
    "next_in_lane": "bullite_jobs_waiting (queue=? AND lane=?)",
    "lane_heads": "bullite_jobs_waiting (queue=? AND lane=?)",
    "assign_lanes": "bullite_jobs_waiting (queue=? AND lane=?)",
    "lanes": "bullite_jobs_waiting (queue=? AND lane>?)",
    "has_ready_or_due": "bullite_jobs_waiting (queue=?)",
    "due": "bullite_jobs_delayed (queue=? AND due_at<?)",
    "due_queues": "bullite_jobs_delayed (queue=? AND due_at<?)",
    "held_by_worker": "bullite_jobs_active (queue=? AND worker=? AND lease_until<?)",
    "delete_idle_worker": "bullite_jobs_active (queue=? AND worker=?)",
    "count_prefetched": "bullite_jobs_active (queue=?)",
    "count_active": "bullite_jobs_active (queue=?)",
    "count_due": "bullite_jobs_delayed (queue=? AND due_at<?)",
    "count_ahead_in_lane": "bullite_jobs_waiting (queue=? AND lane=? AND rank<?)",
    "jobs_with_limit_key": "bullite_jobs_waiting (queue=? AND lane=?)",
    "parked_lanes": "bullite_jobs_waiting (queue=? AND lane>? AND lane<?)",
    "unpark_jobs": "bullite_jobs_waiting (queue=? AND lane=?)",
    "keys_to_unpark": "bullite_limits_aside (queue=? AND back_at<?)",
    "next_unpark": "bullite_limits_aside (queue=? AND back_at>?)",
    "delete_idle_limit_keys": "bullite_limits_idle (queue=? AND until<?)",
    "workers_of_queue": "bullite_jobs_active (queue=? AND worker=?)",
    "claim_info": "bullite_jobs_expiring (queue=? AND expires_at>?)",
    "expired": "bullite_jobs_expiring (queue=? AND expires_at<?)",
    "expired_queues": "bullite_jobs_expiring (queue=? AND expires_at<?)",
    "page_up:waiting": "bullite_jobs_waiting (queue=? AND lane=? AND rank=?)",
    "page_down:waiting": "bullite_jobs_waiting (queue=? AND lane=? AND rank=?)",
    "page_up:delayed": "bullite_jobs_delayed (queue=?)",
    "page_down:completed": "bullite_jobs_completed (queue=?)",
    "page_down:failed": "bullite_jobs_failed (queue=?)",
    "after:delayed": "bullite_jobs_delayed (queue=? AND due_at>?)",
    "after:completed": "bullite_jobs_completed (queue=? AND finished_at>?)",
    "after:failed": "bullite_jobs_failed (queue=? AND finished_at>?)",
    "before:delayed": "bullite_jobs_delayed (queue=? AND due_at<?)",
    "before:completed": "bullite_jobs_completed (queue=? AND finished_at<?)",
    "before:failed": "bullite_jobs_failed (queue=? AND finished_at<?)",
    "oldest:waiting": "bullite_jobs_waiting (queue=? AND lane=? AND rank=? AND seq>?)",
    "oldest:delayed": "bullite_jobs_delayed (queue=? AND due_at>?)",
    "oldest:waiting-children": "bullite_jobs_waiting_children "
    "(queue=? AND created_at>? AND created_at<?)",
    "oldest:completed": "bullite_jobs_completed (queue=? AND finished_at>? AND finished_at<?)",
    "oldest:failed": "bullite_jobs_failed (queue=? AND finished_at>? AND finished_at<?)",
    "trash_to_delete": "bullite_jobs_removed (queue=? AND removed_at<?)",
    "taken_custom_ids": "bullite_jobs_custom_id (queue=? AND custom_id=?)",
    "job_with_custom_id": "bullite_jobs_custom_id (queue=? AND custom_id=?)",
    "idle_worker_addresses": "bullite_workers_hungry (queue=?)",
    "renew_workers": "bullite_workers_nonce (nonce=?)",
    "workers_of_process": "bullite_workers_nonce (nonce=?)",
    "scheduler_named": "bullite_schedulers_key (queue=? AND key=?)",
    "scheduler": "bullite_schedulers_key (queue=? AND key=?)",
    "delete_scheduler": "bullite_schedulers_key (queue=? AND key=?)",
    "existing_schedulers": "bullite_schedulers_key (queue=? AND key=?)",
    "schedulers_of_jobs": "bullite_schedulers_job (job=?)",
    "owning_schedulers": "bullite_schedulers_job (job=?)",
    "late_schedulers": "bullite_schedulers_due (next_at<?)",
    "trim_events": "bullite_events_queue (queue=? AND total<?)",
    "ends_in_log": "bullite_events_queue (queue=?)",
    "key_holders": "sqlite_autoindex_bullite_deduplication_1 (key=? AND queue=?)",
    "delete_keys": "sqlite_autoindex_bullite_deduplication_1 (key=? AND queue=?)",
    "forget_keys": "bullite_deduplication_until (queue=?)",
    "free_keys": "bullite_deduplication_job (job=?)",
    "prune_dedup_keys": "bullite_deduplication_until (queue=? AND until<?)",
    "queues_to_prune": "bullite_deduplication_until (queue=? AND until<?)",
    "find_by_date": "bullite_jobs_created (<expr>=? AND created_at>? AND created_at<?)",
    "find_by_name": "bullite_jobs_named (<expr>=? AND name=? AND created_at>? AND created_at<?)",
    "delete_tags": "bullite_tags_job (job=?)",
    "move_tags": "bullite_tags_job (job=?)",
    "cancelled_running_jobs": "bullite_jobs_active (queue=? AND worker=?)",
    "auto_retry_due": "bullite_jobs_tried_again (queue=? AND due_at<?)",
    "auto_retry_queues": "bullite_jobs_tried_again (queue=? AND due_at<?)",
    "queues_with_custom_id": "bullite_jobs_custom_id (queue=? AND custom_id=?)",
    "delete_runs": "sqlite_autoindex_bullite_runs_1 (job=?)",
    "runs": "sqlite_autoindex_bullite_runs_1 (job=?)",
}

BY_NUMBER = [
    *MOVE_STATEMENTS,
    *(
        "load_jobs_for_update",
        "write_progress",
        "write_attempts",
        "claimable_jobs",
        "finished_jobs",
    ),
    *("existing_jobs", "move_to_queue", "set_priority", "set_lease", "park_jobs"),
    *("job", "jobs", "lock_delayed", "jobs_with_dedup_key", "schedule_auto_retry"),
    *("set_steps_flag", "insert_suspension", "is_waiting_for_event"),
]

BELOW_A_JOB = {
    "attempts": "bullite_attempts",
    "write_attempts": "bullite_attempts",
    "forget_stacks": "bullite_attempts",
    "delete_attempts": "bullite_attempts",
    "job": "bullite_attempts",
    "jobs": "bullite_attempts",
    "last_logs": "bullite_logs",
    "trim_logs": "bullite_logs",
    "logs": "bullite_logs",
    "log_range": "bullite_logs",
    "delete_logs": "bullite_logs",
    "steps": "bullite_steps",
    "find_suspension": "bullite_steps",
    "is_waiting_for_event": "bullite_steps",
    "delete_steps": "bullite_steps",
    "next_signal": "bullite_signals",
    "delete_signal": "bullite_signals",
    "delete_signals": "bullite_signals",
    "output_after": "bullite_output",
    "trim_output": "bullite_output",
    "clear_output": "bullite_output",
    "delete_output": "bullite_output",
}

VERIFY = [name for name in STATEMENTS if name.startswith("verify_")]

READ_EVERYTHING = [
    *VERIFY,
    *(name for name in STATEMENTS if name.startswith("stats_")),
    *("reverse_priority_order", "reschedule_auto_retries", "count_outcomes"),
]
"""When people look at all there is, or settle something anew for all of a queue."""

SORT_A_FEW = {
    "claimable_jobs": "at most as many as one claim takes",
    "held_by_worker": "at most as many as one worker holds",
    "page_up:active": "at most as many as run",
    "page_down:active": "at most as many as run",
    "after:active": "at most as many as run",
    "before:active": "at most as many as run",
    "oldest:active": "at most as many as run",
    "schedulers_of_jobs": "at most as many as one claim takes",
    "schedulers_up": "at most as many as a queue has, when people look",
    "schedulers_down": "at most as many as a queue has, when people look",
    "steps": "at most as many as one job has",
}

SORT_ALL_THAT_WAIT = [
    *("counts_per_priority", "unserved_names"),
    *(name for name in STATEMENTS if re.search(r"-by-name\b", name)),
]
"""When people look; with processors by name, one line for each has to be merged."""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plan]:
    """Gives the steps in which SQLite would run a statement of ours."""
    folder: Path = tmp_path_factory.mktemp("plans")
    with open_store(SQLiteDatabase.make(folder)):
        connection = sqlite3.connect(folder / "jobs.db")

        def explain(statement: str) -> list[str]:
            text = STATEMENTS[statement].text
            params = dict.fromkeys(re.findall(r":(\w+)", text), 1)
            return [row[3] for row in connection.execute(f"explain query plan {text}", params)]

        yield explain
        connection.close()


def unless(
    plan: Plan, statements: Iterable[str], is_right: Callable[[str, list[str]], bool]
) -> dict[str, list[str]]:
    """The statements whose steps are not right, with these."""
    plans = {statement: plan(statement) for statement in statements}
    assert plans
    return {name: steps for name, steps in plans.items() if not is_right(name, steps)}


def test_a_statement_searches_the_index_made_for_it(plan: Plan) -> None:
    def is_right(statement: str, steps: list[str]) -> bool:
        return any(step.endswith(f"INDEX {BY_INDEX[statement]}") for step in steps)

    assert unless(plan, BY_INDEX, is_right) == {}


def test_a_statement_that_names_its_jobs_goes_straight_to_them(plan: Plan) -> None:
    def is_right(statement: str, steps: list[str]) -> bool:
        return "SEARCH bullite_jobs USING INTEGER PRIMARY KEY (rowid=?)" in steps

    assert unless(plan, BY_NUMBER, is_right) == {}


def test_what_belongs_to_a_job_is_found_by_its_number(plan: Plan) -> None:
    def is_right(statement: str, steps: list[str]) -> bool:
        searches = f"SEARCH {BELOW_A_JOB[statement]} USING PRIMARY KEY (job=?"
        return any(step.startswith(searches) for step in steps)

    assert unless(plan, BELOW_A_JOB, is_right) == {}


SEARCHES = [s for s in STATEMENTS if s not in READ_EVERYTHING and STATEMENTS[s].flag != "multi_row"]


def test_hardly_anything_reads_all_jobs(plan: Plan) -> None:
    def is_right(statement: str, steps: list[str]) -> bool:
        return not any(step.startswith("SCAN bullite_jobs") for step in steps)

    assert unless(plan, SEARCHES, is_right) == {}


def test_the_order_comes_from_an_index(plan: Plan) -> None:
    def is_right(statement: str, steps: list[str]) -> bool:
        if statement.startswith(("page_", "after:", "before:", "find_by")):
            # The last step sorts the page that was found, once more.
            *steps, last = steps
            if last != "USE TEMP B-TREE FOR ORDER BY":
                return False
        return not any(re.match(r"USE TEMP B-TREE FOR .*ORDER BY", step) for step in steps)

    in_order = [s for s in SEARCHES if s not in (*SORT_A_FEW, *SORT_ALL_THAT_WAIT)]
    assert unless(plan, in_order, is_right) == {}
