"""What a job costs when millions of others are in the file, against the same with a thousand."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bullite import Job, JobOptions, Queue, Store, Worker, verify

from . import ours
from .figures import Line, Section
from .places import folder
from .rounds import Size, rounds, tell
from .targets import BACKLOG

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


VERIFIED = 1_000_000
"""Up to so many jobs a file that was built is checked; it is built the same way beyond."""

BYTES_A_JOB = 400
"""More than a job takes on the disk, and what its building needs."""


def backlog(size: Size, ends: float) -> Iterator[Section]:
    """Every kind beside every number; what time or disk do not allow is named."""
    lines: list[Line] = []
    pace = 0.0
    for kind in KINDS:
        with folder() as path:
            few = path / "few.db"
            build(few, kind, FEW)
            files, sorting = dict[int, Path](), Line(f"the first look by name, {kind.what}", "s")
            for count in size.backlogs if kind.only is None else size.backlogs[:2]:
                if reason := _why_not(path, count, pace, ends):
                    lines.append(Line(f"{count:,} {kind.what}: left out, {reason}", ""))
                    continue
                tell(f"backlog, {kind.what}: building {count:,}")
                files[count] = path / f"{count}.db"
                begin = time.monotonic()
                build(files[count], kind, count)
                pace = (time.monotonic() - begin) / count
            if kind.only and files:
                seconds_to_sort(few)
                for file in files.values():
                    sorting.ours = [seconds_to_sort(file)]
            lines += _compare(size, kind, few, files)
            if sorting.ours:
                lines.append(sorting)
    yield Section(BACKLOG, "beside so many", f"beside {FEW:,}", lines)


def _compare(size: Size, kind: Kind, few: Path, files: dict[int, Path]) -> list[Line]:
    found: dict[Path, list[float]] = {file: [] for file in (few, *files.values())}
    for index in rounds(f"backlog, {kind.what}", size.rounds):
        order = list(found)
        first = index % len(order)
        for file in order[first:] + order[:first]:
            found[file].append(microseconds_per_job(file, kind, size.jobs))
    return [
        Line(f"{count:,} {kind.what}", "us/job", ours=found[file], other=found[few])
        for count, file in files.items()
    ]


def _why_not(path: Path, count: int, pace: float, ends: float) -> str | None:
    """Nothing is in the way of a hundred thousand; `pace` is what a job took in the last file."""
    if count > FEW * 100:
        if shutil.disk_usage(path).free < 2 * count * BYTES_A_JOB:
            return "the disk is too small"
        if time.monotonic() + count * pace > ends:
            return "no time"
    return None


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
    if count > VERIFIED:
        return
    store = Store(file)
    try:
        problems = verify(store)
    finally:
        store.close()
    if not problems.ok:
        raise RuntimeError(f"the backlog is not what the package would have made: {problems}")


async def _make_one(file: Path, kind: Kind) -> None:
    async with Queue("bench", file) as queue:
        options: JobOptions = {"delay": kind.delay} if kind.delay else {}
        await queue.add(kind.name, {"user": 100_000, "kind": "welcome"}, **options)
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
