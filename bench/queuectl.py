"""`python -m bench.queuectl`: what `queuectl` costs, each beside something bare, in the same run.

Commands on 4 workers beside `xargs -P4` with the same commands; a batch of lines beside a load of
the same rows by `sqlite3` alone; the start of `list --json`, as it is installed, beside that of
Python.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bullite import Queue
from bullite.client.runtime.blocking import run_blocking
from bullite.core.states import State

PROGRAM = [sys.executable, "-m", "bullite"]
INSTALLED = Path(sys.executable).with_name("queuectl")
WORKERS = 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.queuectl", description=__doc__)
    parser.add_argument("what", nargs="*", default=[], help="commands, batch, start; all if none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commands", type=int, default=1_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    options = parser.parse_args()
    wanted = options.what or ["commands", "batch", "start"]
    if "commands" in wanted:
        for name, command in COMMANDS.items():
            compare_commands(name, command, options.commands, options.rounds)
    if "batch" in wanted:
        compare_batch(options.lines, max(1, options.rounds // 2))
    if "start" in wanted:
        compare_start(options.rounds * 4)


def told(what: str, ours: list[float], theirs: list[float], unit: str) -> None:
    """Medians, and the median of the ratios of the rounds: higher is better for us."""
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    print(
        f"{what}: {statistics.median(ours):,.0f} {unit}, bare {statistics.median(theirs):,.0f} "
        f"{unit}, ratio {ratio:.2f} ({min(a / b for a, b in zip(ours, theirs, strict=True)):.2f}"
        f"-{max(a / b for a, b in zip(ours, theirs, strict=True)):.2f}, {len(ours)} rounds)"
    )


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bullite-bench-") as name:
        yield Path(name)


# --- commands ---

COMMANDS = {"`echo` of a line": "echo line {}", "`sleep 0.02`": "sleep 0.02 # {}"}


def compare_commands(name: str, command: str, count: int, rounds: int) -> None:
    lines = [command.format(number) for number in range(count)]
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(count / with_workers(lines))
        theirs.append(count / with_xargs(lines))
    told(f"{count} commands, {name}, 4 at a time", ours, theirs, "commands/s")


def with_xargs(lines: list[str]) -> float:
    with folder() as here:
        (here / "lines").write_text("\n".join(lines) + "\n")
        with open(here / "lines") as source, open(here / "out", "w") as out:
            began = time.perf_counter()
            argv = ["xargs", "-P", str(WORKERS), "-d", "\n", "-n", "1", "sh", "-c"]
            subprocess.run(argv, stdin=source, stdout=out, check=True)
            return time.perf_counter() - began


def with_workers(lines: list[str]) -> float:
    """Seconds from when a paused queue goes on, with its workers waiting, to when all are done."""
    with folder() as here:
        db = here / "jobs.db"
        queue = Queue("default", db, priority_order="high")
        run_blocking(queue.pause())
        text = "\n".join(lines) + "\n"
        argv = [*PROGRAM, "enqueue-batch", "--db", str(db), "-"]
        subprocess.run(argv, input=text, text=True, check=True, stdout=subprocess.DEVNULL)
        with running_workers(db, queue):
            began = time.perf_counter()
            run_blocking(queue.resume())
            while run_blocking(queue.get_job_counts(State.COMPLETED))["completed"] < len(lines):
                time.sleep(0.005)
            took = time.perf_counter() - began
        run_blocking(queue.close())
        return took


@contextmanager
def running_workers(db: Path, queue: Queue) -> Iterator[None]:
    argv = [*PROGRAM, "worker", "start", "--count", str(WORKERS), "--db", str(db)]
    group = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while len(run_blocking(queue.get_workers())) < WORKERS:
            time.sleep(0.02)
        yield
    finally:
        group.send_signal(signal.SIGTERM)
        group.wait(30)


# --- a batch ---


def compare_batch(count: int, rounds: int) -> None:
    ours, theirs = [], []
    for _ in range(rounds):
        with folder() as here:
            source = here / "lines"
            with open(source, "w") as out:
                out.writelines(f"echo {number}\n" for number in range(count))
            seconds, peak = load_ours(source, here / "ours.db")
            ours.append(count / seconds)
            theirs.append(count / load_bare(here / "ours.db", here / "bare.db"))
    told(f"batch of {count:,} lines", ours, theirs, "jobs/s")
    print(f"memory at its most: {peak / 1024:.0f} MB (10,000 lines: {small_peak() / 1024:.0f} MB)")


def load_ours(source: Path, db: Path) -> tuple[float, int]:
    """Seconds, and the KB of memory at its most, as the kernel has it while it runs."""
    began = time.perf_counter()
    argv = [*PROGRAM, "enqueue-batch", "--db", str(db), str(source)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, most_memory(process.pid))
        time.sleep(0.02)
    if process.returncode:
        raise RuntimeError(f"the batch failed with {process.returncode}")
    return time.perf_counter() - began, peak


def most_memory(pid: int) -> int:
    """Not what `wait4` tells: that counts what this process had when it was forked."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(found[0]) if found else 0


def small_peak() -> int:
    with folder() as here:
        source = here / "lines"
        source.write_text("".join(f"echo {number}\n" for number in range(10_000)))
        return load_ours(source, here / "small.db")[1]


def load_bare(filled: Path, db: Path) -> float:
    """Seconds in which `sqlite3` alone writes the same rows into the same tables."""
    tables = ("bullite_jobs", "bullite_payloads")
    source = sqlite3.connect(filled)
    schema = [row[0] for row in source.execute(
        "select sql from sqlite_master where tbl_name in (?, ?) and sql is not null "
        "order by type = 'index'", tables)]  # fmt: skip
    rows = {table: source.execute(f"select * from {table}").fetchall() for table in tables}
    source.close()
    bare = sqlite3.connect(db, isolation_level=None)
    bare.execute("pragma journal_mode = wal")
    bare.execute("pragma synchronous = full")
    for statement in schema:
        bare.execute(statement)
    began = time.perf_counter()
    for start in range(0, len(rows[tables[0]]), 10_000):
        bare.execute("begin immediate")
        for table in tables:
            some = rows[table][start : start + 10_000]
            marks = ", ".join("?" * len(some[0]))
            bare.executemany(f"insert into {table} values ({marks})", some)
        bare.execute("commit")
    took = time.perf_counter() - began
    bare.close()
    return took


# --- the start ---


def compare_start(rounds: int) -> None:
    with folder() as here:
        db = here / "jobs.db"
        queue = Queue("default", db, priority_order="high")
        run_blocking(queue.add_bulk([{"name": "shell", "data": {"command": "true"}}] * 10))
        run_blocking(queue.close())
        verb = [str(INSTALLED), "list", "--json", "--db", str(db)]
        bare = [sys.executable, "-c", "pass"]
        pairs = [(seconds_of(verb), seconds_of(bare)) for _ in range(rounds)]
    ours, theirs = (statistics.median(one) * 1e3 for one in zip(*pairs, strict=True))
    print(f"`queuectl list --json`: {ours:.0f} ms, Python alone {theirs:.0f} ms ({rounds} rounds)")


def seconds_of(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
