"""The numbered scripts that bring a store's schema up to date, one after the other."""

from __future__ import annotations

import sys
from pathlib import Path


def scripts(package: str) -> list[str]:
    """The migrations of a store, first to last: the number of one is its place."""
    return [script.read_text(encoding="utf-8") for script in _files(package)]


def newest(package: str) -> int:
    """The number of the schema that they lead to."""
    return len(_files(package))


def _files(package: str) -> list[Path]:
    [folder] = sys.modules[package].__path__
    return sorted(Path(folder, "migrations").glob("*.sql"))
