"""Results of asynchronous methods that contain jobs, with blocking jobs instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from .job import Job

if TYPE_CHECKING:
    from ..client.flow import FlowJob as AsyncFlowJob
    from ..client.job.job import Job as AsyncJob
    from ..client.queue.reads import Found as AsyncFound


@dataclass(frozen=True, slots=True)
class Found:
    """Jobs that were found, and where the search continues."""

    jobs: list[Job]
    cursor: str | None
    """Give it to `find` with the same criteria for the next page; None at the end."""


class FlowJob(TypedDict):
    """A job of a flow, with its children if it has any."""

    job: Job
    children: NotRequired[list[FlowJob]]


def as_job(job: AsyncJob | None) -> Job | None:
    return None if job is None else Job(job)


def as_jobs(jobs: Iterable[AsyncJob]) -> list[Job]:
    return [Job(job) for job in jobs]


def as_found(found: AsyncFound) -> Found:
    return Found(as_jobs(found.jobs), found.cursor)


def as_dependencies(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "jobs": as_jobs(answer["jobs"])}


def as_tree(tree: AsyncFlowJob) -> FlowJob:
    # No recursion: a tree may be deeper than Python's stack.
    root: FlowJob = {"job": Job(tree["job"])}
    todo = [(tree, root)]
    while todo:
        theirs, ours = todo.pop()
        if "children" in theirs:
            ours["children"] = [{"job": Job(child["job"])} for child in theirs["children"]]
            todo += zip(theirs["children"], ours["children"], strict=True)
    return root


def as_tree_if_any(tree: AsyncFlowJob | None) -> FlowJob | None:
    return None if tree is None else as_tree(tree)


def as_trees(trees: Iterable[AsyncFlowJob]) -> list[FlowJob]:
    return [as_tree(tree) for tree in trees]
