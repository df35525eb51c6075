"""Tables on a terminal: what is for copying stays whole, what is only for reading gives way."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

CUT = ("COMMAND", "OPTIONS", "QUEUES", "JOBS")
"""Columns that are cut where there is no room."""
WRAPPED = ("MEANING", "REASON", "VALUE")
"""Columns that go on in the next line there."""
NARROWEST = 12
"""Characters that are left of either."""
GAP = 2
"""Blanks between columns."""

_STYLES = {
    "completed": "green",
    "processing": "cyan",
    "active": "cyan",
    "dead": "red",
    "failed": "yellow",
    "cancelled": "magenta",
    "expired": "magenta",
    "pending": "",
    "paused": "yellow",
    "lost": "red",
}


def draw(columns: Sequence[str], rows: Sequence[Sequence[str]], in_colour: bool) -> None:
    """Rows under headings; if they cannot fit, the terminal breaks the lines, and no column."""
    console = Console(no_color=not in_colour, highlight=False, emoji=False)
    widths = widths_of(columns, rows, console.width)
    console.width = max(console.width, sum(widths) + GAP * len(widths))
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        if column in WRAPPED:
            table.add_column(column, width=width, overflow="fold")
        else:
            table.add_column(column, width=width, overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*[Text(cell, style=_STYLES.get(cell, "")) for cell in row])
    console.print(table)


def widths_of(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide each column is where there is so much room for all."""
    widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    elastic = [place for place, name in enumerate(columns) if name in (*CUT, *WRAPPED)]
    rigid = sum(width for place, width in enumerate(widths) if place not in elastic)
    spare = room - GAP * (len(columns) - 1) - rigid
    # Those that need least first: what they leave is for the others.
    elastic.sort(key=widths.__getitem__)
    for served, place in enumerate(elastic):
        share = spare // (len(elastic) - served)
        widths[place] = min(widths[place], max(NARROWEST, share))
        spare -= widths[place]
    return widths
