"""How fast the queue is, measured against bare SQLite on the same machine in the same run."""

from __future__ import annotations
