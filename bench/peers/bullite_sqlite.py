"""Ours in a SQLite file, every acknowledged write synced to the disk."""

from __future__ import annotations

from .bullite import Bullite
from .protocol import main

if __name__ == "__main__":
    main(Bullite)
