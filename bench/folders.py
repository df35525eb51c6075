"""Where the benchmark finds and keeps things."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]

CACHE = ROOT / ".bench"
"""What is installed for the benchmark; may be deleted."""

PROGRAMS = ROOT / "bench" / "peers"
BASELINE = ROOT / "bench" / "baseline.json"
SETTINGS = ROOT / "bench" / "settings.json"

PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "docs" / "bench"
