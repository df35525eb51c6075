"""A worker in a process of its own: `python -m bench._worker LOCATION`.

It says "ready" on stdout, works until its stdin is closed, and then prints how many nanoseconds
each job took from its `add` to its handler, as a JSON array. It imports little: its memory is
measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from bullite import Job, Queue, Worker


async def work(location: str) -> list[int]:
    delays: list[int] = []

    async def handle(job: Job) -> None:
        # CLOCK_MONOTONIC is the same clock in every process of a machine.
        delays.append(time.monotonic_ns() - job.data)

    async with Queue("bench", location) as queue, Worker(queue, handle, concurrency=10):
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    return delays


if __name__ == "__main__":
    print(json.dumps(asyncio.run(work(sys.argv[1]))))
