"""Tests of the public interface: coroutines run on a loop of their own, in a store of their own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from bullite import Queue
from tests.databases import Database

LIMIT = 30.0
"""Seconds after which a test that waits for something is told that it will not come."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is an `async def` on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(asyncio.wait_for(test, LIMIT))
    return True


@pytest.fixture
def location(database: Database) -> Iterator[str]:
    """Where a store may be made; whatever a test did to it, its books must be right."""
    yield database.location
    if database.exists():
        assert database.problems() == []


@pytest.fixture
def queue(location: str) -> Iterator[Queue]:
    """A queue in a store that nobody has made yet."""
    queue = Queue("emails", location)
    yield queue
    queue.store.close()
