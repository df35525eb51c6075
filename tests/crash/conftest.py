from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.processes import Child


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("db") / "jobs.db"


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """Starts processes that do not outlive the test."""
    children: list[Child] = []

    def start(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Child:
        children.append(Child(function, *args, **kwargs))
        return children[-1]

    yield start
    for child in children:
        child.end()
