"""What a run found, as text: an overview, the targets, every cell, and what is behind the names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from .cells import KINDS, Kind
from .contest import Line, ratios
from .contestants import About
from .figures import aligned, number, table
from .results import Results
from .targets import POSTGRES, SQLITE, verdicts

OVERVIEW = {
    "process": "process/s",
    "process_1": "process/s, c. 1",
    "add": "add/s",
    "add_bulk": "add_bulk/s",
    "latency": "latency p50 ms",
}

LONGEST_REASON = 90


def report(results: Results) -> str:
    """All of it."""
    parts = ["; ".join(f"{name} {value}" for name, value in results.machine.items())]
    parts += [_overview(results), _targets(results)]
    parts += [block for cell in results.cells for block in _cell(results, cell)]
    if results.alone:
        parts.append(table(results.alone))
    if results.left_out:
        parts.append(f"left out of this run: {', '.join(results.left_out)}")
    parts.append("\n".join(_notes(results)))
    return "\n\n".join(part for part in parts if part)


def _overview(results: Results) -> str:
    """One line for each contestant, the best of the first column on top."""
    cells = [cell for cell in OVERVIEW if cell in results.cells]
    if not cells:
        return ""
    header = ("all contestants", *(OVERVIEW[cell] for cell in cells), "survives a power cut")
    rows = [
        (about.title, *(_short(results, cell, about) for cell in cells), _yes(about.survives))
        for about in _in_order(results, cells[0])
    ]
    return aligned([header, *rows])


def _in_order(results: Results, cell: str) -> list[About]:
    kind = KINDS[cell]

    def place(about: About) -> float:
        line = results.line(cell, about.key)
        value = median(line.column(kind.first)) if line else 0.0
        return value if kind.is_time else -value

    return sorted(results.field.values(), key=place)


def _short(results: Results, cell: str, about: About) -> str:
    if about.key in results.missing:
        return "not installed"
    found = results.cells[cell].get(about.key)
    if found is None:
        return "" if about.is_ours or cell in about.cells else "cannot"
    if found.failed is not None or not found.figures:
        return "failed"
    return number(median(found.column(KINDS[cell].first)))


def _targets(results: Results) -> str:
    rows = [verdict.as_cells() for verdict in verdicts(results)]
    return aligned([("targets, as ratios", "found (min-max)", "target", ""), *rows])


def _cell(results: Results, cell: str) -> Iterator[str]:
    """A block for each figure of a cell: everybody, and how we compare in the same rounds."""
    kind = KINDS[cell]
    for figure in kind.shown:
        title = f"{kind.title}, {figure}" if len(kind.shown) > 1 else kind.title
        rows = [
            (title, "with", f"{kind.unit} (min-max)", "SQLite to it", "PostgreSQL to it", ""),
            *_rows(results, cell, kind, figure),
        ]
        yield aligned(rows)


def _rows(results: Results, cell: str, kind: Kind, figure: str) -> Iterator[tuple[str, ...]]:
    lines = results.cells[cell]
    good = [key for key in lines if results.line(cell, key)]
    good.sort(key=lambda key: median(lines[key].column(figure)), reverse=not kind.is_time)
    for key in good:
        line = lines[key]
        values = line.column(figure)
        yield (
            results.title(key),
            _with(line),
            _spread(values),
            *(_ratio(results, cell, ours, key, figure) for ours in (SQLITE, POSTGRES)),
            "" if results.survives(cell, key) else "may lose",
        )
    for key, line in lines.items():
        if line.failed is not None:
            yield (f"{results.title(key)}: {line.failed[:LONGEST_REASON]}", "", "", "", "", "")
    for key in results.cannot.get(cell, ()):
        if results.about(key).is_ours:
            continue
        yield (results.title(key), "", "cannot", "", "", "")
    for key, reason in results.missing.items():
        yield (f"{results.title(key)}: {reason[:LONGEST_REASON]}", "", "", "", "", "")


def _ratio(results: Results, cell: str, ours: str, key: str, figure: str) -> str:
    one, other = results.line(cell, ours), results.line(cell, key)
    if one is None or other is None or ours == key:
        return ""
    return _spread(ratios(one.column(figure), other.column(figure)))


def _with(line: Line) -> str:
    """The settings that were best, as words."""
    hidden = ("watch_the_gate",)
    return ", ".join(
        f"{name} {_word(value)}" for name, value in line.settings.items() if name not in hidden
    )


def _word(value: object) -> str:
    return (
        {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    middle = number(median(values))
    return f"{middle} ({number(min(values))}-{number(max(values))})" if len(values) > 1 else middle


def _notes(results: Results) -> Iterator[str]:
    for key, about in results.field.items():
        if key in results.missing:
            yield f"{about.title}: takes no part, {results.missing[key]}"
            continue
        keeps = (
            "survives a power cut" if about.survives else "a power cut may lose acknowledged jobs"
        )
        yield f"{about.title} ({about.place}): {about.note}; {keeps}: {about.survives_why}"
