"""Links of a job: its parent, its children, and the jobs that it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ...core.checks import check_int
from ...core.codec import decode
from ...core.dependency_options import ParentRef, check_relative
from ...core.job_flags import UPSTREAM
from ...errors import InvalidOption, InvalidOptionType
from ...operations.children import AwaitChildren, DetachFromParent, RemoveUnprocessedChildren
from ...operations.dependencies import CHILD, DEPENDENCY
from ...operations.flow_graph import FlowRef
from ..runtime import bridge
from ..runtime.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..runtime.store import Store

AT_ONCE = 1_000
"""Links read at a time."""

KINDS = {
    "processed": "processed",
    "unprocessed": "pending",
    "ignored": "ignored",
    "failed": "failed",
}
"""What children can be, and what their links are in then."""


class Page(TypedDict, total=False):
    """Which part of a list is wanted: those after `cursor`, about `count` of them."""

    cursor: int
    count: int


class JobDependencies:
    """The part of a Job that knows its relatives."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def pk(self) -> int: ...
        @property
        def flags(self) -> int: ...
        @property
        def stored_options(self) -> Mapping[str, Any]: ...
        @property
        def _store(self) -> Store: ...
        def _moves(self, moving: Pending[Any] | None) -> None: ...
        def _ask(self, request: Any, read: Callable[[Any], Any]) -> Pending[Any]: ...
        def _held_with(self, token: str | None) -> Any: ...
        def _apply_waiting_children(self) -> None: ...
        def _clear_parent(self) -> None: ...

    # --- above ---

    @property
    def parent(self) -> ParentRef | None:
        """The job that waits for this one, by id and queue."""
        if not self.flags & UPSTREAM:
            return None
        parent: ParentRef | None = self.stored_options.get("parent")
        return parent

    @property
    def parent_id(self) -> str | None:
        return None if self.parent is None else self.parent["id"]

    @property
    def parent_key(self) -> str | None:
        """Its parent as one text, as keys of children are."""
        return None if self.parent is None else FlowRef(self.parent["queue"], self.parent["id"]).key

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The ids of the jobs that this one waits for, or waited for, beside its children."""
        return tuple(id for _, id in self.stored_options.get("depends_on", ()))

    def remove_child_dependency(self) -> Pending[bool]:
        """Belong to nobody from now on: its parent waits for it no more. Return True.

        Raise NotAChild if it has no parent, or its parent has let go of it; JobNotFound if the job
        is gone.
        """

        def left(had_parent: bool) -> bool:
            self._clear_parent()
            return had_parent

        return self._ask(DetachFromParent(self.pk), left)

    # --- below ---

    def move_to_waiting_children(
        self, token: str | None = None, *, child: Any = None
    ) -> Pending[bool]:
        """End this run if the job has children that have not ended: it runs again when they have.

        True if it has to wait: in a processor, raise WaitingChildrenError next. False if there is
        nothing to wait for. With `child`, only that one counts. Raises ChildFailed if a child
        failed that was to fail its parent with it. Costs no attempt.
        """
        held = self._held_with(token)
        key = None
        if child is not None:
            other = check_relative("child", child)
            key = FlowRef(other.queue or "", other.id).key

        def answered(must_wait: bool) -> bool:
            if must_wait:
                self._apply_waiting_children()
            else:
                self._moves(None)
            return must_wait

        moving = self._ask(AwaitChildren(self.pk, held.token_number, key), answered)
        self._moves(moving)
        return moving

    async def get_children_values(self) -> dict[str, Any]:
        """What the children that completed returned, by their keys, `queue:id`."""
        links = await self.links(CHILD, "processed")
        return {key: decode(value) for _, key, value in links if value}

    async def get_dependency_values(self) -> dict[str, Any]:
        """The same of the jobs it depends on."""
        links = await self.links(DEPENDENCY, "processed")
        return {key: decode(value) for _, key, value in links if value}

    async def get_ignored_children_failures(self) -> dict[str, str]:
        """Why children failed that did not keep it from running, by their keys."""
        return {key: value or "" for _, key, value in await self.links(CHILD, "ignored")}

    get_failed_children_values = get_ignored_children_failures

    async def get_dependencies(
        self,
        *,
        processed: Page | bool | None = None,
        unprocessed: Page | bool | None = None,
        ignored: Page | bool | None = None,
        failed: Page | bool | None = None,
    ) -> dict[str, Any]:
        """Its children by what became of them: `processed` with their values and `ignored` with
        their failures by key, `unprocessed` and `failed` as lists of keys.

        All four, or those asked for: True, or a page `{"cursor": 0, "count": 20}`. The answer to
        a page has `next_<kind>_cursor`, 0 at the end.
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
                links = await self.links(CHILD, KINDS[kind])
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
        """How many of its children there are of each kind: of all four, or of those asked for."""
        asked = {
            "processed": processed,
            "unprocessed": unprocessed,
            "ignored": ignored,
            "failed": failed,
        }
        wanted = [kind for kind, is_asked in asked.items() if is_asked] or list(KINDS)
        rows = await bridge.query(self._store, "link_counts", {"job": self.pk})
        counts = {row[0]: row[1] for row in rows}
        return {kind: counts.get(KINDS[kind], 0) for kind in wanted}

    def remove_unprocessed_children(self) -> Pending[int]:
        """Take out those of its descendants that nobody has begun; how many."""
        return self._ask(RemoveUnprocessedChildren(self.pk), lambda removed: removed)

    # --- underneath ---

    async def links(self, kind: str, state: str) -> Sequence[Sequence[Any]]:
        """Number, key and value of those it waits for, or waited for."""
        links: list[Sequence[Any]] = []
        after = 0
        while True:
            rows = await self._rows(kind, state, after, AT_ONCE)
            links += rows
            if len(rows) < AT_ONCE:
                return links
            after = rows[-1][0]

    async def _page_of_links(self, kind: str, page: Any) -> tuple[Sequence[Sequence[Any]], int]:
        if not isinstance(page, Mapping):
            raise InvalidOptionType(f'{kind} must be True or {{"cursor", "count"}}, not {page!r}')
        unknown = [key for key in page if key not in ("cursor", "count")]
        if unknown:
            raise InvalidOption(f"{kind} has an unknown key {unknown[0]!r}; give cursor and count")
        cursor = check_int(f"{kind} cursor", page.get("cursor", 0), 0, 2**62)
        count = check_int(f"{kind} count", page.get("count", 20), 1, 100_000)
        rows = await self._rows(CHILD, KINDS[kind], cursor, count + 1)
        there = rows[:count]
        following = there[-1][0] if len(rows) > count else 0
        return there, following

    async def _rows(self, kind: str, state: str, after: int, most: int) -> Sequence[Sequence[Any]]:
        params = {"job": self.pk, "kind": kind, "state": state, "after": after, "most": most}
        return await bridge.query(self._store, "links_page", params)


def _as_reported(kind: str, links: Sequence[Sequence[Any]]) -> Any:
    if kind == "processed":
        return {key: None if value is None else decode(value) for _, key, value in links}
    if kind == "ignored":
        return {key: value or "" for _, key, value in links}
    return [key for _, key, _ in links]
