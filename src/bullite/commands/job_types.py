"""Names of the built-in jobs, and a one-line description of each job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.names import COMMAND as COMMAND
from ..core.names import NOTICE as NOTICE

WEBHOOK, FUNCTION = "http-webhook", "python-function"
"""The built-in jobs that run no commands."""

RESERVED = frozenset({COMMAND, NOTICE, WEBHOOK, FUNCTION})
"""All names of built-in jobs: no task of an application can have one of them."""

RETRIES = "queuectl"
"""The retry strategy that follows the configuration at the time of the failure."""


def describe(name: str, data: Any) -> str:
    """Return a description of a job in one line."""
    if not isinstance(data, Mapping):
        return name
    if isinstance(data.get("command"), str):
        return str(data["command"])
    if isinstance(data.get("argv"), list):
        import shlex

        return shlex.join(map(str, data["argv"]))
    if name == WEBHOOK and "url" in data:
        return f"{data.get('method', 'POST')} {data['url']}"
    if name == FUNCTION and "module" in data:
        return str(data["module"])
    if name == NOTICE and "notify" in data:
        return f"notify {data['notify']}"
    return name
