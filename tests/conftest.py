"""Fixtures for every test; the store fixture runs a test on every database there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.harness import DATABASES, Store, open_store

settings.register_profile(
    "usual",
    max_examples=250,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
)
settings.register_profile(
    "long", parent=settings.get_profile("usual"), max_examples=3_000, derandomize=False
)
settings.load_profile("usual")


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store. Whatever a test did to it, its books must be right at the end."""
    with open_store(request.param, tmp_path) as store:
        yield store
        assert store.problems() == []
