"""The statements of this database, by name."""

from __future__ import annotations

from pathlib import Path

from ..statements import load

JSON_ROWS = ("json_rows", "json_rows, durable_read")
"""Flags of statements whose rows come as one JSON array."""
DURABLE_READ = ("durable_read", "json_rows, durable_read")
"""Flags of statements whose rows are returned only when they are on the disk."""

STATEMENTS = load(Path(__file__).with_name("statements.sql").read_text(encoding="utf-8"))
