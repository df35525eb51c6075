"""Tests of the public interface: coroutines run on a loop of their own, on a file of their own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bullite import Queue, Store, verify

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
def path(tmp_path: Path) -> Iterator[Path]:
    """Where a database may be made; whatever a test did to it, its books must be right."""
    path = tmp_path / "jobs.db"
    yield path
    if path.exists():
        with closing(Store(path)) as store:
            assert verify(store).problems == ()


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    """A queue in a database that does not exist yet."""
    queue = Queue("emails", path)
    yield queue
    queue.store.close()
