"""Charts of a run as SVG, written by hand: horizontal bars, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median

from .cells import KINDS
from .figures import number
from .results import Results

GROUPS: dict[str, tuple[str, Sequence[str]]] = {
    "process": ("Processing no-op jobs", ("process", "process_1", "process_10", "process_1000")),
    "add": ("Adding jobs", ("add", "add_50", "add_bulk")),
    "latency": ("Waiting for a start", ("latency", "latency_loaded", "delayed")),
    "processes": ("Several processes", ("processes_2", "processes_4")),
    "threads": ("Sync handlers", ("threads", "threads_cpu")),
    "payloads": ("Payloads and retries", ("payload_1k", "payload_10k", "payload_100k", "retries")),
}

WIDTH, LABELS, BARS = 760, 250, 400
ROW, GAP = 20, 14

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.part { font-weight: 600 }
.value, .small { fill: #59636e }
.small { font-size: 11px }
.ours { fill: #1a7f5a } .limit { fill: #b8bec5 } .other { fill: #6e8fc7 }
.spread { stroke: #1f2328; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.value, .small { fill: #9198a1 }
.ours { fill: #3fb68b } .limit { fill: #545d68 } .other { fill: #5b7fbd }
.spread { stroke: #e6edf3 }
}
"""


@dataclass(frozen=True)
class Bar:
    """One contestant in one cell."""

    label: str
    values: Sequence[float]
    kind: str
    """`ours`, `limit` or `other`."""


def write_charts(results: Results, folder: Path) -> list[Path]:
    """One file for each group that has figures."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (title, cells) in GROUPS.items():
        parts = [(cell, _bars(results, cell)) for cell in cells if cell in results.cells]
        if any(bars for _, bars in parts):
            file = folder / f"{name}.svg"
            file.write_text(_chart(title, parts))
            written.append(file)
    return written


def _bars(results: Results, cell: str) -> list[Bar]:
    kind = KINDS[cell]
    bars = []
    for key in results.cells[cell]:
        if line := results.line(cell, key):
            about = results.about(key)
            ours = "ours" if about.key.startswith("bullite") else "limit"
            style = ours if about.is_ours else "other"
            bars.append(Bar(results.title(key), line.column(kind.first), style))
    return sorted(bars, key=lambda bar: median(bar.values), reverse=not kind.is_time)


def _chart(title: str, parts: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    body = list(_body(title, parts))
    height = 34 + sum(ROW * (1 + len(bars)) + GAP for _, bars in parts) + 14
    label = escape(title, quote=True)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-label="{label}">',
            f"<style>{STYLE}</style>",
            *body,
            "</svg>\n",
        )
    )


def _body(title: str, parts: Sequence[tuple[str, Sequence[Bar]]]) -> Iterator[str]:
    yield f'<text class="title" x="8" y="20">{escape(title)}</text>'
    hint = "medians; the line is the range of the rounds; grey: the limit, a bare loop"
    yield f'<text class="small" x="{WIDTH - 8}" y="20" text-anchor="end">{hint}</text>'
    top = 34
    for cell, bars in parts:
        kind = KINDS[cell]
        better = "less is better" if kind.is_time else "more is better"
        unit = f"{kind.unit}, p50" if kind.is_time else kind.unit
        yield (
            f'<text class="part" x="8" y="{top + 14}">{escape(kind.title)}'
            f' <tspan class="small">({unit}; {better})</tspan></text>'
        )
        top += ROW
        longest = max((max(bar.values) for bar in bars), default=1.0)
        for bar in bars:
            yield from _bar(bar, top, longest)
            top += ROW
        top += GAP


def _bar(bar: Bar, top: int, longest: float) -> Iterator[str]:
    scale = BARS / longest
    middle = median(bar.values)
    low, high = (LABELS + value * scale for value in (min(bar.values), max(bar.values)))
    center = top + ROW / 2
    yield (
        f'<text x="{LABELS - 8}" y="{center + 4:g}" text-anchor="end">{escape(bar.label)}</text>'
    )
    yield (
        f'<rect class="{bar.kind}" x="{LABELS}" y="{top + 3}" height="{ROW - 6}" '
        f'width="{max(1.0, middle * scale):.1f}" rx="2"/>'
    )
    yield f'<path class="spread" d="M{low:.1f} {center:g}H{high:.1f}"/>'
    text = max(high, LABELS + middle * scale) + 6
    yield f'<text class="value" x="{text:.1f}" y="{center + 4:g}">{number(middle)}</text>'
