"""An application that tests serve. What its jobs do is written down in a file that all share.

Its settings come from the environment, as those of a real one do.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import bullite.app.lifecycle
from bullite import Bullite, Job, Worker

SETTINGS = {name.removeprefix("SERVED_"): os.environ[name] for name in os.environ}

LEASE = json.loads(SETTINGS.get("LEASE", "{}"))
"""PostgreSQL knows a dead process by its lease only: no test waits for the usual one."""

if "stalled_interval" in LEASE:
    interval = LEASE["stalled_interval"]
    bullite.app.lifecycle.Worker = functools.partial(Worker, stalled_interval=interval)

app = Bullite(SETTINGS["LOCATION"], lock_duration=LEASE.get("lock_duration", 30_000))


def note(*words: object) -> None:
    """One write at the end of the file: lines of several processes do not mix."""
    line = " ".join(map(str, [*words, os.getpid()])) + "\n"
    file = os.open(SETTINGS["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


if "EVERY" in SETTINGS:
    # "all": on a busy machine a tick may be late, but it may not be left out.
    @app.every(int(SETTINGS["EVERY"]), missed="all")
    @app.task
    async def tick(job: Job) -> None:
        note("tick", job.id)


if "HOOKS" in SETTINGS:

    @app.before
    def notice(job: Job) -> None:
        note("before", job.id)


@app.task
async def quick(number: int) -> int:
    note("quick", number)
    return number


@app.task
async def slow(number: int, seconds: float) -> None:
    note("slow-begins", number)
    await asyncio.sleep(seconds)
    note("slow-ends", number)


enough = threading.Event()


@app.task(queue="threads", concurrency=2)
def crunch() -> int:
    """Pure Python that never lets go of the interpreter by itself, until there is enough of it."""
    note("crunch")
    rounds = 0
    while not enough.is_set():
        rounds += sum(range(500))
    return rounds


@app.task(queue="threads")
def idle(seconds: float) -> None:
    note("idle-begins")
    time.sleep(seconds)
    note("idle-ends")


@app.task(queue="floods")
async def nothing(number: int) -> None:
    pass


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with impatient() if "STOP_WITHIN" in SETTINGS else app.lifespan(api):
        note("up")
        yield
    note("down")


@asynccontextmanager
async def impatient() -> AsyncIterator[None]:
    await app.start()
    try:
        yield
    finally:
        await app.stop(float(SETTINGS["STOP_WITHIN"]))


api = FastAPI(lifespan=lifespan)


@api.get("/ping")
async def ping() -> int:
    return os.getpid()


@api.post("/quick/{number}")
async def add_quick(number: int) -> str:
    return (await quick.enqueue(number)).id


@api.post("/slow/{number}")
async def add_slow(number: int, seconds: float) -> str:
    return (await slow.enqueue(number, seconds)).id


@api.post("/idle")
async def add_idle(seconds: float) -> str:
    return (await idle.enqueue(seconds)).id


@api.post("/flood")
async def flood(jobs: int, crunches: int) -> None:
    await crunch.map([{}] * crunches)
    await nothing.map(range(jobs))


@api.post("/enough")
async def end_crunching() -> None:
    enough.set()


@api.get("/left")
async def left() -> int:
    """How many jobs are still to be done."""
    stats = await app.stats()
    return stats["pending"] + stats["processing"]


@api.get("/flooded")
async def flooded() -> int:
    return (await app.stats("floods"))["completed"]


if "USED_BEFORE" in SETTINGS:
    # In the master of a server that preloads this is before the fork: its engine is open then.
    asyncio.run(quick.enqueue(-1))
    note("used")
