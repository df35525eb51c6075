"""What a database has to do, and the two that do it. No rule about jobs."""

from __future__ import annotations
