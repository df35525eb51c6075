"""Jobs that are commands: run, listened to, and ended with everything they started."""

from __future__ import annotations
