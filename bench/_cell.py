"""One measurement in a process of its own, on whatever `bullite` the path leads to.

`python -m bench._cell NAME JOBS` prints jobs a second.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from .throughput import add_ours, add_ours_in_bulk, process_ours

CELLS: dict[str, Callable[[int], float]] = {
    "process, concurrency 100": lambda jobs: process_ours(jobs, 100),
    "process, concurrency 10": lambda jobs: process_ours(jobs // 2, 10),
    "process, concurrency 1": lambda jobs: process_ours(jobs // 10, 1),
    "process, 8 threads": lambda jobs: process_ours(jobs // 2, 8, in_threads=True),
    "add_bulk(1000)": lambda jobs: add_ours_in_bulk(jobs),
    "add, 50 callers": lambda jobs: add_ours(jobs // 2, 50),
    "add, one by one": lambda jobs: add_ours(jobs // 20, 1),
}

if __name__ == "__main__":
    logging.getLogger("bullite").setLevel(logging.ERROR)
    print(1 / CELLS[sys.argv[1]](int(sys.argv[2])))
