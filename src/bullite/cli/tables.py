"""Tables on a terminal: columns to copy from stay whole, columns to read are cut or wrapped."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

CUT = ("COMMAND", "OPTIONS", "QUEUES", "JOBS")
"""Columns that are cut if there is not enough room."""
WRAPPED = ("MEANING", "REASON", "VALUE")
"""Columns that are wrapped if there is not enough room."""
MIN_WIDTH = 12
"""Minimum width of either."""
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
    """Print rows under headings; if they cannot fit, the terminal wraps the lines."""
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
    """Return the width of each column if all have `room` together."""
    widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    elastic = [index for index, name in enumerate(columns) if name in (*CUT, *WRAPPED)]
    rigid = sum(width for index, width in enumerate(widths) if index not in elastic)
    spare = room - GAP * (len(columns) - 1) - rigid
    # The narrowest first: the room that it does not need is for the others.
    elastic.sort(key=widths.__getitem__)
    for served, index in enumerate(elastic):
        share = spare // (len(elastic) - served)
        widths[index] = min(widths[index], max(MIN_WIDTH, share))
        spare -= widths[index]
    return widths
