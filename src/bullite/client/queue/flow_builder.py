"""Convert trees of nodes, as users write them, to jobs that are added together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

from ...core.dependency_options import DependencyOptions, JobRef, check_children
from ...core.job_options import CheckedOptions, JobOptions
from ...core.job_record import JobStatusRow
from ...core.names import check_name
from ...core.states import State
from ...errors import BulliteError, InvalidOption, InvalidOptionType
from ...operations.add import NewJob, StaleSettings
from ...operations.add_flow import AddFlow, FlowAdded, StoredNode
from ...operations.flow_graph import FlowRef, Node
from ..job.job import Job
from ..runtime import bridge
from .inserted_jobs import former_holder, inserted_job
from .reads import jobs_with_pks

if TYPE_CHECKING:
    from .add import AddMethods

Made = TypeVar("Made")

MAX_FLOW_SIZE = 100_001
"""Jobs that are added in one transaction: a parent and 100,000 children."""

MAX_REPORTED = 50
"""Steps of the path to a bad node that an error names."""

_KEYS = frozenset({"name", "queue_name", "data", "opts", "children"})


class FlowNode(TypedDict, total=False):
    """A job of a flow, and the children it waits for."""

    name: str
    queue_name: str
    data: Any
    opts: JobOptions
    children: Sequence[FlowNode]


class FlatNode(NamedTuple):
    """One node, with the index of its parent among all nodes."""

    queue: AddMethods
    name: Any
    data: Any
    options: CheckedOptions
    parent: int | None
    number: int
    """Its index among the children of its parent, or among the roots."""


class _Todo(NamedTuple):
    """A node that is not converted yet."""

    node: Any
    usual: AddMethods | None
    """The queue of a node that names none."""
    parent: int | None
    number: int


class FlowDefinition(NamedTuple):
    """Trees of nodes, and how to find their queues."""

    roots: Sequence[Any]
    find: Callable[[str], AddMethods]
    """Returns the queue of a name."""
    default: AddMethods | None = None
    """The queue of roots that name none."""
    called: str = "flow"
    """The word for a root in errors."""

    def where(self, flat_nodes: Sequence[FlatNode], item: _Todo | FlatNode) -> str:
        """Return the path of a node in its tree, for errors."""
        path: list[str] = []
        while item.parent is not None:
            path.append(f"children[{item.number}]")
            item = flat_nodes[item.parent]
        called = self.called
        path.append(f"the {called}" if len(self.roots) == 1 else f"{called}s[{item.number}]")
        if len(path) > MAX_REPORTED:
            path[1:-1] = [f"{len(path) - 2} levels down"]
        return ", ".join(reversed(path))

    async def queues(self) -> None:
        """Open all queues that are named anywhere. Bad nodes are reported later, by `flatten`."""
        todo, seen = list(self.roots), set[int]()
        names: set[str] = set()
        while todo:
            node = todo.pop()
            if not isinstance(node, Mapping) or id(node) in seen:
                continue
            seen.add(id(node))
            if "queue_name" in node:
                with suppress(BulliteError):
                    names.add(check_name("queue_name", node["queue_name"]))
            options = node.get("opts")
            more = options.get("children") if isinstance(options, Mapping) else None
            for children in (node.get("children"), more):
                if isinstance(children, Sequence) and not isinstance(children, str):
                    todo += children
        for queue in [self.find(name) for name in sorted(names)]:
            await queue.wait_until_ready()


def flatten(definition: FlowDefinition) -> list[FlatNode]:
    """Return all nodes of these trees, parents before children, with their options checked."""
    flat_nodes: list[FlatNode] = []
    # Depth is not bounded: no recursion. A node that is closed again comes back as its number.
    todo: list[_Todo | int] = []
    todo += [_Todo(root, definition.default, None, n) for n, root in enumerate(definition.roots)][
        ::-1
    ]
    open_nodes: set[int] = set()
    while todo:
        item = todo.pop()
        if isinstance(item, int):
            open_nodes.discard(item)
            continue
        if id(item.node) in open_nodes:
            raise InvalidOption(f"{definition.where(flat_nodes, item)} holds itself")
        try:
            flat_node, children = _flat_node(item, definition.find)
        except BulliteError as error:
            raise type(error)(f"{definition.where(flat_nodes, item)}: {error}") from error
        index = len(flat_nodes)
        flat_nodes.append(flat_node)
        if len(flat_nodes) > MAX_FLOW_SIZE:
            raise InvalidOption(
                f"a flow has at most {MAX_FLOW_SIZE - 1} jobs below its root, which are added in "
                "one transaction; add flows with add_bulk(flows, chunk=n), or children with parent="
            )
        open_nodes.add(id(item.node))
        todo.append(id(item.node))
        todo += [_Todo(child, flat_node.queue, index, n) for n, child in enumerate(children)][::-1]
    return flat_nodes


def _flat_node(item: _Todo, find: Callable[[str], AddMethods]) -> tuple[FlatNode, Sequence[Any]]:
    node = item.node
    if not isinstance(node, Mapping):
        raise InvalidOptionType(f"a node must be a mapping with name and queue_name, not {node!r}")
    unknown = [key for key in node if key not in _KEYS]
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise InvalidOption(f"unknown key {unknown[0]!r}; the keys are: {known}")
    queue = item.usual
    if "queue_name" in node:
        queue = find(check_name("queue_name", node["queue_name"]))
    if queue is None:
        raise InvalidOption("queue_name is missing")
    options = node.get("opts") or {}
    if not isinstance(options, Mapping):
        raise InvalidOptionType(f"opts must be a mapping, not {options!r}")
    if "name" not in node:
        raise InvalidOption("name is missing")
    children = check_children(node.get("children"))
    checked = queue._factory.check(options)
    children = children or (checked.dependencies.children if checked.dependencies else ())
    if checked.deduplication and (children or item.parent is not None):
        raise InvalidOption(
            "deduplication cannot be used on a node with children, nor on a child: it might be "
            "left out"
        )
    if (
        item.parent is not None
        and checked.dependencies is not None
        and checked.dependencies.parent is not None
    ):
        raise InvalidOption("parent: a child in a flow has its parent already")
    flat_node = FlatNode(queue, node["name"], node.get("data"), checked, item.parent, item.number)
    return flat_node, children


def check_early(definition: FlowDefinition) -> None:
    """Raise what is wrong with a node whatever the settings of its queue are. Opens no queue."""
    _each(definition, flatten(definition), _job)


async def check(definition: FlowDefinition) -> None:
    """Open the queues. Raise what is wrong with any of the nodes."""
    await definition.queues()
    _nodes(definition, flatten(definition))


async def add_flow(definition: FlowDefinition) -> tuple[list[FlatNode], list[Job]]:
    """Add the jobs of all nodes in one transaction."""
    await definition.queues()
    while True:
        flat_nodes = flatten(definition)
        queues = {flat_node.queue.name: flat_node.queue for flat_node in flat_nodes}
        nodes = _nodes(definition, flat_nodes)
        versions = {queue._pk: queue._ready().version for queue in queues.values()}
        request = AddFlow(nodes, versions)
        added: FlowAdded | StaleSettings = await bridge.submit(flat_nodes[0].queue.store, request)
        if isinstance(added, FlowAdded):
            return flat_nodes, await _as_jobs(flat_nodes, nodes, added)
        for queue in queues.values():
            await queue._open_row()


def _nodes(definition: FlowDefinition, flat_nodes: Sequence[FlatNode]) -> list[Node]:
    return _each(definition, flat_nodes, _node)


def _each(
    definition: FlowDefinition, flat_nodes: Sequence[FlatNode], make: Callable[[FlatNode], Made]
) -> list[Made]:
    made: list[Made] = []
    for flat_node in flat_nodes:
        try:
            made.append(make(flat_node))
        except BulliteError as error:
            raise type(error)(f"{definition.where(flat_nodes, flat_node)}: {error}") from error
    return made


def _job(flat_node: FlatNode) -> NewJob:
    return flat_node.queue._factory.new_job(flat_node.name, flat_node.data, flat_node.options)


def _node(flat_node: FlatNode) -> Node:
    queue, options = flat_node.queue, flat_node.options
    job = _job(flat_node)
    links = options.dependencies or DependencyOptions(policy=options.policy)
    parent: int | FlowRef | None = flat_node.parent
    if parent is None and links.parent is not None:
        parent = _ref(links.parent, queue)
    depends_on = tuple(_ref(other, queue) for other in links.depends_on)
    return Node(queue._pk, queue.name, job, parent, links.policy, depends_on, links.on_failure)


def _ref(other: JobRef, queue: AddMethods) -> FlowRef:
    return FlowRef(queue.name if other.queue is None else other.queue, other.id)


async def _as_jobs(
    flat_nodes: Sequence[FlatNode], nodes: Sequence[Node], added: FlowAdded
) -> list[Job]:
    jobs: list[Job] = []
    found = await _found_again(flat_nodes, added)
    met = set(added.existing)
    for flat_node, node, id in zip(flat_nodes, nodes, added.ids, strict=True):
        queue = flat_node.queue
        if id in met:
            kept = found.get(id) or former_holder(queue, node.job, id, added)
            jobs.append(kept or inserted_job(queue, node.job, id, added.created_at))
            continue
        met.add(id)
        stored = added.stored.get(id)
        job = inserted_job(queue, stored.job if stored else node.job, id, added.created_at)
        if stored is not None:
            job._apply_stored(_status(stored, added.created_at))
        jobs.append(job)
        if queue.hears("added", "waiting", "delayed", "waiting-children"):
            queue.emit("added", job)
            queue.emit(job.state if job.state != "prioritized" else State.WAITING.value, job)
    return jobs


async def _found_again(flat_nodes: Sequence[FlatNode], added: FlowAdded) -> dict[int, Job]:
    """Read the jobs that existed before, or that several nodes stand for."""
    met = set(added.existing)
    by_queue: dict[AddMethods, list[int]] = {}
    for flat_node, id in zip(flat_nodes, added.ids, strict=True):
        if id in met:
            by_queue.setdefault(flat_node.queue, []).append(id)
        met.add(id)
    found: dict[int, Job] = {}
    for queue, numbers in by_queue.items():
        found |= await jobs_with_pks(queue, numbers)
    return found


def _status(stored: StoredNode, now: int) -> JobStatusRow:
    rare = stored.job.rare_fields
    expires = None if rare is None or rare.expires is None else now + rare.expires
    return JobStatusRow(
        stored.state.value,
        stored.job.lifo,
        stored.job.delay,
        stored.due_at,
        updated_at=now,
        expires_at=expires,
    )
