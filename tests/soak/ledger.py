"""A record of what every process did, in files that no queue reads.

Each process appends to a file of its own, a line for each fact, with one system call: a process
that is killed leaves whole lines.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ADDED, WAITED_IN_VAIN = "added", "waited-in-vain"
"""Of producers: a job that the queue acknowledged, and how it is to end; a result that did not
arrive in time."""
STARTED, RETURNED = "started", "returned"
"""Of workers: a processor began, and returned. Raising is not recorded."""
COMPLETED, FAILED, GAP = "completed", "failed", "gap"
"""Of the reader of events: how a job ended; events that were trimmed before they were read."""
PROBED = "probed"
"""Of the worker of the probes: when the probe was sent, and ms until it was started."""


class Ledger:
    """The file of one process, opened to append to it."""

    def __init__(self, folder: str, process: str) -> None:
        path = Path(folder) / process
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._file, f"{' '.join(map(str, words))}\n".encode())


class Tail:
    """Reads what was appended to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[list[str]]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")[0]
        self._offset += len(whole) + 1 if whole else 0
        return [line.split() for line in whole.decode().splitlines()]


@dataclass
class Account:
    """What all ledgers of a store say together, by job id."""

    expected: dict[str, str] = field(default_factory=dict)
    """Of acknowledged jobs: COMPLETED or FAILED."""
    ended: dict[str, str] = field(default_factory=dict)
    """How a job ended, as the reader of events was told."""
    ended_twice: list[str] = field(default_factory=list)
    returned: Counter[str] = field(default_factory=Counter)
    """How often the processor of a job returned."""
    runners: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Processes that started a job."""
    waited_in_vain: list[str] = field(default_factory=list)
    missed_events: int = 0
    runs: int = 0

    def enter(self, process: str, fact: str, words: list[str]) -> None:
        match fact:
            case "added":
                self.expected[words[0]] = words[1]
            case "started":
                self.runs += 1
                self.runners[words[0]].add(process)
            case "returned":
                self.returned[words[0]] += 1
            case "completed" | "failed":
                if words[0] in self.ended:
                    self.ended_twice.append(words[0])
                self.ended[words[0]] = fact
            case "waited-in-vain":
                self.waited_in_vain.append(" ".join(words))
            case "gap":
                self.missed_events += int(words[0])


def read(folder: Path) -> Account:
    account = Account()
    for process, line in _lines(folder):
        fact, *words = line.split()
        account.enter(process, fact, words)
    return account


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.iterdir()):
        with path.open() as lines:
            for line in lines:
                yield path.name, line
