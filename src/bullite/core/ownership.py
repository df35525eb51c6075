"""Which files this user may trust: those that no other user can write.

A file is trusted if it and its folder belong to this user or to root, and no other user can write
either. In a folder with the sticky bit, such as /tmp, every user can make files and only the owner
can replace one: there the file alone decides. Write access of a group counts as access of other
users, unless the group is the private group of the file's owner: many systems give each user such a
group, and a umask that lets it write.

Root also trusts the user who called sudo (SUDO_UID), as git does: that user decided to run this.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ..errors import SettingsNotTrusted

ROOT = 0
LARGEST_SETTINGS = 2**20
"""Bytes of a settings file. More is refused: a file of another user must not fill our memory."""


def read_settings(file: Path) -> tuple[str, str | None]:
    """Return the text of a file, and why it is not trusted; None if it is.

    Raise OSError or UnicodeError if it cannot be read, and SettingsNotTrusted if another user gave
    this name to a file: that is not even opened. It may be a database of ours, and to close a
    descriptor of that would drop the locks that SQLite holds in this process.
    """
    found = os.stat(file)
    if not stat.S_ISREG(found.st_mode):
        raise OSError("not a regular file")
    if (reason := _doubt_about_name(file, found)) is not None:
        raise settings_not_trusted(file, reason)
    # Not blocking: opening a FIFO that has replaced the file would wait for a writer.
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as opened:
        if not os.path.samestat(found, os.fstat(descriptor)):
            raise OSError("it was replaced while it was read")
        content = opened.read(LARGEST_SETTINGS + 1)
        if len(content) > LARGEST_SETTINGS:
            raise OSError(f"it has more than {LARGEST_SETTINGS} bytes")
        return content.decode(), _doubt(file, os.fstat(descriptor), descriptor)


def settings_not_trusted(file: Path, reason: str) -> SettingsNotTrusted:
    """Return the error for a settings file that names the database, and may not."""
    return SettingsNotTrusted(
        f"{file} names the database and is not trusted: {reason}; name the database yourself, "
        "with --db or BULLITE_URL"
    )


def doubt_about(file: Path) -> str | None:
    """Return why a file is not trusted; None if it is trusted or does not exist.

    Use it for a file that must not be opened for the check. Its folder is not checked: a user who
    can write the folder can replace the file, but a file of another user is never trusted.
    """
    try:
        if not hasattr(os, "geteuid"):
            return None
        return _doubt_about_link(file) or _doubt_about_file(file, os.stat(file), file)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"its owner cannot be found: {error.strerror}"


def doubt_about_side_folder(folder: Path, database: Path) -> str | None:
    """Return why the side folder of a database is not used; None if it is, or if there is none.

    The users who may write a database decide what its workers run: they may write its side folder
    as well, and no other user may.
    """
    found = _look_at(folder)
    if found is None:
        return None
    if stat.S_ISLNK(found.st_mode):
        return f"it is a symbolic link: rm {folder}"
    if not stat.S_ISDIR(found.st_mode):
        return f"it is not a folder: rm {folder}"
    if not hasattr(os, "geteuid"):
        return None
    its_database = _look_at(database)
    if not (_is_trusted(found.st_uid) or _may_write(found.st_uid, its_database)):
        return (
            f"it belongs to {named(found.st_uid)}, who may not write the database: have it "
            "removed while no process uses the database"
        )
    if _others_can_write(found, folder) and not _is_of_group(found, its_database):
        return f"other users can write it: chmod go-w {folder}"
    return None


def doubt_about_side_file(path: Path, found: os.stat_result) -> str | None:
    """Return why a file in a side folder, which is trusted, is not used; None if it is.

    It may be older than the present rights of the folder.
    """
    folder = os.lstat(path.parent)
    if not stat.S_ISREG(found.st_mode):
        return f"it is not a file: rm {path}"
    if found.st_nlink > 1:
        return f"it has several names (hard links): rm {path}"
    of_group = bool(folder.st_mode & stat.S_IWGRP)
    if not (_is_trusted(found.st_uid) or found.st_uid == folder.st_uid or of_group):
        return f"it belongs to {named(found.st_uid)}: stop all processes, then rm {path}"
    if found.st_uid != os.geteuid() and _rights_of_others(found) & ~side_mode(found, folder):
        return f"other users can open it: chmod {side_mode(found, folder):o} {path}"
    return None


def side_mode(found: os.stat_result, folder: os.stat_result) -> int:
    """Return the mode of a file in a side folder: for its owner, and the group of the folder."""
    of_group = folder.st_mode & stat.S_IWGRP and found.st_gid == folder.st_gid
    return 0o660 if of_group else 0o600


def doubt_about_logs(database: Path, ends: Iterable[str]) -> str | None:
    """Return why SQLite's files beside a database are not used; None if they are.

    Another user who makes one beforehand can read what is written to it. In a database that several
    users may write, SQLite makes them for each of these users.
    """
    its_database = _look_at(database)
    if its_database is not None and _others_can_write(its_database, database):
        return None
    for end in ends:
        path = database.with_name(database.name + end)
        found = _look_at(path)
        if found is None or _is_trusted(found.st_uid) or _may_write(found.st_uid, its_database):
            continue
        return (
            f"{path} belongs to {named(found.st_uid)}, who may not write the database: have it "
            "removed while no process uses the database"
        )
    return None


def _look_at(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _may_write(user: int, database: os.stat_result | None) -> bool:
    if database is None:
        return False
    return user == database.st_uid or (
        bool(database.st_mode & stat.S_IWGRP) and _is_member(user, database.st_gid)
    )


def _is_of_group(folder: os.stat_result, database: os.stat_result | None) -> bool:
    """Return whether a folder is written by the group alone that may write the database."""
    return (
        database is not None
        and bool(database.st_mode & stat.S_IWGRP)
        and folder.st_gid == database.st_gid
        and not folder.st_mode & stat.S_IWOTH
    )


def _is_member(user: int, group: int) -> bool:
    import pwd

    try:
        found = pwd.getpwuid(user)
    except KeyError:
        return False
    return group in os.getgrouplist(found.pw_name, found.pw_gid)


def _rights_of_others(found: os.stat_result) -> int:
    return found.st_mode & 0o077


def _doubt(file: Path, found: os.stat_result, where: int) -> str | None:
    if not hasattr(os, "geteuid"):
        return None  # this system has no such owners
    return (
        _doubt_about_file(file, found, where)
        or _doubt_about_folder(file.parent)
        or (_doubt_about_folder(_target(file).parent) if file.is_symlink() else None)
    )


def _doubt_about_name(file: Path, found: os.stat_result) -> str | None:
    """Return why another user may have given this name to the file."""
    if not hasattr(os, "geteuid"):
        return None
    if found.st_nlink > 1 and _others_can_write(os.stat(file.parent), file.parent):
        return "it has several names (hard links), and another user may have made this one"
    return _doubt_about_link(file)


def _doubt_about_link(file: Path) -> str | None:
    link = os.lstat(file)
    if stat.S_ISLNK(link.st_mode) and not _is_trusted(link.st_uid):
        return f"it is a symbolic link of {named(link.st_uid)}"
    return None


def _doubt_about_file(file: Path, found: os.stat_result, where: int | Path) -> str | None:
    if not _is_trusted(found.st_uid):
        return f"it belongs to {named(found.st_uid)}"
    if _others_can_write(found, where):
        return f"other users can write it: chmod go-w {file}"
    return None


def _doubt_about_folder(folder: Path) -> str | None:
    found = os.stat(folder)
    if not _is_trusted(found.st_uid):
        return f"its folder {folder} belongs to {named(found.st_uid)}"
    if _others_can_write(found, folder) and not found.st_mode & stat.S_ISVTX:
        return f"other users can replace it: chmod go-w {folder}"
    return None


def _target(file: Path) -> Path:
    return Path(os.path.realpath(file))


def _is_trusted(user: int) -> bool:
    return user in (ROOT, os.geteuid()) or user == _caller_of_sudo()


def _caller_of_sudo() -> int | None:
    text = os.environ.get("SUDO_UID", "")
    return int(text) if os.geteuid() == ROOT and text.isdecimal() and len(text) <= 10 else None


def _others_can_write(found: os.stat_result, where: int | Path) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:
        return False
    # With an access control list these bits are its mask: any user may be in the list.
    return _has_access_list(where) or not _is_private(found.st_gid, found.st_uid)


def _has_access_list(where: int | Path) -> bool:
    try:
        return bool(os.getxattr(where, "system.posix_acl_access"))
    except (AttributeError, OSError):
        return False


def _is_private(group: int, owner: int) -> bool:
    """Return whether a group is the one that was made for its owner and has no other member."""
    import grp
    import pwd

    try:
        user, members = pwd.getpwuid(owner), grp.getgrgid(group)
    except KeyError:
        return False
    return (
        user.pw_gid == group
        and members.gr_name == user.pw_name
        and set(members.gr_mem) <= {user.pw_name}
    )


def named(user: int) -> str:
    """Return how a message calls a user: by name, or by number where there is none."""
    import pwd

    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"
