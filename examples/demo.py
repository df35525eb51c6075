"""Bullite in one file: a small shop hands its chores to two worker processes.

    python examples/demo.py

Needs no server and leaves nothing behind. Read it from top to bottom: what the jobs do, a worker,
the adding of jobs. The rest only draws what happens.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from bullite import Job, Queue, UnrecoverableError, Worker, verify

# --- what the jobs do ----------------------------------------------------------------------------
# A processor gets the job; what it returns is stored with the job, what it raises fails the try.


async def send(job: Job) -> int:
    """Receipts, newsletters and reminders: a coroutine, so thousands could wait at once."""
    await asyncio.sleep(0.25)
    return os.getpid()


async def sync_stock(job: Job) -> int:
    """Fails twice, then works: what back-off is for."""
    await asyncio.sleep(0.1)
    if job.attempts_made < 2:
        raise ConnectionError("the warehouse does not answer")
    return os.getpid()


async def charge(job: Job) -> None:
    """Fails whatever we do; and a stolen card is not even worth another try."""
    await asyncio.sleep(0.1)
    if job.data["card"] == "stolen":
        raise UnrecoverableError("the card was reported stolen")
    raise ValueError("the card was declined")


def render_video(job: Job) -> int:
    """A plain function runs in a thread, so it may block."""
    for percent in range(2, 102, 2):
        time.sleep(0.08)
        job.update_progress(percent)
    return os.getpid()


PROCESSORS = {
    "receipt": send,
    "newsletter": send,
    "reminder": send,
    "stock sync": sync_stock,
    "charge": charge,
    "video": render_video,
}


# --- a worker ------------------------------------------------------------------------------------


async def work(path: str) -> None:
    """Work until the parent process lets go of our standard input, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent: it tells us
    async with Queue("shop", path) as queue:
        worker = Worker(queue, PROCESSORS, concurrency=3)
        await asyncio.to_thread(sys.stdin.read)
        await worker.close(timeout="1s")


# --- adding jobs ---------------------------------------------------------------------------------


async def add_jobs(queue: Queue) -> list[Job]:
    return [
        # Added first, run last: lower priorities go first, and without one it is 0.
        *await queue.add_bulk([{"name": "newsletter", "opts": {"priority": 9}}] * 12),
        *await queue.add_bulk([{"name": "receipt", "data": {"order": n}} for n in range(24)]),
        await queue.add("video", {"file": "tour.mp4"}, lifo=True),
        *[await queue.add("reminder", {"seconds": n}, delay=f"{n}s") for n in (3, 3.5, 4)],
        await queue.add("stock sync", attempts=5, backoff={"type": "exponential", "delay": 600}),
        await queue.add("charge", {"card": "empty"}, attempts=3, backoff=700),
        await queue.add("charge", {"card": "stolen"}, attempts=3, backoff=700),
    ]


# --- the whole of it -----------------------------------------------------------------------------


async def demo() -> None:
    began = time.monotonic()
    screen = Screen()
    with tempfile.TemporaryDirectory(prefix="bullite-demo-") as folder:
        path = str(Path(folder, "shop.db"))
        async with Queue("shop", path) as queue:
            jobs = await add_jobs(queue)
            with worker_processes(path, 2), screen:
                while True:
                    jobs = [await look_at(queue, job) for job in jobs]
                    counts = await queue.get_job_counts()
                    screen.show(jobs, counts, time.monotonic() - began)
                    if all(job.finished_at for job in jobs):
                        break
                    await asyncio.sleep(screen.pause)
            took = time.monotonic() - began
            print("", *summary(jobs, took), sep="\n")
            found = await asyncio.to_thread(verify, queue.store)
            print(f"  Checked the file for lost or damaged jobs: {found}.")


async def look_at(queue: Queue, job: Job) -> Job:
    """The job as it is now; a finished one does not change any more."""
    return job if job.finished_at else (await queue.get_job(job.id) or job)


@contextmanager
def worker_processes(path: str, number: int) -> Iterator[None]:
    command = [sys.executable, __file__, "--worker", path]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        try:
            for process in processes:
                process.wait()
        finally:
            for process in processes:
                process.kill()  # it lives only if Ctrl-C was pressed again meanwhile
                process.wait()


def summary(jobs: list[Job], took: float) -> Iterator[str]:
    done = [job for job in jobs if job.state == "completed"]
    failed = [job for job in jobs if job.state == "failed"]
    shares = sorted(Counter(job.return_value for job in done).values(), reverse=True)
    runs = sum(job.attempts_made for job in jobs)
    yield f"  {len(jobs)} jobs took {runs} runs and {took:.1f} s."
    yield ""
    yield f"  {len(done)} completed; the processes ran {' and '.join(map(str, shares))} of them"
    for job in done:
        if job.attempts_made > 1:
            yield f"    {job.name}: worked at last, in try {job.attempts_made} of {job.attempts}"
    late = max(late_by(job) for job in done if job.name == "reminder")
    yield f"    reminder: all began within {late} ms of their time"
    if min(began(jobs, "newsletter")) >= max(began(jobs, "receipt")):
        yield "    newsletter: added first, run after the receipts, by priority"
    yield ""
    yield f"  {len(failed)} failed for good"
    for job in failed:
        yield f"    {job.name}: {job.failed_reason} (try {job.attempts_made} of {job.attempts})"
    yield ""


def began(jobs: list[Job], name: str) -> list[datetime]:
    return [job.processed_at for job in jobs if job.name == name and job.processed_at]


def late_by(job: Job) -> int:
    assert job.processed_at is not None
    due = job.created_at + timedelta(seconds=job.data["seconds"])
    return (job.processed_at - due) // timedelta(milliseconds=1)


# --- drawing -------------------------------------------------------------------------------------

STATES = {"waiting": "33", "delayed": "35", "active": "36", "completed": "32", "failed": "31"}
"""The columns, each with its ANSI colour."""

Row = list[tuple[str, str]]
"""A line of a table: pieces of text, each with its colour or none."""


class Screen:
    """A table that redraws itself on a terminal; elsewhere a line whenever something changed."""

    def __init__(self) -> None:
        size = shutil.get_terminal_size()
        # A table that does not fit cannot be redrawn in place.
        self.live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and size.lines > 12
        self.colour = self.live and not os.environ.get("NO_COLOR")
        self.pause = 0.1 if self.live else 0.5
        self._lines = 0
        self._last = ""
        encoding = sys.stdout.encoding or "ascii"
        self._bar = "━─" if "━".encode(encoding, "ignore") else "#-"

    def __enter__(self) -> None:
        if self.live:
            print("\x1b[?25l", end="")  # hide the cursor

    def __exit__(self, *exc_info: object) -> None:
        if self.live:
            print("\x1b[?25h", end="", flush=True)

    def show(self, jobs: list[Job], counts: dict[str, int], seconds: float) -> None:
        counts["waiting"] += counts["prioritized"]  # those with a priority are counted apart
        if self.live:
            self._redraw(jobs, counts, seconds)
            return
        line = "  ".join(f"{state} {counts[state]}" for state in STATES)
        line += "".join(f"  video {job.progress} %" for job in jobs if job.name == "video")
        if line != self._last:
            self._last = line
            print(f"{seconds:5.1f} s  {line}", flush=True)

    def _redraw(self, jobs: list[Job], counts: Mapping[str, int], seconds: float) -> None:
        width = shutil.get_terminal_size().columns - 1
        lines = [self._fit(row, width) for row in self._table(jobs, counts, seconds, width)]
        up = f"\x1b[{self._lines}A" if self._lines else ""
        print(up + "".join(f"\r{line}\x1b[K\n" for line in lines), end="", flush=True)
        self._lines = len(lines)

    def _fit(self, row: Row, width: int) -> str:
        line = ""
        for text, colour in row:
            text = text[:width]
            width -= len(text)
            line += f"\x1b[{colour}m{text}\x1b[0m" if self.colour and colour and text else text
        return line

    def _table(
        self, jobs: list[Job], counts: Mapping[str, int], seconds: float, width: int
    ) -> Iterator[Row]:
        cell = 11 if width >= 94 else 10 if width >= 68 else 5
        bar = min(20, max(0, width - 12 - len(STATES) * cell - 7))
        yield []
        title = f"{seconds:.1f} s, one SQLite file, two worker processes"
        yield [("  Bullite", "1"), (f"  {title}", "2")]
        yield []
        yield [(" " * 12, ""), *((f"{state[: cell - 1]:>{cell}}", "2") for state in STATES)]
        for name in PROCESSORS:
            mine = [job for job in jobs if job.name == name]
            here = Counter(job.state for job in mine)
            yield [(f"  {name:<10}", ""), *numbers(here, cell), *self._progress(mine, here, bar)]
        yield [(f"  {'all':<10}", "1"), *numbers(counts, cell)]

    def _progress(self, jobs: list[Job], here: Counter[str], size: int) -> Row:
        """How much is finished, as a bar; of a single job, how far it says it is."""
        share = (here["completed"] + here["failed"]) / len(jobs)
        if share == 0 and len(jobs) == 1:
            share = jobs[0].progress / 100
        full = round(size * share)
        colour = "31" if here["failed"] else "32" if share == 1 else "36"
        done, left = self._bar[0] * full, self._bar[1] * (size - full)
        return [("  ", ""), (done, colour), (left, "2"), (f"{share:5.0%}", "")]


def numbers(counts: Mapping[str, int], cell: int) -> Row:
    """A number for each state; zero is drawn as a dot, so that the rest stands out."""
    return [
        (f"{counts[state] or '.':>{cell}}", colour if counts[state] else "2")
        for state, colour in STATES.items()
    ]


def main(arguments: list[str]) -> int:
    try:
        asyncio.run(work(arguments[1]) if arguments[:1] == ["--worker"] else demo())
    except KeyboardInterrupt:
        print("\n  Stopped, and the workers with it.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
