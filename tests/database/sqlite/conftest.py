"""These tests are about the files of a SQLite store: their database is the path of one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("db") / "jobs.db"
