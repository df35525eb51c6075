"""Which of BullMQ's catalogued behaviours are tested here, and which are done otherwise.

The catalogue lists, line by line, what BullMQ's own suite checks. A line is accounted for by a test
whose name carries its id, `test_W_017_…`, or by an entry in the area's `.toml` file that says why
there is none.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "bullmq-compatibility.md"

_TEST = re.compile(r"def test_([A-Z])_(\d{3})_(\w+)")
STATUSES = ("tested", "different", "not applicable", "later")


INTRODUCTION = """\
# BullMQ's behaviours, line by line

What BullMQ's own suite checks, as a catalogue of lines with an id, and where each is tested here
(`tests/bullmq/`) or why it is not. Made by `python -m tests.bullmq`, which also prints the
counts; a test compares this page with what the command would write.

*different*: done otherwise on purpose. *not applicable*: a matter of Redis or TypeScript. *later*:
belongs to schedules, flows, limits, cancellation or metrics, which are yet to come.

"""


class Area(NamedTuple):
    """Lines about one subject."""

    title: str
    numbers: str
    """Those that are known, as ranges."""


AREAS = {
    "W": Area(
        "Workers",
        "1-2 4-7 9-12 14-17 19-22 24-27 29-32 34-37 39-42 44-47 49-52 54-57 59-62 64-67 69-72 "
        "74-77 79-82 84-87 89-92 94-97 99-101",
    ),
    "J": Area(
        "Jobs",
        "1-2 4-7 9-12 14-17 19-22 24-27 29-32 34-37 39-42 44-47 49-52 54-57 59",
    ),
    "G": Area("Getters", "1-2 4-7 9-12 14-17 19-22"),
    "C": Area("Cleaning", "1-2 4-7 9-12 14-17"),
    "Q": Area("Queues", "1-2 4-7 9-12 14-17"),
    "L": Area("Locks", "1-2 4-7"),
    "E": Area("Events", "1-2 4-7 9-12 14"),
    "T": Area("Stalled jobs", "1-2 4-7 9-10"),
    "P": Area("Pausing", "1-2 4-7 9-11"),
    "Y": Area("Delayed jobs", "1-2 4-7 9"),
    "N": Area("Global concurrency", "1-2 4-7"),
    "R": Area("Rate limits", "1-2 4-7 9-12 14-17 19-22"),
    "O": Area("Obliterating", "1-2"),
    "F": Area(
        "Flows",
        "1-2 4-7 9-12 14-17 19-22 24-27 29-32 34-37 39-42 44-47 49-52 54-57",
    ),
    "S": Area(
        "Job schedulers",
        "1-2 4-7 9-12 14-17 19-22 24-27 29-32 34-37 39-42 44-47 49-52 54-55",
    ),
    "B": Area("Adding in bulk", "1-2 4"),
    "D": Area("Deduplication", "1-2 4-7 9-12 14-17 19-22 24-25"),
}


class Line(NamedTuple):
    """One behaviour, and what is said about it here."""

    id: str
    words: str
    status: str
    shown: str
    """The tests, or the reason why there is none."""


def known_ids(area: str) -> list[str]:
    return [f"{area}-{number:03}" for number in _numbers(AREAS[area].numbers)]


def _numbers(ranges: str) -> Iterator[int]:
    for part in ranges.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def lines(area: str) -> list[Line]:
    """Everything said about the lines of an area; one that is said nothing about is missing."""
    said = {**_untested(area), **_tested(area)}
    return [said[id] for id in sorted(said)]


def _tested(area: str) -> dict[str, Line]:
    found: dict[str, list[str]] = {}
    words: dict[str, str] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for letter, number, name in _TEST.findall(path.read_text()):
            if letter == area:
                id = f"{letter}-{number}"
                words.setdefault(id, name.replace("_", " "))
                place = f"`{path.name}`"
                if place not in found.setdefault(id, []):
                    found[id].append(place)
    return {id: Line(id, words[id], "tested", ", ".join(found[id])) for id in found}


def _untested(area: str) -> dict[str, Line]:
    path = HERE / f"{area.lower()}.toml"
    entries = tomllib.loads(path.read_text()) if path.exists() else {}
    return {
        id: Line(id, entry["words"], entry["status"], entry["reason"])
        for id, entry in entries.items()
    }


def unaccounted() -> list[str]:
    """What is wrong: lines said nothing about, said twice, or unknown."""
    problems = []
    for area in AREAS:
        known, tested, untested = known_ids(area), _tested(area), _untested(area)
        problems += [f"{id} is not accounted for" for id in known if id not in tested | untested]
        problems += [f"{id} is tested and yet explained away" for id in tested if id in untested]
        problems += [f"{id} is not a known line" for id in tested | untested if id not in known]
        problems += [
            f"{id} has the unknown status {line.status!r}"
            for id, line in untested.items()
            if line.status not in STATUSES[1:]
        ]
    return problems


def counts() -> list[tuple[str, str, dict[str, int]]]:
    table = []
    for area, (title, _) in AREAS.items():
        statuses = [line.status for line in lines(area)]
        table.append((area, title, {status: statuses.count(status) for status in STATUSES}))
    return table


def page() -> str:
    """The documentation page."""
    out = [
        *INTRODUCTION.splitlines(),
        "| area | " + " | ".join(STATUSES) + " |",
        "|---|" + "---|" * len(STATUSES),
    ]
    for area, title, numbers in counts():
        cells = " | ".join(str(numbers[status]) for status in STATUSES)
        out.append(f"| {area} {title} | {cells} |")
    for area, (title, _) in AREAS.items():
        out += ["", f"## {area}. {title}", "", "| id | behaviour | status | shown by, or why |"]
        out.append("|---|---|---|---|")
        for line in lines(area):
            out.append(f"| {line.id} | {line.words} | {line.status} | {line.shown} |")
    return "\n".join(out) + "\n"
