"""These tests are about the files of a SQLite store: their database is the path of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.conftest import pytest_pyfunc_call
from tests.crash.conftest import start

__all__ = ["pytest_pyfunc_call", "start"]


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("db") / "jobs.db"
