"""The example for FastAPI, started as its first lines say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.web.servers import ROOT, Web, uvicorn

EXAMPLE = ROOT / "examples" / "fastapi_app.py"


@pytest.mark.parametrize("alone", [False, True], ids=["in the repository", "in an empty folder"])
def test_the_example_takes_an_order_shows_its_result_and_guards_its_figures(
    database, tmp_path: Path, serve: Callable[..., Web], alone: bool
):
    application = "examples.fastapi_app:api"
    if alone:
        shutil.copy(EXAMPLE, tmp_path)
        application = "fastapi_app:api"
    environment = {"BULLITE_URL": database.location, "BULLITE_TOKEN": "secret"}
    web = serve(uvicorn("--workers", "2"), application, environment)
    web.wait_for(lambda: answers(web.client))

    id = web.post("/greetings/Ada")["id"]

    done = {"state": "completed", "greeting": "Hello, Ada!"}
    web.wait_for(lambda: web.get(f"/greetings/{id}") == done)
    assert web.client.get("/greetings/unknown").status_code == 404
    assert web.client.get("/jobs/stats").status_code == 401
    token = {"authorization": "Bearer secret"}
    figures = web.client.get("/jobs/stats", headers=token).json()
    assert figures["queues"]["default"]["completed"] >= 1
    web.stop()


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/docs").is_success
    except httpx.TransportError:
        return False
