from __future__ import annotations

from tests.crash.conftest import database, start

__all__ = ["database", "start"]
