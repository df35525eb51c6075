"""pytest fixtures for tests of jobs; modules are imported when a fixture is first used."""

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
    """A playground: a database for one test, with virtual time, whose jobs run on demand."""
    from .testing import Playground

    playground = request.node.stash[_PLAYGROUND] = Playground()
    yield playground
    playground.release()


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a test that passed if its `kill_at` has killed no process."""
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
