"""Coroutines run as they do in the tests of the interface."""

from __future__ import annotations

from tests.api.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
