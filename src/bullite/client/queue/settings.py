"""Settings of a whole queue: check the arguments of `configure` before they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from ...core.checks import (
    MAX_BYTES,
    MAX_COUNT,
    Duration,
    check_age,
    check_duration,
    check_int,
    check_rate,
)
from ...core.codec import decode
from ...core.job_options import (
    PER_JOB_OPTIONS,
    JobOptions,
    KeepJobs,
    OnFailure,
    Priority,
    RateLimit,
    check_on_failure,
    check_options,
)
from ...core.names import check_name
from ...errors import InvalidOption, InvalidOptionType
from ...operations.queues import as_text
from .base import check_order


class QueueSettings(TypedDict, total=False):
    """The arguments of `queue.configure`."""

    default_job_options: JobOptions
    priority_order: str
    dead_letter: str | None
    keep_completed: Duration | KeepJobs | None
    keep_failed: Duration | KeepJobs | None
    trash_age: Duration
    max_events: int
    max_waiting: int | None
    max_payload_bytes: int | None
    max_rate: RateLimit | None
    on_failure: OnFailure | None
    retry_failed_after: Duration | None
    retry_failed_times: int


def check_settings(given: Mapping[str, Any], queue: str) -> dict[str, Any]:
    """The settings as they are stored, or an error that names the first bad one."""
    changes: dict[str, Any] = {}
    for name, value in given.items():
        match name:
            case "default_job_options":
                changes[name] = as_text(check_defaults(value))
            case "priority_order":
                if check_order(value) is None:
                    raise InvalidOption('priority_order must be "low" or "high"')
                changes[name] = value
            case "dead_letter":
                changes[name] = _check_dead_letter(value, queue)
            case "keep_completed" | "keep_failed":
                changes |= _check_retention(name, value)
            case "trash_age":
                changes[name] = check_duration(name, value)
            case "max_events":
                changes[name] = check_int(name, value, 0, MAX_COUNT)
            case "max_waiting" | "max_payload_bytes":
                changes[name] = _check_quota(name, value)
            case "max_rate":
                most, duration = (None, None) if value is None else check_rate(name, value)
                changes |= {"max_rate_count": most, "max_rate_duration": duration}
            case "on_failure":
                changes[name] = _check_notice(value, queue)
            case "retry_failed_after":
                changes[name] = None if value is None else check_duration(name, value, least=1)
            case "retry_failed_times":
                changes[name] = check_int(name, value, 1, MAX_COUNT)
            case _:
                known = ", ".join(sorted(QueueSettings.__annotations__))
                raise InvalidOption(f"unknown setting {name!r}; the settings are: {known}")
    return changes


def check_defaults(value: Any) -> dict[str, Any]:
    """Options for jobs that do not say themselves, in a form that can be stored."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidOptionType(f"default_job_options must be a mapping, not {value!r}")
    for name in PER_JOB_OPTIONS:
        if value.get(name) is not None:
            raise InvalidOption(f"default_job_options cannot hold {name}: it is one job's own")
    checked = check_options(value)
    return {name: _storable(given, getattr(checked, name, None)) for name, given in value.items()}


def read_defaults(text: str | None) -> dict[str, Any]:
    """Stored options as they can be checked and resolved again."""
    options: dict[str, Any] = {} if text is None else decode(text)
    if isinstance(options.get("priority"), str):
        options["priority"] = Priority[options["priority"]]
    return options


def _storable(given: Any, checked: Any) -> Any:
    """An option in a form that JSON can say and `check_options` understands again."""
    if isinstance(given, bool | int | float | str) or given is None:
        return given
    if isinstance(given, Mapping):
        return {key: _storable(value, None) for key, value in given.items()}
    if isinstance(given, list | tuple | set | frozenset):
        return [_storable(value, None) for value in given]
    if isinstance(given, Priority):
        return given.name
    if hasattr(given, "total_seconds"):
        return f"{given.total_seconds():.3f}s"
    raise InvalidOptionType(
        f"default_job_options cannot hold {given!r}; write it as a number or text"
    )


def _check_dead_letter(value: Any, queue: str) -> str | None:
    if value is None:
        return None
    name = check_name("dead_letter", value)
    if name == queue:
        raise InvalidOption(f"dead_letter must be another queue than {queue!r} itself")
    return name


def _check_notice(value: Any, queue: str) -> str | None:
    notice = check_on_failure(value)
    if notice is not None and notice["queue"] == queue:
        raise InvalidOption(f"the queue of on_failure must be another than {queue!r} itself")
    return as_text(notice)


def _check_quota(name: str, value: Any) -> int | None:
    if value is None:
        return None
    return check_int(name, value, 0, MAX_BYTES if name == "max_payload_bytes" else MAX_COUNT)


def _check_retention(name: str, value: Any) -> dict[str, int | None]:
    """How long, or how many, or both; None for ever."""
    age: int | None = None
    count: int | None = None
    if isinstance(value, Mapping):
        unknown = [key for key in value if key not in ("age", "count")]
        if unknown:
            raise InvalidOption(f"{name} has an unknown key {unknown[0]!r}; give age or count")
        if value.get("age") is not None:
            age = round(check_age(f"{name} age", value["age"]) * 1000)
        if value.get("count") is not None:
            count = check_int(f"{name} count", value["count"], 0, MAX_COUNT)
    elif value is not None:
        age = check_duration(name, value)
    return {f"{name}_age": age, f"{name}_count": count}
