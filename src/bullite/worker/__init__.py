"""Worker: fetches jobs, runs them, reports back."""

from __future__ import annotations
