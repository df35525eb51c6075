"""The kinds of jobs of queuectl (command, webhook, function): their options and their data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..commands.job_types import COMMAND, FUNCTION, WEBHOOK
from ..core.checks import MAX_DATA_BYTES, check_size
from ..core.codec import encode
from .console import InvalidInput
from .option_values import bytes_of, flag_of, pairs_of, seconds_of, text_of, texts_of

KINDS = (COMMAND, WEBHOOK, FUNCTION)

_OPTIONS_OF_KIND = {
    COMMAND: (
        *("command", "argv", "cwd", "env", "env_from", "clean_env", "stdin", "no_output"),
        *("cpu", "memory"),
    ),
    WEBHOOK: ("url", "method", "header", "body"),
    FUNCTION: ("module", "args", "kwargs"),
}

OPTIONS_OF_OTHER_KINDS = {
    kind: {
        name: other for other, names in _OPTIONS_OF_KIND.items() if other != kind for name in names
    }
    for kind in KINDS
}
"""For each kind, the options that it does not take, with the kind that takes them."""

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")


def kind_of(given: Mapping[str, Any]) -> Any:
    """Return the kind of job that these options describe; `data_of` checks a given type."""
    if given.get("type"):
        return given["type"]
    if given.get("url"):
        return WEBHOOK
    return FUNCTION if given.get("module") else COMMAND


def data_of(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a job of this kind.

    Raise InvalidInput if an option belongs to another kind, is missing or has a bad value.
    """
    if kind not in KINDS:
        raise InvalidInput(f"type must be one of {', '.join(KINDS)}, not {kind!r}")
    _check_options_fit(kind, given)
    data = _MAKERS[kind](given)
    if given.get("timeout") is not None:
        data["timeout"] = seconds_of("timeout", given["timeout"])
    check_size(kind, encode(data, "the job"), MAX_DATA_BYTES)
    if kind == WEBHOOK:
        check_request(data)
    return data


def _check_options_fit(kind: str, given: Mapping[str, Any]) -> None:
    others = OPTIONS_OF_OTHER_KINDS[kind]
    for name in given.keys() & others.keys():
        if given[name]:
            raise InvalidInput(
                f"{name} is for jobs of type {others[name]}, and this is of type {kind}"
            )


# --- commands ---


def _command(given: Mapping[str, Any]) -> dict[str, Any]:
    line, argv = given.get("command"), given.get("argv")
    if line and argv:
        raise InvalidInput("give command or argv, not both")
    if not line and not argv:
        raise InvalidInput("give a command")
    data: dict[str, Any] = {"argv": _arguments(argv)} if argv else {}
    if line:
        data["command"] = text_of("command", line)
        if line.isspace():
            raise InvalidInput("command is blank: give one, such as echo hello")
    for name in ("cwd", "stdin"):
        if given.get(name) is not None:
            data[name] = text_of(name, given[name])
    if given.get("env"):
        data["env"] = pairs_of("env", given["env"], "=")
    if given.get("env_from"):
        data["env_from"] = [_variable(name) for name in texts_of("env_from", given["env_from"])]
    for name in ("no_output", "clean_env"):
        if given.get(name) is not None and flag_of(name, given[name]):
            data[name] = True
    if given.get("cpu") is not None:
        data["cpu"] = max(1, round(seconds_of("cpu", given["cpu"])))
    if given.get("memory") is not None:
        data["memory"] = bytes_of("memory", given["memory"])
    return data


def _variable(name: str) -> str:
    own, assigned, _ = name.partition("=")
    if assigned:
        raise InvalidInput(
            "env_from takes the name of a variable, whose value is the worker's: "
            f"{own or 'NAME'}, and no assignment"
        )
    return name


def _arguments(argv: Any) -> list[str]:
    """Return a program and its arguments, which may be empty."""
    if isinstance(argv, str) or not isinstance(argv, Sequence):
        raise InvalidInput(f"argv must be a list of texts, not {argv!r}")
    program, *arguments = argv
    return [
        text_of("argv", program),
        *[one if one == "" else text_of("argv", one) for one in arguments],
    ]


def absolute_paths(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the relative paths of a command made absolute: a worker runs in another folder.

    Raise InvalidInput if there is no such folder or file.
    """
    paths: dict[str, str] = {}
    for name in ("cwd", "stdin"):
        if name in data and not os.path.isabs(data[name]):
            # Not normalized: the meaning of .. depends on symbolic links.
            path = str(Path(data[name]).absolute())
            wants_folder = name == "cwd"
            if not os.path.exists(path) or os.path.isdir(path) != wants_folder:
                what = "folder" if wants_folder else "file"
                raise InvalidInput(f"{name}: there is no {what} {path}")
            paths[name] = path
    return paths


# --- webhooks ---


def _webhook(given: Mapping[str, Any]) -> dict[str, Any]:
    if not given.get("url"):
        raise InvalidInput("give url")
    method = str(given.get("method") or "POST").upper()
    if method not in METHODS:
        raise InvalidInput(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    data: dict[str, Any] = {"url": text_of("url", given["url"]), "method": method}
    if given.get("header"):
        data["headers"] = pairs_of("header", given["header"], ":")
    if given.get("body") is not None:
        data["body"] = given["body"]
    return data


def check_request(data: Mapping[str, Any]) -> None:
    """Raise InvalidInput for a request that could only fail when the job runs."""
    from ..commands.webhook import WebhookFailed, WebRequest, check

    try:
        check(WebRequest.of(data))
    except WebhookFailed as error:
        raise InvalidInput(str(error)) from None


# --- functions ---


def _function(given: Mapping[str, Any]) -> dict[str, Any]:
    module = given.get("module")
    if not module:
        raise InvalidInput("give module")
    if not isinstance(module, str) or "." not in module.replace(":", "."):
        raise InvalidInput(f"module must name a function, such as tasks.process, not {module!r}")
    data: dict[str, Any] = {"module": module}
    for name, kind in (("args", list), ("kwargs", dict)):
        value = given.get(name)
        if value is not None:
            if not isinstance(value, kind):
                what = "an array" if kind is list else "an object"
                raise InvalidInput(f"{name} must be {what} in JSON, not {value!r}")
            data[name] = value
    return data


_MAKERS = {COMMAND: _command, WEBHOOK: _webhook, FUNCTION: _function}
