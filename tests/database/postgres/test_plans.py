"""How PostgreSQL carries out the statements: the cost of a move never depends on jobs elsewhere.

Plans are generic and made once: one that is made while the tables are empty, or while the server
believes them to be, has to do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from bullite import Store
from bullite.database.postgres.connections import Connection
from bullite.database.postgres.statements import SOURCE, Prepared, statements
from tests.database.postgres.places import database_of_its_own, guarded_server

STATEMENTS = {name: known for name in SOURCE if (known := statements("bullite")[name]).parameters}
JOBS = 200_000

BY_INDEX = {
    "next_in_lane": "bullite_jobs_waiting (queue, lane)",
    "lane_heads": "bullite_jobs_waiting (queue, lane)",
    "assign_lanes": "bullite_jobs_waiting (queue, lane)",
    "has_ready_or_due": "bullite_jobs_waiting (queue)",
    "due": "bullite_jobs_delayed (queue, due_at)",
    "due_queues": "bullite_jobs_delayed (queue, due_at)",
    "held_by_worker": "bullite_jobs_active (queue, worker, lease_until)",
    "count_prefetched": "bullite_jobs_active (queue)",
    "count_active": "bullite_jobs_active (queue)",
    "count_due": "bullite_jobs_delayed (queue, due_at)",
    "count_ahead_in_lane": "bullite_jobs_waiting (queue, lane, rank, seq)",
    "jobs_with_limit_key": "bullite_jobs_waiting (queue, lane)",
    "parked_lanes": "bullite_jobs_waiting (queue, lane)",
    "unpark_jobs": "bullite_jobs_waiting (queue, lane)",
    "park_jobs": "bullite_jobs_pkey (id)",
    "keys_to_unpark": "bullite_limits_aside (queue, back_at)",
    "next_unpark": "bullite_limits_aside (queue)",
    "key_windows": "bullite_limits_pkey (queue, key)",
    "key_limit": "bullite_limits_pkey (queue, key)",
    "delete_idle_limit_keys": "bullite_limits_idle (queue, until)",
    "workers_of_queue": "bullite_jobs_active (queue, worker)",
    "claim_info": "bullite_jobs_expiring (queue)",
    "expired": "bullite_jobs_expiring (queue, expires_at)",
    "expired_queues": "bullite_jobs_expiring (queue, expires_at)",
    "page_up:waiting": "bullite_jobs_waiting (queue, lane, rank)",
    "page_down:waiting": "bullite_jobs_waiting (queue, lane, rank)",
    "page_up:delayed": "bullite_jobs_delayed (queue)",
    "page_down:completed": "bullite_jobs_completed (queue)",
    "page_down:failed": "bullite_jobs_failed (queue)",
    "oldest:waiting": "bullite_jobs_waiting (queue, lane, rank, seq)",
    "oldest:delayed": "bullite_jobs_delayed (queue, due_at, id)",
    "oldest:completed": "bullite_jobs_completed (queue, finished_at, id)",
    "oldest:failed": "bullite_jobs_failed (queue, finished_at, id)",
    "trash_to_delete": "bullite_jobs_removed (queue, removed_at)",
    "job_with_custom_id": "bullite_jobs_custom_id (queue, custom_id)",
    "job": "bullite_jobs_pkey (id)",
    "jobs": "bullite_jobs_pkey (id)",
    "set_priority": "bullite_jobs_pkey (id)",
    "load_jobs_for_update": "bullite_jobs_pkey (id)",
    "claimable_jobs": "bullite_jobs_pkey (id)",
    "finished_jobs": "bullite_jobs_pkey (id)",
    "existing_jobs": "bullite_jobs_pkey (id)",
    "move_to_queue": "bullite_jobs_pkey (id)",
    "write_attempts": "bullite_jobs_pkey (id)",
    "renew_workers": "bullite_workers_nonce (nonce)",
    "workers_of_process": "bullite_workers_nonce (nonce)",
    "scheduler_named": "bullite_schedulers_key (queue, key)",
    "scheduler": "bullite_schedulers_key (queue, key)",
    "delete_scheduler": "bullite_schedulers_key (queue, key)",
    "existing_schedulers": "bullite_schedulers_key (queue)",
    "schedulers_of_jobs": "bullite_schedulers_job (job)",
    "owning_schedulers": "bullite_schedulers_job (job)",
    "update_schedulers": "bullite_schedulers_pkey (id)",
    "late_schedulers": "bullite_schedulers_due (next_at)",
    "ends_in_log": "bullite_events_queue (queue)",
    "trim_events": "bullite_events_queue (queue, id)",
    "events_after": "bullite_events_pkey (id)",
    "attempts": "bullite_attempts_pkey (job)",
    "forget_stacks": "bullite_attempts_pkey (job)",
    "delete_attempts": "bullite_attempts_pkey (job)",
    "delete_payloads": "bullite_payloads_pkey (job)",
    "delete_results": "bullite_results_pkey (job)",
    "last_logs": "bullite_logs_pkey (job, number)",
    "trim_logs": "bullite_logs_pkey (job, number)",
    "logs": "bullite_logs_pkey (job, number)",
    "delete_logs": "bullite_logs_pkey (job)",
    "steps": "bullite_steps_pkey (job)",
    "find_suspension": "bullite_steps_pkey (job, kind, name, number)",
    "is_waiting_for_event": "bullite_steps_pkey (job, kind, name)",
    "set_steps_flag": "bullite_jobs_pkey (id)",
    "insert_suspension": "bullite_jobs_pkey (id)",
    "delete_steps": "bullite_steps_pkey (job)",
    "next_signal": "bullite_signals_pkey (job, name)",
    "delete_signal": "bullite_signals_pkey (job, name, number)",
    "delete_signals": "bullite_signals_pkey (job)",
    "release_lock": "bullite_locks_pkey (name)",
    "lock_holder": "bullite_locks_pkey (name)",
    "links_from": "bullite_links_upstream (upstream)",
    "dependents_of": "bullite_links_upstream (upstream)",
    "parents_of": "bullite_links_upstream (upstream)",
    "with_pending_links": "bullite_links_pending (downstream)",
    "resolve_links": "bullite_links_upstream (upstream)",
    "delete_links": "bullite_links_upstream (upstream)",
    "delete_links_up": "bullite_links_upstream (upstream)",
    "unlink_jobs": "bullite_links_pkey (downstream, upstream)",
    "links_page": "bullite_links_pkey (downstream, upstream)",
    "children_page": "bullite_links_pkey (downstream, upstream)",
    "delete_links_to": "bullite_links_pkey (downstream)",
    "key_holders": "bullite_deduplication_pkey (key)",
    "delete_keys": "bullite_deduplication_pkey (key)",
    "forget_keys": "bullite_deduplication_until (queue)",
    "free_keys": "bullite_deduplication_job (job)",
    "prune_dedup_keys": "bullite_deduplication_until (queue, until)",
    "lock_delayed": "bullite_jobs_pkey (id)",
    "jobs_with_dedup_key": "bullite_jobs_pkey (id)",
    "find_by_date": "bullite_payloads_made (its_queue, made_at)",
    "find_by_name": "bullite_payloads_named (its_queue, its_name, made_at)",
    "find_by_tag": "bullite_tags_pkey (queue, tag, created_at, job)",
    "delete_tags": "bullite_tags_job (job)",
    "move_tags": "bullite_tags_job (job)",
    "auto_retry_due": "bullite_jobs_tried_again (queue, due_at)",
    "auto_retry_queues": "bullite_jobs_tried_again (queue, due_at)",
    "queues_with_custom_id": "bullite_jobs_custom_id (queue, custom_id)",
    "schedule_auto_retry": "bullite_jobs_pkey (id)",
    "minutes": "bullite_minutes_pkey (queue, minute)",
    "forget_minutes": "bullite_minutes_pkey (queue, minute)",
    "runs": "bullite_runs_pkey (job)",
    "output_after": "bullite_output_pkey (job, run, number)",
    "delete_runs": "bullite_runs_pkey (job)",
    "delete_output": "bullite_output_pkey (job)",
}

READS_EVERYTHING = {
    "reverse_priority_order": "when somebody turns the order of a queue round",
    "reschedule_auto_retries": "when somebody settles anew whether failed jobs are tried again",
    "stats_priorities": "when people look at all there is",
    "stats_timeouts": "when people look at all there is",
    "stats_slowest": "when people look at all there is",
    "stats_durations": "when people look at all there is",
    "count_outcomes": "when people look at all there is",
    "verify_counts": "looks for mistakes everywhere",
    "verify_times": "looks for mistakes everywhere",
    "verify_queues": "looks for mistakes everywhere",
    "verify_payloads": "looks for mistakes everywhere",
    "verify_custom_ids": "looks for mistakes everywhere",
    "verify_steps": "looks for mistakes everywhere",
    "verify_links": "looks for mistakes everywhere",
    "verify_deduplication": "looks for mistakes everywhere",
}

READS_AN_INDEX = {
    "queues_to_prune": "of the counts, which are as many as queues and processes",
    "fold_counts": "of the counts, which are as many as queues and processes",
}

SORTS = {
    "claimable_jobs": "at most as many as one claim takes",
    "load_jobs_for_update": "at most as many as one request names",
    "held_by_worker": "at most as many as one worker holds",
    "oldest:active": "at most as many as run",
    "workers_of_queue": "at most as many as there are workers",
    "fold_counts": "at most as many as there are queues",
    "reschedule_auto_retries": "when somebody settles anew whether failed jobs are tried again",
    "lock_keys": "at most as many as end together",
    "lock_jobs": "at most as many as one request names",
    "renew_workers": "at most as many as one process has",
    "trim_events": "at most one piece of the log",
    "events_after": "one page of the log",
    "schedulers_of_jobs": "at most as many as one claim takes",
    "schedulers_up": "at most as many as a queue has, when people look",
    "schedulers_down": "at most as many as a queue has, when people look",
    "removed_job": "those that have one custom id",
    "free_keys": "at most as many as end together",
    "lock_delayed": "at most as many as are replaced together",
    "counts_per_priority": "when people look",
    "unserved_names": "when people look",
    "postponed_names": "when people look",
    "steps": "at most as many as one job has",
    "link_counts": "when people look",
    "pending_links": "when people look",
    "blocked_forever": "when people look",
    "verify_counts": "looks for mistakes everywhere",
    "stats_priorities": "when people look at all there is",
    "stats_slowest": "when people look at all there is",
    "stats_durations": "when people look at all there is",
    "count_outcomes": "when people look at all there is",
    "all_workers": "at most as many as there are workers",
    "source_queues_of_failed": "when somebody settles anew whether failed jobs are tried again",
    "queues_with_custom_id": "at most as many as there are queues",
    "kept": "at most as many as are kept",
}

SMALL_TABLES = (
    *("bullite_queues", "bullite_workers", "bullite_processes", "bullite_numbers"),
    "bullite_locks",
)


class Plans:
    """What the server would do, in a session like those of the store."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._prepared: set[str] = set()

    def steps(self, name: str, how: str = "format json, costs off", **values: Any) -> list[Any]:
        """The nodes of the generic plan of a statement."""
        statement = STATEMENTS[name]
        self.prepare(statement)
        arguments = ", ".join(literal(values.get(p)) for p in statement.parameters)
        explain = f"explain ({how}) execute {statement.name.decode()}({arguments})"
        [[plan]] = self.connection.execute(explain.encode()).fetchall()
        return list(walk(plan[0]["Plan"]))

    def prepare(self, statement: Prepared) -> None:
        if statement.name not in self._prepared:
            self.connection.execute(statement.prepare)
            self._prepared.add(statement.name)

    def scans(self, name: str, **values: Any) -> list[str]:
        """The indexes that are searched, with the columns by which; tables that are read whole."""
        return [scan(step) for step in self.steps(name, **values) if "Relation Name" in step]


def walk(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield step
    for below in step.get("Plans", ()):
        yield from walk(below)


def scan(step: dict[str, Any]) -> str:
    if "Index Name" not in step:
        return f"{step['Node Type']} {step['Relation Name']}"
    condition = re.sub(r"\"?\w+\"?\.", "", step.get("Index Cond", ""))
    columns = re.findall(r"\(*(\w+) (?:=|<|>|<=|>=|IS NOT NULL)", condition)
    for pair in re.findall(r"ROW\((\w+, \w+)\) [<>]", condition):
        columns += pair.split(", ")
    return f"{step['Index Name']} ({', '.join(dict.fromkeys(columns))})"


def literal(value: Any) -> str:
    return "null" if value is None else f"'{value}'"


@pytest.fixture(scope="module")
def empty() -> Iterator[Plans]:
    """Tables that nobody has put anything into, and the server never analysed."""
    with in_database("plans") as plans:
        yield plans


@pytest.fixture(scope="module")
def full() -> Iterator[Plans]:
    """The same with many jobs, still never analysed; all statements were prepared before."""
    with in_database("full") as plans:
        fill(plans.connection, "bullite")
        yield plans


@pytest.fixture(scope="module")
def misjudged() -> Iterator[Plans]:
    """Many jobs, in tables that the server last looked at when they were as good as empty."""
    with in_database("misjudged") as plans:
        fill(plans.connection, "bullite")
        plans.connection.execute(
            "update pg_class set reltuples = 1, relpages = 1000 "
            "where relnamespace = 'bullite'::regnamespace and relkind = 'r'"
        )
        yield plans


class in_database:
    def __init__(self, name: str) -> None:
        self._database = database_of_its_own(guarded_server(), name)
        self._name = name

    def __enter__(self) -> Plans:
        self._database.__enter__()
        with closing(Store(guarded_server().url(self._name))) as store:
            store.open()
            self._connection = Connection.open(store.location.access, pooled=False)
        # Nobody but a test decides when the tables are looked at.
        tables = self._connection.execute(
            "select tablename from pg_tables where schemaname = 'bullite'"
        ).fetchall()
        for [table] in tables:
            off = f"alter table bullite.{table} set (autovacuum_enabled = off)"
            self._connection.execute(off.encode())
        return Plans(self._connection)

    def __exit__(self, *error: object) -> None:
        self._connection.close()
        self._database.__exit__(None, None, None)


def fill(connection: psycopg.Connection[Any], schema: str, first: int = 1) -> None:
    """As many jobs that wait as are completed, in two queues."""
    connection.execute(
        f"""
        insert into "{schema}".bullite_queues (name, priority_order, created_at)
        values ('many 1', 'low', 1), ('many 2', 'low', 1);
        insert into "{schema}".bullite_jobs (
            id, queue, name, state, lane, rank, seq, priority, lifo, delay, attempts,
            created_at, updated_at, finished_at, custom_id
        ) select n, 1 + n % 2, 'job', case when n % 4 < 2 then 'waiting' else 'completed' end,
            '', 0, n, 0, 0, 0, 1, 1, 1, case when n % 4 >= 2 then n end,
            case when n % 10 = 0 then 'id ' || n end
        from generate_series({first}, {JOBS + first}) as n;
        insert into "{schema}".bullite_payloads (job, data)
        select n, 'null' from generate_series({first}, {JOBS + first}) as n
        """
    )


# --- whatever the server believes ----------------------------------------------------------------


@pytest.fixture(params=["empty", "full", "misjudged"])
def plans(request):
    return request.getfixturevalue(request.param)


def test_a_statement_searches_the_index_made_for_it(plans):
    scans = {name: plans.scans(name) for name in BY_INDEX}

    assert {name: scans[name] for name, index in BY_INDEX.items() if index not in scans[name]} == {}


SEARCHES = [s for s in STATEMENTS if s not in (*READS_EVERYTHING, *READS_AN_INDEX)]


def test_no_index_is_read_from_end_to_end(plans):
    scans = [(name, found) for name in SEARCHES for found in plans.scans(name)]
    whole = [(name, found) for name, found in scans if found.endswith(" ()")]

    assert scans
    assert [(name, found) for name, found in whole if not found.startswith(SMALL_TABLES)] == []


MOVES = [name for name in STATEMENTS if ":" in name and STATEMENTS[name].parameters[0] == "now"]


def test_a_move_goes_straight_to_the_jobs_that_it_names(plans):
    scans = {name: plans.scans(name) for name in MOVES}

    assert scans
    assert {name: s for name, s in scans.items() if "bullite_jobs_pkey (id)" not in s} == {}


# --- on empty tables -----------------------------------------------------------------------------


def test_hardly_anything_reads_a_whole_table(empty):
    scans = {name: empty.scans(name) for name in STATEMENTS if name not in READS_EVERYTHING}
    read = [(n, found) for n, s in scans.items() for found in s if found.startswith("Seq Scan")]

    assert read, "small tables are"
    assert [(name, found) for name, found in read if not found.endswith(SMALL_TABLES)] == []


def test_the_order_comes_from_an_index(empty):
    in_order = [
        s
        for s in STATEMENTS
        # Pages are sorted once more when they were found; those who name jobs sort what they name.
        if s not in SORTS
        and not s.startswith(("page_", "after:", "before:", "find_by"))
        and "-by-name" not in s
    ]
    steps = [(name, step) for name in in_order for step in empty.steps(name)]
    sorts = [(name, step["Sort Key"]) for name, step in steps if step["Node Type"] == "Sort"]

    assert len(steps) > len(in_order)
    assert [(name, keys) for name, keys in sorts if "json_" not in keys[0]] == []


def test_the_next_jobs_are_read_from_the_line_without_sorting(empty):
    kinds = {step["Node Type"] for step in empty.steps("next_in_lane")}

    assert kinds == {"Limit", "LockRows", "Nested Loop", "Index Scan"}


# --- when there are many jobs --------------------------------------------------------------------


def buffers(plans: Plans, name: str, **values: Any) -> int:
    """How many pages a statement touches; what it does is undone."""
    plans.connection.execute("begin")
    try:
        [first, *_] = plans.steps(name, "analyze, buffers, format json", **values)
    finally:
        plans.connection.execute("rollback")
    return int(first["Shared Hit Blocks"]) + int(first["Shared Read Blocks"])


def test_a_look_for_jobs_touches_few_pages(full):
    assert buffers(full, "next_in_lane", queue=1, lane="", want=10) < 150


def test_a_claim_touches_few_pages(full):
    jobs = json.dumps(list(range(4, 44, 4)))
    values = {"jobs": jobs, "expected": 10, "now": 1, "token": 1, "nonce": 1, "worker": 1}

    assert buffers(full, "claim:waiting", **values, lease_until=1, ahead=0) < 600


def test_looking_for_queues_with_due_jobs_touches_few_pages(full):
    full.connection.execute(
        "update bullite.bullite_jobs set state = 'delayed', due_at = 1000000 where id % 4 = 2"
    )

    assert buffers(full, "due_queues", now=5) < 50


def test_a_page_of_events_touches_as_few_pages_in_a_long_log_as_in_a_short_one(full):
    costs = []
    for rows in (1_000, 30_000):
        full.connection.execute(
            "insert into bullite.bullite_events (queue, kind, jobs, size, at) "
            f"select 1, 'add', '[1]', 2, 1 from generate_series(1, {rows})"
        )
        [[newest]] = full.connection.execute(
            "select max(id) from bullite.bullite_events"
        ).fetchall()
        page = {"queue": 1, "after": newest - 100, "settled": newest, "most": 50}
        seen = json.dumps({1: 2 * newest - 200})
        costs.append(buffers(full, "events_after", **page, counted=newest - 100, seen=seen))

    assert costs[1] <= costs[0] + 10


def test_trimming_touches_as_few_pages_in_a_long_log_as_in_a_short_one(full):
    costs = []
    for rows in (1_000, 30_000):
        full.connection.execute(
            "insert into bullite.bullite_events (queue, kind, jobs, size, at) "
            f"select 2, 'add', '[1]', 2, 1 from generate_series(1, {rows}); "
            "delete from bullite.bullite_counts; "
            "insert into bullite.bullite_counts (queue, nonce, events) "
            "select 2, 0, sum(size) from bullite.bullite_events where queue = 2"
        )
        [[events]] = full.connection.execute("select events from bullite.bullite_counts").fetchall()
        costs.append(buffers(full, "trim_events", queue=2, keep=events - 40, most=500))

    assert costs[1] <= costs[0] + 20


def test_looking_for_queues_to_sweep_does_not_read_their_logs(full):
    assert not [scan for scan in full.scans("queues_to_prune", now=1) if "events" in scan]
