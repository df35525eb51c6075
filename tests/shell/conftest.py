"""Tests of jobs that are commands: each on a loop of its own, in a store of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bullite import Queue
from tests.api.conftest import location, pytest_pyfunc_call
from tests.databases import Database

__all__ = ["location", "pytest_pyfunc_call"]


@pytest.fixture
def queue(database: Database, location: str) -> Iterator[Queue]:
    """A queue in a store in which nothing is configured."""
    queue = Queue("default", location)
    yield queue
    queue.store.close()
    if database.exists():
        for table in ("runs", "output", "kept"):  # which the next test is to find empty
            database.write(f"delete from bullite_{table}")
