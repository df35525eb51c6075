"""`template create|list|show|remove`: options of commands, stored under a name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from shlex import quote
from typing import Any

import click

from ...client.key_values import get_value, list_values, update_value
from ...commands.job_types import describe
from ...core.names import check_name
from ..completers import template_names
from ..console import CommandError, one_line, verb, yes_option
from ..job_spec import TEMPLATES
from ..masking import masked_given, masked_text, secrets_option
from ..session import Session
from ..shared_options import checked_spec, given_options, options_of_enqueue

name_argument = click.argument("name", shell_complete=template_names)


@click.group()
def template() -> None:
    """Manage named sets of options for `queuectl enqueue --template`."""


@template.command()
@click.argument("name")
@click.option("--command", metavar="COMMAND", help="What is run.")
@options_of_enqueue(without=("template", "id"))
@click.option("--force", is_flag=True, help="Take the place of one of this name.")
@verb
def create(session: Session, name: str, force: bool, **options: Any) -> None:
    """Keep a command and its options under NAME.

    `queuectl enqueue --template NAME` adds it; options given there beat those kept here.
    """
    check_name("the name of a template", name)
    given = given_options(options)
    checked_spec(given)
    old, _ = session.wait(
        update_value(
            session.store(make=True),
            TEMPLATES,
            name,
            lambda old: given if old is None or force else old,
        )
    )
    if old is not None and not force:
        raise CommandError(f"there is a template {name!r} already; --force takes its place")
    what = "replaced" if old is not None else "created"
    session.console.done(f"{what} the template {name}", _as_json(name, given))


@template.command("list")
@secrets_option
@verb
def list_(session: Session) -> None:
    """List the templates."""
    templates = sorted(session.wait(list_values(session.store(), TEMPLATES)).items())
    if session.console.as_json:
        session.console.data([_as_json(name, given) for name, given in templates])
        return
    rows = [[name, one_line(_command(given)), _other_options(given)] for name, given in templates]
    session.console.table(("NAME", "COMMAND", "OPTIONS"), rows)
    if not templates:
        session.console.note("no templates; `queuectl template create` keeps one")


@template.command()
@name_argument
@secrets_option
@verb
def show(session: Session, name: str) -> None:
    """Show the options that are kept under NAME."""
    given = _existing(session, name)
    if session.console.as_json:
        session.console.data(_as_json(name, given))
        return
    for option, value in masked_given(given).items():
        for one in value if isinstance(value, list) and option != "args" else [value]:
            session.console.line(f"--{option.replace('_', '-')}: {one_line(str(one), 10_000)}")


@template.command()
@name_argument
@yes_option
@verb
def remove(session: Session, name: str, yes: bool) -> None:
    """Forget the template NAME; jobs that were made with it stay."""
    _existing(session, name)
    session.console.confirm(f"Remove the template {name!r}?", yes)
    session.wait(update_value(session.store(), TEMPLATES, name, lambda old: None))
    session.console.done(f"removed the template {name}", {"name": name, "removed": True})


def _existing(session: Session, name: str) -> dict[str, Any]:
    given: dict[str, Any] | None = session.wait(get_value(session.store(), TEMPLATES, name))
    if given is None:
        raise CommandError(f"there is no template {name!r}; `queuectl template list` shows them")
    return given


def _as_json(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "options": masked_given(given)}


_SHOWN_AS_COMMAND = ("command", "type", "url", "method", "module")


def _command(given: Mapping[str, Any]) -> str:
    spec = checked_spec(given)
    return masked_text(describe(spec.name, spec.data))


def _other_options(given: Mapping[str, Any]) -> str:
    others = {
        name: value for name, value in masked_given(given).items() if name not in _SHOWN_AS_COMMAND
    }
    words = [word for name, value in others.items() for word in _as_typed(name, value)]
    return one_line(" ".join(map(quote, words)))


def _as_typed(name: str, value: Any) -> list[str]:
    """Return the words of an option on a command line."""
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    if name in ("args", "kwargs"):
        return [option, json.dumps(value)]
    several = value if isinstance(value, list) else [value]
    return [word for one in several for word in (option, str(one))]
