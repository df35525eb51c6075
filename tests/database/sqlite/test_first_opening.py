"""Many processes may open a file that does not exist yet: its schema is made once."""

from __future__ import annotations

from tests.processes.test_first_opening import PROCESSES, open_and_add
from tests.support.processes import ROOT, rows

SCHEMA = len(list((ROOT / "src/bullite/database/sqlite/migrations").glob("*.sql")))


def test_sixteen_processes_open_a_new_file_at_once_and_it_has_the_newest_schema(
    database, start, tmp_path
):
    barrier = tmp_path / "barrier"
    children = [start(open_and_add, database, barrier) for _ in range(PROCESSES)]
    for child in children:
        child.said("ready")

    barrier.touch()

    assert [child.ended() for child in children] == [0] * PROCESSES
    assert rows(database, "select value from bullite_meta where key = 'schema'") == [(str(SCHEMA),)]
