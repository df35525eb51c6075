"""`config set|get|list|unset`: configuration of commands and their workers."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from ...client.key_values import list_values, set_value, update_value
from ...commands.config import HIDDEN, KIND, SETTINGS, Value, effective, read_value, variable_of
from ..console import InvalidInput, one_line, verb
from ..session import Session

MULTIPLE = ("redact_output",)
"""Keys that take several values."""

STANDARD_INPUT = "-"
"""Read the value from standard input: other users can see the arguments of a program."""


def _keys(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    return [key for key in SETTINGS if key.startswith(typed)]


key_argument = click.argument("key", metavar="KEY", shell_complete=_keys)
reveal_option = click.option("--reveal", is_flag=True, help="Show secrets, too.")


@click.group()
def config() -> None:
    """Show and change the configuration.

    QUEUECTL_<KEY> in the environment beats what is set here, which beats the default.
    """


# So that -1 is a value, which is refused with the values that are allowed.
@config.command("set", context_settings={"ignore_unknown_options": True})
@key_argument
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
@verb
def set_(session: Session, key: str, values: tuple[str, ...]) -> None:
    """Set KEY to VALUE, or with - to what standard input says, which suits secrets.

    `queuectl config list` shows the keys.
    """
    if len(values) > 1 and key not in MULTIPLE and key in SETTINGS:
        raise InvalidInput(f"{key} takes one value, not {len(values)}; quote what has blanks")
    text = _standard_input(key) if values == (STANDARD_INPUT,) else "\n".join(values)
    value = read_value(key, text)
    session.wait(set_value(session.store(make=True), KIND, key, value))
    printed = _for_people(_masked(key, value, reveal=False))
    session.console.done(
        f"{key} = {printed}", _as_json(key, Value(value, "database"), reveal=False)
    )
    _warn(session, key)


def _standard_input(key: str) -> str:
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise InvalidInput(f"{key} must be text, and standard input is not UTF-8") from None


def _warn(session: Session, key: str) -> None:
    """Warn if the change has no effect, or if mails cannot be sent with it."""
    if variable_of(key) in os.environ:
        session.console.note(f"{variable_of(key)} in the environment says otherwise, and beats it")
    if key.startswith("smtp_"):
        from ...commands.notify import mail_server

        mail = mail_server({key: value.value for key, value in _values(session).items()})
        if mail is not None and mail.problem is not None:
            session.console.note(mail.problem)


@config.command()
@key_argument
@reveal_option
@verb
def get(session: Session, key: str, reveal: bool) -> None:
    """Print the value of KEY that holds here."""
    _check_key(key)
    value = _values(session)[key]
    if value.problem is not None:
        raise InvalidInput(value.problem)
    if session.console.as_json:
        session.console.data(_as_json(key, value, reveal))
        return
    masked = _masked(key, value.value, reveal)
    for line in masked if isinstance(masked, list) else [masked]:
        session.console.line(one_line(_for_people(line), 10_000))


@config.command("list")
@reveal_option
@verb
def list_(session: Session, reveal: bool) -> None:
    """List every key with its value and where that comes from."""
    values = _values(session)
    if session.console.as_json:
        session.console.data([_as_json(key, value, reveal) for key, value in values.items()])
        return
    rows = [
        [
            key,
            one_line(_for_people(_masked(key, value.value, reveal))),
            value.origin,
            value.problem or SETTINGS[key].meaning,
        ]
        for key, value in values.items()
    ]
    session.console.table(("KEY", "VALUE", "ORIGIN", "MEANING"), rows)


@config.command()
@key_argument
@verb
def unset(session: Session, key: str) -> None:
    """Forget what was set for KEY: its default holds again."""
    _check_key(key)
    old, _ = session.wait(update_value(session.store(), KIND, key, lambda old: None))
    value = _values(session)[key]
    printed = _for_people(_masked(key, value.value, reveal=False))
    text = f"{key} = {printed}" if old is not None else f"{key} was not set; it is {printed}"
    session.console.done(text, _as_json(key, value, reveal=False))
    _warn(session, key)


def _values(session: Session) -> dict[str, Value]:
    stored = session.wait(list_values(session.store(), KIND)) if session.exists() else {}
    return effective(stored, os.environ)


def _check_key(key: str) -> None:
    if key not in SETTINGS:
        raise InvalidInput(
            f"unknown configuration key {key!r}; the keys are: {', '.join(SETTINGS)}"
        )


def _as_json(key: str, value: Value, reveal: bool) -> dict[str, Any]:
    return {
        "key": key,
        "value": _masked(key, value.value, reveal),
        "origin": value.origin,
        "default": SETTINGS[key].default,
        "meaning": SETTINGS[key].meaning,
        "problem": value.problem,
    }


def _masked(key: str, value: Any, reveal: bool) -> Any:
    return HIDDEN if SETTINGS[key].is_secret and value is not None and not reveal else value


def _for_people(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) or "-" if isinstance(value, list) else str(value)
