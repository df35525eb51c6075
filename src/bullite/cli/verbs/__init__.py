"""The verbs of `queuectl`, a file each."""

from __future__ import annotations
