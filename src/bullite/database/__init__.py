"""The driver interface and its two implementations. It holds no rule about jobs."""

from __future__ import annotations
