"""How a job can end, in a word."""

from __future__ import annotations

COMPLETED, ERROR, TIMED_OUT = "completed", "error", "timed-out"
CANCELLED, EXPIRED, STALLED = "cancelled", "expired", "stalled"
