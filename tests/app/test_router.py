"""The small ASGI application, called as a server would, without one."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bullite import Bullite, Job, Store
from bullite.app.router import MAX_BODY_BYTES, Router
from tests.support.helpers import case

TOKEN = "s3cret"


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


async def ask(
    router: Router,
    path: str,
    body: Any = None,
    *,
    method: str | None = None,
    token: str | None = TOKEN,
    scheme: str = "Bearer",
    root: str = "",
    pieces: int = 1,
) -> Answer:
    """What it answers; `body` is JSON, or bytes, and means a POST."""
    sent: list[MutableMapping[str, Any]] = []
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    size = max(1, -(-len(data) // pieces))
    parts = [data[start : start + size] for start in range(0, len(data), size)] or [b""]

    async def receive() -> MutableMapping[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method or ("GET" if body is None else "POST"),
        "path": root + path,
        "root_path": root,
        "headers": [] if token is None else [(b"authorization", f"{scheme} {token}".encode())],
    }
    await router(scope, receive, send)
    start, end = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert headers["content-type"] == "application/json"
    return Answer(start["status"], json.loads(end["body"]), headers)


@pytest.fixture
def router(app: Bullite, monkeypatch: pytest.MonkeyPatch) -> Router:
    monkeypatch.delenv("BULLITE_TOKEN", raising=False)

    async def process(job: Job) -> Any:
        if job.data == "fail":
            raise ValueError("it broke")
        return job.data

    app.process("killmails", "process", process)
    app.process("esi", "fetch", process)
    return app.router(token=TOKEN)


async def failed(app: Bullite, number: int = 1, queue: str = "killmails") -> list[Job]:
    """So many jobs that have failed."""
    name = "process" if queue == "killmails" else "fetch"
    jobs = [await app.dispatch(queue, name, "fail", max_attempts=1) for _ in range(number)]
    for job in jobs:
        with pytest.raises(Exception, match="it broke"):
            await job.result("10s")
    return jobs


# --- who may ask ---------------------------------------------------------------------------------

PATHS = ("/stats", "/failed", "/retry", "/nowhere", "")


@pytest.mark.parametrize("token", [None, "wrong", "", "S3CRET", "s3cret ", "s3cretx", "\u00e9"])
async def test_without_the_right_token_nobody_is_answered(
    router: Router, token: str | None
) -> None:
    for path in PATHS:
        for body in (None, {"job_id": "1"}):
            with case((path, body)):
                answer = await ask(router, path, body, token=token)
                assert answer.status == 401
                assert answer.body == {"error": "the token is missing or wrong"}
                assert answer.headers["www-authenticate"] == "Bearer"


async def test_the_scheme_of_the_token_may_be_written_in_either_case(router: Router) -> None:
    assert (await ask(router, "/stats", scheme="bearer")).status == 200
    assert (await ask(router, "/stats", scheme="Basic")).status == 401


async def test_without_a_token_being_set_everybody_is_refused(
    app: Bullite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BULLITE_TOKEN", raising=False)
    for token in (None, "", "None"):
        for path in PATHS:
            answer = await ask(app.router(), path, token=token)
            assert answer.status == 403
            assert "BULLITE_TOKEN" in answer.body["error"]
    monkeypatch.setenv("BULLITE_TOKEN", "")
    assert (await ask(app.router(), "/stats", token="")).status == 403


async def test_the_token_may_come_from_the_environment(
    app: Bullite, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = app.router()
    monkeypatch.setenv("BULLITE_TOKEN", "other")
    assert (await ask(router, "/stats", token="other")).status == 200
    assert (await ask(router, "/stats")).status == 401
    assert (await ask(app.router(token=TOKEN), "/stats")).status == 200


async def test_answers_are_not_kept_by_anybody_on_the_way(router: Router) -> None:
    headers = (await ask(router, "/stats")).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


# --- what there is -------------------------------------------------------------------------------


async def test_stats_are_of_all_and_of_each_queue(app: Bullite, router: Router) -> None:
    await app.dispatch("killmails", "process", 1)
    await app.dispatch_many("esi", "fetch", [1, 2], delay=60)
    assert await ask(router, "/stats") == Answer(
        200,
        {
            "overall": {"pending": 3, "processing": 0, "completed": 0, "failed": 0},
            "queues": {
                "esi": {"pending": 2, "processing": 0, "completed": 0, "failed": 0},
                "killmails": {"pending": 1, "processing": 0, "completed": 0, "failed": 0},
            },
        },
        (await ask(router, "/stats")).headers,
    )


async def test_failed_jobs_are_shown_newest_first_and_at_most_fifty(
    app: Bullite, router: Router
) -> None:
    async with app:
        old = await failed(app, 30)
        new = await failed(app, 30, "esi")
        answer = await ask(router, "/failed")
    shown = answer.body["jobs"]
    assert len(shown) == 50
    assert {one["id"] for one in shown[:30]} == {job.id for job in new}
    assert {one["id"] for one in shown[30:]} <= {job.id for job in old}
    times = [one["processed_at"] for one in shown]
    assert times == sorted(times, reverse=True)


async def test_a_failed_job_is_shown_as_in_the_document(app: Bullite, router: Router) -> None:
    async with app:
        [job] = await failed(app)
        [shown] = (await ask(router, "/failed")).body["jobs"]
    found = await app.queue("killmails").get_job(job.id)
    assert found is not None
    assert shown == {
        "id": job.id,
        "queue": "killmails",
        "type": "process",
        "payload": "fail",
        "attempts": 1,
        "max_attempts": 1,
        "error": "it broke",
        "created_at": job.timestamp,
        "processed_at": found.finished_on,
    }


# --- trying again --------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["job_id", "jobId"])
async def test_a_failed_job_is_tried_again_from_its_first_attempt(
    app: Bullite, router: Router, key: str
) -> None:
    async with app:
        [job] = await failed(app)
    answer = await ask(router, "/retry", {key: job.id})
    assert (answer.status, answer.body) == (200, {"status": "retrying"})
    found = await app.queue("killmails").get_job(job.id)
    assert found is not None
    assert (found.state, found.attempts_made, found.failed_reason) == ("waiting", 0, None)


async def test_an_id_may_be_a_number_and_come_in_pieces(app: Bullite, router: Router) -> None:
    async with app:
        [job] = await failed(app)
    assert (await ask(router, "/retry", {"jobId": int(job.id)}, pieces=5)).status == 200


@pytest.mark.parametrize("id", ["99999", 99999, -1, "nobody", "", "1' or '1'='1", "0x1"])
async def test_a_job_that_is_not_there_is_not_found(router: Router, id: Any) -> None:
    answer = await ask(router, "/retry", {"job_id": id})
    assert (answer.status, answer.body) == (404, {"error": f"there is no job {id}"})


async def test_a_job_that_has_not_failed_is_not_tried_again(app: Bullite, router: Router) -> None:
    job = await app.dispatch("killmails", "process")
    answer = await ask(router, "/retry", {"job_id": job.id})
    assert answer.status == 409
    assert job.id in answer.body["error"]


async def test_an_id_that_several_queues_have_asks_for_the_queue(
    app: Bullite, router: Router
) -> None:
    for queue in ("killmails", "esi"):
        name = "process" if queue == "killmails" else "fetch"
        await app.add(queue, name, "fail", job_id="mine")
    async with app:
        for queue in ("killmails", "esi"):
            found = await app.queue(queue).get_job("mine")
            assert found is not None
            with pytest.raises(Exception, match="it broke"):
                await found.result("10s")
    answer = await ask(router, "/retry", {"job_id": "mine"})
    assert answer.status == 409
    assert answer.body["error"].endswith('send "queue": esi, killmails')
    assert (await ask(router, "/retry", {"job_id": "mine", "queue": "esi"})).status == 200
    assert await app.queue("killmails").get_job_state("mine") == "failed"
    assert await app.queue("esi").get_job_state("mine") == "waiting"
    for queue in ("nobody", 5, ["esi"], ""):
        answer = await ask(router, "/retry", {"job_id": "mine", "queue": queue})
        assert answer.status == 404


async def test_a_job_in_a_file_of_its_own_is_found(location: str, tmp_path: Path) -> None:
    store = Store(location)
    app = Bullite(store, files={"esi": tmp_path / "esi.db"})

    async def process(job: Job) -> None:
        raise ValueError("it broke")

    app.process("esi", "fetch", process)
    app.process("killmails", "process", process)
    async with app:
        [mine] = await failed(app, queue="esi")
        [other] = await failed(app)
        router = app.router(token=TOKEN)
        if mine.id == other.id:
            assert (await ask(router, "/retry", {"job_id": mine.id})).status == 409
        answer = await ask(router, "/retry", {"job_id": mine.id, "queue": "esi"})
        assert answer.status == 200
    store.close()


# --- bad requests --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "get"])
async def test_looking_is_done_with_get(router: Router, method: str) -> None:
    for path in ("/stats", "/failed"):
        answer = await ask(router, path, method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_trying_again_is_done_with_post(router: Router, method: str) -> None:
    answer = await ask(router, "/retry", {"job_id": "1"}, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff", b"null", b"[]", b'"1"', b"1", b"{}", b'{"job_id": null}'),
        *(b'{"job_id": true}', b'{"job_id": [1]}', b'{"job_id": 1.5}', b"[" * 60_000),
    ],
    ids=lambda body: repr(body[:20]),
)
async def test_a_body_that_says_nothing_is_refused(router: Router, body: bytes) -> None:
    assert (await ask(router, "/retry", body)).status == 400


@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_body_that_is_too_long_is_refused(router: Router, pieces: int) -> None:
    body = {"job_id": "1", "more": "x" * MAX_BODY_BYTES}
    answer = await ask(router, "/retry", body, pieces=pieces)
    assert answer.status == 413


@pytest.mark.parametrize("path", ["", "/", "/stat", "/stats/more", "/../stats", "/x/stats"])
async def test_what_is_not_there_is_not_found(router: Router, path: str) -> None:
    answer = await ask(router, path)
    assert (answer.status, answer.body) == (
        404,
        {"error": "there is /stats, /failed and /retry"},
    )


@pytest.mark.parametrize("root", ["/queue", "/api/v1/queue"])
async def test_it_may_be_mounted_under_a_prefix(router: Router, root: str) -> None:
    assert (await ask(router, "/stats", root=root)).status == 200
    assert (await ask(router, "/stats/", root=root)).status == 200
    assert (await ask(router, "/other", root=root)).status == 404


async def test_it_answers_nothing_but_requests(router: Router) -> None:
    async def never(*given: Any) -> Any:
        raise AssertionError("nothing is received or sent")

    for kind in ("lifespan", "websocket"):
        await router({"type": kind}, never, never)
