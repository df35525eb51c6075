"""Links of a job: its parent, its children, and the jobs that it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ...core.checks import check_int
from ...core.codec import decode, encode_plain
from ...core.dependency_options import ParentRef, check_relative
from ...core.job_flags import UPSTREAM
from ...core.states import State
from ...errors import InvalidOption, InvalidOptionType
from ...operations.children import AwaitChildren, DetachFromParent, RemoveUnprocessedChildren
from ...operations.dependencies import (
    CHILD,
    DEPENDENCY,
    FAILED,
    IGNORED,
    PENDING,
    PROCESSED,
    REMOVED,
)
from ...operations.flow_graph import FlowRef
from ..runtime import bridge
from ..runtime.pending import Pending
from .base import JobBase

AT_ONCE = 1_000
"""Links read at a time."""

LINK_STATES = (PENDING, PROCESSED, IGNORED, FAILED, REMOVED)

KINDS = {
    "processed": "processed",
    "unprocessed": "pending",
    "ignored": "ignored",
    "failed": "failed",
}
"""Kinds of children, and the state of their links."""


class Page(TypedDict, total=False):
    """Part of a list: at most `count` entries after `cursor`."""

    cursor: int
    count: int


class JobDependencies(JobBase):
    """A job, and the jobs it is linked to."""

    __slots__ = ()

    # --- above ---

    @property
    def parent(self) -> ParentRef | None:
        """Parent of the job as {"id", "queue"}; None if it has none."""
        if not self._flags & UPSTREAM:
            return None
        parent: ParentRef | None = self._stored_options.get("parent")
        return parent

    @property
    def parent_id(self) -> str | None:
        """Id of the parent; None if the job has none."""
        return None if self.parent is None else self.parent["id"]

    @property
    def parent_key(self) -> str | None:
        """The parent as `queue:id`; None if the job has none."""
        return None if self.parent is None else FlowRef(self.parent["queue"], self.parent["id"]).key

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Ids of the jobs given as `depends_on`."""
        return tuple(id for _, id in self._stored_options.get("depends_on", ()))

    def remove_child_dependency(self) -> Pending[bool]:
        """Detach the job from its parent, which no longer waits for it. Return True.

        Raise NotAChild if the job has no parent, or was detached before; JobNotFound if the job is
        gone.
        """

        def left(had_parent: bool) -> bool:
            options = {key: v for key, v in self._stored_options.items() if key != "parent"}
            self._options = options
            self._change_columns(opts=encode_plain(options).decode() if options else None)
            return had_parent

        return self._submit(DetachFromParent(self.pk), left)

    # --- below ---

    def move_to_waiting_children(
        self, token: str | None = None, *, child: Any = None
    ) -> Pending[bool]:
        """End this run if the job has unfinished children; it runs again after they have finished.

        Return True if the job waits: in a processor, raise WaitingChildrenError next. Return False
        if there is nothing to wait for. With `child`, only that child counts. Uses no attempt.
        Raise ChildFailed if a child failed whose failure fails its parent.
        """
        run = self._held_run(token)
        key = None
        if child is not None:
            other = check_relative("child", child)
            key = FlowRef(other.queue or "", other.id).key

        def answered(must_wait: bool) -> bool:
            if must_wait:
                self._set_state(State.WAITING_CHILDREN)
            else:
                run.moving = None
            return must_wait

        run.moving = moving = self._submit(AwaitChildren(self.pk, run.token_number, key), answered)
        return moving

    async def get_children_values(self) -> dict[str, Any]:
        """Return the return values of the completed children, by key `queue:id`."""
        links = await self._links(CHILD, "processed")
        return {key: decode(value) for _, key, value in links if value}

    async def get_dependency_values(self) -> dict[str, Any]:
        """Return the return values of the completed dependencies, by key `queue:id`."""
        links = await self._links(DEPENDENCY, "processed")
        return {key: decode(value) for _, key, value in links if value}

    async def get_ignored_children_failures(self) -> dict[str, str]:
        """Return the reasons of failed children that were ignored, by key `queue:id`."""
        return {key: value or "" for _, key, value in await self._links(CHILD, "ignored")}

    get_failed_children_values = get_ignored_children_failures

    async def get_dependencies(
        self,
        *,
        processed: Page | bool | None = None,
        unprocessed: Page | bool | None = None,
        ignored: Page | bool | None = None,
        failed: Page | bool | None = None,
    ) -> dict[str, Any]:
        """Return the children by kind: `processed` with return values and `ignored` with reasons,
        both by key; `unprocessed` and `failed` as lists of keys.

        Give True for each kind to read, or a page such as `{"cursor": 0, "count": 20}`; without
        any, all four are read. A page is returned with `next_<kind>_cursor`, 0 at the end.
        """
        asked = {
            "processed": processed,
            "unprocessed": unprocessed,
            "ignored": ignored,
            "failed": failed,
        }
        wanted = {kind: page for kind, page in asked.items() if page is not None}
        answer: dict[str, Any] = {}
        for kind, page in (wanted or dict.fromkeys(KINDS, True)).items():
            if page is False:
                continue
            if page is True:
                links = await self._links(CHILD, KINDS[kind])
            else:
                links, cursor = await self._page_of_links(kind, page)
                answer[f"next_{kind}_cursor"] = cursor
            answer[kind] = _as_reported(kind, links)
        return answer

    async def get_dependencies_count(
        self,
        *,
        processed: bool | None = None,
        unprocessed: bool | None = None,
        ignored: bool | None = None,
        failed: bool | None = None,
    ) -> dict[str, int]:
        """Return the number of children of each kind, or of the kinds given as True."""
        asked = {
            "processed": processed,
            "unprocessed": unprocessed,
            "ignored": ignored,
            "failed": failed,
        }
        wanted = [kind for kind, is_asked in asked.items() if is_asked] or list(KINDS)
        rows = await bridge.query(self._store, "link_counts", {"job": self.pk})
        counts = dict(rows)
        return {kind: counts.get(KINDS[kind], 0) for kind in wanted}

    def remove_unprocessed_children(self) -> Pending[int]:
        """Remove the descendants that have not started. Return their number."""
        return self._submit(RemoveUnprocessedChildren(self.pk), lambda removed: removed)

    # --- underneath ---

    async def _links(self, kind: str, state: str) -> Sequence[Sequence[Any]]:
        """Return the links of a kind in a state: primary key, key and value."""
        links: list[Sequence[Any]] = []
        after = 0
        while True:
            rows = await self._rows(kind, state, after, AT_ONCE)
            links += rows
            if len(rows) < AT_ONCE:
                return links
            *_, (after, _, _) = rows

    async def _page_of_links(self, kind: str, page: Any) -> tuple[Sequence[Sequence[Any]], int]:
        if not isinstance(page, Mapping):
            raise InvalidOptionType(f'{kind} must be True or {{"cursor", "count"}}, not {page!r}')
        unknown = [key for key in page if key not in ("cursor", "count")]
        if unknown:
            raise InvalidOption(f"{kind} has an unknown key {unknown[0]!r}; give cursor and count")
        cursor = check_int(f"{kind} cursor", page.get("cursor", 0), 0, 2**62)
        count = check_int(f"{kind} count", page.get("count", 20), 1, 100_000)
        rows = await self._rows(CHILD, KINDS[kind], cursor, count + 1)
        if len(rows) <= count:
            return rows, 0
        *there, _ = rows
        *_, (following, _, _) = there
        return there, following

    async def _rows(self, kind: str, state: str, after: int, most: int) -> Sequence[Sequence[Any]]:
        params = {"job": self.pk, "kind": kind, "state": state, "after": after, "most": most}
        return await bridge.query(self._store, "links_page", params)


async def dependency_states(job: JobDependencies) -> dict[FlowRef, str | None]:
    """Return the jobs that a job depends on, with the states of the links to them.

    The state is None if the link is gone.
    """
    own = job.original_queue or job.queue_name
    wanted = [FlowRef(name or own, id) for name, id in job._stored_options.get("depends_on", ())]
    states: dict[str, str] = {}
    for state in LINK_STATES if wanted else ():
        states |= {key: state for _, key, _ in await job._links(DEPENDENCY, state)}
    return {ref: states.get(ref.key) for ref in wanted}


def _as_reported(kind: str, links: Sequence[Sequence[Any]]) -> Any:
    if kind == "processed":
        return {key: None if value is None else decode(value) for _, key, value in links}
    if kind == "ignored":
        return {key: value or "" for _, key, value in links}
    return [key for _, key, _ in links]
