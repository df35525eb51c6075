"""Processes that share a store are started as in the tests of crashes."""

from __future__ import annotations

from tests.crash.conftest import location

__all__ = ["location"]
