"""Bad flows, ties, keys and limits are refused with an error of ours, and nothing is stored."""

from __future__ import annotations

from typing import Any

import pytest

from bullite import FlowProducer, ParentNotFound, Queue, Worker, errors
from bullite.errors import (
    BulliteError,
    DependencyCycle,
    DependencyNotFound,
    InvalidOption,
    InvalidOptionType,
    JobNotFound,
)
from tests.support.helpers import case

ITSELF: dict[str, Any] = {"name": "a", "queue_name": "emails"}
ITSELF["children"] = [ITSELF]

OPTIONS: list[tuple[dict[str, Any], type[BulliteError], str]] = [
    ({"parent": {"id": "1", "queue": "emails", "key": "k"}}, InvalidOption, "parent must be"),
    ({"parent": {"id": "1"}}, InvalidOption, "parent must be"),
    ({"parent": "1"}, InvalidOptionType, "parent must be a Job or"),
    ({"parent": {"id": 1, "queue": "emails"}}, InvalidOptionType, "parent id must be text"),
    ({"parent": {"id": "1", "queue": "emails"}}, ParentNotFound, "1"),
    ({"parent_id": "nobody"}, ParentNotFound, "nobody"),
    ({"depends_on": "nobody"}, DependencyNotFound, "nobody"),
    ({"depends_on": [("nowhere", "1")]}, DependencyNotFound, "nowhere"),
    ({"depends_on": ("emails", "1", "2")}, InvalidOption, "pairs"),
    ({"depends_on": [["emails", "1"]]}, InvalidOptionType, "depends_on must be text"),
    ({"depends_on": 7}, InvalidOptionType, "depends_on must be ids"),
    ({"depends_on": [""]}, InvalidOption, "depends_on must have 1 to 255"),
    ({"depends_on": ["x"] * 100_001}, InvalidOption, "at most 100000"),
    ({"depends_on": "me", "job_id": "me"}, DependencyCycle, "emails:me -> emails:me;"),
    ({"on_dependency_failure": "panic"}, InvalidOption, 'must be "wait", "fail" or "run"'),
    (
        {"fail_parent_on_failure": True, "continue_parent_on_failure": True},
        InvalidOption,
        "contradict each other",
    ),
    ({"ignore_dependency_on_failure": "yes"}, InvalidOptionType, "must be True or False"),
    ({"deduplication": {"id": "k"}, "parent_id": "1"}, InvalidOption, "together with parent_id"),
    ({"deduplication": {"id": "k"}, "depends_on": "1"}, InvalidOption, "together with depends_on"),
    ({"deduplication": {"id": "k", "mode": 1}}, InvalidOption, "unknown key 'mode'"),
    ({"children": {"name": "c"}}, InvalidOptionType, "children must be a list"),
    ({"children": ["c"]}, InvalidOptionType, "must be a mapping"),
    ({"children": [{"name": "c", "prefix": "p"}]}, InvalidOption, "unknown key 'prefix'"),
]


async def test_bad_ties_are_refused_by_add_and_add_bulk(queue: Queue) -> None:
    for options, error, message in OPTIONS:
        with case((options, error, message)):
            with pytest.raises(error, match=message):
                await queue.add("a", **options)
            with pytest.raises(error, match=message):
                await queue.add_bulk([{"name": "fine"}, {"name": "a", "opts": options}])
            assert await queue.get_job_count_by_types() == 0


NODES: list[tuple[Any, type[BulliteError], str]] = [
    ("a", InvalidOptionType, "must be a mapping"),
    ({"name": "a"}, InvalidOption, "queue_name is missing"),
    ({"queue_name": "emails"}, InvalidOption, "name is missing"),
    ({"name": "a", "queue_name": "emails", "prefix": "p"}, InvalidOption, "unknown key 'prefix'"),
    ({"name": "a", "queue_name": "a\x00b"}, InvalidOption, "control characters"),
    ({"name": "a\x00", "queue_name": "emails"}, InvalidOption, "control characters"),
    ({"name": "a" * 256, "queue_name": "emails"}, InvalidOption, "1 to 255 characters"),
    ({"name": 7, "queue_name": "emails"}, InvalidOptionType, "must be text"),
    ({"name": "a", "queue_name": "emails", "opts": [1]}, InvalidOptionType, "opts must be"),
    ({"name": "a", "queue_name": "emails", "children": "c"}, InvalidOptionType, "children must be"),
    ({"name": "a", "queue_name": "emails", "children": [7]}, InvalidOptionType, r"children\[0\]"),
    (ITSELF, InvalidOption, "holds itself"),
]


async def test_a_bad_node_of_a_flow_is_refused(queue: Queue) -> None:
    for node, error, message in NODES:
        with case((node, error, message)):
            flows = FlowProducer(queue.store)
            above: Any = {"name": "fine", "queue_name": "emails", "children": [node]}
            with pytest.raises(error, match=message):
                await flows.add(node)
            if message != "queue_name is missing":  # a child may leave it out
                with pytest.raises(error, match=message):
                    await flows.add_bulk([{"name": "fine", "queue_name": "emails"}, above])
            assert await queue.get_job_count_by_types() == 0


async def test_a_circle_of_jobs_is_refused(queue: Queue) -> None:
    circle: Any = [
        {"name": "a", "opts": {"job_id": "one", "depends_on": "two"}},
        {"name": "a", "opts": {"job_id": "two", "depends_on": "one"}},
    ]
    with pytest.raises(DependencyCycle):
        await queue.add_bulk(circle)
    with pytest.raises(DependencyCycle):
        await queue.add(
            "a", job_id="p", children=[{"name": "c", "opts": {"depends_on": "p", "job_id": "c"}}]
        )
    assert await queue.get_job_count_by_types() == 0


async def test_a_limiter_has_two_keys_and_no_other(queue: Queue) -> None:
    for limiter in [
        {"max": 1},
        {"max": 1, "duration": 1, "group": "g"},
        {"maximum": 1, "duration": 1},
    ]:
        with case(limiter):
            with pytest.raises(InvalidOption, match="max and duration and nothing else"):
                Worker(queue, None, limiter=limiter)
            with pytest.raises(InvalidOption, match="max and duration and nothing else"):
                await queue.configure(max_rate=limiter)


def test_every_error_is_of_one_family_and_bad_input_is_what_python_calls_it() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, BaseException)
    ]
    others = [cls.__name__ for cls in classes if not issubclass(cls, BulliteError)]
    assert others == ["JobSuspended"]  # which `except Exception` must not stop
    refusing = [InvalidOption, ParentNotFound, DependencyNotFound, DependencyCycle]
    assert all(issubclass(cls, ValueError) for cls in refusing)
    assert issubclass(InvalidOptionType, TypeError)
    assert issubclass(ParentNotFound, JobNotFound)
