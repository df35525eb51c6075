"""The jobs that every measurement uses: the same payloads for us and for the bare loop."""

from __future__ import annotations

from typing import Any

JOB_NAME = "mail"


def payloads(count: int, first: int = 100_000) -> list[dict[str, Any]]:
    """Small dicts, about 33 bytes as JSON."""
    return [{"user": first + number, "kind": "welcome"} for number in range(count)]


def bulk(count: int, name: str = JOB_NAME) -> list[dict[str, Any]]:
    """The same as `add_bulk` wants them."""
    return [{"name": name, "data": data} for data in payloads(count)]
