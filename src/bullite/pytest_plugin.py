"""Fixtures for tests of jobs; imports nothing before one of them is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .client.queue.queue import Queue
    from .testing import Playground, VirtualClock


_PLAYGROUND: pytest.StashKey[Playground] = pytest.StashKey()


@pytest.fixture
def bullite(request: pytest.FixtureRequest) -> Iterator[Playground]:
    """A database of the test's own, with virtual time, whose jobs run when the test says so."""
    from .testing import Playground

    playground = request.node.stash[_PLAYGROUND] = Playground()
    yield playground
    playground.let_go()


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """After a test that passed: it fails if it was about a crash that never came."""
    playground = item.stash.get(_PLAYGROUND, None)
    if playground is not None:
        playground.assert_killed()


@pytest.fixture
def bullite_clock(bullite: Playground) -> VirtualClock:
    """The clock of `bullite`."""
    return bullite.clock


@pytest.fixture
def bullite_queue(bullite: Playground) -> Queue:
    """A queue called "test" in `bullite`."""
    return bullite.queue("test")
