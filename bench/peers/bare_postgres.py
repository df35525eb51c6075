"""The limit on PostgreSQL: `bench.barepg`, synced at every commit."""

from __future__ import annotations

from typing import Any

from ..barepg import BarePostgres
from .limit import Limit
from .protocol import main_sync


def limit(place: str, options: dict[str, Any]) -> Limit:
    return Limit(BarePostgres(place), options)


if __name__ == "__main__":
    main_sync(limit)
