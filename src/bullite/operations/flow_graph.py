"""The graph of a new flow: existing jobs, links between jobs, and the check for cycles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from ..core.codec import as_json
from ..core.names import job_number
from ..core.states import State
from ..errors import (
    BulliteError,
    DependencyCycle,
    DependencyNotFound,
    ParentNotFound,
    ParentTaken,
)
from .add import NewJob
from .dependencies import CHILD, DEPENDENCY
from .queues import OpenedQueue
from .transaction import Operation
from .transitions import LockedJob, allocate_ids, load_for_update

_ENDED = (State.COMPLETED, State.FAILED)


class FlowRef(NamedTuple):
    """A job, by the name of its queue and its id."""

    queue: str
    id: str

    @property
    def key(self) -> str:
        """Return a text that is unique for the pair: the first colon ends the name of the queue."""
        return f"{self.queue.replace('%', '%25').replace(':', '%3A')}:{self.id}"


class Node(NamedTuple):
    """A job to be added, and its links to other jobs."""

    queue: int
    queue_name: str
    job: NewJob
    parent: int | FlowRef | None = None
    """The index of another node, or an existing job."""
    policy: str = "wait"
    """The effect of its failure on its parent."""
    depends_on: tuple[FlowRef, ...] = ()
    on_failure: str = "wait"
    """The effect of the failure of a dependency on this job."""


class Edge(NamedTuple):
    downstream: int
    upstream: int
    kind: str
    policy: str
    key: str

    @property
    def jobs(self) -> tuple[int, int]:
        return self.downstream, self.upstream


class FlowRejected(Exception):
    """The flow is rejected with this error: nothing is added."""

    def __init__(self, error: BulliteError) -> None:
        self.error = error


class ExistingJobs(NamedTuple):
    """The existing jobs that are the jobs of nodes, their parents or their dependencies."""

    ids: dict[FlowRef, int]
    jobs: dict[int, LockedJob]


def load_existing(nodes: Sequence[Node]) -> Operation[ExistingJobs]:
    queues = {node.queue_name: node.queue for node in nodes}
    wanted: dict[str, set[str]] = defaultdict(set)
    for ref in _named(nodes):
        wanted[ref.queue].add(ref.id)
    found: dict[FlowRef, int] = {}
    for name, ids in wanted.items():
        if name not in queues:
            known = yield "queue_named", {"name": name}
            if not known.rows:
                continue
            queues[name] = OpenedQueue(*known.rows[0]).id
        params = {"queue": queues[name], "custom_ids": as_json(sorted(ids))}
        taken = (yield "taken_custom_ids", params).rows
        found |= {FlowRef(name, custom_id): job for custom_id, job in taken}
        numbers = {FlowRef(name, id): job_number(id) for id in ids}
        found |= {ref: number for ref, number in numbers.items() if number is not None}
    rows = yield from load_for_update(sorted(set(found.values())))
    there = {
        ref: job
        for ref, job in found.items()
        if job in rows
        and rows[job].state != State.REMOVED
        and queues[ref.queue] in (rows[job].queue, rows[job].original_queue)
    }
    return ExistingJobs(there, {job: rows[job] for job in there.values()})


def _named(nodes: Iterable[Node]) -> Iterable[FlowRef]:
    """Return all jobs that may exist already."""
    for node in nodes:
        if node.job.custom_id:
            yield FlowRef(node.queue_name, node.job.custom_id)
        if isinstance(node.parent, FlowRef):
            yield node.parent
        yield from node.depends_on


def assign_ids(nodes: Sequence[Node], existing: ExistingJobs) -> Operation[list[int]]:
    """Return the pk of the job of each node: of an existing job, of an equal node, or a new one."""
    fresh = iter((yield from allocate_ids(len(nodes))))
    ids: list[int] = []
    for node in nodes:
        ref = FlowRef(node.queue_name, node.job.custom_id) if node.job.custom_id else None
        id = existing.ids.get(ref) if ref else None
        if id is None:
            id = next(fresh)
            if ref:
                existing.ids[ref] = id
        ids.append(id)
    return ids


def build_links(nodes: Sequence[Node], ids: Sequence[int], existing: ExistingJobs) -> list[Edge]:
    edges: dict[tuple[int, int], Edge] = {}
    for node, id in zip(nodes, ids, strict=True):
        key = FlowRef(node.queue_name, node.job.custom_id or str(id)).key
        parent = node.parent
        if isinstance(parent, FlowRef):
            if parent not in existing.ids:
                raise FlowRejected(ParentNotFound(f"the parent {parent.key} does not exist"))
            _check_can_wait(parent, existing)
            above: int | None = existing.ids[parent]
        else:
            above = None if parent is None else ids[parent]
        if above is not None:
            edges[above, id] = Edge(above, id, CHILD, node.policy, key)
        for ref in node.depends_on:
            if ref not in existing.ids:
                raise FlowRejected(
                    DependencyNotFound(f"depends_on names {ref.key}, which does not exist")
                )
            upstream = existing.ids[ref]
            edge = Edge(id, upstream, DEPENDENCY, node.on_failure, ref.key)
            edges.setdefault((id, upstream), edge)
    return list(edges.values())


def _check_can_wait(parent: FlowRef, existing: ExistingJobs) -> None:
    row = existing.jobs.get(existing.ids[parent])
    if row is not None and row.state in _ENDED:
        raise FlowRejected(
            ParentTaken(f"the parent {parent.key} is {row.state}: it waits for nobody")
        )


def drop_existing_links(edges: list[Edge], existing: ExistingJobs) -> Operation[list[Edge]]:
    """Return the links that are new. Raise FlowRejected if a job has another parent already.

    An existing job may get a parent, but no dependencies: those were given when it was added.
    """
    known = [edge.upstream for edge in edges if edge.upstream in existing.jobs]
    parents: dict[int, set[int]] = defaultdict(set)
    if known:
        result = yield "parents_of", {"jobs": as_json(known)}
        for child, parent, _ in result.rows:
            parents[child].add(parent)
    kept: list[Edge] = []
    for edge in edges:
        below = existing.jobs.get(edge.downstream)
        if below is not None and (below.state in _ENDED or edge.kind == DEPENDENCY):
            continue
        if edge.kind == CHILD and edge.downstream in parents[edge.upstream]:
            continue
        if edge.kind == CHILD and parents[edge.upstream]:
            raise FlowRejected(ParentTaken(f"job {edge.key} has another parent, which it keeps"))
        if edge.kind == CHILD:
            parents[edge.upstream].add(edge.downstream)
        kept.append(edge)
    return kept


def check_cycles(edges: Sequence[Edge], existing: ExistingJobs) -> Operation[None]:
    graph: dict[int, set[int]] = defaultdict(set)
    for edge in edges:
        graph[edge.downstream].add(edge.upstream)
    sources = {edge.upstream for edge in edges if edge.upstream in existing.jobs}
    if sources and any(edge.downstream in existing.jobs for edge in edges):
        for downstream, upstream in (yield from _load_dependencies(sources, existing)):
            graph[downstream].add(upstream)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        keys: dict[int, Any] = {edge.upstream: edge.key for edge in edges}
        cycle = " -> ".join(str(keys.get(job, job)) for job in error.args[1])
        raise FlowRejected(
            DependencyCycle(f"these jobs would wait for each other: {cycle}; nothing was added")
        ) from None


def _load_dependencies(
    jobs: Collection[int], existing: ExistingJobs
) -> Operation[Sequence[Sequence[int]]]:
    """Return the links, as (downstream, upstream), among all jobs that these jobs wait for.

    Lock these jobs: another transaction may be adding the other half of a cycle.
    """
    held = set(existing.jobs)
    while True:
        found = yield "transitive_dependencies", {"jobs": as_json(sorted(jobs))}
        met = {job for row in found.rows for job in row} - held
        if not met:
            return found.rows
        yield from load_for_update(sorted(met))
        held |= met
