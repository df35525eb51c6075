"""Flows: trees of jobs over several queues; each parent waits for its children."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NotRequired, Self, TypedDict

from ..core.checks import check_int
from ..core.job_flags import DOWNSTREAM
from ..core.job_options import JobOptions
from ..core.names import check_name
from ..errors import InvalidOption, InvalidOptionType
from .job.job import Job
from .queue.add import MAX_AT_ONCE
from .queue.flow_builder import FlatNode, FlowDefinition, FlowNode, add_flow, check
from .queue.queue import Queue
from .queue.reads import jobs_in_queues
from .runtime import bridge
from .runtime.store import Store

MAX_DEPTH, MAX_CHILDREN = 10_000, 100_000
"""The most levels, and the most children of each kind, that `get_flow` returns."""


class FlowJob(TypedDict):
    """A job of a flow, with its children if it has any."""

    job: Job
    children: NotRequired[list[FlowJob]]


class QueueDefaults(TypedDict, total=False):
    """Defaults for the jobs that a flow adds to one queue."""

    default_job_options: JobOptions


class FlowProducer:
    """Adds and reads flows.

    `store` is what `Queue` takes. A node is `{"name", "queue_name", "data", "opts", "children"}`.
    """

    def __init__(self, store: Store | str | os.PathLike[str] | None = None) -> None:
        self._owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else Store(store)

    # --- adding ---

    async def add(
        self, flow: FlowNode, *, queues_options: Mapping[str, QueueDefaults] | None = None
    ) -> FlowJob:
        """Add a tree of jobs in one transaction; each waits until its children have completed.

        `queues_options` holds `default_job_options` for the jobs of each queue.
        """
        [added] = await self._add([flow], self._finder(queues_options))
        return added

    async def add_bulk(
        self,
        flows: Iterable[FlowNode],
        *,
        queues_options: Mapping[str, QueueDefaults] | None = None,
        chunk: int | None = None,
        on_chunk: Callable[[int], object] | None = None,
    ) -> list[FlowJob]:
        """Add many trees in one transaction; with `chunk`, each `chunk` trees in a transaction of
        their own, and after each `on_chunk` is called with the number of trees stored so far."""
        if isinstance(flows, str | Mapping) or not isinstance(flows, Iterable):
            raise InvalidOptionType(f"add_bulk takes a list of flows, not {flows!r}")
        given, find = list(flows), self._finder(queues_options)
        if chunk is None:
            return await self._add(given, find)
        check_int("chunk", chunk, 1, MAX_AT_ONCE)
        await self.wait_until_ready()
        chunks = [given[start : start + chunk] for start in range(0, len(given), chunk)]
        for some in chunks:
            await check(FlowDefinition(some, find))
        stored: list[FlowJob] = []
        for some in chunks:
            stored += await self._add(some, find)
            if on_chunk is not None:
                on_chunk(len(stored))
        return stored

    async def _add(self, flows: Sequence[Any], find: Callable[[str], Queue]) -> list[FlowJob]:
        if not flows:
            return []
        await self.wait_until_ready()
        return _as_trees(*await add_flow(FlowDefinition(flows, find)))

    def _finder(self, queues_options: Mapping[str, QueueDefaults] | None) -> Callable[[str], Queue]:
        options = _check_queues_options(queues_options)
        queues: dict[str, Queue] = {}

        def find(name: str) -> Queue:
            if name not in queues:
                queues[name] = Queue(name, self.store, default_job_options=options.get(name))
            return queues[name]

        return find

    # --- reading ---

    async def get_flow(
        self, queue_name: str, id: str, *, depth: int = 10, max_children: int = 20
    ) -> FlowJob | None:
        """Return the tree of a job: at most `depth` levels, and `max_children` of a kind per job.

        Return None if there is no such job. Deleted children are left out.
        """
        check_int("depth", depth, 1, MAX_DEPTH)
        check_int("max_children", max_children, 1, MAX_CHILDREN)
        await self.wait_until_ready()
        find = self._finder(None)
        root = await find(check_name("queue_name", queue_name)).get_job(id)
        if root is None:
            return None
        tree: FlowJob = {"job": root}
        level = [tree]
        for _ in range(depth - 1):
            below: list[FlowJob] = []
            for node in level:
                children = await self._children(node["job"], find, max_children)
                if children:
                    node["children"] = children
                    below += children
            level = below
        return tree

    async def _children(
        self, parent: Job, find: Callable[[str], Queue], most: int
    ) -> list[FlowJob]:
        if not parent._flags & DOWNSTREAM:
            return []
        there: list[tuple[int, str]] = []
        for state in ("processed", "pending", "ignored", "failed"):
            params = {"job": parent.pk, "state": state, "most": most, "after": 0}
            rows = await bridge.query(self.store, "children_page", params)
            there += [(number, queue_name) for number, queue_name in rows]
        return [{"job": job} for job in await jobs_in_queues(there, find)]

    # --- opening and closing ---

    async def wait_until_ready(self) -> None:
        """Open the store."""
        if not self.store.is_open:
            await bridge.run_in_thread(self.store.open)

    async def close(self) -> None:
        """Close the store if this object opened it. Accepted requests are written first."""
        if self._owns_store:
            await bridge.run_in_thread(self.store.close)

    disconnect = close

    async def __aenter__(self) -> Self:
        await self.wait_until_ready()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def _check_queues_options(given: Any) -> dict[str, JobOptions]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidOptionType(f"queues_options must be a mapping, not {given!r}")
    options: dict[str, JobOptions] = {}
    for name, settings in given.items():
        if not isinstance(settings, Mapping) or settings.keys() - {"default_job_options"}:
            raise InvalidOption(
                f"queues_options[{name!r}] must be {{'default_job_options': ...}}, not {settings!r}"
            )
        options[name] = settings.get("default_job_options", {})
    return options


def _as_trees(flat_nodes: Sequence[FlatNode], jobs: Sequence[Job]) -> list[FlowJob]:
    trees: list[FlowJob] = []
    nodes: list[FlowJob] = []
    for flat_node, job in zip(flat_nodes, jobs, strict=True):
        node: FlowJob = {"job": job}
        nodes.append(node)
        if flat_node.parent is None:
            trees.append(node)
        else:
            nodes[flat_node.parent].setdefault("children", []).append(node)
    return trees
