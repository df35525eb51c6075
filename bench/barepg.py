"""The limit we compare with on PostgreSQL: plain psycopg doing the writes that any queue must do.

It is `bare` in another database: the same tables and indexes, the same token that is compared, the
same codec inside the timing of adding, a hundred jobs a transaction, every commit synced. And it is
psycopg as an expert would use it. A batch is one prepared statement, its parameters binary arrays:
one round trip finishes a batch, takes the next and commits. The plans are made once; without that
(and with a join instead of `any(array(...))`) the same loop is two or three times slower. Pipelines
of several statements, COPY and JSON parameters were tried and are not faster.

It is one loop on one connection: several at once would share their syncs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg

from .bare import BATCH, QUEUE
from .workload import JOB_NAME

_SETTINGS = "set plan_cache_mode = force_generic_plan; set jit = off"

_SCHEMA = """
create table jobs (
    id bigint primary key,
    queue integer not null,
    name text not null,
    state text not null,
    priority integer not null,
    attempts integer not null,
    attempts_made integer not null default 0,
    token bigint,
    created_at bigint not null,
    processed_at bigint,
    finished_at bigint
);
create table payloads (job bigint primary key, data text not null);
create index jobs_waiting on jobs (queue, priority, id) where state = 'waiting';
create index jobs_finished on jobs (queue, finished_at) where state = 'completed';
"""

_ADD = f"""
with added as (
    insert into jobs (id, queue, name, state, priority, attempts, created_at)
    select id, {QUEUE}, name, 'waiting', priority, attempts, %(now)b
    from unnest(%(ids)b::bigint[], %(names)b::text[], %(priorities)b::integer[],
                %(attempts)b::integer[]) as job (id, name, priority, attempts)
)
insert into payloads (job, data) select * from unnest(%(ids)b::bigint[], %(data)b::text[])
"""

_FINISH_AND_TAKE = f"""
with finished as (
    update jobs set state = 'completed', finished_at = %(now)b, attempts_made = attempts_made + 1
    where id = any(%(held)b::bigint[]) and state = 'active' and token = %(token)b
), next as materialized (
    select id from jobs where queue = {QUEUE} and state = 'waiting'
    order by priority, id limit {BATCH} for update skip locked
), taken as (
    update jobs set state = 'active', token = %(token)b + 1, processed_at = %(now)b
    where id = any(array(select id from next)) and state = 'waiting'
    returning id, name, priority, attempts, attempts_made, created_at
)
select taken.*, data from taken join payloads on job = taken.id order by taken.priority, taken.id
"""

_COUNT = """
select count(*) filter (where state = 'waiting'),
       count(*) filter (where state = 'completed' and attempts_made = 1)
from jobs join payloads on job = id
"""

_encode = msgspec.json.Encoder().encode


class BarePostgres:
    """One database, one connection, one loop."""

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)
        self._db.execute(_SETTINGS)
        self._last: int | None = None

    def install(self) -> None:
        self._db.execute(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    def add(self, payloads: Sequence[Any], batch: int = BATCH) -> None:
        """Add jobs, `batch` of them per transaction."""
        cursor = self._db.cursor()
        if self._last is None:
            [(last,)] = cursor.execute("select coalesce(max(id), 0) from jobs").fetchall()
            self._last = int(last)
        for start in range(0, len(payloads), batch):
            data = [_encode(payload).decode() for payload in payloads[start : start + batch]]
            count = len(data)
            parameters = {
                "now": _now(),
                "ids": list(range(self._last + 1, self._last + count + 1)),
                "names": [JOB_NAME] * count,
                "priorities": [0] * count,
                "attempts": [1] * count,
                "data": data,
            }
            cursor.execute(_ADD, parameters, prepare=True)
            self._last += count

    def count(self) -> dict[str, int | None]:
        [(waiting, finished)] = self._db.execute(_COUNT).fetchall()
        return {"waiting": waiting, "finished": finished}

    def process(self) -> int:
        """Take and finish every job; how many there were.

        A transaction finishes one batch and takes the next, as a queue under load does.
        """
        cursor = self._db.cursor(binary=True)
        processed, token, held = 0, 0, list[int]()
        while True:
            parameters = {"now": _now(), "held": held, "token": token}
            rows = cursor.execute(_FINISH_AND_TAKE, parameters, prepare=True).fetchall()
            if not rows:
                return processed
            processed += len(rows)
            token += 1
            held = [row[0] for row in rows]


def _now() -> int:
    return time.time_ns() // 1_000_000
