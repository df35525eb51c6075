"""What a run found, as it is kept in JSON and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as kept
from pathlib import Path
from typing import Any

from .contest import Line
from .contestants import About
from .figures import Section


@dataclass
class Results:
    """Grows cell by cell."""

    field: Mapping[str, About]
    missing: dict[str, str] = kept(default_factory=dict)
    """Contestants that take no part at all, and why."""

    cells: dict[str, dict[str, Line]] = kept(default_factory=dict)
    """For each cell its lines, by their keys."""

    cannot: dict[str, list[str]] = kept(default_factory=dict)
    """For each cell those who were asked and have no such thing."""

    left_out: list[str] = kept(default_factory=list)
    """Cells for which there was no time, or which a quick run does without."""

    alone: list[Section] = kept(default_factory=list)
    machine: dict[str, Any] = kept(default_factory=dict)

    def line(self, cell: str, key: str) -> Line | None:
        """What was found; None if it was not measured, or failed."""
        line = self.cells.get(cell, {}).get(key)
        return line if line is not None and line.figures and line.failed is None else None

    def title(self, key: str) -> str:
        """How a line is called: the contestant, its version, and what is special about it."""
        name, comma, label = key.partition(", ")
        return self.field[name].title + comma + label

    def about(self, key: str) -> About:
        return self.field[key.partition(", ")[0]]

    def survives(self, cell: str, key: str) -> bool:
        """Whether what was acknowledged in this line outlives a power cut."""
        about, label = self.about(key), key.partition(", ")[2]
        found = about.cells.get(cell)
        return found.survives.get(label, about.survives) if found else about.survives

    def section(self, title: str) -> Section | None:
        return next((one for one in self.alone if one.title == title), None)

    def as_json(self) -> dict[str, Any]:
        from .targets import verdicts  # targets are read from results

        return {
            "machine": self.machine,
            "contestants": {
                key: {
                    "name": about.name,
                    "version": about.version,
                    "place": about.place,
                    "language": about.language,
                    "requirements": list(about.requirements),
                    "note": about.note,
                    "survives a power cut": about.survives,
                    "why": about.survives_why,
                    "missing": self.missing.get(key),
                }
                for key, about in self.field.items()
            },
            "cells": {
                cell: {
                    "lines": {key: line.as_json() for key, line in lines.items()},
                    "cannot": self.cannot.get(cell, []),
                }
                for cell, lines in self.cells.items()
            },
            "left out": self.left_out,
            "alone": [section.as_json() for section in self.alone],
            "targets": [verdict.as_json() for verdict in verdicts(self)],
        }

    def write(self, file: Path) -> None:
        """In one step, so that a run that is broken off leaves a whole file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        draft.replace(file)
