"""The statements of this database, by name."""

from __future__ import annotations

from pathlib import Path

from ..statements import load

FOLDED, SETTLED = ("folded", "folded, settled"), ("settled", "folded, settled")
"""The flags of those whose rows come folded, and of those that read what must be on the disk."""

STATEMENTS = load(Path(__file__).with_name("statements.sql").read_text(encoding="utf-8"))
