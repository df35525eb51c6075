"""Queue: one class, in several files."""

from __future__ import annotations
