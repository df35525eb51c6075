"""What a mutant is: one edit of the source, and the tests that must notice it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SQL, PG = "database/sqlite/statements.sql", "database/postgres/statements.sql"


class Mutant(NamedTuple):
    why: str
    """What the source no longer makes sure of."""
    file: str
    old: str
    new: str
    tests: Sequence[str]
    """At least one of them must fail; those without a folder are in tests/operations."""
