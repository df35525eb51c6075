"""Options that link a job to other jobs: parent, children and dependencies, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from ..errors import InvalidOption, InvalidOptionType
from .names import check_name

POLICIES = {
    "fail_parent_on_failure": "fail",
    "continue_parent_on_failure": "continue",
    "ignore_dependency_on_failure": "ignore",
    "remove_dependency_on_failure": "remove",
}
"""The effect of a child's permanent failure on its parent; without any, the parent waits."""

ON_DEPENDENCY_FAILURE = ("wait", "fail", "run")

MAX_DEPENDENCIES = 100_000


class ParentRef(TypedDict):
    """A job by its id and the name of its queue."""

    id: str
    queue: str


class JobRef(NamedTuple):
    """Another job."""

    queue: str | None
    """None for the queue of the job that names it."""
    id: str


class DependencyOptions(NamedTuple):
    """The links of a job to other jobs."""

    parent: JobRef | None = None
    policy: str = "wait"
    depends_on: tuple[JobRef, ...] = ()
    on_failure: str = "wait"
    children: Sequence[Any] = ()


def dependency_options_of(checked: Mapping[str, Any]) -> DependencyOptions | None:
    """Return the links among checked options; None if there are none."""
    if "parent" in checked and "parent_id" in checked:
        raise InvalidOption("parent and parent_id say the same thing in two ways; give one of them")
    if "depends_on" in checked and "depends_on_job_ids" in checked:
        raise InvalidOption("depends_on and depends_on_job_ids are the same; give one of them")
    parent = checked.get("parent") or checked.get("parent_id")
    depends_on = checked.get("depends_on") or checked.get("depends_on_job_ids") or ()
    children = checked.get("children") or ()
    if not (parent or depends_on or children):
        return None
    on_failure = checked.get("on_dependency_failure", "wait")
    return DependencyOptions(
        parent, policy_of(checked), tuple(dict.fromkeys(depends_on)), on_failure, children
    )


def policy_of(checked: Mapping[str, Any]) -> str:
    """Return the effect of the job's permanent failure on its parent."""
    policies = [name for name in POLICIES if checked.get(name)]
    if len(policies) > 1:
        raise InvalidOption(f"{' and '.join(policies)} contradict each other; give one of them")
    return POLICIES[policies[0]] if policies else "wait"


def check_parent(value: Any) -> JobRef | None:
    """Return the job of the option `parent`: a Job, or a mapping with id and queue."""
    return None if value is None else check_relative("parent", value)


def check_relative(what: str, value: Any) -> JobRef:
    """Return the job that an option names: a Job, or a mapping with id and queue."""
    if _is_job(value):
        return JobRef(value.queue_name, value.id)
    if not isinstance(value, Mapping):
        raise InvalidOptionType(
            f'{what} must be a Job or {{"id": ..., "queue": ...}}, not {value!r}'
        )
    if value.keys() != {"id", "queue"}:
        raise InvalidOption(f'{what} must be {{"id": ..., "queue": ...}}, not {dict(value)!r}')
    return JobRef(
        check_name(f"{what} queue", value["queue"]), check_name(f"{what} id", value["id"])
    )


def check_parent_id(value: Any) -> JobRef | None:
    """Return the job of the option `parent_id`: the id of a job in the same queue."""
    return None if value is None else JobRef(None, check_name("parent_id", value))


def check_depends_on(value: Any) -> tuple[JobRef, ...]:
    """Return the jobs of `depends_on`: one, or a list, of ids, Jobs or (queue, id) pairs."""
    if value is None or value == ():
        return ()
    if isinstance(value, str | tuple) or _is_job(value):
        return (_other(value),)
    if not isinstance(value, Collection) or isinstance(value, Mapping):
        raise InvalidOptionType(
            f"depends_on must be ids, Jobs or (queue, id) pairs in a list, not {value!r}"
        )
    others = tuple(_other(one) for one in value)
    if len(others) > MAX_DEPENDENCIES:
        raise InvalidOption(
            f"depends_on must name at most {MAX_DEPENDENCIES} jobs, not {len(others)}"
        )
    return others


def _other(value: Any) -> JobRef:
    if _is_job(value):
        return JobRef(value.queue_name, value.id)
    if isinstance(value, tuple):
        if len(value) != 2:
            raise InvalidOption(
                f"depends_on takes a list of ids, or pairs (queue, id), not {value!r}"
            )
        return JobRef(
            check_name("the queue in depends_on", value[0]), check_name("depends_on", value[1])
        )
    return JobRef(None, check_name("depends_on", value))


def check_on_dependency_failure(value: Any) -> str:
    if value not in ON_DEPENDENCY_FAILURE:
        raise InvalidOption(f'on_dependency_failure must be "wait", "fail" or "run", not {value!r}')
    word: str = value
    return word


def check_children(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidOptionType(f"children must be a list of nodes, not {value!r}")
    return value


def _is_job(value: Any) -> bool:
    return hasattr(value, "queue_name") and hasattr(value, "pk")
