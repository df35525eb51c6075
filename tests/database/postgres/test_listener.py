"""The connection that hears wake-ups: it breaks, hangs or lies, and is made again."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from bullite import Queue
from bullite.database.postgres import listener
from bullite.database.postgres.driver import PostgresDriver
from tests.database.postgres.listening import (
    NEVER,
    SOON,
    Starts,
    backends,
    becomes_idle,
    seconds_to_start,
    sleeper,
    terminate,
)
from tests.database.postgres.proxy import Proxy
from tests.support.helpers import until
from tests.support.postgres_database import PostgresDatabase

LISTENS_AGAIN = 3.0
"""Seconds; sooner than its heartbeat would tell."""


@pytest.fixture(autouse=True)
def nothing_else_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the look for workers that are gone."""
    monkeypatch.setattr(PostgresDriver, "recover_every", NEVER)


@pytest.fixture
def attentive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notice within a second that nobody is there any more."""
    monkeypatch.setattr(listener, "HEARTBEAT", 0.4)
    monkeypatch.setattr(listener, "ANSWER_WITHIN", 0.4)


async def test_an_idle_worker_is_woken_by_what_another_process_adds(
    location: str, behind_proxy: str, database: PostgresDatabase
) -> None:
    starts = Starts()
    async with Queue("work", location) as queue, sleeper(behind_proxy, starts):
        await becomes_idle(database)
        assert await seconds_to_start(queue, starts) < SOON


async def test_a_worker_whose_listener_was_terminated_is_woken_again(
    location: str, behind_proxy: str, database: PostgresDatabase
) -> None:
    starts = Starts()
    async with Queue("work", location) as queue, sleeper(behind_proxy, starts):
        for _ in range(6):
            await becomes_idle(database)
            [pid] = backends(database, "listener")
            await terminate(database, pid)
            await until(lambda: backends(database, "listener"), LISTENS_AGAIN)
            assert await seconds_to_start(queue, starts) < SOON


async def test_a_job_added_while_the_listener_is_gone_is_found(
    location: str,
    behind_proxy: str,
    database: PostgresDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts, may_listen, listen = Starts(), threading.Event(), listener.Listener._listen_to_new
    may_listen.set()

    def listen_when_it_may(ear: listener.Listener, *args: Any) -> None:
        assert may_listen.wait(20)
        listen(ear, *args)

    monkeypatch.setattr(listener.Listener, "_listen_to_new", listen_when_it_may)
    async with Queue("work", location) as queue, sleeper(behind_proxy, starts):
        await becomes_idle(database)
        may_listen.clear()
        for pid in backends(database, "listener"):
            await terminate(database, pid)
        job = await queue.add("a")
        may_listen.set()
        await starts.of(job, 5)


async def test_a_worker_is_woken_after_all_its_connections_were_terminated(
    location: str, behind_proxy: str, database: PostgresDatabase
) -> None:
    starts = Starts()
    async with Queue("work", location) as queue, sleeper(behind_proxy, starts):
        await becomes_idle(database)
        await seconds_to_start(queue, starts)
        for pid in backends(database, "listener") + backends(database, "writer"):
            await terminate(database, pid)
        assert await seconds_to_start(queue, starts) < 5
        await becomes_idle(database)
        assert await seconds_to_start(queue, starts) < SOON


@pytest.mark.usefixtures("attentive")
async def test_a_listener_that_hears_nothing_any_more_is_noticed_and_made_again(
    location: str, behind_proxy: str, proxy: Proxy, database: PostgresDatabase
) -> None:
    starts = Starts()
    async with Queue("work", location) as queue, sleeper(behind_proxy, starts):
        await becomes_idle(database)
        [deaf] = proxy.links_of("listener")
        deaf.stop()
        await until(lambda: [link for link in proxy.links_of("listener") if link is not deaf], 5)
        await becomes_idle(database)
        assert await seconds_to_start(queue, starts) < SOON


@pytest.mark.usefixtures("attentive")
async def test_a_job_added_while_the_listener_was_deaf_is_found_once_it_hears(
    location: str, behind_proxy: str, proxy: Proxy, database: PostgresDatabase
) -> None:
    starts = Starts()
    async with Queue("work", location) as queue, sleeper(behind_proxy, starts):
        await becomes_idle(database)
        [deaf] = proxy.links_of("listener")
        deaf.stop()
        job = await queue.add("a")
        assert job.pk not in starts.at
        await until(lambda: [link for link in proxy.links_of("listener") if link is not deaf], 5)
        heard_at = time.monotonic()
        assert await starts.of(job) - heard_at < SOON


async def test_a_worker_is_woken_behind_a_slow_line(
    location: str, behind_proxy: str, proxy: Proxy, database: PostgresDatabase
) -> None:
    starts = Starts()
    async with Queue("work", location) as queue, sleeper(behind_proxy, starts):
        await becomes_idle(database)
        proxy.delay = 0.05
        assert await seconds_to_start(queue, starts) < 2 * SOON


async def test_a_thousand_wake_ups_with_broken_listeners_between_leave_nothing_behind(
    location: str, behind_proxy: str, database: PostgresDatabase
) -> None:
    starts = Starts()
    async with (
        Queue("work", location) as queue,
        sleeper(behind_proxy, starts, concurrency=50),
    ):
        await becomes_idle(database)

        async def break_listeners() -> None:
            for _ in range(10):
                await asyncio.sleep(0.1)
                for pid in backends(database, "listener"):
                    database.query("select pg_terminate_backend(?)", pid)

        breaking = asyncio.create_task(break_listeners())
        jobs = [await queue.add("a", n) for n in range(1_000)]
        await breaking
        await until(lambda: len(starts.at) == len(jobs), 10)
