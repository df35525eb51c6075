"""Tests of jobs that are commands: each on a loop of its own, in a store of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from bullite import Queue
from tests.support.databases import Database


@pytest.fixture
def queue(database: Database, location: str) -> Iterator[Queue]:
    """A queue in a store in which nothing is configured."""
    queue = Queue("default", location)
    yield queue
    queue.store.close()
    if database.exists():
        for table in ("runs", "output", "kept"):  # which the next test is to find empty
            database.write(f"delete from bullite_{table}")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `localhost` with its key, and that of who vouches for it, in one file."""
    made = tmp_path_factory.mktemp("tls") / "all.pem"
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(made))
    authority.cert_pem.write_to_path(str(made), append=True)
    return made
