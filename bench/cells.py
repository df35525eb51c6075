"""The cells of the comparison: what each measures, and how it is done with any contestant."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from .contestants import About, Settings
from .environments import TIME_LIMIT, Environment, Unavailable, answer, last_line
from .places import Place

Figures = dict[str, float]
"""What one measurement found, by what it is called."""

LATENCY_WARM_UP = 30
PACE = 0.008
"""Seconds between two jobs: nothing is queued, and the worker has gone back to waiting."""

LOAD = 500
"""Jobs a second while latency under load is measured."""

DELAY = 400
"""Milliseconds by which jobs are delayed."""

SETTLING = 0.6
"""Seconds after which a worker that was just started waits for jobs, and has done all there was."""

LIST = 1_000
"""Jobs per call of `add_bulk`."""

BOX = 1.0
"""Seconds at most that several processes are measured for in a trial."""


@dataclass(frozen=True)
class Kind:
    """One cell: its title, and what is asked of the programs."""

    title: str
    how: str
    """`add`, `add_bulk`, `process`, `processes`, `latency` or `delayed`."""

    options: Mapping[str, Any] = field(default_factory=dict)
    filling: Mapping[str, Any] = field(default_factory=dict)
    everybody: bool = False
    """Whether all contestants do it, or ours, BullMQ on Node and the two best others."""

    processes: int = 1
    attempts: int = 1

    @property
    def unit(self) -> str:
        return "ms" if self.is_time else "jobs/s"

    @property
    def is_time(self) -> bool:
        """Whether less is better."""
        return self.how in ("latency", "delayed")

    @property
    def first(self) -> str:
        """The figure that decides which settings are best."""
        return "p50" if self.is_time else "rate"

    @property
    def shown(self) -> Sequence[str]:
        return ("p50", "p99") if self.is_time else ("rate",)


KINDS: dict[str, Kind] = {
    "process": Kind("process no-op jobs, at its best", "process", everybody=True),
    "process_1": Kind("process no-op jobs, concurrency 1", "process", everybody=True),
    "add": Kind("add one by one", "add", everybody=True),
    "add_bulk": Kind("add in lists of 1,000", "add_bulk", everybody=True),
    "latency": Kind("add to start in another process", "latency", everybody=True),
    "add_50": Kind("add, 50 concurrent callers", "add", {"callers": 50}),
    "process_10": Kind("process no-op jobs, concurrency 10", "process", {"concurrency": 10}),
    "process_1000": Kind("process no-op jobs, concurrency 1,000", "process", {"concurrency": 1000}),
    "processes_2": Kind("process no-op jobs, 2 processes", "processes", processes=2),
    "processes_4": Kind("process no-op jobs, 4 processes", "processes", processes=4),
    "threads": Kind(
        "process no-op jobs, sync handlers in 8 threads",
        "process",
        {"threads": True, "concurrency": 8},
    ),
    "threads_cpu": Kind(
        "process jobs of 1 ms of CPU, sync handlers in 8 threads",
        "process",
        {"threads": True, "concurrency": 8, "cpu_ms": 1},
    ),
    "payload_1k": Kind("process jobs of 1 KB", "process", filling={"size": 1_024}),
    "payload_10k": Kind("process jobs of 10 KB", "process", filling={"size": 10_240}),
    "payload_100k": Kind("process jobs of 100 KB", "process", filling={"size": 102_400}),
    "latency_loaded": Kind("add to start, while 500 jobs a second run", "latency", {"rate": LOAD}),
    "delayed": Kind("start of delayed jobs, after they were due", "delayed"),
    "retries": Kind(
        "process jobs that fail once", "process", {"fails": True}, {"fails": True}, attempts=2
    ),
}


class Bench:
    """One contestant, measured in any cell, each time at a fresh place."""

    def __init__(self, about: About, place: Place, environment: Environment | None = None) -> None:
        self.about = about
        self._place = place
        self._environment = environment or about.environment()

    def measure(
        self, cell: str, settings: Settings, jobs: int, seconds: float, checked: bool
    ) -> Figures:
        """Do so many jobs, or where time is what is given, work so long."""
        kind = KINDS[cell]
        options = {**kind.options, **settings}
        place = self._place.fresh(self.about.key, self._install)
        if kind.how == "process":
            return self._process(kind, place, options, jobs, checked)
        if kind.how == "processes":
            number = options.pop("processes", kind.processes)
            return self._processes(kind, place, options, jobs, seconds, number, checked)
        if kind.how == "latency":
            return self._latency(place, options, jobs, checked)
        if kind.how == "delayed":
            return self._delayed(place, options, jobs, checked)
        return self._add(kind.how, place, options, jobs, checked)

    # --- adding ---

    def _add(self, how: str, place: str, options: Settings, jobs: int, checked: bool) -> Figures:
        each = LIST if how == "add_bulk" else options.get("callers", 1)
        jobs = max(1, jobs // each) * each
        took = self._run(how, place, {"list": LIST, **options, "jobs": jobs})
        if checked:
            _check(self._count(place)["waiting"], jobs)
        return {"rate": jobs / took, "seconds": took}

    # --- processing ---

    def _process(
        self, kind: Kind, place: str, options: Settings, jobs: int, checked: bool
    ) -> Figures:
        self._fill(kind, place, jobs)
        with self._worker(place, {**options, "jobs": jobs * kind.attempts}) as worker:
            worker.go()
            found = worker.result()
        if checked:
            _check(found["handled"], jobs * kind.attempts)
            self._check_finished(place, jobs, jobs)
        return {"rate": jobs / found["seconds"], "seconds": found["seconds"]}

    def _processes(
        self,
        kind: Kind,
        place: str,
        options: Settings,
        jobs: int,
        seconds: float,
        number: int,
        checked: bool,
    ) -> Figures:
        """Work for so many seconds with more jobs than can be done, and see who did how many."""
        self._fill(kind, place, jobs)
        with ExitStack() as stack:
            workers = [
                stack.enter_context(self._worker(place, {**options, "jobs": 0}))
                for _ in range(number)
            ]
            for worker in workers:
                worker.go()
            time.sleep(seconds)
            for worker in workers:
                worker.end()
            found = [worker.result() for worker in workers]
        handled = [one["handled"] for one in found]
        took = max(one["seconds"] for one in found)
        if checked:
            self._check_finished(place, jobs, sum(handled))
        figures = {
            "rate": sum(handled) / took,
            "seconds": took,
            "fairness": min(handled) / max(1, max(handled)),
            "left": float(jobs - sum(handled)),
        }
        waits = [one["worst_wait_ms"] for one in found if "worst_wait_ms" in one]
        return figures | ({"worst wait": max(waits)} if waits else {})

    # --- waiting ---

    def _latency(self, place: str, options: Settings, jobs: int, checked: bool) -> Figures:
        slowly = {"pace": PACE, "jobs": LATENCY_WARM_UP + jobs, **options}
        working = {name: value for name, value in options.items() if name != "rate"}
        return self._delays("add_slowly", place, slowly, working, jobs, 0.0, checked)

    def _delayed(self, place: str, options: Settings, jobs: int, checked: bool) -> Figures:
        later = {"delay": DELAY, "jobs": LATENCY_WARM_UP + jobs, **options}
        return self._delays("add_delayed", place, later, options, jobs, DELAY / 1e3, checked)

    def _delays(
        self,
        what: str,
        place: str,
        adding: Settings,
        working: Settings,
        jobs: int,
        patience: float,
        checked: bool,
    ) -> Figures:
        count = LATENCY_WARM_UP + jobs
        with self._worker(place, {**working, "jobs": count, "record": True}) as worker:
            worker.go()
            time.sleep(SETTLING)
            begin = time.perf_counter()
            self._run(what, place, adding)
            took = time.perf_counter() - begin
            worker.end_after(patience + 5.0)
            delays = [delay / 1e6 for delay in worker.result()["delays"]]
        if checked:
            _check(len(delays), count)
        cuts = statistics.quantiles(delays[LATENCY_WARM_UP:], n=100, method="inclusive")
        return {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "seconds": took}

    # --- the programs ---

    def _install(self, place: str) -> None:
        self._run("install", place, {})

    def _fill(self, kind: Kind, place: str, jobs: int) -> None:
        self._run("fill", place, {"jobs": jobs, **kind.filling})
        self._place.settle(place)

    def _run(self, what: str, place: str, options: Settings) -> Any:
        return self._environment.run(what, place, options)

    def _worker(self, place: str, options: Settings) -> WorkerProcess:
        return WorkerProcess(self._environment, place, options)

    def _count(self, place: str) -> dict[str, int | None]:
        found: dict[str, int | None] = self._run("count", place, {})
        return found

    def _check_finished(self, place: str, filled: int, done: int) -> None:
        """What a worker says it did is found in the database, but for a few that ran at the end."""
        found = self._count(place)
        finished = found["finished"]
        if finished is None:
            finished = filled - (found["waiting"] or 0)
        if abs(finished - done) > 0.02 * done:
            raise Unavailable(f"{finished} jobs are finished, not {done}")


class WorkerProcess:
    """A worker of a contestant, from the moment it is ready."""

    def __init__(self, environment: Environment, place: str, options: Settings) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process: subprocess.Popen[str] = environment.start("work", place, options, self._log)
        # Kill a stuck worker: the process that reads from it then gets the end of the file.
        self._guard = threading.Timer(TIME_LIMIT, self._kill)
        self._guard.start()
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._guard.cancel()
        self._kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass  # what was to be written to it is not wanted any more

    def go(self) -> None:
        self._write("go\n")

    def end(self) -> None:
        """Tell it that there is no more to do."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.close()
        except OSError:
            pass  # it has ended by itself

    def end_after(self, seconds: float) -> None:
        """Let it end by itself, and tell it to when it takes too long."""
        ending = threading.Timer(seconds, self.end)
        ending.daemon = True
        ending.start()

    def result(self) -> dict[str, Any]:
        """What it says at its end."""
        assert self._process.stdout is not None
        output = self._process.stdout.read()
        code = self._process.wait(TIME_LIMIT)
        if code != 0:
            raise Unavailable(f"work failed: {self._why(code)}")
        found: dict[str, Any] = answer(output)
        return found

    def _wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "ready\n":
                return
        raise Unavailable(f"work did not start: {self._why(self._process.wait())}")

    def _why(self, code: int) -> str:
        if code == -signal.SIGKILL:
            return f"it took more than {TIME_LIMIT:g} s"
        self._log.seek(0)
        return last_line(self._log.read())

    def _write(self, text: str) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(text)
        stdin.flush()

    def _kill(self) -> None:
        """End it and its children: they are a group of their own, and of nobody else."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all have ended


def _check(found: int | None, expected: int) -> None:
    """A figure for work that was not done is worse than none. A warm-up may be on top."""
    if found is not None and found < expected:
        raise Unavailable(f"{found} jobs were done, not {expected}")
