"""The kinds of jobs that need no Python of the user's: their names, and what each does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.names import COMMAND as COMMAND
from ..core.names import NOTICE as NOTICE

WEBHOOK, FUNCTION = "http-webhook", "python-function"
"""The names of the jobs that run no commands."""

RESERVED = frozenset({COMMAND, NOTICE, WEBHOOK, FUNCTION})
"""The names of all of them: no application may have a task that is called so."""

RETRIES = "queuectl"
"""The name of the strategy that reads the configuration when an attempt has failed."""


def describe(name: str, data: Any) -> str:
    """What a job does, in one line."""
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
