"""What a job costs when a million others are in the file, against the same with a thousand."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bullite import Job, Queue, Store, Worker, verify

from . import ours
from .figures import Line, Section, Target
from .rounds import Size, folder, in_turn, rounds, tell

FEW = 1_000
CONCURRENCY = 100
MINE = "mine"
"""The name of the jobs that are measured."""

FAR_AWAY = 24 * 3600 * 1000


@dataclass(frozen=True)
class Kind:
    """What a backlog consists of."""

    what: str
    state: str
    name: str = MINE
    delay: int = 0
    only: str | None = None
    """The one name the measured worker takes; None for all."""


KINDS = (
    Kind("waiting", "waiting"),
    Kind("delayed", "delayed", delay=FAR_AWAY),
    Kind("completed", "completed"),
    Kind("waiting, of another name", "waiting", name="other", only=MINE),
)


def backlog(size: Size) -> Iterator[Section]:
    lines = [Line(kind.what, "us/job", Target(at_most=1.2)) for kind in KINDS]
    sorting = Line("the first look by name, once", "s")
    for line, kind in zip(lines, KINDS):
        with folder() as path:
            many, few = path / "many.db", path / "few.db"
            for file, count in ((many, size.backlog), (few, FEW)):
                tell(f"backlog, {kind.what}: building {count:,}")
                build(file, kind, count)
            if kind.only:
                seconds_to_sort(few)
                sorting.add(seconds_to_sort(many))
            for index in rounds(f"backlog, {kind.what}", size.rounds):
                with_many = partial(microseconds_per_job, many, kind, size.jobs)
                with_few = partial(microseconds_per_job, few, kind, size.jobs)
                line.add(*in_turn(index, with_many, with_few))
    yield Section("process beside a backlog", f"{size.backlog:,}", f"{FEW:,}", [*lines, sorting])


def microseconds_per_job(file: Path, kind: Kind, count: int) -> float:
    """Add jobs to the end of the line, process as many from its front, leave the file as it was."""

    async def measure() -> float:
        async with Queue("bench", file) as queue:
            await ours.fill(queue, count, MINE)
            return await ours.seconds_to_process(queue, count, CONCURRENCY, only=kind.only)

    begin = _now()
    took = asyncio.run(measure())
    _forget_finished(file, since=begin)
    return took * 1e6


def seconds_to_sort(file: Path) -> float:
    """The one-time cost of the first worker that takes jobs by name: they get into lanes.

    Measured from its start until it takes a job that stands behind all others.
    """

    async def measure() -> float:
        async with Queue("bench", file) as queue:
            await queue.add(MINE)
            found = asyncio.Event()

            async def look(job: Job) -> None:
                found.set()

            begin = time.perf_counter()
            async with Worker(queue, {MINE: look}, concurrency=CONCURRENCY):
                await found.wait()
                return time.perf_counter() - begin

    begin = _now()
    took = asyncio.run(measure())
    _forget_finished(file, since=begin)
    return took


def _forget_finished(file: Path, since: int) -> None:
    """Delete the jobs that were finished since then, so that each round finds the same backlog."""
    done = "select id from bullite_jobs where state = 'completed' and finished_at >= ?"
    with _plain(file) as db:
        db.execute("begin immediate")
        for table in ("bullite_payloads", "bullite_results"):
            db.execute(f"delete from {table} where job in ({done})", (since,))
        deleted = db.execute(f"delete from bullite_jobs where id in ({done})", (since,)).rowcount
        db.execute("update bullite_queues set completed = completed - ?", (deleted,))
        db.execute("commit")


def _now() -> int:
    return time.time_ns() // 1_000_000


# --- building ------------------------------------------------------------------------------------


def build(file: Path, kind: Kind, count: int) -> None:
    """A file with `count` jobs of a kind: one goes the way of all jobs, SQL makes the others."""
    asyncio.run(_make_one(file, kind))
    _multiply(file, kind.state, count - 1)
    store = Store(file)
    try:
        problems = verify(store)
    finally:
        store.close()
    if not problems.ok:
        raise RuntimeError(f"the backlog is not what the package would have made: {problems}")


async def _make_one(file: Path, kind: Kind) -> None:
    async with Queue("bench", file) as queue:
        await queue.add(kind.name, {"user": 100_000, "kind": "welcome"}, delay=kind.delay)
        if kind.state == "completed":
            await ours.seconds_to_process(queue, 1, 1)


def _multiply(file: Path, state: str, copies: int) -> None:
    """Repeat the only job, in every table, with the numbers that come next."""
    with _plain(file) as db:
        db.execute("pragma journal_mode = memory")
        db.execute("pragma synchronous = off")
        db.execute("begin immediate")
        for table, numbered in (
            ("bullite_jobs", ("id", "seq")),
            ("bullite_payloads", ("job",)),
            ("bullite_results", ("job",)),
        ):
            _repeat_row(db, table, numbered, copies)
        db.execute(f"update bullite_queues set {state} = {state} + ?", (copies,))
        db.execute("update bullite_sequence set last = last + ?", (copies,))
        db.execute("commit")
        db.execute("pragma journal_mode = wal")
    _sync(file)


def _repeat_row(db: sqlite3.Connection, table: str, numbered: tuple[str, ...], copies: int) -> None:
    columns = [row[1] for row in db.execute(f"pragma table_info({table})")]
    values = [f"{name} + number" if name in numbered else name for name in columns]
    db.execute(
        f"""
        with recursive numbers (number) as (
            select 1 union all select number + 1 from numbers where number < ?
        )
        insert into {table} select {", ".join(values)}
        from (select * from {table} limit 1) cross join numbers
        """,
        (copies,),
    )


@contextmanager
def _plain(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection for us alone: no process has the file open."""
    db = sqlite3.connect(file, isolation_level=None)
    try:
        yield db
    finally:
        db.close()


def _sync(file: Path) -> None:
    """Have it all on the disk now, not while something is timed."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
