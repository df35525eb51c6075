"""Ours in a SQLite file whose commits are not synced, as those of the peers on Redis are not."""

from __future__ import annotations

from typing import Any

from .bullite import Bullite
from .protocol import main


def relaxed(place: str, options: dict[str, Any]) -> Bullite:
    return Bullite(f"sqlite:///{place}?durability=relaxed", options)


if __name__ == "__main__":
    main(relaxed)
