"""Who takes part: what `bench/peers/NAME.toml` says of each, and its program ready to be run."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .environments import KINDS, Environment
from .folders import PROGRAMS

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """What a contestant does in one cell: the settings to try, and lines that are shown beside."""

    candidates: Sequence[Settings]
    also: Mapping[str, Settings] = field(default_factory=dict)
    """More lines of the same contestant, by what they are called."""

    survives: Mapping[str, bool] = field(default_factory=dict)
    """Of these lines, which differ from their contestant in what a power cut does."""


@dataclass(frozen=True)
class About:
    """What there is to know of a contestant."""

    key: str
    name: str
    language: str
    place: str
    note: str
    survives: bool
    survives_why: str
    cells: Mapping[str, Cell]
    requirements: Sequence[str] = ()

    @classmethod
    def read(cls, file: Path) -> About:
        found = tomllib.loads(file.read_text())
        cells = {
            name: Cell(
                cell.get("candidates") or [{}],
                {line["label"]: line["settings"] for line in cell.get("also", ())},
                {
                    line["label"]: line["survives"]
                    for line in cell.get("also", ())
                    if "survives" in line
                },
            )
            for name, cell in found["cells"].items()
        }
        known = {name: found[name] for name in ("name", "language", "place", "note", "survives")}
        return cls(
            key=file.stem,
            survives_why=found.get("survives_why", ""),
            requirements=tuple(found.get("requirements", ())),
            cells=cells,
            **known,
        )

    @property
    def version(self) -> str:
        """That of the first requirement: `name==1.2`, `name[extra]==1.2` or `@scope/name@1.2`."""
        if not self.requirements:
            return ""
        return self.requirements[0].replace("==", "@").rpartition("@")[2]

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}".strip()

    @property
    def is_ours(self) -> bool:
        """Ours or a limit: not one of the peers."""
        return self.language == "ours"

    def environment(self) -> Environment:
        return KINDS[self.language](self.key)


@dataclass(frozen=True)
class Entry:
    """One line of a cell: a contestant, with the settings it may use there."""

    about: About
    cell: str
    candidates: Sequence[Settings]
    label: str = ""

    @property
    def key(self) -> str:
        return f"{self.about.key}, {self.label}" if self.label else self.about.key


def everybody() -> dict[str, About]:
    """All contestants: ours, the limits, then the others, in the order of their names."""
    found = [About.read(file) for file in sorted(PROGRAMS.glob("*.toml"))]
    found.sort(key=lambda about: (not about.is_ours, about.key.startswith("bare"), about.key))
    return {about.key: about for about in found}


def entries(about: About, cell: str) -> list[Entry]:
    """The lines of a contestant in a cell; none, if it cannot do it."""
    found = about.cells.get(cell)
    if found is None:
        return []
    first = Entry(about, cell, found.candidates)
    return [first, *(Entry(about, cell, [one], label) for label, one in found.also.items())]
