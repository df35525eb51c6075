"""Opens what a cut of the power left, and compares it with what had been promised."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bullite import BulliteError, Job, Queue, Store, Worker, verify
from bullite.client.verify import CHECKS
from bullite.database.sqlite.statements import STATEMENTS

Image = Mapping[str, bytes | bytearray]
"""Files by name."""
Promise = list[Any]
"""What kind of promise it is, the number of a job or an event, and what else was said."""


class Verdict(NamedTuple):
    """What is wrong with an image; nothing, if all three are empty."""

    corrupt: list[str]
    """It cannot be opened, or `verify` finds something."""
    lost: list[str]
    """Jobs whose adding was answered, that are not there or not as they were added."""
    undone: list[str]
    """Ends, steps and events that somebody was told of and that are not there."""

    @property
    def is_good(self) -> bool:
        return not (self.corrupt or self.lost or self.undone)


def judge(
    folder: Path, name: str, image: Image, promises: Sequence[Promise], used: bool
) -> Verdict:
    """Open the database of an image in an empty folder, and compare; `used`, it is then opened as
    users do, and a worker runs what there is to run."""
    with _files(folder, image):
        verdict = _compare(folder / name, promises)
    if used and verdict.is_good:
        with _files(folder, image):
            problems = _use(folder / name)
            verdict = _compare(folder / name, promises)
        verdict.corrupt.extend(problems)
    return verdict


@contextmanager
def _files(folder: Path, image: Image) -> Iterator[None]:
    for file, data in image.items():
        (folder / file).write_bytes(data)
    try:
        yield
    finally:
        shutil.rmtree(folder)
        folder.mkdir()


def _compare(database: Path, promises: Sequence[Promise]) -> Verdict:
    try:
        with closing(sqlite3.connect(database)) as connection:
            return _look(connection, promises)
    except (sqlite3.DatabaseError, ValueError) as error:
        return Verdict([str(error)], [], [])


def _look(connection: sqlite3.Connection, promises: Sequence[Promise]) -> Verdict:
    tables = connection.execute("select count(*) from sqlite_master where name = 'bullite_meta'")
    if tables.fetchone() == (0,):
        # Not yet made: then nothing can be in it.
        problems = [row[0] for row in connection.execute("pragma integrity_check")]
        missing = [f"{what} {about[0]}" for what, *about in promises]
        return Verdict([each for each in problems if each != "ok"], missing, [])
    corrupt = [
        row[0] for check in CHECKS for row in connection.execute(STATEMENTS[check].text).fetchall()
    ]
    found = _Found(connection)
    wrong = [(what, about) for what, *about in promises if not found.keeps(what, about)]
    lost = [f"{what} {about[0]}" for what, about in wrong if what == "add"]
    undone = [f"{what} {about[0]}" for what, about in wrong if what != "add"]
    return Verdict(corrupt, lost, undone)


class _Found:
    """What is in a database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        def table(query: str) -> dict[Any, Any]:
            return dict(connection.execute(query).fetchall())

        self._data = table("select job, data from bullite_payloads")
        self._states = table("select id, state from bullite_jobs")
        self._values = table("select job, return_value from bullite_results")
        self._events = table("select id, jobs from bullite_events")
        self._steps = table("select job, name from bullite_steps where kind = 'step'")

    def keeps(self, what: str, about: list[Any]) -> bool:
        number = about[0]
        match what:
            case "add":
                return number in self._states and _is(self._data.get(number), about[1])
            case "end":
                _, state, value = about
                text = self._values.get(number) if state == "completed" else "null"
                return self._states.get(number) == state and _is(text, value)
            case "event":
                jobs = json.loads(self._events.get(number, "[]"))
                return about[1] in [job[0] if isinstance(job, list) else job for job in jobs]
            case "step":
                # The steps of a job that has ended are of no use to anybody.
                has_ended = self._states.get(number) in ("completed", "failed")
                return has_ended or self._steps.get(number) == about[1]
        raise AssertionError(what)


def _is(text: str | None, value: Any) -> bool:
    """Whether it is the JSON of a value."""
    return text is not None and json.loads(text) == value


def _use(database: Path) -> list[str]:
    """What `verify` says of a database before and after it is used, or what stands against that."""
    try:
        return asyncio.run(_run_what_is_there(database))
    except (BulliteError, TimeoutError) as error:
        return [f"it cannot be used: {error}"]


async def _run_what_is_there(database: Path) -> list[str]:
    async def work(job: Job) -> None:
        return None

    store = Store(database)
    try:
        problems = list(verify(store).problems)
        async with Queue("work", store) as queue, Worker(queue, work, concurrency=10):
            job = await queue.add("one more")
            await job.result(timeout=10_000)
        return problems + list(verify(store).problems)
    finally:
        store.close()
