"""The options of `enqueue` for the verbs that store them: `schedule`, `template`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..commands.config import SETTINGS
from .job_spec import JobSpec, options_on_command_line, spec_from_options
from .verbs.enqueue import enqueue, from_json

F = TypeVar("F", bound=Callable[..., Any])

_NOT_ABOUT_THE_JOB = ("command", "wait", "raw", "db", "as_json", "form", "help")


def options_of_enqueue(*, without: tuple[str, ...]) -> Callable[[F], F]:
    """Return a decorator that adds the options of `enqueue` about the job, except some."""
    excluded = (*_NOT_ABOUT_THE_JOB, *without)
    shared = [param for param in enqueue.params if param.name not in excluded]

    def decorate(function: F) -> F:
        own = function.__dict__.setdefault("__click_params__", [])
        # Decorators run from the last to the first, and click reverses the list that they made.
        own.extend(reversed(shared))
        return function

    return decorate


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set, by their long names, in a form that can be stored."""
    given = options_on_command_line(options)
    return given | {n: from_json(f"--{n}", given[n]) for n in ("args", "kwargs") if n in given}


def checked_spec(given: Mapping[str, Any]) -> JobSpec:
    """Return the job that options describe, checked before a database is created.

    The configuration is the default one, and paths stay relative.
    """
    defaults = {key: setting.default for key, setting in SETTINGS.items()}
    return spec_from_options(given, defaults, round(time.time() * 1000), resolve_paths=False)
