"""From trees of nodes, as users write them, to jobs that are added together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from . import loop
from .errors import BulliteError, InvalidOption, InvalidOptionType
from .job import Fate, Job
from .operations.adding import OutOfDate
from .operations.growing import Grow, Grown, Node, Planted, Ref
from .options import CheckedOptions, JobOptions, check_name
from .states import State
from .ties import Other, Ties, check_children

if TYPE_CHECKING:
    from .queue import Queue

MOST_IN_A_FLOW = 100_001
"""Jobs that are added in one transaction: a parent and 100,000 children."""

_KEYS = frozenset({"name", "queue_name", "data", "opts", "children"})


class FlowNode(TypedDict, total=False):
    """A job of a flow, and the children it waits for."""

    name: str
    queue_name: str
    data: Any
    opts: JobOptions
    children: Sequence[FlowNode]


class Seedling(NamedTuple):
    """One node, with the place of its parent among the others."""

    queue: Queue
    name: Any
    data: Any
    options: CheckedOptions
    parent: int | None
    where: str


Find = Callable[[str], "Queue"]
"""The queue of a name."""


def flatten(roots: Iterable[Any], find: Find, default: Queue | None = None) -> list[Seedling]:
    """All nodes of these trees, parents before children, their options checked."""
    seedlings: list[Seedling] = []
    # Depth is not bounded: no recursion. A node that is closed again comes back as its number.
    todo: list[tuple[Any, Queue | None, int | None, str] | int] = [
        (root, default, None, "the flow") for root in reversed(list(roots))
    ]
    open_nodes: set[int] = set()
    while todo:
        item = todo.pop()
        if isinstance(item, int):
            open_nodes.discard(item)
            continue
        node, usual, parent, where = item
        if id(node) in open_nodes:
            raise InvalidOption(f"{where} holds itself")
        seedling, children = _seedling(node, usual, parent, where, find)
        place = len(seedlings)
        seedlings.append(seedling)
        if len(seedlings) > MOST_IN_A_FLOW:
            raise InvalidOption(
                f"a flow has at most {MOST_IN_A_FLOW - 1} jobs below its root, which are added in "
                "one transaction; add flows with add_bulk(flows, chunk=n), or children with parent="
            )
        open_nodes.add(id(node))
        todo.append(id(node))
        for index in reversed(range(len(children))):
            below = f"{where}, children[{index}]"
            todo.append((children[index], seedling.queue, place, below))
    return seedlings


def _seedling(
    node: Any, usual: Queue | None, parent: int | None, where: str, find: Find
) -> tuple[Seedling, Sequence[Any]]:
    if not isinstance(node, Mapping):
        raise InvalidOptionType(f"{where} must be a mapping with name and queue_name, not {node!r}")
    unknown = [key for key in node if key not in _KEYS]
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise InvalidOption(f"{where} has an unknown key {unknown[0]!r}; the keys are: {known}")
    try:
        if "queue_name" in node:
            queue = find(check_name("queue_name", node["queue_name"]))
        elif usual is None:
            raise InvalidOption("queue_name is missing")
        else:
            queue = usual
        options = node.get("opts") or {}
        if not isinstance(options, Mapping):
            raise InvalidOptionType(f"opts must be a mapping, not {options!r}")
        if "name" not in node:
            raise InvalidOption("name is missing")
        children = check_children(node.get("children"))
        checked = queue.check(options, has_children=bool(children))
        children = children or (checked.ties.children if checked.ties else ())
        if parent is not None and checked.ties is not None and checked.ties.parent is not None:
            raise InvalidOption("parent: a child in a flow has its parent already")
    except BulliteError as error:
        raise type(error)(f"{where}: {error}") from error
    return Seedling(queue, node["name"], node.get("data"), checked, parent, where), children


async def plant(seedlings: Sequence[Seedling]) -> list[Job]:
    """Add the jobs of all nodes in one transaction; all, or none."""
    queues = {seedling.queue.name: seedling.queue for seedling in seedlings}
    for queue in queues.values():
        await queue.wait_until_ready()
    store = seedlings[0].queue.store
    while True:
        nodes = [_node(seedling) for seedling in seedlings]
        versions = {queue.key: queue.settings_version for queue in queues.values()}
        grown: Grown | OutOfDate = await loop.ask(store, Grow(nodes, versions))
        if isinstance(grown, Grown):
            return await _as_jobs(seedlings, nodes, grown)
        for queue in queues.values():
            await queue.look_again()


def _node(seedling: Seedling) -> Node:
    queue, options = seedling.queue, seedling.options
    try:
        job = queue.new_job(seedling.name, seedling.data, options)
    except BulliteError as error:
        raise type(error)(f"{seedling.where}: {error}") from error
    ties = options.ties or Ties(policy=options.policy)
    parent: int | Ref | None = seedling.parent
    if parent is None and ties.parent is not None:
        parent = _ref(ties.parent, queue)
    depends_on = tuple(_ref(other, queue) for other in ties.depends_on)
    return Node(queue.key, queue.name, job, parent, ties.policy, depends_on, ties.on_failure)


def _ref(other: Other, queue: Queue) -> Ref:
    return Ref(queue.name if other.queue is None else other.queue, other.id)


async def _as_jobs(seedlings: Sequence[Seedling], nodes: Sequence[Node], grown: Grown) -> list[Job]:
    jobs: list[Job] = []
    for seedling, node, id in zip(seedlings, nodes, grown.ids, strict=True):
        queue = seedling.queue
        if id in grown.existing:
            found = await queue.job_numbered(id)
            jobs.append(found or queue.as_new_job(node.job, id, grown.created_at))
            continue
        planted = grown.planted.get(id)
        job = queue.as_new_job(planted.job if planted else node.job, id, grown.created_at)
        if planted is not None:
            job.planted(_fate(planted, grown.created_at))
        jobs.append(job)
        if queue.hears("added", "waiting", "delayed", "waiting-children"):
            queue.emit("added", job)
            queue.emit(job.state if job.state != "prioritized" else State.WAITING.value, job)
    return jobs


def _fate(planted: Planted, now: int) -> Fate:
    extras = planted.job.extras
    expires = None if extras is None or extras.expires is None else now + extras.expires
    return Fate(
        planted.state.value,
        planted.job.lifo,
        planted.job.delay,
        planted.due_at,
        updated_at=now,
        expires_at=expires,
    )
