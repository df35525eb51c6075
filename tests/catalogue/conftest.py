"""The catalogue's tests run like those of the public interface."""

from __future__ import annotations

from tests.api.conftest import location, pytest_pyfunc_call, queue

__all__ = ["location", "pytest_pyfunc_call", "queue"]
