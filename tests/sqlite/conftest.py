from __future__ import annotations

from tests.api.conftest import pytest_pyfunc_call
from tests.crash.conftest import database, start

__all__ = ["database", "pytest_pyfunc_call", "start"]
