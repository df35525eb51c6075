"""Check the arguments of job schedulers, and make specifications to store of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from ...core.checks import MAX_TIME
from ...core.codec import encode_plain
from ...core.job_options import PER_JOB_OPTIONS, JobOptions, Repeat
from ...core.names import MAX_NAME_LENGTH, check_name
from ...core.recurrence import Recurrence, check_recurrence
from ...errors import InvalidOption, InvalidOptionType
from ...operations.scheduler_ticks import SchedulerSpec, id_of
from .job_factory import JobFactory


class JobTemplate(TypedDict, total=False):
    """What a job scheduler makes its jobs from: the name is its id, the data {} unless given."""

    name: str
    data: Any
    opts: JobOptions


_TEMPLATE_KEYS = frozenset(JobTemplate.__annotations__)
_REPEAT_KEYS = frozenset(Repeat.__annotations__)
_SYNONYMS = {"cron": "pattern", "immediate": "immediately"}
"""Keys of the repeat option that mean others."""

NOT_IN_TEMPLATES = frozenset({*PER_JOB_OPTIONS, "delay"})
"""Options that cannot hold for every job of a scheduler."""

MAX_KEY_LENGTH = MAX_NAME_LENGTH - len(id_of("", MAX_TIME))


def make_spec(
    factory: JobFactory,
    key: str,
    recurrence: Recurrence,
    name: str,
    data: Any,
    options: Mapping[str, Any],
) -> SchedulerSpec:
    """Make a specification with the options of its jobs resolved.

    The default delay of the queue does not hold for them: the scheduler says when a job is due.
    """
    no_delay = {"delay": 0} if "delay" in factory.defaults else {}
    checked = factory.check({**no_delay, **options})
    return SchedulerSpec(key, recurrence, factory.new_job(name, data, checked), list(options))


def spec_of_repeat(
    factory: JobFactory, queue: str, now: int, name: str, data: Any, options: Mapping[str, Any]
) -> SchedulerSpec:
    """Make the specification that `add` with the option `repeat` requests.

    Without a key, one is derived from the queue, the name and the recurrence.
    """
    key, settings = _check_repeat(options["repeat"])
    recurrence = check_recurrence(now, **settings)
    others = {option: value for option, value in options.items() if option != "repeat"}
    _forbid_options_of_one_job("repeat cannot go together with", others)
    check_name("the job's name", name)
    if key is None:
        import hashlib

        hashed = encode_plain([queue, name, recurrence.to_json()])
        key = hashlib.blake2b(hashed, digest_size=16).hexdigest()
    return make_spec(factory, key, recurrence, name, data, others)


def check_key(what: str, value: Any) -> str:
    """Return the id of a job scheduler, which is part of the ids of its jobs."""
    key = check_name(what, value)
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidOption(f"{what} must have at most {MAX_KEY_LENGTH} characters, not {len(key)}")
    return key


def check_template(key: str, template: Any) -> tuple[str, Any, dict[str, Any]]:
    """Return the name, the data and the options of a scheduler's jobs."""
    if template is None:
        template = {}
    if not isinstance(template, Mapping):
        raise InvalidOptionType(
            f"template must be a mapping with name, data and opts, not {template!r}"
        )
    for name in template:
        if name not in _TEMPLATE_KEYS:
            raise InvalidOption(
                f"template has an unknown key {name!r}; the keys are: name, data, opts"
            )
    options = template.get("opts")
    if options is not None and not isinstance(options, Mapping):
        raise InvalidOptionType(f"the opts of a template must be a mapping, not {options!r}")
    _forbid_options_of_one_job("the opts of a template cannot hold", options or {})
    name = template.get("name")
    return key if name is None else name, template.get("data", {}), dict(options or {})


def _forbid_options_of_one_job(why: str, options: Mapping[str, Any]) -> None:
    for name in options:
        if name in NOT_IN_TEMPLATES and options[name] is not None:
            raise InvalidOption(f"{why} {name}: every job of the scheduler would have it")


def _check_repeat(repeat: Any) -> tuple[str | None, dict[str, Any]]:
    """Return the key, if one was given, and the settings of a recurrence."""
    if not isinstance(repeat, Mapping):
        raise InvalidOptionType(
            f"repeat must be a mapping with cron or every, and more, not {repeat!r}"
        )
    settings: dict[str, Any] = {}
    for name, value in repeat.items():
        if name not in _REPEAT_KEYS:
            known = ", ".join(sorted(_REPEAT_KEYS))
            raise InvalidOption(f"repeat has an unknown key {name!r}; the keys are: {known}")
        meant = _SYNONYMS[name] if name in _SYNONYMS else str(name)
        if meant in settings:
            raise InvalidOption(f"repeat says {meant} twice, in two words; give one of them")
        settings[meant] = value
    key = settings.pop("key", None)
    return None if key is None else check_key("repeat key", key), settings
