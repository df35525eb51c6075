"""What is logged because the machine is slow, whatever a test does."""

from __future__ import annotations

import re
from collections.abc import Iterable

SAID = re.compile(r"^(the statement \w+ took|waited) \d+ ms( for the write lock)?$")


def but_for_slowness(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if not SAID.search(line)]
