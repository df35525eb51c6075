"""Jobs are found by their payloads, which say the same of them as they do themselves."""

from __future__ import annotations

import pytest

from bullite import Queue, Store, verify
from tests.support.postgres_database import PostgresDatabase


@pytest.mark.parametrize(
    "damage", ["its_queue = its_queue + 1", "its_name = 'other'", "made_at = made_at - 1"]
)
async def test_a_job_that_is_not_where_it_is_looked_for_is_named(
    database: PostgresDatabase, damage: str
) -> None:
    async with Queue("work", database.location) as queue:
        job = await queue.add("n")
    database.write(f"update bullite_payloads set {damage}")
    store = Store(database.location)
    assert verify(store).problems == (f"job {job.id} is not found by its queue, name and date",)
    store.close()
