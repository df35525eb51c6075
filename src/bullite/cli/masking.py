"""What jobs hold that not everybody who sees a screen should read: masked, unless asked for.

Values of `--env` and `--header`, and who logs in within a URL. They are stored as they are: a
worker needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from ..commands.job_types import COMMAND, NOTICE, WEBHOOK

MASK = "***"
_SHOWN = "bullite.secrets"

_OURS = (COMMAND, WEBHOOK, NOTICE)
"""The jobs that the program makes; what others hold is their application's affair."""

_LOGIN = re.compile(r"(?<=://)[^\s/?#]*@")

F = TypeVar("F", bound=Callable[..., Any])


def secrets_option(function: F) -> F:
    """--show-secrets; what is shown below asks for it."""
    return click.option(
        "--show-secrets",
        is_flag=True,
        expose_value=False,
        callback=_note,
        help="Show values of --env and --header, and logins in URLs.",
    )(function)


def _note(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    context.meta[_SHOWN] = asked


def _are_shown() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_SHOWN))


def masked_data(name: str, data: Any) -> Any:
    """What a job of this name is given, as it may be shown."""
    if _are_shown() or name not in _OURS or not isinstance(data, Mapping):
        return data
    return {
        key: _values(value) if key in ("env", "headers") else _logins(value)
        for key, value in data.items()
    }


def masked_text(text: str) -> str:
    """What a job does, as it may be shown."""
    return text if _are_shown() else _LOGIN.sub(f"{MASK}@", text)


def masked(value: Any) -> Any:
    """Options of a job, as they may be shown."""
    return value if _are_shown() else _logins(value)


def masked_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a command line, as they may be shown."""
    if _are_shown():
        return dict(given)
    separators = {"env": "=", "header": ":"}
    return {
        name: _pairs(value, separators[name]) if name in separators else _logins(value)
        for name, value in given.items()
    }


def _values(value: Any) -> Any:
    return dict.fromkeys(value, MASK) if isinstance(value, Mapping) else MASK


def _pairs(value: Any, separator: str) -> Any:
    if isinstance(value, Mapping):
        return _values(value)
    blank = " " if separator == ":" else ""
    pairs = [value] if isinstance(value, str) else value
    return [f"{pair.partition(separator)[0]}{separator}{blank}{MASK}" for pair in pairs]


def _logins(value: Any) -> Any:
    if isinstance(value, str):
        return _LOGIN.sub(f"{MASK}@", value)
    if isinstance(value, Mapping):
        return {key: _logins(one) for key, one in value.items()}
    return [_logins(one) for one in value] if isinstance(value, list) else value
