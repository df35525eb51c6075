"""What is ordered, by the long names of options, as a job: checked, with its template applied."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..commands.job_types import COMMAND, FUNCTION, NOTICE, RETRIES, WEBHOOK
from ..core.checks import MAX_DATA_BYTES, check_size
from ..core.codec import encode, encode_plain
from ..core.job_options import check_options
from ..core.names import check_queue_name
from ..errors import BulliteError
from . import times
from .console import InvalidInput
from .session import DEFAULT_QUEUE, NOTICES

TEMPLATES = "template"
"""The kind under which templates are kept."""

TYPES = (COMMAND, WEBHOOK, FUNCTION)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")

MAX_KNOWN = 1_000
"""Sets of options that are remembered."""

NOTICE_ATTEMPTS = 5
NOTICE_BACKOFF = {"type": "exponential", "delay": 10_000}


@dataclass(slots=True)
class JobSpec:
    """A job to be added."""

    queue: str
    name: str
    data: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    after: Sequence[str] = ()
    """The ids of jobs that must have completed before."""


def order_from(
    given: Mapping[str, Any],
    config: Mapping[str, Any],
    now: int,
    template: Mapping[str, Any] | None = None,
    *,
    is_for_here: bool = True,
) -> JobSpec:
    """The job that options of a command line ask for."""
    with on_the_command_line():
        return JobSpecFactory(config, now, is_for_here=is_for_here).make(given, template)


@contextmanager
def on_the_command_line() -> Iterator[None]:
    """Meanwhile complaints name options as they are typed."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(as_typed(error.message)) from None
    except BulliteError as error:
        raise InvalidInput(as_typed(str(error))) from None


_SUBJECT = re.compile(r"(?:give )?(?:\w+ and )?\w+")


def as_typed(problem: str) -> str:
    """A complaint that begins with what it is about, with the options there as they are typed."""
    subject = _SUBJECT.match(problem)
    if subject is None:
        return problem
    words = [
        f"--{word.replace('_', '-')}" if word in _TYPED else word for word in subject[0].split()
    ]
    return " ".join(words) + problem[subject.end() :]


class JobSpecFactory:
    """Makes orders; what many of them have in common is looked at once.

    All that the library would refuse is refused here, when nothing has been made yet.
    """

    def __init__(self, config: Mapping[str, Any], now: int, *, is_for_here: bool = True) -> None:
        """Pass `is_for_here=False` for a template: its paths are resolved where it is used."""
        self._config, self._now, self._is_for_here = config, now, is_for_here
        self._known: dict[bytes, dict[str, Any]] = {}
        self._queues: set[str] = set()

    def make(self, given: Mapping[str, Any], template: Mapping[str, Any] | None = None) -> JobSpec:
        """The job that options, by their long names, ask for, over those of a template."""
        if template:
            given = apply_template(given, template)
        if not given.keys() <= _OPTIONS:
            [unknown, *_] = [name for name in given if name not in _OPTIONS]
            raise InvalidInput(f"unknown option {unknown!r}; the options are: {', '.join(OPTIONS)}")
        kind = given.get("type") or _type_of(given)
        queue = given.get("queue")
        order = JobSpec(
            DEFAULT_QUEUE if queue is None else self._queue(queue),
            kind,
            _data(kind, given),
            self._options(given),
        )
        if kind == COMMAND and self._is_for_here:
            order.data |= _paths(order.data)
        if kind == FUNCTION and "timeout" in order.data:
            # A command and a call mind their time themselves; a function's is the worker's affair.
            limit = {"timeout": round(order.data["timeout"] * 1000)}
            order.options = {**order.options, **limit}
        if given.get("after"):
            order.after = _texts("after", given["after"])
        return order

    def _queue(self, name: Any) -> str:
        if type(name) is not str or name not in self._queues:
            self._queues.add(check_queue(name))
        return str(name)

    def _options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        how = {name: given[name] for name in given.keys() & _SHARED}
        key = encode_plain(sorted(how.items())) if how else b""
        options = self._known.get(key)
        if options is None:
            options = _options(how, self._config, self._now)
            check_options(options)
            if len(self._known) > MAX_KNOWN:
                self._known.clear()
            self._known[key] = options
        if given.get("id") is None:
            return options
        return {**options, "job_id": check_id(_text("id", given["id"]))}


def check_queue(name: Any) -> str:
    """The name of a queue that may be made here."""
    return check_queue_name("queue", _text("queue", name))


def check_id(job_id: str) -> str:
    """An id of the user's own."""
    try:
        check_options({"job_id": job_id})
    except BulliteError as error:
        # The library knows the option by another name.
        raise InvalidInput(str(error).replace("job_id", "id", 1)) from None
    return job_id


def _type_of(given: Mapping[str, Any]) -> str:
    if given.get("url"):
        return WEBHOOK
    return FUNCTION if given.get("module") else COMMAND


# --- what it does ---


def _data(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if kind not in TYPES:
        raise InvalidInput(f"type must be one of {', '.join(TYPES)}, not {kind!r}")
    _refuse_others(kind, given)
    data = _MAKERS[kind](given)
    if given.get("timeout") is not None:
        data["timeout"] = _seconds("timeout", given["timeout"])
    check_size(kind, encode(data, "the job"), MAX_DATA_BYTES)
    if kind == WEBHOOK:
        _check_call(data)
    return data


_OF_KIND = {
    COMMAND: (
        *("command", "argv", "cwd", "env", "env_from", "clean_env", "stdin", "no_output"),
        *("cpu", "memory"),
    ),
    WEBHOOK: ("url", "method", "header", "body"),
    FUNCTION: ("module", "args", "kwargs"),
}


_OF_OTHERS = {
    kind: {name: other for other, names in _OF_KIND.items() if other != kind for name in names}
    for kind in _OF_KIND
}


def _refuse_others(kind: str, given: Mapping[str, Any]) -> None:
    others = _OF_OTHERS[kind]
    for name in given.keys() & others.keys():
        if given[name]:
            raise InvalidInput(
                f"{name} is for jobs of type {others[name]}, and this is of type {kind}"
            )


def _command(given: Mapping[str, Any]) -> dict[str, Any]:
    line, argv = given.get("command"), given.get("argv")
    if line and argv:
        raise InvalidInput("give command or argv, not both")
    if not line and not argv:
        raise InvalidInput("give a command")
    data: dict[str, Any] = {"argv": _arguments(argv)} if argv else {}
    if line:
        data["command"] = _text("command", line)
        if line.isspace():
            raise InvalidInput("command is blank: give one, such as echo hello")
    for name in ("cwd", "stdin"):
        if given.get(name) is not None:
            data[name] = _text(name, given[name])
    if given.get("env"):
        data["env"] = _pairs("env", given["env"], "=")
    if given.get("env_from"):
        data["env_from"] = [_variable(name) for name in _texts("env_from", given["env_from"])]
    for name in ("no_output", "clean_env"):
        if given.get(name) is not None and _flag(name, given[name]):
            data[name] = True
    if given.get("cpu") is not None:
        data["cpu"] = max(1, round(_seconds("cpu", given["cpu"])))
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


def _paths(data: Mapping[str, Any]) -> dict[str, str]:
    """The paths that are relative to the folder we are in, as a worker elsewhere finds them."""
    paths: dict[str, str] = {}
    for name in ("cwd", "stdin"):
        if name in data and not os.path.isabs(data[name]):
            # Not made shorter: what .. means depends on links.
            path = str(Path(data[name]).absolute())
            wants_folder = name == "cwd"
            if not os.path.exists(path) or os.path.isdir(path) != wants_folder:
                what = "folder" if wants_folder else "file"
                raise InvalidInput(f"{name}: there is no {what} {path}")
            paths[name] = path
    return paths


def _arguments(argv: Any) -> list[str]:
    """A program and its arguments, which may be empty."""
    if isinstance(argv, str) or not isinstance(argv, Sequence):
        raise InvalidInput(f"argv must be a list of texts, not {argv!r}")
    program, *arguments = argv
    return [
        _text("argv", program),
        *[one if one == "" else _text("argv", one) for one in arguments],
    ]


def _webhook(given: Mapping[str, Any]) -> dict[str, Any]:
    if not given.get("url"):
        raise InvalidInput("give url")
    method = str(given.get("method") or "POST").upper()
    if method not in METHODS:
        raise InvalidInput(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    data: dict[str, Any] = {"url": _text("url", given["url"]), "method": method}
    if given.get("header"):
        data["headers"] = _pairs("header", given["header"], ":")
    if given.get("body") is not None:
        data["body"] = given["body"]
    return data


def _check_call(data: Mapping[str, Any]) -> None:
    """Refuse a call that could only fail when its time has come."""
    from ..commands.webhook import WebhookFailed, WebRequest, check

    try:
        check(WebRequest.of(data))
    except WebhookFailed as error:
        raise InvalidInput(str(error)) from None


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


# --- how it is run ---


def _options(given: Mapping[str, Any], config: Mapping[str, Any], now: int) -> dict[str, Any]:
    retries = given.get("max_retries")
    retries = config["max_retries"] if retries is None else _whole("max_retries", retries)
    if not 0 <= retries <= 1_000_000:
        raise InvalidInput(f"max_retries must be from 0 to 1000000, not {retries}")
    options: dict[str, Any] = {"attempts": retries + 1, "stack_trace_limit": 0}
    if given.get("backoff") is not None:
        options["backoff"] = _backoff(given["backoff"])
    else:
        options["retry_strategy"] = RETRIES
    if given.get("priority") is not None:
        options["priority"] = _whole("priority", given["priority"])
    if given.get("tag"):
        options["tags"] = _texts("tag", given["tag"])
    options |= _when(given, now)
    if given.get("notify_on_failure") is not None:
        options["on_failure"] = notice(_text("notify_on_failure", given["notify_on_failure"]))
    return options


def _when(given: Mapping[str, Any], now: int) -> dict[str, Any]:
    if given.get("run_at") is not None and given.get("delay") is not None:
        raise InvalidInput("run_at and delay say the same thing in two ways; give one")
    if given.get("run_at") is not None:
        at = times.moment("run_at", _text("run_at", given["run_at"]), now)
        return {"run_at": at} if at > now else {}
    if given.get("delay") is not None:
        ms = times.duration("delay", str(given["delay"]))
        return {"delay": ms} if ms else {}
    return {}


def notice(target: str) -> dict[str, Any]:
    """The job that tells somebody of a failure."""
    from ..commands.notify import kind_of

    if kind_of(target) == "url":
        _check_call({"url": target})
    return {
        "queue": NOTICES,
        "name": NOTICE,
        "data": {"notify": target},
        "attempts": NOTICE_ATTEMPTS,
        "backoff": NOTICE_BACKOFF,
    }


def _backoff(value: Any) -> dict[str, Any]:
    """fixed:10s, linear:5s, exponential:2s; or just a time, which is fixed."""
    kind, colon, time = str(value).partition(":")
    if not colon:
        kind, time = "fixed", kind
    if kind not in ("fixed", "linear", "exponential"):
        raise InvalidInput(
            f"backoff must be such as 10s, fixed:10s, linear:5s or exponential:2s, not {value!r}"
        )
    return {"type": kind, "delay": times.duration("backoff", time)}


# --- values ---


def _text(option: str, value: Any) -> str:
    if not isinstance(value, str) or not value or "\x00" in value:
        is_secret = option.partition(" ")[0] in ("env", "header") and value not in (None, True)
        raise InvalidInput(f"{option} must be text" + ("" if is_secret else f", not {value!r}"))
    return value


def _texts(option: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Sequence):
        value = [value]
    return [_text(option, str(one) if type(one) is int else one) for one in value]


def _whole(option: str, value: Any) -> int:
    try:
        if isinstance(value, bool | float):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{option} must be a whole number, not {value!r}") from None


def _flag(option: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{option} must be true or false, not {value!r}")
    return value


def _seconds(option: str, value: Any) -> float | int:
    seconds = times.seconds(option, str(value))
    if not seconds:
        raise InvalidInput(f"{option} must be more than 0 seconds; leave it out for none")
    return seconds


def bytes_of(option: str, value: Any) -> int:
    from ..commands.config import size_in

    size = size_in(str(value))
    if not size:
        raise InvalidInput(f"{option} must be such as 500M or 2G, not {value!r}")
    return size


def _pairs(option: str, value: Any, separator: str) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {_text(option, key): _value(f"{option} {key}", one) for key, one in value.items()}
    pairs: dict[str, str] = {}
    for one in _texts(option, value):
        name, found, rest = one.partition(separator)
        if not found or not name.strip():
            # Without what was given: it may be the value alone.
            raise InvalidInput(f"{option} must be such as NAME{separator}VALUE")
        if separator == ":":
            name, rest = name.strip(" "), rest.strip(" ")
        pairs[name] = rest
    return pairs


def _value(option: str, value: Any) -> str:
    """Text that may be empty, or a number."""
    if type(value) in (int, float):
        return str(value)
    return "" if value == "" else _text(option, value)


OPTIONS = (
    *("command", "argv", "type", "url", "method", "header", "body", "module", "args", "kwargs"),
    *("queue", "priority", "timeout", "run_at", "delay", "max_retries", "backoff", "after", "id"),
    *("cwd", "env", "env_from", "clean_env", "stdin", "tag", "no_output", "notify_on_failure"),
    *("cpu", "memory", "template"),
)
"""The long names of what may be asked for."""

_OPTIONS = frozenset(OPTIONS) - {"template"}
"""What an order may have, when its template was applied."""

_TYPED = frozenset(OPTIONS) - {"command", "argv"} | {"attempts"}
"""Those that are options of a command line."""

WHAT = ("command", "argv", "url", "module", "type")
"""Those that say what a job does."""

_TWINS = {"command": "argv", "argv": "command", "run_at": "delay", "delay": "run_at"}
"""Those that say the same thing in another way."""

_SHARED = frozenset(
    {"priority", "run_at", "delay", "max_retries", "backoff", "tag", "notify_on_failure"}
)
"""Those that say how a job is run, and are the same for many."""


def options_on_command_line(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that somebody has given, in a form that can be kept."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None and value is not False and value != ()
    }


def apply_template(given: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Options over those of a template: variables by their names, tags beside its own.

    What belongs to another thing to do, or says the same in another way, goes with what is beaten.
    """
    beaten = _overridden_options(given)
    kept = {name: value for name, value in template.items() if name not in beaten}
    merged = {**kept, **given}
    if given.get("env") and template.get("env"):
        merged["env"] = _pairs("env", template["env"], "=") | _pairs("env", given["env"], "=")
    if given.get("tag") and template.get("tag"):
        tags = _texts("tag", template["tag"]) + _texts("tag", given["tag"])
        merged["tag"] = list(dict.fromkeys(tags))
    return merged


def _overridden_options(given: Mapping[str, Any]) -> set[str]:
    """The options that those given leave no room for, beside themselves."""
    beaten = {other for one, other in _TWINS.items() if given.get(one) is not None}
    if any(given.get(name) for name in WHAT):
        kind = given.get("type") or _type_of(given)
        beaten |= {"type", *(_OF_OTHERS[kind] if kind in TYPES else ())}
    return beaten
