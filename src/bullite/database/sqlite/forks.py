"""No connection is carried over a fork.

SQLite counts its locks per process, in memory that a fork copies: a connection that the child opens
would believe that the locks of its parent's connections are its own. So the child closes what it
inherited before it opens anything, which takes nothing from the parent. That is only safe while no
thread is inside SQLite, so a fork waits for the end of the transactions under way.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from .liveness import forget_after_fork


class ForkAware(Protocol):
    """Somebody who has connections."""

    def before_fork(self) -> None:
        """Before a fork: wait until no thread is inside SQLite here, and keep it so."""

    def after_fork_parent(self) -> None:
        """After a fork, in the parent."""

    def after_fork_child(self) -> None:
        """After a fork, in the child: let go of everything, it is the parent's."""


opening = threading.RLock()
"""Held while connections are made that nobody guards yet: a fork waits for that, too."""

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
