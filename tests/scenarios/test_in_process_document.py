"""The in-process document's workers, examples and tests, written for this library and run.

Time is virtual: nothing waits, whatever the document sleeps for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest

from bullite import Bullite, Job
from bullite.testing import START, Playground

TOKEN = "s3cret"


class Esi:
    """The service that the workers of the document fetch from."""

    def __init__(self) -> None:
        self.killmails = {(7, "abc"): {"time": "2025-10-19", "items": [34, 35], "pilots": [90, 91]}}
        self.status = 200
        self.cache: dict[str, Any] = {}


class KillmailFetcher:
    queue_name = "killmail-fetch"
    concurrency = 5  # Fetch 5 killmails at once
    poll_interval = 1000

    def __init__(self, app: Bullite, esi: Esi) -> None:
        self.app, self.esi = app, esi

    async def handle(self, payload: dict[str, Any], job: Job) -> str | None:
        killmail = self.esi.killmails.get((payload["killmail_id"], payload["hash"]))
        if killmail is None:
            return "not found"
        await self.app.dispatch(
            "prices",
            "fetch",
            {
                "killmail_id": payload["killmail_id"],
                "killmail_time": killmail["time"],
                "item_type_ids": killmail["items"],
            },
        )
        await self.app.dispatch_many(
            "esi", "fetch", [{"type": "character", "id": id} for id in killmail["pilots"]]
        )
        return "saved"


class ESIFetcher:
    queue_name = "esi"
    concurrency = 10  # ESI allows good concurrency
    poll_interval = 500  # Poll faster for ESI jobs

    def __init__(self, esi: Esi) -> None:
        self.esi = esi

    async def handle(self, payload: dict[str, Any], job: Job) -> None:
        if self.esi.status != 200:
            raise RuntimeError(f"ESI returned {self.esi.status}")
        self.esi.cache[f"esi:{payload['type']}:{payload['id']}"] = {"name": "somebody"}


class PriceFetcher:
    queue_name = "prices"

    def handle(self, payload: dict[str, Any], job: Job) -> int:
        return len(payload["item_type_ids"])


@pytest.fixture
def play() -> Iterator[Playground]:
    with Playground() as play:
        yield play


@pytest.fixture
def esi() -> Esi:
    return Esi()


@pytest.fixture
def queue(play: Playground, esi: Esi) -> Bullite:
    """What the document calls `queue` and `queueManager`, with its three workers."""
    app = Bullite(play.store)
    app.register(KillmailFetcher(app, esi))
    app.register(ESIFetcher(esi))
    app.register(PriceFetcher())
    play.serve(app)
    return app


def seconds(ran: Any) -> list[float]:
    return [(run.at - START).total_seconds() for run in ran]


def ask(app: Bullite, play: Playground, path: str, body: Any = None) -> Any:
    """What the controllers of the document answer."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET" if body is None else "POST",
        "path": f"/api/queue{path}",
        "root_path": "/api/queue",
        "headers": [(b"authorization", f"Bearer {TOKEN}".encode())],
    }
    play.run(app.router(token=TOKEN)(scope, receive, send))
    assert sent[0]["status"] == 200, sent
    return json.loads(sent[1]["body"])


# --- example workers -----------------------------------------------------------------------------


def test_the_killmail_fetcher_fetches_and_enqueues_what_follows(
    play: Playground, queue: Bullite, esi: Esi
) -> None:
    play.run(queue.dispatch("killmail-fetch", "fetch", {"killmail_id": 7, "hash": "abc"}))
    ran = play.drain()
    assert sorted(run.job.queue_name for run in ran) == [
        *("esi", "esi", "killmail-fetch", "prices")
    ]
    assert sorted(esi.cache) == ["esi:character:90", "esi:character:91"]
    assert {run.value for run in ran} == {"saved", 2, None}


def test_a_killmail_that_is_not_found_enqueues_nothing(play: Playground, queue: Bullite) -> None:
    play.run(queue.dispatch("killmail-fetch", "fetch", {"killmail_id": 8, "hash": "x"}))
    assert play.drain().values == ["not found"]
    play.assert_drained()


def test_the_esi_fetcher_is_tried_again_after_one_and_four_seconds(
    play: Playground, queue: Bullite, esi: Esi
) -> None:
    esi.status = 502
    job = play.run(queue.dispatch("esi", "fetch", {"type": "alliance", "id": 99}))
    assert seconds(play.advance("1h")) == [0, 1, 5]
    play.assert_failed(job, "ESI returned 502")


def test_backoff_of_a_worker_class_applies_to_jobs_of_every_producer(
    play: Playground, queue: Bullite, esi: Esi
) -> None:
    esi.status = 502
    play.run(queue.add("esi", "fetch", {"type": "alliance", "id": 99}, attempts=4))
    assert seconds(play.advance("1h")) == [0, 1, 5, 14]


# --- usage examples ------------------------------------------------------------------------------


def test_a_controller_enqueues_a_job(play: Playground, queue: Bullite) -> None:
    killmail = {"killmail_id": 7, "zkb": {"hash": "abc"}}
    data = {"killmail_id": 7, "hash": "abc", "data": killmail}
    play.run(queue.dispatch("killmails", "process", data))
    [job] = play.assert_enqueued("killmails", "process", data, count=1)
    assert (job.attempts, job.priority) == (3, 0)


def test_many_are_enqueued_at_once(play: Playground, queue: Bullite, esi: Esi) -> None:
    ids = range(1, 51)
    jobs = play.run(
        queue.dispatch_many("esi", "fetch", [{"type": "character", "id": i} for i in ids])
    )
    assert len(jobs) == 50
    assert len(play.drain()) == len(esi.cache) == 50


def test_a_job_is_fetched_in_five_minutes(play: Playground, queue: Bullite) -> None:
    payload = {"type": "alliance", "id": 123}
    play.run(queue.dispatch("esi", "fetch", payload, delay=300))
    assert len(play.advance("299s")) == 0
    assert seconds(play.advance("2s")) == [300]


def test_a_lower_priority_number_goes_first(play: Playground, queue: Bullite) -> None:
    for day in ("2025-10-17", "2025-10-18"):
        play.run(queue.dispatch("stats", "recalculate", {"date": day}))
    play.run(queue.dispatch("stats", "recalculate", {"date": "2025-10-19"}, priority=-10))
    play.process("stats", None, lambda job: job.data["date"])
    assert play.drain().values == ["2025-10-19", "2025-10-17", "2025-10-18"]


# --- monitoring and admin ------------------------------------------------------------------------


def test_the_stats_endpoint_has_the_shape_of_the_document(play: Playground, queue: Bullite) -> None:
    play.run(queue.dispatch("killmails", "process", {}))
    play.run(queue.dispatch("esi", "fetch", {"type": "character", "id": 1}))
    play.run(queue.dispatch("esi", "fetch", {"type": "character", "id": 2}, delay=60))
    play.drain()
    answer = ask(queue, play, "/stats")
    assert answer["overall"] == {"pending": 2, "processing": 0, "completed": 1, "failed": 0}
    assert answer["queues"]["killmails"]["pending"] == 1
    assert answer["queues"]["esi"] == {"pending": 1, "processing": 0, "completed": 1, "failed": 0}


def test_a_job_that_runs_counts_as_processing(play: Playground) -> None:
    app = Bullite(play.store)

    class Looking:
        queue_name = "test"

        async def handle(self, payload: Any, job: Job) -> dict[str, int]:
            return await app.stats("test")

    app.register(Looking)
    play.serve(app)
    play.run(app.dispatch("test", "look"))
    assert play.drain().values == [{"pending": 0, "processing": 1, "completed": 0, "failed": 0}]


def test_failed_jobs_are_viewed_newest_first(play: Playground, queue: Bullite, esi: Esi) -> None:
    esi.status = 500
    for id in range(60):
        payload = {"type": "character", "id": id}
        play.run(queue.dispatch("esi", "fetch", payload, max_attempts=1))
        play.advance("1s")
    jobs = ask(queue, play, "/failed")["jobs"]
    assert [job["payload"]["id"] for job in jobs] == list(range(59, 9, -1))
    assert (jobs[0]["error"], jobs[0]["attempts"]) == ("ESI returned 500", 1)


def test_a_failed_job_is_retried_with_all_its_attempts(
    play: Playground, queue: Bullite, esi: Esi
) -> None:
    esi.status = 500
    job = play.run(queue.dispatch("esi", "fetch", {"type": "character", "id": 1}))
    play.advance("1h")
    assert ask(queue, play, "/retry", {"jobId": job.id}) == {"status": "retrying"}
    assert len(play.advance("1h")) == 3
    play.assert_failed(job)
    esi.status = 200
    ask(queue, play, "/retry", {"jobId": job.id})
    play.drain()
    play.assert_completed(job)


def test_old_jobs_are_cleaned_up(play: Playground, queue: Bullite) -> None:
    for id in range(3):
        play.run(queue.dispatch("esi", "fetch", {"type": "character", "id": id}))
    play.drain()
    play.advance("6d")
    assert play.run(queue.cleanup()) == 0
    play.advance("1d")
    # Completed jobs are kept for seven days anyway: either has deleted them by now.
    play.run(queue.cleanup(older_than_days=7))
    assert play.jobs("esi") == []


# --- dead letters --------------------------------------------------------------------------------


def test_permanently_failed_jobs_move_to_a_queue_of_dead_letters(
    play: Playground, queue: Bullite, esi: Esi
) -> None:
    play.run(queue.queue("esi").configure(dead_letter="dead"))
    esi.status = 500
    job = play.run(queue.dispatch("esi", "fetch", {"type": "character", "id": 1}))
    play.advance("1h")
    assert play.jobs("esi") == []
    [dead] = play.jobs("dead")
    assert (dead.id, dead.original_queue, dead.failed_reason) == (job.id, "esi", "ESI returned 500")
    assert (dead.data, dead.attempts_made) == ({"type": "character", "id": 1}, 3)


# --- testing -------------------------------------------------------------------------------------


def test_should_process_jobs_in_order(play: Playground) -> None:
    app = Bullite(play.store)

    class Worker:
        queue_name = "test"

        def handle(self, payload: Any, job: Job) -> None:
            """Nothing but its order counts."""

    app.register(Worker)
    play.serve(app)
    play.run(app.dispatch("test", "job1", {"data": 1}, priority=0))
    play.run(app.dispatch("test", "job2", {"data": 2}, priority=-10))
    assert play.drain().names == ["job2", "job1"]


def test_should_retry_failed_jobs(play: Playground) -> None:
    app, attempts = Bullite(play.store), list[int]()

    class FailingWorker:
        queue_name = "test"

        async def handle(self, payload: Any, job: Job) -> None:
            attempts.append(job.attempts_made)
            if len(attempts) < 3:
                raise RuntimeError("Fail")

    app.register(FailingWorker)
    play.serve(app)
    job = play.run(app.dispatch("test", "job"))
    play.advance("10s")
    play.assert_completed(job)
    assert attempts == [0, 1, 2]
