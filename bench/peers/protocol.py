"""How the benchmark talks to a peer's program: `python -m bench.peers.NAME WHAT URL OPTIONS`.

OPTIONS and what is printed are JSON. Only the standard library is used here, for a peer's
environment holds nothing but the peer. What is timed is timed by the program itself, so nobody pays
for the start of an interpreter; that the work was done is checked by the benchmark, from outside.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from bench.workload import payloads

PRELOAD = 1_000
"""Jobs per call when a queue is filled, outside of any timing."""


WARM_UP = 1_000
"""Jobs added before adding is timed: the first ones pay for connections, plans and new files."""


class Peer(Protocol):
    """One queue, on one database, with the settings it was given."""

    async def install(self) -> None:
        """Make its tables; the database is empty."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def add(self, data: dict[str, Any]) -> None: ...

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> None: ...

    async def work(self, handle: Callable[[Any], None], stop: asyncio.Event) -> None:
        """Hand over each job's payload, decoded only if the queue does that by itself.

        Ends when `stop` is set and all that was done is on the disk.
        """


def main(
    make: Callable[[str, dict[str, Any]], Peer], run: Callable[..., Any] = asyncio.run
) -> None:
    """Do what the command line says."""
    what, url, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    print(json.dumps(run(_carry_out(what, make(url, options), options))), flush=True)


async def _carry_out(what: str, peer: Peer, options: dict[str, Any]) -> Any:
    if what == "install":
        return await peer.install()
    await peer.open()
    try:
        return await _ACTIONS[what](peer, options)
    finally:
        await peer.close()


async def _fill(peer: Peer, options: dict[str, Any]) -> None:
    jobs = payloads(options["jobs"])
    for start in range(0, len(jobs), PRELOAD):
        await peer.add_bulk(jobs[start : start + PRELOAD])


async def _process(peer: Peer, options: dict[str, Any]) -> float:
    """Seconds from the start of a worker until all jobs are completed on the disk."""
    count, enough, stop = itertools.count(1), options["jobs"], asyncio.Event()

    def handle(data: Any) -> None:
        if next(count) == enough:
            stop.set()

    gc.collect()
    begin = time.perf_counter()
    await peer.work(handle, stop)
    return time.perf_counter() - begin


async def _add_bulk(peer: Peer, options: dict[str, Any]) -> float:
    """Seconds to add lists of `size`."""
    jobs = payloads(options["size"])
    await peer.add_bulk(payloads(WARM_UP))
    gc.collect()
    begin = time.perf_counter()
    for _ in range(0, options["jobs"], options["size"]):
        await peer.add_bulk(jobs)
    return time.perf_counter() - begin


async def _add(peer: Peer, options: dict[str, Any]) -> float:
    """Seconds to add one job after the other."""
    jobs = payloads(options["jobs"])
    await peer.add_bulk(payloads(WARM_UP))
    gc.collect()
    begin = time.perf_counter()
    for data in jobs:
        await peer.add(data)
    return time.perf_counter() - begin


async def _add_slowly(peer: Peer, options: dict[str, Any]) -> None:
    for _ in range(options["jobs"]):
        await peer.add({"sent": time.monotonic_ns()})
        await asyncio.sleep(options["pace"])


async def _work(peer: Peer, options: dict[str, Any]) -> list[int]:
    """Say "ready", work until stdin is closed; nanoseconds from each `add` to its handler."""
    delays: list[int] = []
    stop = asyncio.Event()

    def handle(data: Any) -> None:
        # CLOCK_MONOTONIC is the same clock in every process of a machine.
        now = time.monotonic_ns()
        delays.append(now - (json.loads(data) if isinstance(data, bytes) else data)["sent"])

    async def wait_for_the_end() -> None:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        stop.set()

    print("ready", flush=True)
    ending = asyncio.create_task(wait_for_the_end())
    await peer.work(handle, stop)
    await ending
    return delays


async def run_until(stop: asyncio.Event, worker: asyncio.Future[Any]) -> None:
    """Wait for `stop`; a worker that ends before is an error, not something to wait for."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({stopping, worker}, return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        stopping.cancel()
        await worker
        raise RuntimeError("the worker ended by itself")


_ACTIONS: dict[str, Callable[[Peer, dict[str, Any]], Awaitable[Any]]] = {
    "fill": _fill,
    "process": _process,
    "add_bulk": _add_bulk,
    "add": _add,
    "add_slowly": _add_slowly,
    "work": _work,
}
