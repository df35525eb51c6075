"""The measurements of the core, in the order in which they are shown."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence

from . import backlog, beside, presence, throughput
from .figures import Section, table
from .machine import Machine
from .rounds import QUICK, Size, tell

MEASUREMENTS: dict[str, Callable[[Size], Iterator[Section]]] = {
    "process": throughput.process,
    "add": throughput.add,
    "backlog": backlog.backlog,
    "beside": beside.beside,
    "latency": presence.latency,
    "idle": presence.idle,
    "import": presence.imports,
}


def run(names: Sequence[str], *, quick: bool, as_json: bool) -> None:
    """Measure and print. Figures are figures: whatever they are, nothing fails."""
    logging.getLogger("bullite").setLevel(logging.ERROR)  # slow commits are what we measure
    size = QUICK if quick else Size()
    machine = Machine()
    begin = time.monotonic()
    sections = [section for name in names for section in MEASUREMENTS[name](size)]
    facts = machine.facts() | {"seconds": round(time.monotonic() - begin)}
    tell("")
    if as_json:
        print(json.dumps({"machine": facts, "sections": [s.as_json() for s in sections]}))
        return
    print("; ".join(f"{name} {value}" for name, value in facts.items()))
    print(f"\n{table(sections)}")
