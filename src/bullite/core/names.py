"""Rules for the names of queues and jobs, and for ids."""

from __future__ import annotations

import re
from typing import Any

from ..errors import InvalidOption, InvalidOptionType

MAX_NAME_LENGTH = 255

COMMAND, NOTICE = "shell", "notify"
"""The names of the jobs that run commands."""

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def job_number(id: str) -> int | None:
    """Return the primary key that an id is the text of; None if it is a custom id."""
    is_one = id.isdecimal() and len(id) < 19 and str(int(id)) == id
    return int(id) if is_one else None


def check_name(what: str, value: Any) -> str:
    """Return a queue name, a job name or an id: 1 to 255 characters without control characters."""
    if not isinstance(value, str):
        raise InvalidOptionType(f"{what} must be text, not {value!r}")
    if not 1 <= len(value) <= MAX_NAME_LENGTH:
        raise InvalidOption(f"{what} must have 1 to {MAX_NAME_LENGTH} characters, not {len(value)}")
    if not value.isprintable() and _CONTROL_CHARACTER.search(value):
        raise InvalidOption(f"{what} must not contain control characters: {value!r}")
    return value


def check_queue_name(what: str, value: Any) -> str:
    """Return the name of a queue: like a custom id, it must not consist of digits only."""
    if check_name(what, value).isdecimal():
        raise InvalidOption(
            f"{what} must not be all digits, as ids of jobs are: {value!r}; add a letter"
        )
    return str(value)
