"""What is measured of us alone, in the order in which it is shown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from .backlog import backlog
from .beside import beside
from .figures import Section
from .presence import files, idle, imports
from .rounds import Size

ALONE: dict[str, Callable[[Size, float], Iterator[Section]]] = {
    "idle": idle,
    "import": imports,
    "files": files,
    "beside": beside,
    "backlog": backlog,
}


def measure_alone(name: str, size: Size, ends: float) -> list[Section]:
    """The sections of one of these; it should be over at `ends`."""
    logging.getLogger("bullite").setLevel(logging.ERROR)  # slow commits are what we measure
    return list(ALONE[name](size, ends))
