"""The programs that drive other queues; each runs in an environment of its own, with its queue."""

from __future__ import annotations
