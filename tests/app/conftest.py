"""Tests of applications: `async def` tests run on a loop of their own, in a store of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bullite import Bullite, Store


@pytest.fixture
def app(location: str) -> Iterator[Bullite]:
    """An application that was not started, in a store that nobody has made yet."""
    store = Store(location)
    yield Bullite(store)
    store.close()
