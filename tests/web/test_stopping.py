"""Servers that stop, reload or are restarted while jobs run: none is lost, none runs twice."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.processes import states
from tests.web.servers import TICKING, Web, assert_each_once, gunicorn, lasted, uvicorn

GIVEN_BACK = "these jobs took longer than 0.2 s and are given back"
SERVERS = {"uvicorn": uvicorn(), "gunicorn": gunicorn(workers=1)}


def begun(web: Web) -> None:
    web.wait_for(lambda: web.notes("slow-begins"))


@pytest.mark.parametrize("command", SERVERS.values(), ids=SERVERS)
def test_a_server_that_is_told_to_stop_waits_for_the_job_that_runs(serve, location, command):
    web = serve(command)
    web.wait_until_up()
    web.post("/slow/1", seconds=1)
    begun(web)

    web.stop()

    assert web.numbers("slow-ends") == {1: 1}
    assert web.pids("down") == web.pids("up")
    assert list(states(location).values()) == ["completed"]


@pytest.mark.parametrize("command", SERVERS.values(), ids=SERVERS)
def test_a_job_that_takes_longer_is_given_back_at_no_cost(serve, location, database, command):
    web = serve(command, expected=GIVEN_BACK, STOP_WITHIN="0.2")
    web.wait_until_up()
    web.post("/slow/1", seconds=60)
    begun(web)

    began = time.monotonic()
    web.stop()

    assert time.monotonic() - began < 10
    assert list(states(location).values()) == ["waiting"]
    assert database.query("select attempts_made from bullite_jobs") == [(0,)]
    assert GIVEN_BACK in web.log()


@pytest.mark.parametrize("hooks", [{}, {"HOOKS": "yes"}], ids=["", "hooks"])
def test_a_thread_that_does_not_end_does_not_keep_the_server_from_stopping(serve, hooks):
    expected = "these jobs took longer than 0.2 s and still run here|of its jobs still run"
    web = serve(uvicorn(), expected=expected, STOP_WITHIN="0.2", **hooks)
    web.wait_until_up()
    web.post("/idle", seconds=60)
    web.wait_for(lambda: web.notes("idle-begins"))

    began = time.monotonic()
    web.stop()

    assert time.monotonic() - began < 10
    assert web.pids("down") == web.pids("up")


def test_a_reload_of_uvicorn_loses_no_job_and_repeats_no_tick(serve, tmp_path: Path):
    module = tmp_path / "reloaded.py"
    module.write_text("from tests.web.served import api\n")
    expected = "StatReload detected changes"
    web = serve(uvicorn("--reload"), "reloaded:api", expected=expected, **TICKING)
    web.wait_until_up()
    web.wait_for(lambda: lasted(web, 1))
    web.post("/slow/1", seconds=1)
    begun(web)

    changed = time.time() + 10
    os.utime(module, (changed, changed))

    web.wait_until_up(2)
    old, new = web.pids("up")
    assert web.pids("down") == [old]
    assert web.pids("slow-ends") == [old]
    web.post("/quick/1")
    ticked = len(web.ticks())
    web.wait_for(lambda: web.pids("quick") == [new] and len(web.ticks()) > ticked + 5)
    web.stop()
    assert web.numbers("slow-begins") == {1: 1}
    assert_each_once(web.ticks(), 1)


def test_gunicorns_new_processes_go_on_with_what_its_old_ones_give_back(serve):
    web = serve(gunicorn(workers=2), expected=GIVEN_BACK, STOP_WITHIN="0.2", **TICKING)
    web.wait_until_up(2)
    old = set(web.pids("up"))
    web.post("/slow/1", seconds=3)
    begun(web)

    web.signal(signal.SIGHUP)

    web.wait_for(lambda: len(web.pids("up")) == 4 and web.notes("slow-ends"))
    ticked = len(web.ticks())
    web.wait_for(lambda: len(web.ticks()) > ticked + 5)
    web.stop()
    begins = web.pids("slow-begins")
    assert begins[0] in old
    assert begins[-1] not in old
    assert web.pids("slow-ends") == [begins[-1]]
    assert set(web.pids("down")) == set(web.pids("up"))
    assert_each_once(web.ticks(), 1)
