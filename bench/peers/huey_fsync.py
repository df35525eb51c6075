"""huey on SQLite with every commit synced."""

from __future__ import annotations

from .huey import Huey, run


class Synced(Huey):
    def __init__(self, path: str, options: dict[str, object]) -> None:
        super().__init__(path, {**options, "fsync": True})


if __name__ == "__main__":
    run(Synced)
