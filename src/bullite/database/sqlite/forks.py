"""Fork safety: the child of a fork uses no connection of its parent.

SQLite counts its locks per process, in memory that a fork copies: a connection that the child opens
would treat the locks of the parent's connections as its own. So the child closes the inherited
connections before it opens any, which does not affect the parent. That is only safe while no thread
is inside SQLite, so a fork waits for the end of the current transactions.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from .liveness import forget_after_fork


class ForkAware(Protocol):
    """An object that owns connections."""

    def before_fork(self) -> None:
        """Before a fork: wait until no thread is inside SQLite here, and keep threads out."""

    def after_fork_parent(self) -> None:
        """After a fork, in the parent: let threads in again."""

    def after_fork_child(self) -> None:
        """After a fork, in the child: drop all connections. They belong to the parent."""


opening = threading.RLock()
"""Held while a connection is made that is not guarded yet: a fork waits for that, too."""

_guarded: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_still: list[ForkAware] = []


def guard(owner: ForkAware) -> None:
    _guarded.add(owner)


def unguard(owner: ForkAware) -> None:
    _guarded.discard(owner)


def _before() -> None:
    opening.acquire()
    for owner in list(_guarded):
        owner.before_fork()
        _still.append(owner)


def _in_parent() -> None:
    while _still:
        _still.pop().after_fork_parent()
    opening.release()


def _in_child() -> None:
    for owner in _still:
        owner.after_fork_child()
    _still.clear()
    _guarded.clear()
    forget_after_fork()
    opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
