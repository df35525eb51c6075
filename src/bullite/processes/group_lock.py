"""The lock of a worker group: one supervisor at a time, found and signalled through a lock file."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..core.clock import boot_id
from ..core.file_lock import is_named, lock_named
from ..core.ownership import doubt_about_side_folder, named
from ..errors import BulliteError
from .process_info import read_process, signal_if, start_time, user_of

_ENTRY_BYTES = 65_536
_TRIES = 100
_BETWEEN_TRIES = 0.01


class GroupTaken(BulliteError):
    """Another supervisor runs this group; `holder` is its entry, as far as it is known."""

    def __init__(self, group: str, holder: Mapping[str, Any]) -> None:
        pid, host = holder.get("pid", "unknown"), holder.get("host", "unknown")
        super().__init__(f"group {group!r} is run by process {pid} on host {host}")
        self.holder = dict(holder)


class GroupUnreachable(BulliteError):
    """The lock file, its folder, or the supervisor's process belongs to another user."""


class LockFile(NamedTuple):
    """A lock file: the holder's entry, and the status, which shows the user who wrote it."""

    entry: dict[str, Any]
    status: os.stat_result


class GroupLock:
    """A kernel lock (flock) on a file, held by a group's supervisor; the file holds its entry.

    The entry is valid only while the lock is held; the kernel frees the lock when its process ends,
    and not before. In a private folder, or in the side folder of a database, the entry is valid
    only if no other user could have written it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        group: str,
        *,
        in_private: bool = False,
        database: Path | None = None,
    ) -> None:
        self.path = Path(path)
        self.group = group
        self._in_private = in_private
        self._database = database
        self._fd: int | None = None

    def make_folder(self) -> None:
        """Create the folder of the lock file, and check that it can be trusted."""
        with _as_unreachable(self.path.parent):
            with contextlib.suppress(FileExistsError):
                self.path.parent.mkdir(mode=0o700, parents=True)
            self._check_folder()

    def _check_folder(self) -> None:
        folder = self.path.parent
        if self._in_private:
            _make_private(folder)
        if self._database is not None:
            doubt = doubt_about_side_folder(folder, self._database)
            if doubt is not None:
                raise GroupUnreachable(f"{folder} cannot be used: {doubt}")

    def take(self) -> bool:
        """Acquire the lock and write the entry. Return False if another process holds it."""
        if self._fd is not None:
            return True
        self.make_folder()
        with _as_unreachable(self.path):
            fd = lock_named(self.path, _open_and_lock)
            if fd is None:
                return False
            self._fd = fd
            _held_locks.add(self)
            try:
                _write(fd, entry_of_this_process(self.group))
            except OSError:
                self.release()
                raise
        return True

    def holder(self) -> dict[str, Any] | None:
        """Return the holder's entry, empty if it cannot be read; None if the lock is free."""
        found = self.read()
        return None if found is None else found.entry

    def read(self) -> LockFile | None:
        """Return the entry and the status of the lock file; None if the lock is free."""
        with _as_unreachable(self.path):
            try:
                self._check_folder()
                fd = os.open(self.path, os.O_RDONLY | _OPEN_FLAGS)
            except FileNotFoundError:
                return None
            try:
                return None if _flock(fd, shared=True) else LockFile(_read(fd), os.fstat(fd))
            finally:
                os.close(fd)

    def release(self) -> None:
        """Release the lock, if it is held here. The file stays, without an entry."""
        if self._fd is None:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
        self.close_without_unlock()

    def close_without_unlock(self) -> None:
        """Close the descriptor only: in a forked child the lock and the file are the parent's."""
        fd, self._fd = self._fd, None
        _held_locks.discard(self)
        if fd is not None:
            os.close(fd)


# O_NONBLOCK: if a FIFO takes the place of the file, opening it must not wait.
_OPEN_FLAGS = (
    getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)
_held_locks: weakref.WeakSet[GroupLock] = weakref.WeakSet()


def _close_after_fork() -> None:
    for lock in list(_held_locks):
        lock.close_without_unlock()


if sys.platform != "win32":
    # A descriptor left open in a forked child would keep the lock when its parent dies.
    os.register_at_fork(after_in_child=_close_after_fork)


@contextlib.contextmanager
def _as_unreachable(path: Path) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise GroupUnreachable("this system has no locks that end with their process") from error
    except OSError as error:
        raise GroupUnreachable(f"{path}: {error.strerror or error}") from error


def belongs_to_us(status: os.stat_result) -> bool:
    """Return whether a file belongs to this user; True on systems without users."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _make_private(folder: Path) -> None:
    """Make a folder of this user private. Raise GroupUnreachable if it is another user's."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or not belongs_to_us(status):
        raise GroupUnreachable(
            f"{folder} is not a folder of this user: have it removed, or set XDG_STATE_HOME to one "
            "that is"
        )
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def _doubt_about_lock_file(path: Path, status: os.stat_result) -> str | None:
    """Return why another user may have written a lock file, whatever user owns it; else None."""
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a file"
    if status.st_nlink > 1:
        return f"{path} has several names (hard links)"
    if status.st_mode & 0o022:
        return f"{path} can be written by other users"
    return None


def _remove_if_not_ours(path: Path, fd: int) -> None:
    """Delete a locked file that another user made or can write; the caller creates a new one.

    A file that no longer has the name is left: another process has replaced it already.
    """
    status = os.fstat(fd)
    if belongs_to_us(status) and _doubt_about_lock_file(path, status) is None:
        return
    if is_named(fd, path):
        path.unlink()


def _open_and_lock(path: Path) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | _OPEN_FLAGS, 0o600)
    try:
        is_locked = _lock_exclusively(fd)
        if is_locked:
            _remove_if_not_ours(path, fd)
    except BaseException:
        os.close(fd)
        raise
    if not is_locked:
        os.close(fd)
    return fd if is_locked else None


def _flock(fd: int, *, shared: bool) -> bool:
    import fcntl  # not on every system

    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_exclusively(fd: int) -> bool:
    for _ in range(_TRIES):
        if _flock(fd, shared=False):
            return True
        if not _flock(fd, shared=True):
            return False
        time.sleep(_BETWEEN_TRIES)  # another process reads the file under a shared lock
    return False


def _write(fd: int, entry: Mapping[str, Any]) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(entry).encode() + b"\n", 0)


def _read(fd: int) -> dict[str, Any]:
    try:
        entry = json.loads(os.pread(fd, _ENTRY_BYTES, 0))
    except ValueError:
        return {}  # the holder has not written it yet
    return entry if isinstance(entry, dict) else {}


def entry_of_this_process(group: str) -> dict[str, Any]:
    """Return the entry of this process as a supervisor; it identifies the process for certain."""
    pid = os.getpid()
    return {
        "pid": pid,
        "began": start_time(pid),
        "boot_id": boot_id(),
        "host": socket.gethostname(),
        "group": group,
    }


def process_alive(entry: Mapping[str, Any]) -> bool:
    """Return whether the process of an entry of this machine is alive.

    A later process with the same pid does not count.
    """
    pid, entry_boot, boot = entry.get("pid"), entry.get("boot_id"), boot_id()
    # To the kernel, 0 and negative numbers are process groups.
    if type(pid) is not int or pid <= 0 or (entry_boot and boot and entry_boot != boot):
        return False
    if (found := read_process(pid)) is not None:
        return not found.is_gone and found.start_time == entry.get("began")
    return _pid_exists(pid)  # /proc is missing, or hides processes of other users


def _pid_exists(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # on Windows os.kill ends the process
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it is a process of another user
    return True


def signal_owner(lock: GroupLock, signum: int) -> bool:
    """Signal the holder of the lock, and no other process. Return whether it was signalled.

    Raise GroupUnreachable if the file names a process of another user than its own.
    """
    found = lock.read()
    if found is None or not found.entry or not process_alive(found.entry):
        return False
    entry, status = found

    def is_holder() -> bool:
        if not process_alive(entry):
            return False
        _require_same_user(lock.path, status, entry["pid"])
        return True

    with _as_unreachable(lock.path):
        try:
            return signal_if(entry["pid"], signum, is_holder)
        except ProcessLookupError:
            return False


def _require_same_user(path: Path, status: os.stat_result, pid: int) -> None:
    """Raise GroupUnreachable unless a process belongs to the user who wrote the lock file."""
    if (doubt := _doubt_about_lock_file(path, status)) is not None:
        raise GroupUnreachable(
            f"{doubt}: process {pid}, which it names, was not signalled; end it yourself"
        )
    if not hasattr(os, "geteuid"):
        return
    user = user_of(pid)
    if status.st_uid == (os.geteuid() if user is None else user):
        return
    whose = "whose user is not known" if user is None else f"is run by {named(user)}"
    raise GroupUnreachable(
        f"{path} belongs to {named(status.st_uid)}, but process {pid}, which it names, {whose}: it "
        "was not signalled; if it runs the workers, end it yourself"
    )
