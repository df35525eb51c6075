"""What a worker process is like for others: how soon it starts a job, what it costs when idle."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from bullite import Queue

from .figures import Line, Section, Target
from .rounds import Size, folder, rounds, tell

PACE = 0.015
"""Seconds between two jobs: nothing is warm any more, nothing is queued."""

WARM_UP = 50
SETTLING = 1.0
"""Seconds after which a worker has done all that was to do, and counts as idle."""


def latency(size: Size) -> Iterator[Section]:
    tell("latency")
    with folder() as path:
        p50, p90, p99 = percentiles(delays(path / "jobs.db", size.latencies))
    lines = [
        Line("p50", "ms", Target(at_most=2), [p50]),
        Line("p90", "ms", None, [p90]),
        Line("p99", "ms", None, [p99]),
    ]
    yield Section("add to start in another process", "ours", "", lines)


def delays(location: str | Path, count: int) -> list[float]:
    """Milliseconds from `add` to start, of so many jobs after a warm-up."""
    with WorkerProcess(location) as worker:
        asyncio.run(_add_slowly(location, WARM_UP + count))
        found = [delay / 1e6 for delay in worker.finish()]
    if len(found) != WARM_UP + count:
        raise RuntimeError(f"{len(found)} jobs were run, not {WARM_UP + count}")
    return found[WARM_UP:]


def percentiles(values: list[float]) -> tuple[float, float, float]:
    """p50, p90 and p99."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[89], cuts[98]


async def _add_slowly(location: str | Path, count: int) -> None:
    async with Queue("bench", location) as queue:
        for _ in range(count):
            await queue.add("timed", time.monotonic_ns())
            await asyncio.sleep(PACE)
        await asyncio.sleep(SETTLING)


def idle(size: Size) -> Iterator[Section]:
    tell("idle")
    cpu = Line("CPU", "% of a core", Target(below=0.5))
    memory = Line("resident memory", "MB", Target(below=45))
    if Path("/proc/self/stat").exists():
        with folder() as path, WorkerProcess(path / "jobs.db") as worker:
            time.sleep(SETTLING)
            before = cpu_seconds(worker.pid)
            begin = time.monotonic()
            time.sleep(size.idle)
            used = cpu_seconds(worker.pid) - before
            cpu.add(100 * used / (time.monotonic() - begin))
            memory.add(resident_megabytes(worker.pid))
            worker.finish()
    yield Section("a worker process with nothing to do", "ours", "", [cpu, memory])


def imports(size: Size) -> Iterator[Section]:
    line = Line("import bullite", "ms")
    with folder() as compiled:
        _milliseconds_to_run("import bullite", compiled)  # compiles, as installing a package does
        for _ in rounds("import", size.imports):
            empty = _milliseconds_to_run("pass", compiled)
            line.add(_milliseconds_to_run("import bullite", compiled) - empty)
    yield Section("start of a program, over an empty one", "ours", "", [line])


def _milliseconds_to_run(code: str, compiled: Path) -> float:
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(compiled)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return (time.perf_counter() - begin) * 1e3


# --- a worker in a process of its own ------------------------------------------------------------


class WorkerProcess:
    """A process with a worker, from the moment it is ready until it is told to finish."""

    def __init__(self, location: str | Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench._worker", str(location)],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the worker process did not start")

    def finish(self) -> list[int]:
        """Have it end; the nanoseconds that each job took to it."""
        output, _ = self._process.communicate(timeout=60)
        delays: list[int] = json.loads(output)
        return delays

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU a process has used, in user code and in the kernel."""
    # The name of the program stands in parentheses and may contain anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the system does not tell how much memory a process uses")
