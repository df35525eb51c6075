"""The files of a database: their paths, their file system, and whether they were replaced.

This module never opens a database or its logs: closing any descriptor of them would drop the locks
that SQLite holds in this process. It uses names and `stat`. The one exception is a new database,
which is created before a connection to it exists.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import NamedTuple

from ...core.ownership import doubt_about_logs, doubt_about_side_folder
from ...errors import NetworkFileSystem, StoreError, StoreFull, StoreReplaced, StoreUnwritable

NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "drvfs", "davfs"),
        *("ceph", "glusterfs", "fuse.glusterfs", "lustre", "gpfs"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.davfs2"),
        *("vboxsf", "fuse.vmhgfs-fuse", "prl_fs"),
    )
)


class SideFiles(NamedTuple):
    """The paths of all files that belong to one database."""

    database: Path

    @property
    def log(self) -> Path:
        return self.database.with_name(self.database.name + "-wal")

    @property
    def side_folder(self) -> Path:
        """Return the folder of the write lock, and of each process's liveness file and socket."""
        return self.database.with_name(self.database.name + ".bullite")

    @property
    def write_lock(self) -> Path:
        """Return the file of the write lock. Its first byte is the mark of a failed sync."""
        return self.side_folder / "gate"

    def liveness(self, nonce: int) -> Path:
        return self.side_folder / f"{_hex(nonce)}.alive"

    def socket(self, nonce: int) -> Path:
        return self.side_folder / f"{_hex(nonce)}.sock"

    def nonces(self) -> list[int]:
        """Return the nonces of all processes that have a liveness file."""
        names = [path.stem for path in self.side_folder.glob("*.alive")]
        numbers = [int(name, 16) for name in names if re.fullmatch("[0-9a-f]{16}", name)]
        return [number - ((number >> 63) << 64) for number in numbers]

    def doubt(self) -> str | None:
        """Return why the files beside the database are not trusted; None if they are.

        They are not trusted if another user made them or can write them.
        """
        folder = self.side_folder
        if (reason := doubt_about_side_folder(folder, self.database)) is not None:
            return f"{folder} cannot be used: {reason}"
        return doubt_about_logs(self.database, ("-wal", "-shm", "-journal"))

    def make_database(self) -> bool:
        """Create an empty file for SQLite to open, which only this user can read.

        Return False if the name exists, even as a link. SQLite gives its other files the mode of
        this one. The caller holds `forks.opening`, so that this process makes no connection
        meanwhile: closing our descriptor would drop the locks of that connection.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            os.close(os.open(self.database, flags, 0o600))
        except FileExistsError:
            return False
        except OSError as error:
            otherwise = f"cannot make {self.database}: {error.strerror}"
            raise cannot_make(self.database, error, otherwise) from error
        return True

    def make_side_folder(self) -> None:
        """Create the side folder if missing. Raise StoreUnwritable if it is not trusted."""
        try:
            self.side_folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        except FileNotFoundError as error:
            raise StoreUnwritable(
                f"cannot make {self.database}: the folder {self.database.parent} does not exist; "
                "make it first"
            ) from error
        except OSError as error:
            raise cannot_make(
                self.side_folder,
                error,
                f"cannot write to the folder of {self.database}: {error.strerror}; the database, "
                "its log and its side folder need write permission there",
            ) from error
        if (doubt := self.doubt()) is not None:
            raise StoreUnwritable(doubt)


NEEDED = 128 * 1024
"""Bytes. SQLite extends its files by up to 32 KiB, and does not say why it could not."""


def no_room(path: Path) -> StoreFull:
    return StoreFull(f"no room left for {path}: free some disk space; nothing was written")


def is_full(folder: Path) -> bool:
    """Return True if the file system of `folder` has hardly any space, or no file left."""
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < NEEDED or (room.f_files > 0 and room.f_favail == 0)


def cannot_make(path: Path, error: OSError, otherwise: str) -> StoreError:
    """Return the error for a file or folder that cannot be made: disk full, or `otherwise`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_room(path)
    return StoreUnwritable(otherwise)


def _hex(nonce: int) -> str:
    return f"{nonce & (1 << 64) - 1:016x}"


def refuse_network_file_system(path: Path, mounts: str | None = None) -> None:
    """Raise NetworkFileSystem if the system reports that `path` is on one."""
    kind = file_system_of(path, _mounts() if mounts is None else mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise NetworkFileSystem(
            f"{path} is on a network file system ({kind}), where SQLite's locks cannot be trusted; "
            "put it on a local disk, use PostgreSQL, or add ?network=allow to take the risk"
        )


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""


def file_system_of(path: Path, mounts: str) -> str | None:
    """Return the type of the file system of `path`, read from a mountinfo table."""
    target = os.path.realpath(path)
    best, kind = -1, None
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split()
        if not separator or len(fields) < 5:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        # Later lines cover earlier ones mounted at the same place.
        if inside and len(mount) >= best:
            best, kind = len(mount), after.split()[0]
    return kind


class FileIdentity:
    """The identity of the opened files, to detect that other files have replaced them."""

    def __init__(self, places: SideFiles) -> None:
        # As text, which is faster: they are checked after every commit.
        self._paths = os.fspath(places.database), os.fspath(places.log)
        self._database, self._log = map(_identity, self._paths)

    def check(self) -> None:
        """Raise StoreReplaced if the database or its log is not the one that was opened."""
        database, log = map(_identity, self._paths)
        if database != self._database:
            raise StoreReplaced(self._message("database file"))
        if self._log is None:
            self._log = log  # created by the first write
        elif log != self._log:
            raise StoreReplaced(self._message("log (-wal)"))

    def _message(self, what: str) -> str:
        return (
            f"the {what} of {self._paths[0]} was deleted or replaced while it was in use; "
            "what was written since may be lost: stop all processes that use it and reopen it"
        )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
