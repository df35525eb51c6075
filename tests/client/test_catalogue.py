"""What a database holds beside single queues: values kept by name, and which queues there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from bullite import Queue, Store, UnrecoverableError
from bullite.client.directory import queue_names, queues_with
from bullite.client.key_values import get_value, list_values, set_value, update_value
from bullite.errors import StoreError, UnserializableData
from tests.support.helpers import python


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    store = Store(location)
    yield store
    store.close()


async def test_nothing_is_kept_at_first(store: Store) -> None:
    assert await list_values(store, "template") == {}
    assert await get_value(store, "template", "a") is None


async def test_a_value_is_kept_by_kind_and_name(store: Store) -> None:
    await set_value(store, "template", "b", {"n": [1, None, "ä"]})
    await set_value(store, "template", "a", 0)
    await set_value(store, "group", "b", "other")
    assert await list_values(store, "template") == {"a": 0, "b": {"n": [1, None, "ä"]}}
    assert list(await list_values(store, "template")) == ["a", "b"]
    assert await get_value(store, "template", "b") == {"n": [1, None, "ä"]}
    assert await get_value(store, "group", "b") == "other"


async def test_a_value_is_replaced_and_forgotten(store: Store) -> None:
    await set_value(store, "template", "a", 1)
    await set_value(store, "template", "a", 2)
    assert await list_values(store, "template") == {"a": 2}
    await set_value(store, "template", "a", None)
    await set_value(store, "template", "never there", None)
    assert await list_values(store, "template") == {}


async def test_a_change_knows_what_was_there_and_tells_what_is(store: Store) -> None:
    assert await update_value(store, "k", "n", lambda old: [old, 1]) == (None, [None, 1])
    assert await update_value(store, "k", "n", lambda old: [*old, 2]) == ([None, 1], [None, 1, 2])
    assert await update_value(store, "k", "n", lambda old: old) == ([None, 1, 2], [None, 1, 2])
    assert await update_value(store, "k", "n", lambda old: None) == ([None, 1, 2], None)
    assert await update_value(store, "k", "n", lambda old: None) == (None, None)


async def test_many_change_one_value_in_one_transaction(store: Store) -> None:
    count = [update_value(store, "k", "n", lambda old: (old or 0) + 1) for _ in range(50)]
    answers = await asyncio.gather(*count)
    assert sorted(new for _, new in answers) == list(range(1, 51))
    assert await get_value(store, "k", "n") == 50


async def test_two_processes_change_one_value_and_nothing_is_lost(
    store: Store, location: str
) -> None:
    program = """
import asyncio, sys
from bullite import Store
from bullite.client.key_values import update_value
async def main():
    store = Store(sys.argv[1])
    for _ in range(40):
        await update_value(store, "k", "n", lambda old: {**(old or {}), str(len(old or {})): 1})
    store.close()
asyncio.run(main())
"""
    await set_value(store, "k", "n", {})
    await asyncio.gather(*(asyncio.to_thread(python, program, location) for _ in range(2)))
    assert len(await get_value(store, "k", "n")) == 80


class Refusal(Exception):
    """Somebody else's."""


@pytest.mark.parametrize(
    "error", [Refusal("no"), UnrecoverableError("no"), StoreError("no"), KeyError("no")]
)
async def test_what_a_change_raises_reaches_who_asked_and_changes_nothing(
    store: Store, error: Exception
) -> None:
    asked: list[Any] = []

    def refuse(old: Any) -> Any:
        asked.append(old)
        raise error

    await set_value(store, "k", "n", 1)
    neighbour = update_value(store, "k", "other", lambda old: "there")
    refused, good = await asyncio.gather(
        update_value(store, "k", "n", refuse), neighbour, return_exceptions=True
    )
    assert refused is error
    assert good == (None, "there")
    assert set(asked) == {1}
    assert await list_values(store, "k") == {"n": 1, "other": "there"}


async def test_what_json_cannot_say_is_refused_by_its_name(store: Store) -> None:
    with pytest.raises(UnserializableData, match="the template a cannot be stored"):
        await set_value(store, "template", "a", {"x": object()})
    with pytest.raises(UnserializableData, match="the template a cannot be stored"):
        await set_value(store, "template", "a", float("inf"))
    assert await list_values(store, "template") == {}


# --- queues --------------------------------------------------------------------------------------


async def test_the_queues_there_are(store: Store) -> None:
    assert await queue_names(store) == []
    for name in ("b", "a", "ä"):
        await Queue(name, store).wait_until_ready()
    assert await queue_names(store) == ["a", "b", "ä"]


async def test_the_queues_that_have_a_job(store: Store) -> None:
    first, second = Queue("first", store), Queue("second", store)
    await second.add("a", job_id="x")
    job = await first.add("a", job_id="x")
    numbered = await first.add("a")
    assert await queues_with(store, "x") == ["first", "second"]
    assert await queues_with(store, numbered.id) == ["first"]
    assert await queues_with(store, "y") == []
    for nobody in ("99", "007", "9" * 30):
        assert await queues_with(store, nobody) == []
    await job.remove()
    await numbered.remove()
    assert await queues_with(store, "x") == ["second"]
    assert await queues_with(store, numbered.id) == []
