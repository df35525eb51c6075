"""The files around a database: where they are, what they stand on, whether they are still the same.

Never opens a database or its logs: closing any descriptor of them would drop the locks that
SQLite holds in this process. Everything here goes by name and `stat`, but for a new database, which
is made before there is a connection to it.
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
    """The names of everything that belongs to one database."""

    database: Path

    @property
    def log(self) -> Path:
        return self.database.with_name(self.database.name + "-wal")

    @property
    def side_folder(self) -> Path:
        """Holds the write gate, and for each process a liveness file and a socket."""
        return self.database.with_name(self.database.name + ".bullite")

    @property
    def gate(self) -> Path:
        """The write gate is a lock on it, and its first byte the mark of a failed sync."""
        return self.side_folder / "gate"

    def liveness(self, nonce: int) -> Path:
        return self.side_folder / f"{_hex(nonce)}.alive"

    def socket(self, nonce: int) -> Path:
        return self.side_folder / f"{_hex(nonce)}.sock"

    def nonces(self) -> list[int]:
        """Of all processes that left a liveness file."""
        names = [path.stem for path in self.side_folder.glob("*.alive")]
        numbers = [int(name, 16) for name in names if re.fullmatch("[0-9a-f]{16}", name)]
        return [number - ((number >> 63) << 64) for number in numbers]

    def doubt(self) -> str | None:
        """Return why the files beside the database are not used; None if they are.

        Other users made them, or can write them.
        """
        folder = self.side_folder
        if (reason := doubt_about_side_folder(folder, self.database)) is not None:
            return f"{folder} cannot be used: {reason}"
        return doubt_about_logs(self.database, ("-wal", "-shm", "-journal"))

    def make_database(self) -> bool:
        """Make an empty file for SQLite to open, which only this user can read.

        Return False if the name is taken, be it by a link. SQLite gives its other files the mode of
        this one. The caller sees to it that this process makes no connection meanwhile
        (`forks.opening`): to close a descriptor of ours would drop its locks.
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
        """Have the side folder. Raise StoreUnwritable if other users made it or can write it."""
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
"""Bytes: SQLite makes its files in steps of up to 32 KiB, and does not say why it could not."""


def no_room(path: Path) -> StoreFull:
    return StoreFull(f"no room left for {path}: free some disk space; nothing was written")


def is_full(folder: Path) -> bool:
    """Whether there is hardly any room where `folder` is, for data or for one more file."""
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < NEEDED or (room.f_files > 0 and room.f_favail == 0)


def cannot_make(path: Path, error: OSError, otherwise: str) -> StoreError:
    """What it means that a file or folder cannot be made: no room, or what `otherwise` says."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_room(path)
    return StoreUnwritable(otherwise)


def _hex(nonce: int) -> str:
    return f"{nonce & (1 << 64) - 1:016x}"


def refuse_network_file_system(path: Path, mounts: str | None = None) -> None:
    """Raise NetworkFileSystem if `path` is on one, as far as the system can tell."""
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
    """The type of the file system `path` is on, read from a mountinfo table."""
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
    """Remembers which files were opened, to notice when others have taken their names."""

    def __init__(self, places: SideFiles) -> None:
        # As text: they are looked at after every commit.
        self._paths = os.fspath(places.database), os.fspath(places.log)
        self._database, self._log = map(_identity, self._paths)

    def check(self) -> None:
        """Raise StoreReplaced if the database or its log is not the one that was opened."""
        database, log = map(_identity, self._paths)
        if database != self._database:
            raise StoreReplaced(self._message("database file"))
        if self._log is None:
            self._log = log  # made by the first write
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
