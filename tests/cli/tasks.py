"""Functions that jobs of the type python-function call."""

from __future__ import annotations


def add(*numbers: int, start: int = 0) -> int:
    return sum(numbers, start)
