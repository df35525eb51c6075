"""Who changes a scheduler waits for claims that are under way in its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from bullite import Queue
from tests.database.postgres.test_collisions import waiting_for_locks
from tests.support.helpers import until
from tests.support.postgres_database import PostgresDatabase

CLAIM = "select from bullite_queues where id = %s for key share"
"""What every claim takes first, and has until it is committed."""

VERBS: dict[str, Callable[[Queue], Any]] = {
    "upsert": lambda queue: queue.upsert_job_scheduler("s", every="2h"),
    "remove": lambda queue: queue.remove_job_scheduler("s"),
    "pause": lambda queue: queue.pause_job_scheduler("s"),
    "run": lambda queue: queue.run_job_scheduler("s"),
    "add": lambda queue: queue.add("a", repeat={"every": "1h", "key": "s"}),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_scheduler_is_not_changed_while_a_claim_is_under_way(
    location: str, database: PostgresDatabase, verb: str
) -> None:
    async with Queue("work", location) as queue:
        await queue.upsert_job_scheduler("s", every="1h")
        with closing(psycopg.connect(database.location_of_libpq())) as claimer:
            claimer.execute(CLAIM, [queue._pk])
            changing = asyncio.ensure_future(VERBS[verb](queue))
            await until(lambda: waiting_for_locks(database))
            assert not changing.done()
            claimer.rollback()
        await changing
