"""Worker: claims jobs, runs them, reports their outcomes."""

from __future__ import annotations
