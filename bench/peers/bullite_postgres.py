"""Ours on PostgreSQL, every acknowledged write synced to the server's disk."""

from __future__ import annotations

from .bullite import Bullite
from .protocol import main

if __name__ == "__main__":
    main(Bullite)
