"""Values and rules about jobs: no threads, no SQL, no input or output."""

from __future__ import annotations
