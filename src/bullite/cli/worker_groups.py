"""Groups of workers as the database and this machine know them: who runs one, and since when."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from ..client import key_values
from ..core.clock import moment_of
from ..processes.group_lock import GroupLock, belongs_to_us, process_alive
from .console import CommandError, escape_control
from .session import Session
from .times import iso

GROUPS = "group"
"""The kind under which groups of workers are kept."""

DEFAULT_GROUP = "default"
"""The group of those who name none."""

STALE_AFTER = 60_000
"""Ms without news after which a group on another machine counts as gone."""

LOST = "lost"
"""The state of a group whose supervisor is gone and could not say so."""


class DatabaseGroupRegistry:
    """A group's row in the database: one supervisor for each group, on whatever machine."""

    def __init__(self, session: Session, group: str) -> None:
        self._session, self._group = session, group
        self._sign = os.urandom(8).hex()
        """Identifies the row as ours, even if another process has written to it meanwhile."""

    def take(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._write(entry, lambda old: not lives(self._session, old))

    def update(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._write(entry, self._is_ours)

    def leave(self) -> None:
        self._change(lambda old: None if old is None or self._is_ours(old) else old)

    def _is_ours(self, entry: Mapping[str, Any]) -> bool:
        return entry.get("sign") == self._sign

    def _write(
        self, entry: Mapping[str, Any], may_go: Callable[[Mapping[str, Any]], bool]
    ) -> Mapping[str, Any] | None:
        """Write the row if there is none, or one that may go; else the row of who has it."""

        def write(old: Any) -> Any:
            if old is not None and not may_go(old):
                return old
            return {**entry, "sign": self._sign, "updated_at": self._session.now()}

        new: Mapping[str, Any] = self._change(write)
        return None if self._is_ours(new) else new

    def _change(self, make: Callable[[Any], Any]) -> Any:
        store = self._session.store()
        _, new = self._session.wait(key_values.update_value(store, GROUPS, self._group, make))
        return new


def lives(session: Session, entry: Mapping[str, Any]) -> bool:
    """Whether somebody runs a group: on this machine its process tells, of others its last news."""
    if is_here(entry):
        return process_alive(entry)
    return bool(session.now() - entry.get("updated_at", 0) <= STALE_AFTER)


def is_here(entry: Mapping[str, Any]) -> bool:
    return entry.get("host") == socket.gethostname()


def group_of(session: Session, group: str) -> dict[str, Any] | None:
    """The entry of a group that somebody runs; None if nobody does."""
    entry = session.wait(key_values.get_value(session.store(), GROUPS, group))
    return entry if entry is not None and lives(session, entry) else None


def holder_of(session: Session, lock: GroupLock) -> Mapping[str, Any] | None:
    """Who runs a group, as its lock tells or, where that is not seen, its row; None if nobody."""
    holder = lock.holder()
    if not holder:  # it may be about to write who it is
        holder = group_of(session, lock.group) or holder
    return holder


def taken(group: str, holder: Mapping[str, Any]) -> CommandError:
    """That somebody runs a group already, and what helps."""
    where = f"by process {holder.get('pid', '?')} on {holder.get('host', '?')}"
    return CommandError(
        f"workers of the group {group!r} are running already, {where}: stop them with `queuectl "
        f"worker stop --group {quote(group)}`, or start others with another --group"
    )


def groups_of(session: Session) -> list[dict[str, Any]]:
    """All groups as they are told of; those that nobody runs any more are lost."""
    found = session.wait(key_values.list_values(session.store(), GROUPS))
    return [
        {"name": name, **_dated(entry), **({} if lives(session, entry) else {"state": LOST})}
        for name, entry in sorted(found.items())
    ]


def _dated(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The same with times that people can read."""
    told = dict(entry)
    for name in ("started_at", "updated_at"):
        if told.get(name) is not None:
            told[name] = iso(moment_of(told[name]))
    if "children" in told:
        told["children"] = [_dated(child) for child in told["children"]]
    return told


def group_line(group: Mapping[str, Any]) -> str:
    """A group for people."""
    supervisor = f"(pid {group.get('pid')} on {group.get('host')})"
    if group.get("state") == LOST:  # what it said of its workers holds no longer
        return escape_control(f"Group {group['name']}: {LOST} {supervisor}")
    running = sum(child.get("state") == "running" for child in group.get("children") or ())
    return escape_control(
        f"Group {group['name']}: {group.get('state')}, {running} of {group.get('count')} processes "
        f"running {supervisor}"
    )


def forget(session: Session, group: str) -> bool:
    """Forget a group that is lost; False if there is none."""

    def unless_it_lives(old: Any) -> Any:
        return old if old is not None and lives(session, old) else None

    change = key_values.update_value(session.store(), GROUPS, group, unless_it_lives)
    old, new = session.wait(change)
    return old is not None and new is None


def lock_of(session: Session, group: str) -> GroupLock:
    """The lock of a group, beside the database; for a server, in a folder of this user's."""
    from hashlib import sha256  # which those who only look do not need

    from ..database.sqlite.files import SideFiles

    location = session.store().location
    path = getattr(location, "path", None)
    name = os.path.realpath(path) if isinstance(path, Path) else str(location)
    digest = sha256(f"{name}\n{group}".encode()).hexdigest()
    name = f"group-{digest[:16]}.lock"
    if isinstance(path, Path):
        places = SideFiles(path.resolve())  # all meet at the same folder, whatever link leads to it
        return GroupLock(places.side_folder / name, group, database=places.database)
    return GroupLock(_private_folder() / name, group, in_private=True)


def _private_folder() -> Path:
    """Where this user keeps what is about this machine and no file.

    First the home: a service, a shell and cron have it in common, and it outlives a login.
    """
    state, runtime = (os.environ.get(name, "") for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"))
    if os.path.isabs(state):
        return Path(state) / "bullite"
    home = Path(os.path.expanduser("~"))
    if _is_folder_of_ours(home):
        return home / ".local" / "state" / "bullite"
    if os.path.isabs(runtime) and _is_folder_of_ours(Path(runtime)):
        return Path(runtime) / "bullite"
    from tempfile import gettempdir

    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return Path(gettempdir()) / f"bullite-{user}"


def _is_folder_of_ours(path: Path) -> bool:
    try:
        return path.is_dir() and belongs_to_us(path.stat())
    except OSError:
        return False
