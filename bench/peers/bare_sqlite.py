"""The limit in SQLite: `bench.bare`, synced at every commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..bare import Bare
from .limit import Limit
from .protocol import main_sync


def limit(place: str, options: dict[str, Any]) -> Limit:
    return Limit(Bare(Path(place)), options)


if __name__ == "__main__":
    main_sync(limit)
