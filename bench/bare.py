"""The limit we compare with: plain sqlite3 doing the writes that any queue in SQLite must do.

What is in: one job row and one payload row per job, an index for the waiting and one for the
finished, a token that is compared, the same codec (encoding is inside the timing of adding, as it
is for us), the same sync at each commit, the same page cache.

What is out: everything that makes a queue of it. No threads, no event loop, no handlers, no events,
counts, leases, options, ids of other processes. Payloads are read but not decoded: our handlers do
not look at theirs either, and we decode only what is looked at.
"""

from __future__ import annotations

import functools
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from .workload import JOB_NAME

BATCH = 100
"""Jobs per transaction."""

QUEUE = 1

_SETTINGS = (
    "pragma journal_mode = wal",
    "pragma synchronous = full",
    "pragma wal_autocheckpoint = 1000",
    "pragma secure_delete = off",
    "pragma cache_size = -16000",
    "pragma temp_store = memory",
)

_SCHEMA = """
create table jobs (
    id integer primary key,
    queue integer not null,
    name text not null,
    state text not null,
    priority integer not null,
    attempts integer not null,
    attempts_made integer not null default 0,
    token integer,
    created_at integer not null,
    processed_at integer,
    finished_at integer
) strict;
create table payloads (job integer primary key, data text not null) strict;
create index jobs_waiting on jobs (queue, priority, id) where state = 'waiting';
create index jobs_finished on jobs (queue, finished_at) where state = 'completed';
"""

# What all rows of a batch share is bound once: ?1 is the queue, ?2 the time.
_JOB_COLUMNS = "insert into jobs (queue, created_at, state, id, name, priority, attempts) values "
_JOB_ROW = "(?1, ?2, 'waiting', ?, ?, ?, ?)"
_PAYLOAD_COLUMNS = "insert into payloads (job, data) values "
_PAYLOAD_ROW = "(?, ?)"

_FINISH = """
update jobs set state = 'completed', finished_at = ?, attempts_made = attempts_made + 1
from json_each(?) as held where jobs.id = held.value and state = 'active' and token = ?
"""
_NEXT = f"""
select id, name, priority, attempts, attempts_made, created_at, data
from jobs join payloads on job = id
where queue = {QUEUE} and state = 'waiting' order by priority, id limit {BATCH}
"""
_TAKE = """
update jobs set state = 'active', token = ?, processed_at = ?
from json_each(?) as held where jobs.id = held.value and state = 'waiting'
"""

_COUNT = """
select count(*) filter (where state = 'waiting'),
       count(*) filter (where state = 'completed' and attempts_made = 1)
from jobs join payloads on job = id
"""

_encode = msgspec.json.Encoder().encode


class Bare:
    """One file, one connection, one loop."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        for setting in _SETTINGS:
            self._db.execute(setting).fetchall()
        self._last: int | None = None

    def install(self) -> None:
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    def add(self, payloads: Sequence[Any], batch: int = BATCH) -> None:
        """Add jobs, `batch` of them per transaction."""
        execute = self._db.execute
        if self._last is None:
            self._last = execute("select coalesce(max(id), 0) from jobs").fetchone()[0]
        insert_jobs, insert_payloads = _inserts(batch)
        for start in range(0, len(payloads), batch):
            piece = payloads[start : start + batch]
            if len(piece) < batch:
                insert_jobs, insert_payloads = _inserts(len(piece))
            jobs: list[Any] = [QUEUE, _now()]
            data: list[Any] = []
            for number, payload in enumerate(piece, self._last + 1):
                jobs += (number, JOB_NAME, 0, 1)
                data += (number, _encode(payload).decode())
            execute("begin immediate")
            execute(insert_jobs, jobs)
            execute(insert_payloads, data)
            execute("commit")
            self._last += len(piece)

    def count(self) -> dict[str, int | None]:
        waiting, finished = self._db.execute(_COUNT).fetchone()
        return {"waiting": waiting, "finished": finished}

    def process(self) -> int:
        """Take and finish every job; how many there were.

        A transaction finishes one batch and takes the next, as a queue under load does.
        """
        execute = self._db.execute
        processed = token = 0
        held = "[]"
        while True:
            execute("begin immediate")
            now = _now()
            if token:
                execute(_FINISH, (now, held, token))
            rows = execute(_NEXT).fetchall()
            if rows:
                token += 1
                held = _encode([row[0] for row in rows]).decode()
                execute(_TAKE, (token, now, held))
            execute("commit")
            if not rows:
                return processed
            processed += len(rows)


@functools.cache
def _inserts(rows: int) -> tuple[str, str]:
    """Statements for so many jobs and their payloads."""
    return (
        _JOB_COLUMNS + ", ".join([_JOB_ROW] * rows),
        _PAYLOAD_COLUMNS + ", ".join([_PAYLOAD_ROW] * rows),
    )


def _now() -> int:
    return time.time_ns() // 1_000_000
