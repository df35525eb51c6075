"""Adds of linked jobs: insert jobs with children, parents or dependencies, all of them or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.codec import as_json, decode
from ..core.event_log import DUPLICATED
from ..core.job_flags import DOWNSTREAM, UPSTREAM
from ..core.states import State
from ..errors import (
    BulliteError,
)
from . import dependencies
from .add import (
    NO_RARE_FIELDS,
    Added,
    AddJobs,
    NewJob,
    StaleSettings,
    add,
    due_time,
    insert,
)
from .deduplicate import lock_keys
from .dependencies import CHILD, FAILED, IGNORED, PENDING, PROCESSED
from .flow_graph import (
    Edge,
    ExistingJobs,
    FlowRef,
    FlowRejected,
    Node,
    assign_ids,
    build_links,
    check_cycles,
    drop_existing_links,
    load_existing,
)
from .queues import QueueAddInfo, load_add_info
from .quotas import QuotaCheck, load_quotas
from .request import Request
from .transaction import Operation, Transaction
from .transitions import load_for_update


class StoredNode(NamedTuple):
    """A new linked job, as it was stored."""

    job: NewJob
    state: State
    due_at: int | None


class FlowAdded(NamedTuple):
    """The ids of the jobs of the nodes, in their order."""

    ids: Sequence[int]
    created_at: int
    existing: frozenset[int]
    stored: Mapping[int, StoredNode]
    """The new jobs with links."""
    behind_keys: Mapping[int, str | None] = {}
    """As in Added."""


class AddFlow(Request):
    """Add nodes, of any queues. Reply with FlowAdded, StaleSettings or an error."""

    nodes: Sequence[Node]
    versions: Mapping[int, int]
    """By queue: the version of the settings with which the options of the jobs were resolved."""
    barrier = True


def add_flow(
    tx: Transaction, requests: Sequence[AddFlow]
) -> Operation[list[FlowAdded | StaleSettings | BulliteError]]:
    replies: list[FlowAdded | StaleSettings | BulliteError] = []
    for request in requests:
        try:
            replies.append((yield from _add_one(tx, request)))
        except FlowRejected as refused:
            replies.append(refused.error)
    return replies


def _add_one(tx: Transaction, request: AddFlow) -> Operation[FlowAdded | StaleSettings]:
    add_info: dict[int, QueueAddInfo] = {}
    checks: dict[int, QuotaCheck] = {}
    for queue, version in sorted(request.versions.items()):
        add_info[queue] = yield from load_add_info(queue)
        if add_info[queue].version != version:
            return StaleSettings()
        if add_info[queue].has_quotas:
            checks[queue] = yield from load_quotas(tx, queue)
    existing_jobs = yield from load_existing(request.nodes)
    ids = yield from assign_ids(request.nodes, existing_jobs)
    edges = build_links(request.nodes, ids, existing_jobs)
    edges = yield from drop_existing_links(edges, existing_jobs)
    yield from check_cycles(edges, existing_jobs)
    new: dict[int, Node] = {}
    for id, node in zip(ids, request.nodes, strict=True):
        if id not in existing_jobs.jobs:
            new.setdefault(id, node)
    linked = {job for edge in edges for job in edge.jobs}
    linked_nodes = {id: node for id, node in new.items() if id in linked}
    unlinked = {id: node for id, node in new.items() if id not in linked}
    if checks:
        yield from _check_quotas(tx, checks, new, unlinked)
    stored = yield from _insert_linked(tx, linked_nodes, edges, add_info)
    numbers, existing, behind_keys = yield from _add_unlinked(tx, unlinked, add_info)
    _tell_duplicates(tx, request.nodes, ids, existing_jobs)
    final = [numbers.get(id, id) for id in ids]
    return FlowAdded(final, tx.now, existing | existing_jobs.jobs.keys(), stored, behind_keys)


def _check_quotas(
    tx: Transaction,
    checks: Mapping[int, QuotaCheck],
    new: Mapping[int, Node],
    unlinked: Mapping[int, Node],
) -> Operation[None]:
    """Check new jobs against the quotas of their queues. Raise FlowRejected if one does not fit.

    Jobs that will not be added, because other jobs hold their deduplication keys, do not count.
    """
    rules = {
        id: rule
        for id, node in unlinked.items()
        if (rule := (node.job.rare_fields or NO_RARE_FIELDS).deduplication) is not None
    }
    keys = yield from lock_keys((unlinked[id].queue, rule.id) for id, rule in rules.items())
    tried = keys.copy()
    left_out = {
        id
        for id, rule in rules.items()
        if tried.resolve(tx.now, unlinked[id].queue, id, unlinked[id].job, rule, State.WAITING)
        is not None
    }
    for queue, check in checks.items():
        here = [n.job for id, n in new.items() if n.queue == queue and id not in left_out]
        refusal = check.admit(here)
        if refusal is not None:
            yield from keys.save(tx)  # no job has taken them
            raise FlowRejected(refusal)
    for queue, check in checks.items():
        yield from check.save(queue)


# --- linked jobs ---------------------------------------------------------------------------------


class _InitialLinks:
    """The rows of new links, and their effects on the jobs that wait."""

    def __init__(self, edges: Sequence[Edge], ended: Mapping[int, _Ended]) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.to_fail: dict[int, str] = {}
        waiting: set[int] = set()
        released: set[int] = set()
        for edge in edges:
            state, value = _state_of(edge, ended.get(edge.upstream))
            if state == FAILED:
                self.to_fail.setdefault(edge.downstream, f"{edge.kind} {edge.key} failed")
            elif state == PENDING:
                waiting.add(edge.downstream)
            elif edge.policy == "continue" and state == IGNORED:
                released.add(edge.downstream)
            if state is not None:
                downstream, upstream, kind, policy, key = edge
                self.rows.append((downstream, upstream, kind, policy, state, key, value))
        self.blocked = waiting - released - self.to_fail.keys()


class _Ended(NamedTuple):
    """A job that had finished before a job was added that waits for it."""

    state: str
    value: str | None
    reason: str | None


def _state_of(edge: Edge, ended: _Ended | None) -> tuple[str | None, str | None]:
    """Return the state of a new link and the stored result or error; None for no link."""
    if ended is None or (ended.state == State.FAILED and edge.policy == "wait"):
        return PENDING, None
    if ended.state == State.COMPLETED:
        return PROCESSED, ended.value or "null"
    if edge.policy == "remove":
        return None, None
    return FAILED if edge.policy == "fail" else IGNORED, ended.reason


def _insert_linked(
    tx: Transaction,
    new: Mapping[int, Node],
    edges: Sequence[Edge],
    add_info: Mapping[int, QueueAddInfo],
) -> Operation[dict[int, StoredNode]]:
    """Insert jobs that have links, and the links."""
    if not edges:
        return {}
    ended = yield from _ended_jobs({edge.upstream for edge in edges} - new.keys())
    initial_links = _InitialLinks(edges, ended)
    parents = {edge.upstream: edge.downstream for edge in edges if edge.kind == CHILD}
    refs = yield from _refs(set(parents.values()), new)
    flags = _flags(edges)
    jobs: dict[int, dict[int, NewJob]] = defaultdict(dict)
    for id, node in new.items():
        parent = refs.get(parents.get(id, 0))
        jobs[node.queue][id] = _with_links(node.job, flags[id], parent)
    has_children = set(parents.values())
    blocked = {
        id: _due_when_free(tx, node.job, id in has_children)
        for id, node in new.items()
        if id in initial_links.blocked
    }
    yield from insert(tx, jobs, add_info, blocked)
    renewed = [edge.jobs for edge in edges if new.keys().isdisjoint(edge.jobs)]
    if renewed:
        yield "unlink_jobs", {"links": as_json(renewed)}
    yield "insert_links", initial_links.rows
    old = flags.keys() - new.keys()
    yield from _set_link_flags(old, flags)
    yield from _set_parent_option({child: refs[parents[child]] for child in old & parents.keys()})
    if initial_links.to_fail:
        rows = yield from load_for_update(sorted(initial_links.to_fail))
        yield from dependencies.defer_failure(tx, list(rows.values()), initial_links.to_fail)
    return {
        id: _stored_nodes(tx, job, id in blocked, blocked.get(id))
        for some in jobs.values()
        for id, job in some.items()
    }


def _stored_nodes(tx: Transaction, job: NewJob, is_blocked: bool, due_at: int | None) -> StoredNode:
    if is_blocked:
        return StoredNode(job, State.WAITING_CHILDREN, due_at)
    due_at = due_time(tx, job)
    return StoredNode(job, State.WAITING if due_at is None else State.DELAYED, due_at)


def _ended_jobs(jobs: Iterable[int]) -> Operation[dict[int, _Ended]]:
    asked = sorted(jobs)
    if not asked:
        return {}
    found = yield "finished_jobs", {"jobs": as_json(asked)}
    return {job: _Ended(*ended) for job, *ended in found.rows}


def _flags(edges: Sequence[Edge]) -> dict[int, int]:
    flags: dict[int, int] = defaultdict(int)
    for edge in edges:
        flags[edge.downstream] |= DOWNSTREAM
        flags[edge.upstream] |= UPSTREAM
    return flags


def _refs(jobs: Iterable[int], new: Mapping[int, Node]) -> Operation[dict[int, FlowRef]]:
    """Return the queue names and the ids of parents."""
    refs: dict[int, FlowRef] = {}
    old: list[int] = []
    for job in jobs:
        if job in new:
            refs[job] = FlowRef(new[job].queue_name, new[job].job.custom_id or str(job))
        else:
            old.append(job)
    if old:
        names = dict((yield "queue_names", {}).rows)
        rows = yield from load_for_update(old)
        refs |= {job: FlowRef(names[p.queue], str(p.public_id)) for job, p in rows.items()}
    return refs


def _with_links(job: NewJob, flags: int, parent: FlowRef | None) -> NewJob:
    extras = job.rare_fields or NO_RARE_FIELDS
    return job._replace(
        opts=_with_parent(job.opts, parent) if parent else job.opts,
        rare_fields=extras._replace(flags=extras.flags | flags),
    )


def _with_parent(opts: str | None, parent: FlowRef) -> str:
    options: dict[str, Any] = {} if opts is None else decode(opts)
    return as_json({**options, "parent": {"id": parent.id, "queue": parent.queue}})


def _due_when_free(tx: Transaction, job: NewJob, has_children: bool) -> int | None:
    """Return the due time of a job that waits for other jobs; None if there is none yet.

    The delay of a parent starts at the end of its last child.
    """
    extras = job.rare_fields or NO_RARE_FIELDS
    return extras.run_at if has_children else due_time(tx, job)


def _set_link_flags(jobs: Iterable[int], flags: Mapping[int, int]) -> Operation[None]:
    """Set the flags of existing jobs that get links."""
    by_flags: dict[int, list[int]] = defaultdict(list)
    for job in jobs:
        by_flags[flags[job]].append(job)
    for some, members in by_flags.items():
        yield "add_flags", {"jobs": as_json(sorted(members)), "traits": some}


def _set_parent_option(parents: Mapping[int, FlowRef]) -> Operation[None]:
    """Set the option `parent` of existing jobs that get a parent."""
    if parents:
        found = yield "job_options", {"jobs": as_json(sorted(parents))}
        for job, opts in found.rows:
            yield "set_opts", {"job": job, "opts": _with_parent(opts, parents[job])}


def _add_unlinked(
    tx: Transaction, nodes: Mapping[int, Node], add_info: Mapping[int, QueueAddInfo]
) -> Operation[tuple[dict[int, int], frozenset[int], dict[int, str | None]]]:
    """Add jobs without links.

    Return their ids by the numbers that were reserved for them, the ids of jobs that existed
    already, and the custom ids of jobs that hold deduplication keys.
    """
    by_queue: dict[int, dict[int, NewJob]] = defaultdict(dict)
    for id, node in nodes.items():
        by_queue[node.queue][id] = node.job
    numbers: dict[int, int] = {}
    existing: frozenset[int] = frozenset()
    behind_keys: dict[int, str | None] = {}
    for queue, here in sorted(by_queue.items()):
        request = AddJobs(queue, list(here.values()), add_info[queue].version, always=True)
        [added] = yield from add(tx, [request])
        assert isinstance(added, Added)
        numbers |= zip(here, added.ids, strict=True)
        existing |= added.existing
        behind_keys |= added.behind_keys
    return numbers, existing, behind_keys


def _tell_duplicates(
    tx: Transaction, nodes: Sequence[Node], ids: Sequence[int], existing_jobs: ExistingJobs
) -> None:
    seen = set(existing_jobs.jobs)
    for node, id in zip(nodes, ids, strict=True):
        if id in seen:
            tx.log(node.queue, DUPLICATED, [node.job.custom_id or id])
        seen.add(id)
