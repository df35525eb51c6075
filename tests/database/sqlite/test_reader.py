"""Looking into a file without an engine: what it leaves alone, and when it is left to a driver."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bullite import Queue
from bullite.client.runtime.blocking import run_blocking
from bullite.database.sqlite import connections, files
from bullite.database.sqlite.location import FileLocation
from bullite.database.sqlite.reader import SQLiteReader
from bullite.errors import NetworkFileSystem, NotABulliteDatabase, SQLiteTooOld
from tests.database.sqlite.test_connections import SETTINGS, settings_of
from tests.database.sqlite.test_network_file_systems import ROOT, mount
from tests.processes.test_forks import fork
from tests.support.processes import Child, hang, say

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def filled(database: Path) -> Path:
    """A database with a queue, which nobody uses any more."""
    queue = Queue("emails", database)
    run_blocking(queue.add("welcome"))
    run_blocking(queue.close())
    return database


def look_into(path: Path) -> SQLiteReader:
    reader = FileLocation(path).reader()
    assert reader is not None
    return reader


def queues_of(reader: SQLiteReader) -> list[str]:
    return [name for _, name in reader.read("queue_names", {}).rows]


def contents(folder: Path, but: str = "nothing") -> dict[str, bytes | None]:
    """All that is in a folder."""
    found = {path.relative_to(folder): path for path in folder.rglob("*")}
    return {
        str(name): path.read_bytes() if path.is_file() else None
        for name, path in found.items()
        if not path.name.endswith(but)
    }


# --- what it leaves alone ---


def test_a_file_that_nobody_uses_is_left_alone_in_its_folder(filled: Path) -> None:
    before, changed = contents(filled.parent), filled.stat().st_mtime_ns
    with closing(look_into(filled)) as reader:
        assert queues_of(reader) == ["emails"]
    assert contents(filled.parent) == before
    assert filled.stat().st_mtime_ns == changed


def adds_and_hangs(path: str) -> None:
    run_blocking(Queue("orders", path).add("new"))
    say("added")
    hang()


def test_the_log_of_a_dead_process_is_read_and_left_as_it_is(
    filled: Path, start: Callable[..., Child]
) -> None:
    child = start(adds_and_hangs, filled)
    child.said("added")
    child.kill()
    # The index of the log is SQLite's memory, which it keeps in a file.
    before = contents(filled.parent, but="-shm")
    assert before["jobs.db-wal"]
    with closing(look_into(filled)) as reader:
        assert sorted(queues_of(reader)) == ["emails", "orders"]
    assert contents(filled.parent, but="-shm") == before


def test_what_others_write_meanwhile_is_seen(filled: Path) -> None:
    with closing(look_into(filled)) as reader:
        queue = Queue("orders", filled)
        run_blocking(queue.add("new"))
        assert sorted(queues_of(reader)) == ["emails", "orders"]
        run_blocking(queue.close())
        assert sorted(queues_of(reader)) == ["emails", "orders"]


def test_it_has_our_settings_and_starts_no_thread(filled: Path) -> None:
    before = threading.enumerate()
    with closing(look_into(filled)) as reader:
        assert settings_of(reader._connection) == SETTINGS
        assert threading.enumerate() == before


def test_a_writer_is_not_waited_for(filled: Path) -> None:
    with closing(sqlite3.connect(filled, isolation_level=None)) as stranger:
        stranger.execute("begin exclusive")
        with closing(look_into(filled)) as reader:
            assert queues_of(reader) == ["emails"]


def looks_on_both_sides_of_a_fork(path: str) -> None:
    reader = look_into(Path(path))
    queues_of(reader)
    child = fork()
    if not child:
        try:
            reader._connection.execute("select 1")
        except sqlite3.ProgrammingError:
            with closing(look_into(Path(path))) as another:
                sys.exit(queues_of(another) != ["emails"])
        sys.exit(2)
    say("child ended with", os.waitpid(child, 0)[1])
    say("parent reads", *queues_of(reader))


def test_its_connection_does_not_cross_a_fork(filled: Path, start: Callable[..., Child]) -> None:
    parent = start(looks_on_both_sides_of_a_fork, filled)
    parent.said("child ended with 0")
    parent.said("parent reads emails")
    assert parent.ended() == 0


# --- what is left to a driver ---


def holds_notes(path: Path) -> None:
    path.write_text("these are my notes\n" * 1000)


def is_empty(path: Path) -> None:
    path.write_bytes(b"")


def is_not_there(path: Path) -> None:
    path.unlink()


def has_a_newer_schema(path: Path) -> None:
    execute(path, "update bullite_meta set value = '999' where key = 'schema'")


def is_not_in_wal_mode(path: Path) -> None:
    execute(path, "pragma journal_mode = delete")


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    "spoil", [holds_notes, is_empty, is_not_there, has_a_newer_schema, is_not_in_wal_mode]
)
def test_a_file_that_is_not_ready_is_left_to_a_driver_as_it_is(
    filled: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(filled)
    before = contents(filled.parent)
    assert FileLocation(filled).reader() is None
    assert contents(filled.parent) == before


@pytest.mark.parametrize("frozen", sorted(FIXTURES.glob("schema-*.db")), ids=lambda path: path.stem)
def test_an_older_schema_is_left_to_a_driver(frozen: Path, database: Path) -> None:
    shutil.copyfile(frozen, database)
    assert FileLocation(database).reader() is None


def test_a_file_that_somebody_keeps_to_himself_is_left_to_a_driver(filled: Path) -> None:
    with closing(sqlite3.connect(filled, isolation_level=None)) as stranger:
        stranger.execute("pragma locking_mode = exclusive")
        stranger.execute("begin exclusive")
        assert FileLocation(filled).reader() is None


# --- what is refused ---


def test_tables_that_are_not_ours_are_refused(database: Path) -> None:
    execute(database, "pragma journal_mode = wal")
    execute(database, "create table bullite_recipes (name)")
    with pytest.raises(NotABulliteDatabase, match="bullite_recipes"):
        FileLocation(database).reader()


def test_a_network_file_system_is_refused_unless_it_is_allowed(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_mounts", lambda: ROOT + mount(filled.parent, "nfs4"))
    with pytest.raises(NetworkFileSystem):
        FileLocation(filled).reader()
    with closing(FileLocation(filled, allow_network=True).reader()) as reader:
        assert queues_of(reader) == ["emails"]


def test_a_sqlite_that_is_too_old_is_refused(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "OLDEST_SQLITE", (99, 0, 0))
    with pytest.raises(SQLiteTooOld):
        FileLocation(filled).reader()
