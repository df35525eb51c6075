"""A file that was opened before a fork: what lies beside it belongs to the parent."""

from __future__ import annotations

from pathlib import Path

from bullite.database.sqlite.liveness import is_alive
from tests.processes.test_forks import works_and_forks
from tests.support.processes import add, registered, rows


def test_the_exit_of_a_forked_child_leaves_the_sign_of_life_and_the_socket_of_its_parent(
    database, start
):
    add(database)
    parent = start(works_and_forks, database)
    parent.said("run 1")
    parent.said("child ended with 0")

    side_folder = database.with_name("jobs.db.bullite")
    [liveness] = side_folder.glob("*.alive")
    [socket] = side_folder.glob("*.sock")
    assert is_alive(liveness) is True
    assert registered(database, parent)
    [(address,)] = rows(database, "select address from bullite_workers")
    assert Path(address) == socket
    [job] = add(database, "after the child is gone")
    parent.said(f"run {job}")

    parent.kill()
    assert is_alive(liveness) is False
