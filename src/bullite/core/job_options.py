"""Options of jobs: their types, their checks and their stored form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any, TypedDict

from ..errors import InvalidOption, InvalidOptionType
from . import dependency_options
from .checks import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_DATA_BYTES,
    MAX_TIME,
    Duration,
    Moment,
    check_age,
    check_bool,
    check_duration,
    check_float,
    check_int,
    check_moment,
    encode_limited,
)
from .codec import encode_plain
from .deduplication import DeduplicationRule
from .job_flags import flags_of
from .names import check_name

MAX_PRIORITY = 2_097_151
MAX_TAGS = 50


class Priority(Enum):
    """Levels of priority that mean the same in both orders of a queue."""

    CRITICAL = 1_000_000
    HIGH = 100_000
    NORMAL = 0
    LOW = -100_000

    def number(self, order: str) -> int:
        """Return the number in a queue of this order: in "low", lower numbers run first."""
        return -self.value if order == "low" else self.value


@dataclass(frozen=True, slots=True)
class LowerFirst:
    """A priority of which lower numbers run first, in both orders of a queue."""

    value: int

    def number(self, order: str) -> int:
        """Return the number in a queue of this order."""
        return self.value if order == "low" else -self.value


class KeepJobs(TypedDict, total=False):
    """Which finished jobs to keep; `age` is in seconds, or a timedelta, or text such as "7d"."""

    age: float | timedelta | str
    count: int
    limit: int


class BackoffSettings(TypedDict, total=False):
    """Further settings of a back-off."""

    jitter: bool


class BackoffRule(TypedDict, total=False):
    """The delay before the next attempt."""

    type: str
    delay: Duration
    max_delay: Duration
    jitter: float
    exponent: float
    settings: BackoffSettings
    on: str
    retry: bool


Backoff = int | timedelta | str | BackoffRule | Sequence[BackoffRule] | None


class Deduplication(TypedDict, total=False):
    """The option `deduplication`: no job is added while another job holds the key."""

    id: str
    ttl: Duration
    extend: bool
    replace: bool
    keep_last_if_active: bool


class Repeat(TypedDict, total=False):
    """The option `repeat` of `add`: the settings of a job scheduler that repeats the job."""

    cron: str
    pattern: str
    every: Duration
    limit: int
    start_date: Moment
    end_date: Moment
    tz: str
    immediately: bool
    immediate: bool
    offset: Duration
    missed: str
    most_missed: int
    key: str


class RateLimit(TypedDict):
    """At most `max` jobs in each `duration`."""

    max: int
    duration: Duration


class OnFailure(TypedDict, total=False):
    """The job that is added when a job fails permanently; its data describe the failed job."""

    queue: str
    name: str
    data: Mapping[str, Any]
    attempts: int
    backoff: Backoff


class JobOptions(TypedDict, total=False):
    """The options of `add`, and of each job of `add_bulk`."""

    priority: int | Priority
    delay: Duration
    run_at: Moment
    timestamp: Moment
    attempts: int
    backoff: Backoff
    retry_strategy: str | BackoffRule
    lifo: bool
    job_id: str | None
    timeout: Duration
    expires: Duration
    remove_on_complete: bool | int | KeepJobs
    remove_on_fail: bool | int | KeepJobs
    keep_logs: int
    stack_trace_limit: int
    size_limit: int
    tags: Sequence[str]
    parent: Any
    parent_id: str | None
    fail_parent_on_failure: bool
    continue_parent_on_failure: bool
    ignore_dependency_on_failure: bool
    remove_dependency_on_failure: bool
    depends_on: Any
    depends_on_job_ids: Sequence[str]
    on_dependency_failure: str
    children: Sequence[Mapping[str, Any]]
    deduplication: Deduplication
    repeat: Repeat | None
    limit_key: str | None
    on_failure: OnFailure | None


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """Options after their checks."""

    priority: int | Priority | LowerFirst = 0
    delay: int = 0
    attempts: int = 1
    lifo: bool = False
    job_id: str | None = None
    run_at: int | None = None
    timestamp: int | None = None
    expires: int | None = None
    size_limit: int = MAX_DATA_BYTES
    dependencies: dependency_options.DependencyOptions | None = None
    policy: str = "wait"
    """Effect of a permanent failure of the job on its parent."""
    deduplication: DeduplicationRule | None = None
    stored: str | None = None
    """Options without a column of their own, as JSON; None if there are none."""
    flags: int = 0
    """The flags of the job: see job_flags.py."""


PLAIN = CheckedOptions()

LINK_OPTIONS = ("parent", "parent_id", "children", "depends_on", "depends_on_job_ids")
"""Options that link a job to others."""

PER_JOB_OPTIONS = ("job_id", "run_at", "timestamp", "repeat", "deduplication", *LINK_OPTIONS)
"""Options that belong to one job: they cannot be defaults of a queue or part of a template."""

_STORED = (
    "delay",
    "run_at",
    "timestamp",
    "backoff",
    "retry_strategy",
    "timeout",
    "expires",
    "remove_on_complete",
    "remove_on_fail",
    "keep_logs",
    "stack_trace_limit",
    "size_limit",
    "tags",
    "depends_on",
    "on_dependency_failure",
    *dependency_options.POLICIES,
    "deduplication",
    "limit_key",
    "on_failure",
)


def check_options(options: Mapping[str, Any]) -> CheckedOptions:
    """Return the checked options of one job. Raise an error that names the first bad option."""
    if not options:
        return PLAIN
    if options.get("deduplication") is not None:
        _check_goes_with_a_key(options)
    checked = {name: _check(name, value) for name, value in options.items()}
    if isinstance(checked.get("retry_strategy"), Mapping):
        # A strategy that is a mapping is a back-off.
        checked["backoff"] = checked.pop("retry_strategy")
    if checked.get("delay") and "run_at" in checked:
        raise InvalidOption("delay and run_at say the same thing in two ways; give one of them")
    if checked.get("timestamp", 0) + checked.get("delay", 0) > MAX_TIME:
        raise InvalidOption("timestamp and delay together lead past the year 9999")
    tied = dependency_options.dependency_options_of(checked)
    if tied is not None and tied.depends_on:
        checked["depends_on"] = tied.depends_on
    stored = {name: checked[name] for name in _STORED if checked.get(name) not in (None, ())}
    return CheckedOptions(
        priority=checked.get("priority", 0),
        delay=checked.get("delay", 0),
        attempts=checked.get("attempts", 1),
        lifo=checked.get("lifo", False),
        job_id=checked.get("job_id"),
        run_at=checked.get("run_at"),
        timestamp=checked.get("timestamp"),
        expires=checked.get("expires"),
        size_limit=checked.get("size_limit", MAX_DATA_BYTES),
        dependencies=tied,
        policy=dependency_options.policy_of(checked),
        deduplication=DeduplicationRule(**key) if (key := checked.get("deduplication")) else None,
        stored=encode_plain(stored).decode() if stored else None,
        flags=flags_of(stored),
    )


def _check(name: str, value: Any) -> Any:
    check = _CHECKS.get(name)
    if name == "debounce":
        raise InvalidOption(
            "the option debounce has been removed, use deduplication instead: give delay=d and "
            'deduplication={"id": …, "ttl": d, "extend": True, "replace": True}'
        )
    if check is None:
        known = ", ".join(sorted(_CHECKS))
        raise InvalidOption(f"unknown job option {name!r}; the options are: {known}")
    return check(value)


def check_priority(value: Any) -> int | Priority:
    if isinstance(value, Priority):
        return value
    return check_int("priority", value, -MAX_PRIORITY, MAX_PRIORITY)


def check_keep(option: str, value: Any) -> bool | int | dict[str, Any]:
    """Return `remove_on_complete` or `remove_on_fail` in its stored form."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, Mapping):
        if not isinstance(value, int):
            raise InvalidOptionType(
                f"{option} must be True, False, how many to keep, or a mapping with age, count "
                f"and limit, not {value!r}"
            )
        return check_int(option, value, -1, MAX_COUNT)
    for name in value:
        if name not in KeepJobs.__annotations__:
            raise InvalidOption(f"{option} has an unknown key {name!r}; give age, count or limit")
    checked: dict[str, Any] = {}
    if value.get("age") is not None:
        checked["age"] = check_age(f"{option} age", value["age"])
    for name in ("count", "limit"):
        if value.get(name) is not None:
            least = -1 if name == "count" else 0
            checked[name] = check_int(f"{option} {name}", value[name], least, MAX_COUNT)
    return checked


def check_strategy(value: Any) -> Any:
    """Return the name of a retry strategy of workers, or a back-off as a mapping."""
    if callable(value):
        raise InvalidOptionType(
            "retry_strategy must be a name, not a function, which cannot be stored: register it "
            'with Worker(retry_strategies={"name": function}) and pass the name'
        )
    if isinstance(value, Mapping):
        return _check_backoff_rule(value)
    return check_name("retry_strategy", value)


def refuse_repeat(value: Any) -> None:
    """Raise InvalidOption for `repeat`: methods that accept it remove it before this check."""
    if value is not None:
        raise InvalidOption("repeat goes with add and add_bulk, it makes a job scheduler there")


def check_on_failure(value: Any) -> dict[str, Any] | None:
    """Return the `on_failure` option in its stored form."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidOptionType(f"on_failure must be a mapping with queue and name, not {value!r}")
    unknown = [key for key in value if key not in OnFailure.__annotations__]
    missing = [key for key in ("queue", "name") if key not in value]
    if unknown or missing:
        problem = f"has an unknown key {unknown[0]!r}" if unknown else f"has no {missing[0]}"
        raise InvalidOption(f"on_failure {problem}; give queue, name, data, attempts and backoff")
    data = value.get("data", {})
    if not isinstance(data, Mapping):
        raise InvalidOptionType(f"the data of on_failure must be a mapping, not {data!r}")
    encode_limited(data, "the data of on_failure")
    notice = {
        "queue": check_name("the queue of on_failure", value["queue"]),
        "name": check_name("the name of on_failure", value["name"]),
        "data": dict(data),
        "attempts": check_int("the attempts of on_failure", value.get("attempts", 1), 1, MAX_COUNT),
    }
    if value.get("backoff") is not None:
        notice["backoff"] = _check("backoff", value["backoff"])
    return notice


def check_tags(value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
        raise InvalidOptionType(f"tags must be a list of texts, not {value!r}")
    if len(value) > MAX_TAGS:
        raise InvalidOption(f"tags must be at most {MAX_TAGS}, not {len(value)}")
    return list(dict.fromkeys(check_name("a tag", tag) for tag in value))


def check_deduplication(value: Any) -> dict[str, Any] | None:
    """Return the `deduplication` option in its stored form; None if there is none."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidOptionType(f'deduplication must be a mapping with "id", not {value!r}')
    for name in value:
        if name not in Deduplication.__annotations__:
            known = ", ".join(Deduplication.__annotations__)
            raise InvalidOption(f"deduplication has an unknown key {name!r}; the keys are: {known}")
    if value.get("id") in (None, ""):
        raise InvalidOption('the deduplication id must be provided: deduplication={"id": "…"}')
    checked: dict[str, Any] = {"id": check_name("the deduplication id", value["id"])}
    if value.get("ttl") is not None:
        checked["ttl"] = check_duration("deduplication ttl", value["ttl"], least=1)
    for name in ("extend", "replace", "keep_last_if_active"):
        if check_bool(f"deduplication {name}", value.get(name, False)):
            checked[name] = True
    return checked


def _check_goes_with_a_key(options: Mapping[str, Any]) -> None:
    """Raise InvalidOption for a job with both links and a deduplication key.

    If the job were not added, the jobs linked to it would wait in vain.
    """
    for name in LINK_OPTIONS:
        if options.get(name):
            raise InvalidOption(
                f"deduplication cannot be used together with {name}: the job might be left out; "
                "give one of them"
            )


def check_limit_key(value: Any) -> str:
    return check_name("limit_key", value)


def check_job_id(value: Any) -> str | None:
    if value is None:
        return None
    job_id = check_name("job_id", value)
    if job_id.isdecimal():
        raise InvalidOption(
            f"job_id must not be all digits, those are handed out by the queue: {job_id!r}; "
            "add a letter or a prefix"
        )
    return job_id


def check_backoff(value: Any) -> dict[str, Any] | list[dict[str, Any]] | None:
    """Return the `backoff` option in its stored form."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return _check_backoff_rule(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_check_backoff_rule(rule) for rule in value]
    return {"type": "fixed", "delay": check_duration("backoff", value)}


def _check_backoff_rule(rule: Any) -> dict[str, Any]:
    if not isinstance(rule, Mapping):
        raise InvalidOptionType(
            f"backoff must be a delay, a mapping or a list of mappings, not {rule!r}"
        )
    for name in rule:
        if name not in BackoffRule.__annotations__:
            known = ", ".join(sorted(BackoffRule.__annotations__))
            raise InvalidOption(f"backoff has an unknown key {name!r}; the keys are: {known}")
    checked: dict[str, Any] = {}
    if "on" in rule:
        checked["on"] = check_name("backoff on", rule["on"])
    if not check_bool("backoff retry", rule.get("retry", True)):
        return checked | {"retry": False}
    # A type that is not built in is the name of a retry strategy of the worker.
    kind = check_name("backoff type", rule.get("type", "fixed"))
    checked |= {"type": kind, "delay": check_duration("backoff delay", rule.get("delay", 0))}
    if _wants_added_jitter(rule.get("settings", {})):
        checked["added"] = ADDED_JITTER
    if "max_delay" in rule:
        checked["max_delay"] = check_duration("backoff max_delay", rule["max_delay"])
    for name, most in (("jitter", 1.0), ("exponent", 100.0)):
        if name in rule:
            checked[name] = check_float(f"backoff {name}", rule[name], most)
    return checked


ADDED_JITTER = 0.1
"""Largest fraction of a delay that `settings={"jitter": True}` adds."""


def _wants_added_jitter(settings: Any) -> bool:
    if not isinstance(settings, Mapping) or settings.keys() - {"jitter"}:
        raise InvalidOption(f'backoff settings must be {{"jitter": True}}, not {settings!r}')
    return check_bool("backoff settings jitter", settings.get("jitter", False))


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "priority": lambda value: value if isinstance(value, LowerFirst) else check_priority(value),
    "delay": lambda value: check_duration("delay", value),
    "run_at": lambda value: check_moment("run_at", value),
    "timestamp": lambda value: check_moment("timestamp", value),
    "attempts": lambda value: check_int("attempts", value, 1, MAX_COUNT),
    "backoff": check_backoff,
    "retry_strategy": check_strategy,
    "lifo": lambda value: check_bool("lifo", value),
    "job_id": check_job_id,
    "timeout": lambda value: check_duration("timeout", value, least=1),
    "expires": lambda value: check_duration("expires", value, least=1),
    "remove_on_complete": lambda value: check_keep("remove_on_complete", value),
    "remove_on_fail": lambda value: check_keep("remove_on_fail", value),
    "keep_logs": lambda value: check_int("keep_logs", value, 0, MAX_COUNT),
    "stack_trace_limit": lambda value: check_int("stack_trace_limit", value, 0, MAX_COUNT),
    "size_limit": lambda value: check_int("size_limit", value, 0, MAX_BYTES),
    "tags": check_tags,
    "on_failure": check_on_failure,
    "parent": dependency_options.check_parent,
    "parent_id": dependency_options.check_parent_id,
    "depends_on": dependency_options.check_depends_on,
    "depends_on_job_ids": dependency_options.check_depends_on,
    "on_dependency_failure": dependency_options.check_on_dependency_failure,
    "children": dependency_options.check_children,
    **{name: partial(check_bool, name) for name in dependency_options.POLICIES},
    "deduplication": check_deduplication,
    "repeat": refuse_repeat,
    "limit_key": lambda value: None if value is None else check_limit_key(value),
}


_SAME = ({"delay", "run_at"}, {"backoff", "retry_strategy"}, frozenset(dependency_options.POLICIES))


def merge_options(defaults: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options into defaults; an option also replaces a default under its other name."""
    replaced = {name for same in _SAME if not same.isdisjoint(options) for name in same}
    return {**{k: v for k, v in defaults.items() if k not in replaced}, **options}
