"""Secrets of jobs are masked in output, unless --show-secrets is given.

They are the values of `--env` and `--header`, and logins in URLs. They are stored unmasked: a
worker needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from ..commands.job_types import COMMAND, NOTICE, WEBHOOK

MASK = "***"
_KEY = "bullite.secrets"

_MASKED_JOBS = (COMMAND, WEBHOOK, NOTICE)
"""The jobs of queuectl; the data of other jobs is not masked."""

_LOGIN = re.compile(r"(?<=://)[^\s/?#]*@")

F = TypeVar("F", bound=Callable[..., Any])


def secrets_option(function: F) -> F:
    """Add the option --show-secrets, which the functions below respect."""
    return click.option(
        "--show-secrets",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Show values of --env and --header, and logins in URLs.",
    )(function)


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[_KEY] = value


def _are_shown() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_KEY))


def masked_data(name: str, data: Any) -> Any:
    """Return the data of a job of this name, masked."""
    if _are_shown() or name not in _MASKED_JOBS or not isinstance(data, Mapping):
        return data
    return {
        key: _values(value) if key in ("env", "headers") else _logins(value)
        for key, value in data.items()
    }


def masked_text(text: str) -> str:
    """Return a text, such as a command, with logins masked."""
    return text if _are_shown() else _LOGIN.sub(f"{MASK}@", text)


def masked(value: Any) -> Any:
    """Return job options with logins masked."""
    return value if _are_shown() else _logins(value)


def masked_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a command line, masked."""
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
