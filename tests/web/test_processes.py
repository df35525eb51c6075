"""Several server processes, each with workers and the same schedule in it."""

from __future__ import annotations

import os
import signal

import pytest

from tests.web.servers import TICKING, assert_each_once, gunicorn, lasted, uvicorn

PROCESSES = 4


def test_a_schedule_ticks_once_whatever_the_number_of_uvicorns_processes(serve):
    web = serve(uvicorn("--workers", str(PROCESSES)), **TICKING)
    web.wait_until_up(PROCESSES)

    web.wait_for(lambda: lasted(web, 6), 40)
    web.stop()

    assert_each_once(web.ticks(), 6)
    assert sorted(web.pids("down")) == sorted(web.pids("up"))


@pytest.mark.parametrize("preload", [False, True], ids=["", "preload"])
def test_jobs_and_ticks_run_once_in_gunicorns_processes(serve, preload):
    web = serve(gunicorn(*["--preload"] * preload), **TICKING)
    web.wait_until_up(PROCESSES)

    for number in range(100):
        web.post(f"/quick/{number}")
    web.wait_for(lambda: lasted(web, 2) and len(web.numbers("quick")) == 100)
    web.stop()

    assert web.numbers("quick") == dict.fromkeys(range(100), 1)
    assert_each_once(web.ticks(), 2)
    assert sorted(web.pids("down")) == sorted(web.pids("up"))


def test_an_application_that_was_used_before_the_fork_works_after_it(serve):
    web = serve(gunicorn("--preload"), USED_BEFORE="yes", **TICKING)
    web.wait_until_up(PROCESSES)
    assert web.pids("used") == [web.pid]

    for number in range(20):
        web.post(f"/quick/{number}")
    web.wait_for(lambda: lasted(web, 1) and len(web.numbers("quick")) == 21)
    web.stop()

    assert web.numbers("quick") == dict.fromkeys(range(-1, 20), 1)
    assert web.pid not in web.pids("quick")
    assert_each_once(web.ticks(), 1)


def test_the_jobs_of_a_killed_process_run_again_and_the_schedule_goes_on(serve):
    web = serve(gunicorn(workers=2), expected="was sent SIGKILL", **TICKING)
    web.wait_until_up(2)
    web.post("/slow/1", seconds=1.5)
    [[_, killed_worker]] = web.wait_for(lambda: web.notes("slow-begins"))

    os.kill(int(killed_worker), signal.SIGKILL)

    web.wait_for(lambda: web.notes("slow-ends"), 20)
    ticked = len(web.ticks())
    web.wait_for(lambda: len(web.ticks()) >= ticked + 10)
    web.stop()
    assert [number for number, _ in web.notes("slow-begins")] == ["1", "1"]
    [[_, second_worker]] = web.notes("slow-ends")
    assert second_worker != killed_worker
    ticks = web.ticks()
    # What the killed worker ran at its end runs again: no more than it may run at a time.
    assert len(ticks) - len(set(ticks)) <= 10
    assert_each_once(sorted(set(ticks)), 1)
