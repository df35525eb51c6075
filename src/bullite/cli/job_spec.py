"""Options of `queuectl enqueue`, by their long names, as a job to be added."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..commands.job_types import COMMAND, FUNCTION, NOTICE, RETRIES
from ..core.codec import encode_plain
from ..core.job_options import check_options
from ..core.names import check_queue_name
from ..errors import BulliteError
from . import times
from .console import InvalidInput
from .job_kinds import (
    KINDS,
    OPTIONS_OF_OTHER_KINDS,
    absolute_paths,
    check_request,
    data_of,
    kind_of,
)
from .option_values import int_of, pairs_of, text_of, texts_of
from .session import DEFAULT_QUEUE, NOTICES

TEMPLATES = "template"
"""The kind of the key-value entries that hold templates."""

KIND_OPTIONS = ("command", "argv", "url", "module", "type")
"""Options that say what a job does; each job needs one of them."""

OPTIONS = (
    *("command", "argv", "type", "url", "method", "header", "body", "module", "args", "kwargs"),
    *("queue", "priority", "timeout", "run_at", "delay", "max_retries", "backoff", "after", "id"),
    *("cwd", "env", "env_from", "clean_env", "stdin", "tag", "no_output", "notify_on_failure"),
    *("cpu", "memory", "template"),
)
"""The long names of all options."""

_OPTIONS = frozenset(OPTIONS) - {"template"}
"""Options that are left after the template is applied."""

_DASHED = frozenset(OPTIONS) - {"command", "argv"} | {"attempts"}
"""Options that begin with -- on a command line."""

_ALTERNATIVES = {"command": "argv", "argv": "command", "run_at": "delay", "delay": "run_at"}
"""Pairs of options that exclude each other."""

_RUN_OPTIONS = frozenset(
    {"priority", "run_at", "delay", "max_retries", "backoff", "tag", "notify_on_failure"}
)
"""Options that become job options; many jobs of a batch have the same."""

MAX_CACHED = 1_000
"""Sets of job options that a factory keeps."""

NOTIFY_ATTEMPTS = 5
NOTIFY_BACKOFF = {"type": "exponential", "delay": 10_000}


@dataclass(slots=True)
class JobSpec:
    """A job to be added."""

    queue: str
    name: str
    data: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    after: Sequence[str] = ()
    """The ids of jobs that must complete first."""


def spec_from_options(
    given: Mapping[str, Any],
    config: Mapping[str, Any],
    now: int,
    template: Mapping[str, Any] | None = None,
    *,
    resolve_paths: bool = True,
) -> JobSpec:
    """Return the job that options of a command line describe, as `JobSpecFactory.make` does."""
    with options_as_typed():
        return JobSpecFactory(config, now, resolve_paths=resolve_paths).make(given, template)


# --- messages ---


@contextmanager
def options_as_typed() -> Iterator[None]:
    """Raise errors of the block as InvalidInput, with options named as they are typed."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(_as_typed(error.message)) from None
    except BulliteError as error:
        raise InvalidInput(_as_typed(str(error))) from None


_SUBJECT = re.compile(r"(?:give )?(?:\w+ and )?\w+")


def _as_typed(message: str) -> str:
    """Return a message with the options in its subject, the first words, as they are typed."""
    subject = _SUBJECT.match(message)
    if subject is None:
        return message
    words = [
        f"--{word.replace('_', '-')}" if word in _DASHED else word for word in subject[0].split()
    ]
    return " ".join(words) + message[subject.end() :]


# --- specs ---


class JobSpecFactory:
    """Makes job specs; options that many of them share are checked once.

    Everything that `Queue.add` would refuse is refused here, before a database is created.
    """

    def __init__(self, config: Mapping[str, Any], now: int, *, resolve_paths: bool = True) -> None:
        """With `resolve_paths=False`, for a template, paths stay relative until it is applied."""
        self._config, self._now, self._resolve_paths = config, now, resolve_paths
        self._job_options: dict[bytes, dict[str, Any]] = {}
        self._queues: set[str] = set()

    def make(self, given: Mapping[str, Any], template: Mapping[str, Any] | None = None) -> JobSpec:
        """Return the job that options, by their long names, and a template describe.

        Raise InvalidInput for an unknown option or a bad value.
        """
        if template:
            given = apply_template(given, template)
        if not given.keys() <= _OPTIONS:
            [unknown, *_] = [name for name in given if name not in _OPTIONS]
            raise InvalidInput(f"unknown option {unknown!r}; the options are: {', '.join(OPTIONS)}")
        kind = kind_of(given)
        queue = given.get("queue")
        spec = JobSpec(
            DEFAULT_QUEUE if queue is None else self._queue(queue),
            kind,
            data_of(kind, given),
            self._options(given),
        )
        if kind == COMMAND and self._resolve_paths:
            spec.data |= absolute_paths(spec.data)
        if kind == FUNCTION and "timeout" in spec.data:
            # Commands and webhooks end themselves at their timeout; a function's is the worker's.
            timeout = {"timeout": round(spec.data["timeout"] * 1000)}
            spec.options = {**spec.options, **timeout}
        if given.get("after"):
            spec.after = texts_of("after", given["after"])
        return spec

    def _queue(self, name: Any) -> str:
        if type(name) is not str or name not in self._queues:
            self._queues.add(check_queue(name))
        return str(name)

    def _options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        shared = {name: given[name] for name in given.keys() & _RUN_OPTIONS}
        key = encode_plain(sorted(shared.items())) if shared else b""
        options = self._job_options.get(key)
        if options is None:
            options = _job_options(shared, self._config, self._now)
            check_options(options)
            if len(self._job_options) > MAX_CACHED:
                self._job_options.clear()
            self._job_options[key] = options
        if given.get("id") is None:
            return options
        return {**options, "job_id": check_id(text_of("id", given["id"]))}


def check_queue(name: Any) -> str:
    """Return the name of a queue. Raise InvalidInput or InvalidOption if it is none."""
    return check_queue_name("queue", text_of("queue", name))


def check_id(job_id: str) -> str:
    """Return a job id. Raise InvalidInput if it is none."""
    try:
        check_options({"job_id": job_id})
    except BulliteError as error:
        # The option is called --id here and job_id in the library.
        raise InvalidInput(str(error).replace("job_id", "id", 1)) from None
    return job_id


def _job_options(given: Mapping[str, Any], config: Mapping[str, Any], now: int) -> dict[str, Any]:
    retries = given.get("max_retries")
    retries = config["max_retries"] if retries is None else int_of("max_retries", retries)
    if not 0 <= retries <= 1_000_000:
        raise InvalidInput(f"max_retries must be from 0 to 1000000, not {retries}")
    options: dict[str, Any] = {"attempts": retries + 1, "stack_trace_limit": 0}
    if given.get("backoff") is not None:
        options["backoff"] = _backoff(given["backoff"])
    else:
        options["retry_strategy"] = RETRIES
    if given.get("priority") is not None:
        options["priority"] = int_of("priority", given["priority"])
    if given.get("tag"):
        options["tags"] = texts_of("tag", given["tag"])
    options |= _start_time(given, now)
    if given.get("notify_on_failure") is not None:
        target = text_of("notify_on_failure", given["notify_on_failure"])
        options["on_failure"] = notify_job(target)
    return options


def _start_time(given: Mapping[str, Any], now: int) -> dict[str, Any]:
    if given.get("run_at") is not None and given.get("delay") is not None:
        raise InvalidInput("run_at and delay say the same thing in two ways; give one")
    if given.get("run_at") is not None:
        at = times.moment("run_at", text_of("run_at", given["run_at"]), now)
        return {"run_at": at} if at > now else {}
    if given.get("delay") is not None:
        ms = times.duration("delay", str(given["delay"]))
        return {"delay": ms} if ms else {}
    return {}


def notify_job(target: str) -> dict[str, Any]:
    """Return the on-failure job that notifies an e-mail address, a URL or a command."""
    from ..commands import notify

    if notify.kind_of(target) == "url":
        check_request({"url": target})
    return {
        "queue": NOTICES,
        "name": NOTICE,
        "data": {"notify": target},
        "attempts": NOTIFY_ATTEMPTS,
        "backoff": NOTIFY_BACKOFF,
    }


def _backoff(value: Any) -> dict[str, Any]:
    """Parse fixed:10s, linear:5s, exponential:2s, or a duration alone, which is fixed."""
    kind, colon, time = str(value).partition(":")
    if not colon:
        kind, time = "fixed", kind
    if kind not in ("fixed", "linear", "exponential"):
        raise InvalidInput(
            f"backoff must be such as 10s, fixed:10s, linear:5s or exponential:2s, not {value!r}"
        )
    return {"type": kind, "delay": times.duration("backoff", time)}


# --- templates ---


def options_on_command_line(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set, in a form that can be stored as JSON."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None and value is not False and value != ()
    }


def apply_template(given: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options with those of a template; they override it.

    Variables are merged by name, and tags are added to those of the template. Options of the
    template that exclude a given one, or belong to another kind of job, are dropped.
    """
    overridden = _overridden_options(given)
    kept = {name: value for name, value in template.items() if name not in overridden}
    merged = {**kept, **given}
    if given.get("env") and template.get("env"):
        merged["env"] = pairs_of("env", template["env"], "=") | pairs_of("env", given["env"], "=")
    if given.get("tag") and template.get("tag"):
        tags = texts_of("tag", template["tag"]) + texts_of("tag", given["tag"])
        merged["tag"] = list(dict.fromkeys(tags))
    return merged


def _overridden_options(given: Mapping[str, Any]) -> set[str]:
    """Return the options that cannot stand beside those given."""
    overridden = {other for one, other in _ALTERNATIVES.items() if given.get(one) is not None}
    if any(given.get(name) for name in KIND_OPTIONS):
        kind = kind_of(given)
        overridden |= {"type", *(OPTIONS_OF_OTHER_KINDS[kind] if kind in KINDS else ())}
    return overridden
