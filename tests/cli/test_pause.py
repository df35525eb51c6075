"""`queuectl pause` and `queuectl resume`."""

from __future__ import annotations

from bullite import Queue

from .program import run


async def test_a_queue_is_paused_and_resumed(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    assert run("pause", "emails", db=location).out == "paused emails\n"
    assert await queue.is_paused()
    assert run("resume", "emails", "--json", db=location).json == {
        "queue": "emails",
        "paused": False,
    }
    assert not await queue.is_paused()


async def test_the_default_queue_is_meant_when_none_is_named(location: str) -> None:
    run("enqueue", "true", db=location)
    assert run("pause", "--json", db=location).json == {"queue": "default", "paused": True}
    async with Queue("default", location) as queue:
        assert await queue.is_paused()


async def test_pausing_twice_is_no_error(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    assert run("pause", "emails", db=location).code == 0
    assert run("pause", "emails", db=location).code == 0


async def test_a_queue_that_is_not_there_is_not_made(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    said = run("pause", "nobody", db=location)
    assert said.code == 1
    assert "the queues are: emails" in said.err
    assert run("queues", "list", "--json", db=location).json[0]["name"] == "emails"
