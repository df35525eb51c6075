"""Worker groups: their rows in the database, their lock files on this machine."""

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
"""The kind of the key-value entries that hold worker groups."""

DEFAULT_GROUP = "default"
"""The group of workers that are started without --group."""

STALE_AFTER = 60_000
"""Ms without an update after which a group on another machine counts as lost."""

LOST = "lost"
"""The state of a group whose supervisor is gone without having removed its row."""


class DatabaseGroupRegistry:
    """A group's row in the database: one supervisor for each group, over all machines."""

    def __init__(self, session: Session, group: str) -> None:
        self._session, self._group = session, group
        self._sign = os.urandom(8).hex()
        """Identifies the row as that of this supervisor."""

    def take(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._write(entry, lambda old: not is_alive(self._session, old))

    def update(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._write(entry, self._is_ours)

    def leave(self) -> None:
        self._change(lambda old: None if old is None or self._is_ours(old) else old)

    def _is_ours(self, entry: Mapping[str, Any]) -> bool:
        return entry.get("sign") == self._sign

    def _write(
        self, entry: Mapping[str, Any], is_replaceable: Callable[[Mapping[str, Any]], bool]
    ) -> Mapping[str, Any] | None:
        """Write the row, if there is none or a replaceable one. Return None, or the other row."""

        def write(old: Any) -> Any:
            if old is not None and not is_replaceable(old):
                return old
            return {**entry, "sign": self._sign, "updated_at": self._session.now()}

        new: Mapping[str, Any] = self._change(write)
        return None if self._is_ours(new) else new

    def _change(self, make: Callable[[Any], Any]) -> Any:
        store = self._session.store()
        _, new = self._session.wait(key_values.update_value(store, GROUPS, self._group, make))
        return new


def is_alive(session: Session, entry: Mapping[str, Any]) -> bool:
    """Return whether the supervisor of a group runs: its process exists, or its row is recent."""
    if is_here(entry):
        return process_alive(entry)
    return bool(session.now() - entry.get("updated_at", 0) <= STALE_AFTER)


def is_here(entry: Mapping[str, Any]) -> bool:
    return entry.get("host") == socket.gethostname()


def group_of(session: Session, group: str) -> dict[str, Any] | None:
    """Return the row of a running group; None if it does not run."""
    entry = session.wait(key_values.get_value(session.store(), GROUPS, group))
    return entry if entry is not None and is_alive(session, entry) else None


def holder_of(session: Session, lock: GroupLock) -> Mapping[str, Any] | None:
    """Return the supervisor of a group, from its lock or else its row; None if it does not run."""
    holder = lock.holder()
    if not holder:  # the lock is free, or its holder has not written its entry yet
        holder = group_of(session, lock.group) or holder
    return holder


def taken(group: str, holder: Mapping[str, Any]) -> CommandError:
    """Return the error that a group is running already."""
    where = f"by process {holder.get('pid', '?')} on {holder.get('host', '?')}"
    return CommandError(
        f"workers of the group {group!r} are running already, {where}: stop them with `queuectl "
        f"worker stop --group {quote(group)}`, or start others with another --group"
    )


def groups_of(session: Session) -> list[dict[str, Any]]:
    """Return all groups, with times as text; those without a running supervisor are lost."""
    found = session.wait(key_values.list_values(session.store(), GROUPS))
    return [
        {"name": name, **_dated(entry), **({} if is_alive(session, entry) else {"state": LOST})}
        for name, entry in sorted(found.items())
    ]


def _dated(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with times as text."""
    dated = dict(entry)
    for name in ("started_at", "updated_at"):
        if dated.get(name) is not None:
            dated[name] = iso(moment_of(dated[name]))
    if "children" in dated:
        dated["children"] = [_dated(child) for child in dated["children"]]
    return dated


def group_line(group: Mapping[str, Any]) -> str:
    """Return a group as a line of text."""
    supervisor = f"(pid {group.get('pid')} on {group.get('host')})"
    if group.get("state") == LOST:  # the numbers in its row are outdated
        return escape_control(f"Group {group['name']}: {LOST} {supervisor}")
    running = sum(child.get("state") == "running" for child in group.get("children") or ())
    return escape_control(
        f"Group {group['name']}: {group.get('state')}, {running} of {group.get('count')} processes "
        f"running {supervisor}"
    )


def forget(session: Session, group: str) -> bool:
    """Delete the row of a lost group. Return False if there is none."""

    def unless_alive(old: Any) -> Any:
        return old if old is not None and is_alive(session, old) else None

    change = key_values.update_value(session.store(), GROUPS, group, unless_alive)
    old, new = session.wait(change)
    return old is not None and new is None


def lock_of(session: Session, group: str) -> GroupLock:
    """Return the lock of a group: beside the database or, for a server, in a private folder."""
    from hashlib import sha256  # not needed by verbs that only read

    from ..database.sqlite.files import SideFiles

    location = session.store().location
    path = getattr(location, "path", None)
    name = os.path.realpath(path) if isinstance(path, Path) else str(location)
    digest = sha256(f"{name}\n{group}".encode()).hexdigest()
    name = f"group-{digest[:16]}.lock"
    if isinstance(path, Path):
        files = SideFiles(path.resolve())  # one folder, whatever link leads to the file
        return GroupLock(files.side_folder / name, group, database=files.database)
    return GroupLock(_private_folder() / name, group, in_private=True)


def _private_folder() -> Path:
    """Return this user's folder for lock files of databases on servers.

    The home comes first: a service, a shell and cron share it, and it outlives a login.
    """
    state, runtime = (os.environ.get(name, "") for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"))
    if os.path.isabs(state):
        return Path(state) / "bullite"
    home = Path(os.path.expanduser("~"))
    if _is_own_folder(home):
        return home / ".local" / "state" / "bullite"
    if os.path.isabs(runtime) and _is_own_folder(Path(runtime)):
        return Path(runtime) / "bullite"
    from tempfile import gettempdir

    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return Path(gettempdir()) / f"bullite-{user}"


def _is_own_folder(path: Path) -> bool:
    try:
        return path.is_dir() and belongs_to_us(path.stat())
    except OSError:
        return False
