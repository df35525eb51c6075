"""The options of `enqueue` for the verbs that keep a job for later: `schedule`, `template`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..commands.config import SETTINGS
from .job_spec import JobSpec, options_on_command_line, order_from
from .verbs.enqueue import enqueue, from_json

F = TypeVar("F", bound=Callable[..., Any])

_NOT_ABOUT_THE_JOB = ("command", "wait", "raw", "db", "as_json", "form", "help")


def options_of_enqueue(*, without: tuple[str, ...]) -> Callable[[F], F]:
    """The options that say what a job is and how it is run, but for those named."""
    left_out = (*_NOT_ABOUT_THE_JOB, *without)
    borrowed = [param for param in enqueue.params if param.name not in left_out]

    def decorate(function: F) -> F:
        own = function.__dict__.setdefault("__click_params__", [])
        # Decorators are carried out from the last to the first, and click reverses what they left.
        own.extend(reversed(borrowed))
        return function

    return decorate


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were given, by their long names, in a form that can be kept."""
    given = options_on_command_line(options)
    return given | {n: from_json(f"--{n}", given[n]) for n in ("args", "kwargs") if n in given}


def checked_order(given: Mapping[str, Any]) -> JobSpec:
    """The job that options ask for, with the usual configuration, before any database is made."""
    usual = {key: setting.default for key, setting in SETTINGS.items()}
    return order_from(given, usual, round(time.time() * 1000), is_for_here=False)
