"""Request latency while jobs run in the same process: floods of jobs and busy threads."""

from __future__ import annotations

import statistics
import time

from tests.web.servers import Web, uvicorn

REQUESTS = 60
FLOOD = 6_000
CRUNCHES = 2

RATIO, BOUND = 20, 0.5
"""A request may take so many times as long as without jobs, or so many seconds."""


def median_latency(web: Web) -> float:
    """Seconds that a request takes which has nothing to do."""
    took = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        web.get("/ping")
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def test_requests_are_answered_while_thousands_of_jobs_and_busy_threads_run(serve):
    web = serve(uvicorn())
    web.wait_until_up()
    alone = median_latency(web)

    web.post("/flood", jobs=FLOOD, crunches=CRUNCHES)
    web.wait_for(lambda: len(web.notes("crunch")) == CRUNCHES)
    beside = median_latency(web)

    assert web.get("/left") >= CRUNCHES
    assert beside < max(RATIO * alone, BOUND)
    web.post("/enough")
    web.wait_for(lambda: web.get("/left") == 0)
    assert web.get("/flooded") == FLOOD
    web.stop()
