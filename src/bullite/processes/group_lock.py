"""Who runs a group of processes: a lock that ends with its holder, a signal for nobody else."""

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
from typing import Any

from ..core.clock import boot_id
from ..core.file_lock import is_named, lock_named
from ..core.ownership import doubt_about_side_folder, named
from ..errors import BulliteError
from .process_info import read_process, signal_if, start_time, user_of

_ENTRY_BYTES = 65_536
_TRIES = 100
_BETWEEN_TRIES = 0.01


class GroupTaken(BulliteError):
    """Another supervisor runs this group; `holder` says which, as far as it is known."""

    def __init__(self, group: str, holder: Mapping[str, Any]) -> None:
        pid, host = holder.get("pid", "unknown"), holder.get("host", "unknown")
        super().__init__(f"group {group!r} is run by process {pid} on host {host}")
        self.holder = dict(holder)


class GroupUnreachable(BulliteError):
    """The group's lock file, its folder, or the process that holds it, is not ours to use."""


class GroupLock:
    """A kernel lock on a file, held by who runs a group; the file says who that is.

    What the file says counts only while the lock is held: the kernel frees it when its holder is
    gone, and never before. In a private folder, or in the side folder of a database, it counts only
    if nobody else could have made it.
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
        """Have the folder of the lock, and of what is kept beside it."""
        with _as_unreachable(self.path.parent):
            with contextlib.suppress(FileExistsError):
                self.path.parent.mkdir(mode=0o700, parents=True)
            self._check_folder()

    def _check_folder(self) -> None:
        folder = self.path.parent
        if self._in_private:
            _keep_private(folder)
        if self._database is not None:
            doubt = doubt_about_side_folder(folder, self._database)
            if doubt is not None:
                raise GroupUnreachable(f"{folder} cannot be used: {doubt}")

    def take(self) -> bool:
        """Hold the lock from now on; False if somebody else does."""
        if self._fd is not None:
            return True
        self.make_folder()
        with _as_unreachable(self.path):
            fd = lock_named(self.path, _open_and_lock)
            if fd is None:
                return False
            self._fd = fd
            _held_here.add(self)
            try:
                _write(fd, entry_of_this_process(self.group))
            except OSError:
                self.release()
                raise
        return True

    def holder(self) -> dict[str, Any] | None:
        """The entry of who holds the lock now, empty if it cannot be read; None if nobody does."""
        found = self.look()
        return None if found is None else found[0]

    def look(self) -> tuple[dict[str, Any], os.stat_result] | None:
        """The same with the status of the file, which says who wrote it."""
        with _as_unreachable(self.path):
            try:
                self._check_folder()
                fd = os.open(self.path, os.O_RDONLY | _SAFELY)
            except FileNotFoundError:
                return None
            try:
                return None if _flock(fd, shared=True) else (_read(fd), os.fstat(fd))
            finally:
                os.close(fd)

    def release(self) -> None:
        """Let the lock go, if it is held here. The file stays, and says nothing any more."""
        if self._fd is None:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
        self.close_without_unlock()

    def close_without_unlock(self) -> None:
        """Close the descriptor and leave the file alone: in a forked child the lock is not ours."""
        fd, self._fd = self._fd, None
        _held_here.discard(self)
        if fd is not None:
            os.close(fd)


# Not blocking: if a FIFO takes the place of the file, its opening must not wait.
_SAFELY = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_held_here: weakref.WeakSet[GroupLock] = weakref.WeakSet()


def _abandon_after_fork() -> None:
    for lock in list(_held_here):
        lock.close_without_unlock()


if sys.platform != "win32":
    # A number kept open in a forked child would keep the lock when its parent dies.
    os.register_at_fork(after_in_child=_abandon_after_fork)


@contextlib.contextmanager
def _as_unreachable(path: Path) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise GroupUnreachable("this system has no locks that end with their process") from error
    except OSError as error:
        raise GroupUnreachable(f"{path}: {error.strerror or error}") from error


def belongs_to_us(status: os.stat_result) -> bool:
    """Whether it is this user's; where there are no such users, everything is."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _keep_private(folder: Path) -> None:
    """Close a folder of ours to others; refuse what they could have made to have us trust it."""
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
    """Under the lock: delete a file that another user made or can write, to make another.

    Only the file that has the name: the one of who did the same before us is left alone.
    """
    status = os.fstat(fd)
    if belongs_to_us(status) and _doubt_about_lock_file(path, status) is None:
        return
    if is_named(fd, path):
        path.unlink()


def _open_and_lock(path: Path) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | _SAFELY, 0o600)
    try:
        has_it = _lock_alone(fd)
        if has_it:
            _remove_if_not_ours(path, fd)
    except BaseException:
        os.close(fd)
        raise
    if not has_it:
        os.close(fd)
    return fd if has_it else None


def _flock(fd: int, *, shared: bool) -> bool:
    import fcntl  # not on every system

    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_alone(fd: int) -> bool:
    for _ in range(_TRIES):
        if _flock(fd, shared=False):
            return True
        if not _flock(fd, shared=True):
            return False
        time.sleep(_BETWEEN_TRIES)  # somebody only looks whether it is held, and is soon done
    return False


def _write(fd: int, entry: Mapping[str, Any]) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(entry).encode() + b"\n", 0)


def _read(fd: int) -> dict[str, Any]:
    try:
        entry = json.loads(os.pread(fd, _ENTRY_BYTES, 0))
    except ValueError:
        return {}  # its holder is about to write it
    return entry if isinstance(entry, dict) else {}


def entry_of_this_process(group: str) -> dict[str, Any]:
    """What says who runs a group, so that no other process is taken for it."""
    pid = os.getpid()
    return {
        "pid": pid,
        "began": start_time(pid),
        "boot_id": boot_id(),
        "host": socket.gethostname(),
        "group": group,
    }


def process_alive(entry: Mapping[str, Any]) -> bool:
    """Whether the process of an entry that was made on this machine lives: itself, and not one that
    got its number."""
    pid, theirs, ours = entry.get("pid"), entry.get("boot_id"), boot_id()
    # 0 and what is below mean whole groups of processes to the kernel.
    if type(pid) is not int or pid <= 0 or (theirs and ours and theirs != ours):
        return False
    if (found := read_process(pid)) is not None:
        return not found.is_gone and found.start_time == entry.get("began")
    return _has_number(pid)  # where the kernel shows no processes, or not those of others


def _has_number(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # to ask for it there ends it
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it is somebody else's
    return True


def signal_owner(lock: GroupLock, signum: int) -> bool:
    """Signal who holds the lock, and nobody else; whether somebody was.

    Raise GroupUnreachable if the file names a process of another user than its own.
    """
    found = lock.look()
    if found is None or not found[0] or not process_alive(found[0]):
        return False
    entry, status = found

    def is_meant() -> bool:
        if not process_alive(entry):
            return False
        _refuse_process_of_another(lock.path, status, entry["pid"])
        return True

    with _as_unreachable(lock.path):
        try:
            return signal_if(entry["pid"], signum, is_meant)
        except ProcessLookupError:
            return False


def _refuse_process_of_another(path: Path, status: os.stat_result, pid: int) -> None:
    """Raise GroupUnreachable unless the user of a process is the one who wrote the lock file."""
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
