"""A playground for each test; `async def` tests run on a loop of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bullite import verify
from bullite.testing import Playground


@pytest.fixture
def play() -> Iterator[Playground]:
    """Whatever a test did to it, its books must be right at the end."""
    with Playground() as play:
        yield play
        assert verify(play.store).problems == ()
