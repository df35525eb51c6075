"""The best settings of each contestant: found once by trials, and stored with the programs.

`python -m bench tune` runs the trials. A run of the comparison then measures with the settings that
they found. If the version of a contestant or its choice of settings has changed since, the run
repeats its trials.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .contest import Trial
from .contestants import About
from .folders import SETTINGS


def known_trials(cell: str, field: Mapping[str, About]) -> dict[str, Trial]:
    """What was found for the lines of a cell, where it still holds."""
    return {
        key: Trial(found["settings"], {}, found["rate"], found["start"], found["overhead"])
        for key, found in _kept().get(cell, {}).items()
        if (about := field.get(_name(key))) is not None and about.version == found["version"]
    }


def keep(cell: str, trials: Mapping[str, Trial], field: Mapping[str, About]) -> None:
    """Keep what was found for some lines of a cell; the others stay as they are."""
    kept = _kept()
    lines = kept.setdefault(cell, {})
    for key, trial in trials.items():
        lines[key] = {
            "version": field[_name(key)].version,
            "settings": dict(trial.settings),
            "rate": float(f"{trial.rate:.4g}"),
            "start": round(trial.start, 3),
            "overhead": round(trial.overhead, 3),
        }
    kept[cell] = dict(sorted(lines.items()))
    SETTINGS.write_text(json.dumps(kept, indent=1) + "\n")


def _name(key: str) -> str:
    """The contestant of a line, which may have something special about it."""
    return key.partition(", ")[0]


def _kept() -> dict[str, dict[str, Any]]:
    if not SETTINGS.exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(SETTINGS.read_text())
    return found
