"""The numbered scripts that bring a store's schema up to date, one after the other."""

from __future__ import annotations

from importlib.resources import files


def scripts(package: str) -> list[str]:
    """The migrations of a store, first to last: the number of one is its place."""
    folder = files(package) / "migrations"
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [script.read_text(encoding="utf-8") for script in found]
