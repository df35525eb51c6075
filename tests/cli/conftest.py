"""Tests of the program: `async def` tests run on a loop of their own, in a store of their own."""

from __future__ import annotations

from tests.api.conftest import location, pytest_pyfunc_call, queue

__all__ = ["location", "pytest_pyfunc_call", "queue"]
