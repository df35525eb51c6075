"""Places that cannot be written are named in a clear error; what we make is for its owner only."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullite import Store
from bullite.errors import StoreUnwritable
from tests.database.sqlite.test_foreign_files import open_store
from tests.support.processes import add

NOBODY = 65534


def open_as_nobody(database: str) -> None:
    """Open a database without root's right to do everything."""
    with tempfile.TemporaryDirectory() as folder:
        # Loads all that is loaded late, while the interpreter's own files can be read.
        other = Store(Path(folder) / "other.db")
        other.open()
        other.close()
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    open_store(database)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach and write."""
    with tempfile.TemporaryDirectory(prefix="bullite-") as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- refused -------------------------------------------------------------------------------------


def test_a_read_only_folder_is_named(open_folder, start):
    os.chmod(open_folder, 0o555)

    answer = start(open_as_nobody, open_folder / "jobs.db").line()

    assert answer.startswith(
        f"StoreUnwritable: cannot write to the folder of {open_folder}/jobs.db"
    )
    assert list(open_folder.iterdir()) == []


def test_a_database_in_a_read_only_folder_is_named(open_folder, start):
    database = open_folder / "jobs.db"
    add(database, "job")
    os.chmod(database, 0o666)
    os.chmod(open_folder, 0o555)

    answer = start(open_as_nobody, database).line()

    assert answer.startswith("StoreUnwritable: ")
    assert str(database) in answer


def test_a_read_only_file_is_named(open_folder, start):
    database = open_folder / "jobs.db"
    database.touch()
    os.chmod(database, 0o444)

    answer = start(open_as_nobody, database).line()

    assert answer.startswith("StoreUnwritable: ")
    assert str(database) in answer
    assert database.stat().st_size == 0


def test_a_file_that_cannot_even_be_read_is_named(open_folder, start):
    database = open_folder / "jobs.db"
    database.touch()
    os.chmod(database, 0o000)

    answer = start(open_as_nobody, database).line()

    assert answer.startswith("StoreUnwritable: ")
    assert str(database) in answer


def test_a_side_folder_of_somebody_else_is_named(open_folder, start):
    database = open_folder / "jobs.db"
    add(database, "job")
    os.chmod(database, 0o666)

    answer = start(open_as_nobody, database).line()

    assert answer.startswith(f"StoreUnwritable: cannot open {database}.bullite")
    assert answer.endswith(
        f"; {database}.bullite belongs to user root: do this as that user, or ask them for the "
        "right"
    )


def test_a_missing_folder_is_named(tmp_path):
    database = tmp_path / "missing" / "jobs.db"

    with pytest.raises(StoreUnwritable, match=f"the folder {tmp_path}/missing does not exist"):
        Store(database).open()

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnwritable, match=f"{tmp_path}/file/jobs.db"):
        Store(tmp_path / "file" / "jobs.db").open()


def test_a_folder_in_the_place_of_the_database_is_named(database):
    database.mkdir()

    with pytest.raises(StoreUnwritable, match=f"cannot open {database}"):
        Store(database).open()


def test_a_store_that_could_not_be_opened_leaves_no_descriptor_open(tmp_path):
    before = os.listdir("/proc/self/fd")

    with pytest.raises(StoreUnwritable) as caught:
        Store(tmp_path / "missing" / "jobs.db").open()

    assert os.listdir("/proc/self/fd") == before, caught


# --- the modes of what is made -------------------------------------------------------------------


@pytest.fixture(params=[0o000, 0o022])
def umask(request) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_new_database_is_only_for_its_owner(database):
    store = Store(database)
    store.open()
    try:
        assert mode(database) == 0o600
        assert mode(database.with_name("jobs.db-wal")) == 0o600
        assert mode(database.with_name("jobs.db-shm")) == 0o600
        assert mode(database.with_name("jobs.db.bullite")) == 0o700
        assert mode(database.with_name("jobs.db.bullite") / "gate") == 0o600
    finally:
        store.close()


def test_an_existing_database_keeps_its_mode(database):
    database.touch()
    os.chmod(database, 0o640)

    add(database, "job")

    assert mode(database) == 0o640
