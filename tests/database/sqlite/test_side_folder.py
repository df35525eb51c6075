"""The side folder and what is in it: nothing that another user made or can write is used."""

from __future__ import annotations

import fcntl
import importlib
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullite import Store
from bullite.database.sqlite import schema
from bullite.database.sqlite.files import SideFiles
from bullite.database.sqlite.liveness import Liveness, is_alive
from bullite.database.sqlite.location import FileLocation
from bullite.database.sqlite.notifications import Notifier
from bullite.database.sqlite.sync_mark import SyncMark
from bullite.errors import StoreUnwritable
from bullite.processes.group_lock import GroupLock, GroupUnreachable, _remove_if_not_ours
from tests.support.databases import PATIENCE
from tests.support.processes import add, hang, say, states

STRANGER = 54_321
GROUP = 60_000
MEMBERS = 60_001, 60_002


@pytest.fixture
def places(database: Path) -> SideFiles:
    """A database with one job, closed, and the files around it."""
    add(database, "job")
    return SideFiles(database)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def refusal(database: Path) -> str:
    store = Store(database)
    with pytest.raises(StoreUnwritable) as refused:
        store.open()
    return str(refused.value)


# --- the folder ----------------------------------------------------------------------------------


def test_a_side_folder_of_another_user_is_refused(places: SideFiles) -> None:
    os.chown(places.side_folder, STRANGER, STRANGER)

    message = refusal(places.database)

    assert message.startswith(f"{places.side_folder} cannot be used: it belongs to user {STRANGER}")


def test_a_reader_leaves_a_side_folder_of_another_user_to_the_driver(places: SideFiles) -> None:
    os.chown(places.side_folder, STRANGER, STRANGER)
    assert FileLocation(places.database).reader() is None


def test_a_side_folder_that_was_made_before_its_database_is_refused(database: Path) -> None:
    folder = SideFiles(database).side_folder
    folder.mkdir(mode=0o700)
    os.chown(folder, STRANGER, STRANGER)

    store = Store(database)
    with pytest.raises(StoreUnwritable, match=f"belongs to user {STRANGER}"):
        store.open()

    assert list(folder.iterdir()) == []
    assert not database.exists()


@pytest.mark.parametrize("target", ["folder", "nothing"])
def test_a_side_folder_that_is_a_link_is_refused(places: SideFiles, target: str) -> None:
    elsewhere = places.database.parent / "elsewhere"
    (places.side_folder / "gate").unlink()
    places.side_folder.rmdir()
    if target == "folder":
        elsewhere.mkdir()
    places.side_folder.symlink_to(elsewhere)

    message = refusal(places.database)

    assert f"{places.side_folder} cannot be used: it is a symbolic link" in message
    assert target == "nothing" or list(elsewhere.iterdir()) == []


def test_a_side_folder_that_is_a_file_is_refused(places: SideFiles) -> None:
    (places.side_folder / "gate").unlink()
    places.side_folder.rmdir()
    places.side_folder.touch()

    assert "cannot be used: it is not a folder" in refusal(places.database)


@pytest.mark.parametrize(("group", "bits"), [(0, 0o777), (STRANGER, 0o770)])
def test_a_side_folder_that_other_users_can_write_is_refused(
    places: SideFiles, group: int, bits: int
) -> None:
    os.chown(places.side_folder, -1, group)
    os.chmod(places.side_folder, bits)

    message = refusal(places.database)

    assert f"other users can write it: chmod go-w {places.side_folder}" in message


def test_a_side_folder_of_the_owner_of_the_database_is_used(places: SideFiles) -> None:
    for path in (places.database, places.side_folder, places.write_lock):
        os.chown(path, STRANGER, STRANGER)

    add(places.database, "another")

    assert len(states(places.database)) == 2


def test_a_side_folder_that_only_its_owner_can_use_is_used(places: SideFiles) -> None:
    os.chmod(places.side_folder, 0o755)
    add(places.database, "another")
    assert len(states(places.database)) == 2


# --- links ---------------------------------------------------------------------------------------


def test_a_gate_that_is_a_link_is_refused(places: SideFiles) -> None:
    precious = places.database.parent / "precious"
    places.write_lock.unlink()
    places.write_lock.symlink_to(precious)

    message = refusal(places.database)

    assert message.startswith(f"cannot open {places.write_lock}: it is a symbolic link")
    assert not precious.exists()


def test_a_gate_that_is_another_name_of_a_file_is_refused(places: SideFiles) -> None:
    precious = places.database.parent / "precious"
    precious.write_text("precious")
    places.write_lock.unlink()
    os.link(precious, places.write_lock)

    assert "it has several names (hard links)" in refusal(places.database)
    assert precious.read_text() == "precious"


def test_a_gate_that_is_a_pipe_is_refused(places: SideFiles) -> None:
    places.write_lock.unlink()
    os.mkfifo(places.write_lock, 0o600)

    assert "it is not a file" in refusal(places.database)


def test_a_mark_of_a_failed_sync_is_written_through_no_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "gate").symlink_to(precious)
    mark = SyncMark(tmp_path / "gate")

    assert not mark.is_set()
    mark.set()
    mark.close()

    assert precious.read_text() == "precious"


def test_a_sign_of_life_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    sign = tmp_path / "process.alive"
    sign.symlink_to(precious)

    with pytest.raises(StoreUnwritable, match="it is a symbolic link"):
        Liveness(sign)

    assert not precious.exists()
    precious.touch()
    assert is_alive(sign) is None


def test_processes_are_woken_at_sockets_of_the_side_folder_only(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "side"
    for each in (elsewhere, folder):
        each.mkdir()
    other, voice = Notifier(elsewhere / "1.sock"), Notifier(folder / "2.sock")
    try:
        address = other.listen()
        assert address is not None
        (folder / "link.sock").symlink_to(address)
        voice.note([address, os.fspath(folder / "link.sock")], 3)
        voice.send()
        assert not other.read_notifications().ready
    finally:
        voice.close()
        other.close()


def test_a_new_database_is_not_made_behind_a_link(tmp_path: Path) -> None:
    link, target = tmp_path / "jobs.db", tmp_path / "elsewhere" / "victim"
    target.parent.mkdir()
    link.symlink_to(target)

    store = Store(link)
    with pytest.raises(StoreUnwritable) as refused:
        store.open()

    assert str(refused.value) == (
        f"{link} is a symbolic link to {target}, which does not exist: a database is not made "
        f"through a link; name {target} itself"
    )
    assert list(target.parent.iterdir()) == []


def test_a_database_that_exists_is_opened_through_a_link(places: SideFiles) -> None:
    link = places.database.with_name("link.db")
    link.symlink_to(places.database)
    add(link, "another")
    assert len(states(places.database)) == 2


# --- a lock that another user holds --------------------------------------------------------------


def test_a_gate_that_another_user_holds_is_refused_at_once(places: SideFiles) -> None:
    os.chown(places.write_lock, STRANGER, STRANGER)
    with places.write_lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        message = refusal(places.database)

    assert message.startswith(f"cannot open {places.write_lock}: it belongs to user {STRANGER}")
    assert f"rm {places.write_lock}" in message


def open_gate_as_stranger(gate: str) -> None:
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    try:
        with open(gate) as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            say("held")
    except OSError as error:
        say(error.strerror)


def test_a_gate_that_others_can_open_is_closed_to_them(
    shared: Path, start: Callable[..., object]
) -> None:
    places = SideFiles(shared / "jobs.db")
    add(places.database, "job")
    os.chmod(places.side_folder, 0o755)
    os.chmod(places.write_lock, 0o644)

    add(places.database, "another")

    assert mode(places.write_lock) == 0o600
    assert start(open_gate_as_stranger, places.write_lock).line() == "Permission denied"


def test_a_gate_of_another_user_that_others_can_open_is_refused(places: SideFiles) -> None:
    for path in (places.database, places.side_folder, places.write_lock):
        os.chown(path, STRANGER, STRANGER)
    os.chmod(places.write_lock, 0o644)

    assert f"other users can open it: chmod 600 {places.write_lock}" in refusal(places.database)


# --- a database of several users -----------------------------------------------------------------


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all users can reach."""
    with tempfile.TemporaryDirectory(prefix="bullite-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def work_as_member(database: str, user: int, groups: list[int]) -> None:
    """Open a database as one of its users, and stay until told to end."""
    # While the files of the interpreter and of this package can be read.
    for module in ("grp", "pwd"):
        importlib.import_module(module)
    scripts = schema.scripts("bullite.database.sqlite")
    schema.scripts = lambda package: scripts
    with tempfile.TemporaryDirectory() as folder:
        other = Store(Path(folder) / "other.db")  # loads all that is loaded late
        other.open()
        other.close()
    os.setgroups(groups)
    os.setgid(user)
    os.setuid(user)
    store = Store(database)
    try:
        driver = store.open().driver
    except Exception as error:
        say(f"{type(error).__name__}: {error}")
        return
    driver.start_heartbeat()
    driver.listen(1)
    say("nonce", driver.nonce)
    hang()


@pytest.fixture
def of_a_group(shared: Path) -> SideFiles:
    """A database that the members of a group share, as the guide says."""
    places = SideFiles(shared / "jobs.db")
    add(places.database, "job")
    os.chown(shared, MEMBERS[0], GROUP)
    os.chmod(shared, 0o2770)
    for path in (places.database, places.side_folder, places.write_lock):
        os.chown(path, MEMBERS[0], GROUP)
    os.chmod(places.database, 0o660)
    os.chmod(places.side_folder, 0o2770)
    os.chmod(places.write_lock, 0o660)
    return places


def test_members_of_a_group_share_a_database(
    of_a_group: SideFiles, start: Callable[..., object]
) -> None:
    members = [start(work_as_member, of_a_group.database, user, [GROUP]) for user in MEMBERS]
    for member in members:
        word, _, nonce = (line := member.line()).partition(" ")
        assert word == "nonce", line
        sign, socket = of_a_group.liveness(int(nonce)), of_a_group.socket(int(nonce))
        assert (mode(sign), sign.stat().st_gid) == (0o660, GROUP)
        assert (mode(socket), socket.stat().st_gid) == (0o660, GROUP)


def test_users_outside_of_the_group_cannot_use_its_database(
    of_a_group: SideFiles, start: Callable[..., object]
) -> None:
    answer = start(work_as_member, of_a_group.database, STRANGER, []).line()
    assert answer.startswith(("StoreUnwritable", "PermissionError"))


def test_a_side_folder_that_a_group_can_write_needs_a_database_that_it_can_write(
    of_a_group: SideFiles,
) -> None:
    os.chmod(of_a_group.database, 0o640)
    assert "other users can write it" in refusal(of_a_group.database)


def test_a_side_folder_of_another_group_than_the_database_is_refused(of_a_group: SideFiles) -> None:
    os.chown(of_a_group.side_folder, -1, GROUP + 1)
    assert "other users can write it" in refusal(of_a_group.database)


# --- a new database ------------------------------------------------------------------------------


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_a_new_database_is_closed_to_others_before_sqlite_opens_it(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, int] = {}
    connect = schema.connect

    def note(path: Path, *arguments: object) -> object:
        connection = connect(path, *arguments)
        seen.setdefault("database", mode(path))
        return connection

    monkeypatch.setattr(schema, "connect", note)
    store = Store(database)
    store.open()
    try:
        seen |= {end: mode(database.with_name(f"jobs.db{end}")) for end in ("-wal", "-shm")}
    finally:
        store.close()

    assert seen == {"database": 0o600, "-wal": 0o600, "-shm": 0o600}


def test_the_descriptor_that_makes_a_database_is_closed_before_a_connection_exists(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, openings = schema.connect, []

    def note(path: Path, *arguments: object) -> object:
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        openings.append([os.readlink(link) for link in links if os.path.lexists(link)])
        return connect(path, *arguments)

    monkeypatch.setattr(schema, "connect", note)
    add(database, "job")

    assert str(database) not in openings[0]
    assert len(states(database)) == 1


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_file_of_another_user_in_the_place_of_a_log_is_refused(database: Path, end: str) -> None:
    theirs = database.with_name(database.name + end)
    theirs.touch(0o666)
    os.chown(theirs, STRANGER, STRANGER)

    store = Store(database)
    with pytest.raises(StoreUnwritable) as refused:
        store.open()

    assert str(refused.value).startswith(f"{theirs} belongs to user {STRANGER}")
    assert theirs.stat().st_size == 0


# --- locks of groups -----------------------------------------------------------------------------


@pytest.fixture
def lock(places: SideFiles) -> Iterator[GroupLock]:
    lock = GroupLock(places.side_folder / "group-1.lock", "default", database=places.database)
    yield lock
    lock.release()


def test_a_lock_in_a_side_folder_of_another_user_is_not_used(
    places: SideFiles, lock: GroupLock
) -> None:
    assert lock.take()
    lock.release()
    os.chown(places.side_folder, STRANGER, STRANGER)
    for use in (lock.take, lock.holder, lock.make_folder):
        with pytest.raises(GroupUnreachable, match=f"it belongs to user {STRANGER}"):
            use()


def test_a_lock_file_that_another_user_left_is_replaced(lock: GroupLock) -> None:
    lock.make_folder()
    lock.path.touch(0o666)
    os.chown(lock.path, STRANGER, STRANGER)

    assert lock.take()

    found = lock.path.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o600)
    assert GroupLock(lock.path, "default").holder() == lock.holder()


def test_a_lock_file_with_a_second_name_is_replaced(lock: GroupLock) -> None:
    lock.make_folder()
    precious = lock.path.with_name("precious")
    precious.write_text("precious")
    os.link(precious, lock.path)

    assert lock.take()

    assert precious.read_text() == "precious"


def test_a_file_that_another_process_has_replaced_already_is_left_alone(lock: GroupLock) -> None:
    lock.make_folder()
    lock.path.touch()
    os.chown(lock.path, STRANGER, STRANGER)
    late = os.open(lock.path, os.O_RDWR)  # opened before the other process replaces it
    assert lock.take()
    try:
        _remove_if_not_ours(lock.path, late)
    finally:
        os.close(late)
    holder = lock.holder()
    assert holder is not None
    assert holder["pid"] == os.getpid()


def test_processes_that_want_a_lock_of_another_user_at_once_share_one_file(
    places: SideFiles, lock: GroupLock
) -> None:
    lock.make_folder()
    lock.path.touch()
    os.chown(lock.path, STRANGER, STRANGER)
    locks = [GroupLock(lock.path, "default") for _ in range(8)]
    threads = [threading.Thread(target=each.take) for each in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    held = [each for each in locks if each._fd is not None]
    for each in held:
        each.release()
    assert len(held) == 1
