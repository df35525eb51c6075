"""How the benchmark talks to a contestant: `python -m bench.peers.NAME WHAT PLACE OPTIONS`.

OPTIONS and the last line that is printed are JSON. Only the standard library is used here, for a
peer's environment holds nothing but the peer. What is timed is timed by the program itself, so
nobody pays for the start of an interpreter; that the work was done is checked by the benchmark,
with `count`. A queue made for coroutines is driven by `main`, any other by `main_sync`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from bench.workload import payloads

from .handling import Handler

PRELOAD = 1_000
"""Jobs per call when a queue is filled, outside of any timing."""

WARM_UP = {"add": 200, "add_bulk": 1_000}
"""Jobs added before adding is timed: the first ones pay for connections, plans and new files."""

BETWEEN_DELAYED = 0.005
"""Seconds between two delayed jobs."""

Options = dict[str, Any]
Data = dict[str, Any]


class Peer(Protocol):
    """One queue, at one place, with the settings it was given.

    It may have `async def add_delayed(data, milliseconds)` and `async def add_failing(jobs)`, whose
    handlers fail at the first attempt and run again at once.
    """

    async def install(self) -> None:
        """Make its tables; the place is empty."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def add(self, data: Data) -> None: ...

    async def add_bulk(self, jobs: list[Data]) -> None: ...

    async def work(self, handle: Handler, stop: asyncio.Event) -> None:
        """Hand over each job's payload, decoded only if the queue does that by itself.

        Where jobs fail, `handle(data, attempt)` is called, and raises. Ends when `stop` is set and
        all that was done is as durable as the queue makes it.
        """

    async def count(self) -> dict[str, int | None]:
        """`waiting` and `finished`, as the queue or its database tells."""


class SyncPeer(Protocol):
    """The same for a queue without coroutines."""

    def install(self) -> None: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def add(self, data: Data) -> None:
        """May be called in several threads at a time."""

    def add_bulk(self, jobs: list[Data]) -> None: ...

    def work(self, handle: Handler, stop: threading.Event) -> None: ...

    def count(self) -> dict[str, int | None]: ...


# --- coroutines -----------------------------------------------------------------------------------


def main(make: Callable[[str, Options], Peer], run: Callable[..., Any] = asyncio.run) -> None:
    """Do what the command line says."""
    what, place, options = _command_line()
    _say(run(_carry_out(what, make(place, options), options)))


async def _carry_out(what: str, peer: Peer, options: Options) -> Any:
    if what == "install":
        return await peer.install()
    await peer.open()
    try:
        return await _ACTIONS[what](peer, options)
    finally:
        await peer.close()


async def _fill(peer: Any, options: Options) -> None:
    add = peer.add_failing if options.get("fails") else peer.add_bulk
    for jobs in lists_to_fill(options):
        await add(jobs)


async def _add(peer: Peer, options: Options) -> float:
    callers = options.get("callers", 1)
    share = payloads(options["jobs"] // callers, options.get("size", 0))

    async def caller(jobs: list[Data]) -> None:
        for data in jobs:
            await peer.add(data)

    await caller(payloads(WARM_UP["add"]))
    gc.collect()
    begin = time.perf_counter()
    await asyncio.gather(*(caller(share) for _ in range(callers)))
    return time.perf_counter() - begin


async def _add_bulk(peer: Peer, options: Options) -> float:
    jobs = payloads(options.get("list", 1_000), options.get("size", 0))
    await peer.add_bulk(payloads(WARM_UP["add_bulk"]))
    gc.collect()
    begin = time.perf_counter()
    for _ in range(0, options["jobs"], len(jobs)):
        await peer.add_bulk(jobs)
    return time.perf_counter() - begin


async def _add_slowly(peer: Peer, options: Options) -> None:
    for pause in pauses(options):
        await asyncio.sleep(pause)
        await peer.add({"sent": time.monotonic_ns()})


async def _add_delayed(peer: Any, options: Options) -> None:
    for _ in range(options["jobs"]):
        due = time.monotonic_ns() + options["delay"] * 1_000_000
        await peer.add_delayed({"sent": due}, options["delay"])
        await asyncio.sleep(BETWEEN_DELAYED)


async def _work(peer: Peer, options: Options) -> dict[str, Any]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    handle = Handler(options, enough=lambda: loop.call_soon_threadsafe(stop.set))
    wait_for_go()
    begin = time.perf_counter()
    call_at_end_of_input(lambda: loop.call_soon_threadsafe(stop.set))
    await peer.work(handle, stop)
    return handle.report(time.perf_counter() - begin) | _extra(peer)


async def _count(peer: Peer, options: Options) -> dict[str, int | None]:
    return await peer.count()


async def run_until(stop: asyncio.Event, worker: asyncio.Future[Any]) -> None:
    """Wait for `stop`; a worker that ends before is an error, not something to wait for."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({stopping, worker}, return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        stopping.cancel()
        await worker
        raise RuntimeError("the worker ended by itself")


_ACTIONS: dict[str, Callable[[Any, Options], Awaitable[Any]]] = {
    "fill": _fill,
    "add": _add,
    "add_bulk": _add_bulk,
    "add_slowly": _add_slowly,
    "add_delayed": _add_delayed,
    "work": _work,
    "count": _count,
}


# --- no coroutines --------------------------------------------------------------------------------


def main_sync(make: Callable[[str, Options], SyncPeer]) -> None:
    """Do what the command line says."""
    what, place, options = _command_line()
    peer = make(place, options)
    if what == "install":
        peer.install()
        _say(None)
        return
    peer.open()
    try:
        answer = _SYNC_ACTIONS[what](peer, options)
    finally:
        peer.close()
    _say(answer)


def _sync_fill(peer: Any, options: Options) -> None:
    add = peer.add_failing if options.get("fails") else peer.add_bulk
    for jobs in lists_to_fill(options):
        add(jobs)


def _sync_add(peer: SyncPeer, options: Options) -> float:
    callers = options.get("callers", 1)
    share = payloads(options["jobs"] // callers, options.get("size", 0))

    def caller(jobs: list[Data]) -> None:
        for data in jobs:
            peer.add(data)

    caller(payloads(WARM_UP["add"]))
    gc.collect()
    if callers == 1:
        begin = time.perf_counter()
        caller(share)
        return time.perf_counter() - begin
    with ThreadPoolExecutor(callers) as threads:
        begin = time.perf_counter()
        list(threads.map(caller, [share] * callers))
        return time.perf_counter() - begin


def _sync_add_bulk(peer: SyncPeer, options: Options) -> float:
    jobs = payloads(options.get("list", 1_000), options.get("size", 0))
    peer.add_bulk(payloads(WARM_UP["add_bulk"]))
    gc.collect()
    begin = time.perf_counter()
    for _ in range(0, options["jobs"], len(jobs)):
        peer.add_bulk(jobs)
    return time.perf_counter() - begin


def _sync_add_slowly(peer: SyncPeer, options: Options) -> None:
    for pause in pauses(options):
        time.sleep(pause)
        peer.add({"sent": time.monotonic_ns()})


def _sync_add_delayed(peer: Any, options: Options) -> None:
    for _ in range(options["jobs"]):
        due = time.monotonic_ns() + options["delay"] * 1_000_000
        peer.add_delayed({"sent": due}, options["delay"])
        time.sleep(BETWEEN_DELAYED)


def _sync_work(peer: SyncPeer, options: Options) -> dict[str, Any]:
    stop = threading.Event()
    handle = Handler(options, enough=stop.set)
    wait_for_go()
    begin = time.perf_counter()
    call_at_end_of_input(stop.set)
    peer.work(handle, stop)
    return handle.report(time.perf_counter() - begin) | _extra(peer)


def _sync_count(peer: SyncPeer, options: Options) -> dict[str, int | None]:
    return peer.count()


_SYNC_ACTIONS: dict[str, Callable[[Any, Options], Any]] = {
    "fill": _sync_fill,
    "add": _sync_add,
    "add_bulk": _sync_add_bulk,
    "add_slowly": _sync_add_slowly,
    "add_delayed": _sync_add_delayed,
    "work": _sync_work,
    "count": _sync_count,
}


# --- what both share ------------------------------------------------------------------------------


def lists_to_fill(options: Options) -> Iterator[list[Data]]:
    """What a queue is filled with, a list at a time: all of it at once may be a lot of memory."""
    left, size = options["jobs"], options.get("size", 0)
    each = PRELOAD if size < 10_000 else PRELOAD // 10
    while left > 0:
        yield payloads(min(each, left), size)
        left -= each


def pauses(options: Options) -> Iterator[float]:
    """Seconds to wait before each job: the same each time, or what a steady rate leaves."""
    rate, begin = options.get("rate", 0), time.monotonic()
    for number in range(options["jobs"]):
        if rate:
            yield max(0.0, begin + number / rate - time.monotonic())
        else:
            yield options["pace"]


def wait_for_go() -> None:
    """Say that everything is open, and wait for a line."""
    gc.collect()
    print("ready", flush=True)
    # Unbuffered: a thread that waits in a buffered reader is in the way when the program ends.
    while os.read(0, 1) not in (b"\n", b""):
        pass


def call_at_end_of_input(action: Callable[[], object]) -> None:
    def wait() -> None:
        while os.read(0, 4096):
            pass
        try:
            action()
        except RuntimeError:
            pass  # the event loop is closed: the worker has ended by itself

    threading.Thread(target=wait, daemon=True).start()


def _extra(peer: Any) -> dict[str, Any]:
    """What else a contestant can tell of its work."""
    found: dict[str, Any] = getattr(peer, "extra", dict)()
    return found


def _command_line() -> tuple[str, str, Options]:
    return sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


def _say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)
