from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.crash.processes import Child
from tests.databases import Database


@pytest.fixture
def location(database: Database) -> str:
    return database.location


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
