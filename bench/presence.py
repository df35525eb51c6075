"""What our package costs when nothing is to do: an idle worker, an import, files on the disk."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bullite import Queue

from . import ours
from .cells import WorkerProcess
from .environments import OurEnvironment
from .figures import Line, Section
from .folders import ROOT
from .places import folder
from .rounds import Size, rounds, tell
from .targets import IDLE

SETTLING = 1.5
"""Seconds after which a worker has done all that was to do, and counts as idle."""

STORED = 100_000
"""Jobs after which files are weighed."""


def idle(size: Size, ends: float) -> Iterator[Section]:
    tell("idle")
    cpu = Line("CPU", "% of a core")
    memory = Line("resident memory", "MB")
    environment = OurEnvironment("bullite_sqlite")
    if Path("/proc/self/stat").exists():
        with folder() as path, WorkerProcess(environment, str(path / "jobs.db"), {}) as worker:
            worker.go()
            time.sleep(SETTLING)
            before = cpu_seconds(worker.pid)
            begin = time.monotonic()
            time.sleep(size.idle)
            used = cpu_seconds(worker.pid) - before
            cpu.add(100 * used / (time.monotonic() - begin))
            memory.add(resident_megabytes(worker.pid))
            worker.end()
            worker.result()
    yield Section(IDLE, "ours", "", [cpu, memory])


def imports(size: Size, ends: float) -> Iterator[Section]:
    line = Line("import bullite", "ms")
    with folder() as compiled:
        _milliseconds_to_run("import bullite", compiled)  # compiles, as installing a package does
        for _ in rounds("import", size.imports):
            empty = _milliseconds_to_run("pass", compiled)
            line.add(_milliseconds_to_run("import bullite", compiled) - empty)
    yield Section("start of a program, over an empty one", "ours", "", [line])


def _milliseconds_to_run(code: str, compiled: Path) -> float:
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(compiled)}
    environment["PYTHONPATH"] = str(ROOT / "src")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return (time.perf_counter() - begin) * 1e3


def files(size: Size, ends: float) -> Iterator[Section]:
    """What a hundred thousand jobs leave on the disk; the log while the file is still open."""
    tell("files")
    lines: list[Line] = []

    def weigh(path: Path, when: str) -> None:
        for suffix, what in (("", "file"), ("-wal", "log")):
            file = path.with_name(path.name + suffix)
            megabytes = file.stat().st_size / 1e6 if file.exists() else 0.0
            lines.append(Line(f"{what}, {STORED:,} jobs {when}", "MB", ours=[megabytes]))

    async def measure(path: Path) -> None:
        async with Queue("bench", path) as queue:
            await ours.fill(queue, STORED)
            weigh(path, "waiting")
            await ours.seconds_to_process(queue, STORED, 100)
            weigh(path, "completed and kept")

    with folder() as path:
        asyncio.run(measure(path / "jobs.db"))
    yield Section("size on the disk", "ours", "", lines)


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
