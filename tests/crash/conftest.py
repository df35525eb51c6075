"""A test of a crash leaves its store as the crash did; what must be right in it, it says itself."""

from __future__ import annotations

import pytest

from tests.support.databases import Database


@pytest.fixture
def location(database: Database) -> str:
    return database.location
