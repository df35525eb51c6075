"""The numbered scripts that bring a store's schema up to date, in order."""

from __future__ import annotations

import sys
from pathlib import Path


def scripts(package: str) -> list[str]:
    """Return the migrations of a store in order. Migration n is the n-th of them, from 1."""
    return [script.read_text(encoding="utf-8") for script in _files(package)]


def newest(package: str) -> int:
    """Return the version of the schema after the last migration."""
    return len(_files(package))


def _files(package: str) -> list[Path]:
    [folder] = sys.modules[package].__path__
    return sorted(Path(folder, "migrations").glob("*.sql"))
