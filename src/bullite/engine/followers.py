"""Followers: receivers of the log entries that this process commits."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ..operations.transaction import Transaction
from .calls import Submit, call
from .replies import Answered, PendingRequest, Reply, ReplyTarget


class _Follower(NamedTuple):
    queue: int
    kinds: frozenset[str] | None
    """None for all."""
    pending: PendingRequest


class Followers:
    """The followers of one engine."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._followers: list[_Follower] = []

    # --- from any thread ---

    def follow(
        self, queue: int, reply: Reply, target: ReplyTarget, kinds: frozenset[str] | None = None
    ) -> None:
        """Call `reply` after each commit with the `LoggedEntries` of a queue.

        Only with entries of these kinds, if given.
        """
        self._submit(call(partial(self._add, queue, kinds), reply, target))

    def unfollow(self, reply: Reply) -> None:
        """End what `follow` began with this reply."""
        self._submit(call(partial(self._remove, reply)))

    # --- on the engine's thread ---

    def __bool__(self) -> bool:
        return bool(self._followers)

    def _add(self, queue: int, kinds: frozenset[str] | None, pending: PendingRequest) -> None:
        self.remove_dead_loops()
        self._followers.append(_Follower(queue, kinds, pending))

    def _remove(self, reply: Reply, pending: PendingRequest) -> None:
        self._followers = [each for each in self._followers if each.pending.reply != reply]

    def remove_dead_loops(self) -> None:
        """Remove followers whose event loop is closed: they cannot unfollow."""
        self._followers = [each for each in self._followers if each.pending.target.alive()]

    def entries(self, tx: Transaction) -> list[Answered]:
        """Return the entries that the transaction logged, for each follower."""
        logged = tx.logged()
        return [
            (pending, mine)
            for queue, kinds, pending in self._followers
            if (
                mine := [
                    entry
                    for entry in logged
                    if entry.queue == queue and (kinds is None or entry.kind in kinds)
                ]
            )
        ]
