"""Named locks, as users hold them: one holder over all processes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bullite import LockNotAcquired, LostLock, NamedLock, Store
from bullite.errors import BulliteError, InvalidOption, InvalidOptionType
from tests.support.helpers import case, python, until


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    store = Store(location)
    yield store
    store.close()


async def test_a_lock_is_held_inside_its_block(store: Store) -> None:
    lock = store.lock("invoice-7")
    assert (lock.held, lock.token) == (False, None)
    async with lock as entered:
        assert entered is lock
        assert lock.held
        assert isinstance(lock.token, int)
    assert (lock.held, lock.token) == (False, None)


def test_a_thread_holds_it_by_a_plain_with(store: Store) -> None:
    with store.lock("invoice-7") as lock:
        assert lock.held
        with (
            pytest.raises(LockNotAcquired, match="'invoice-7' was not acquired within"),
            store.lock("invoice-7", wait=0),
        ):
            pass
    assert not lock.held
    with store.lock("invoice-7", wait=0) as lock:
        assert lock.held


async def test_a_plain_with_in_an_event_loop_is_refused_with_the_fix(store: Store) -> None:
    with pytest.raises(RuntimeError, match="async with"), store.lock("a"):
        pass
    async with store.lock("a", wait=0):
        pass


async def test_nobody_else_is_inside_meanwhile(store: Store) -> None:
    inside = most = 0

    async def enter() -> None:
        nonlocal inside, most
        async with store.lock("invoice-7"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    await asyncio.gather(*(enter() for _ in range(20)))
    assert most == 1


async def test_tokens_only_grow(store: Store) -> None:
    tokens = []
    for _ in range(5):
        async with store.lock("a") as lock:
            tokens.append(lock.token)
    assert tokens == sorted(set(tokens))


async def test_locks_of_other_names_do_not_wait_for_each_other(store: Store) -> None:
    async with store.lock("a"), store.lock("b", wait=0):
        pass


async def test_a_wait_has_a_limit(store: Store) -> None:
    async with store.lock("a"):
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await store.lock("a", wait="80ms").acquire()
        assert time.monotonic() - began >= 0.079


async def test_who_waits_is_woken_when_the_lock_is_let_go(store: Store) -> None:
    """Those who look for themselves would be found out: they look every 250 ms at last."""
    holder, waits = store.lock("a"), []
    await holder.acquire()

    async def wait() -> None:
        async with store.lock("a"):
            waits.append(time.monotonic())

    waiting = asyncio.create_task(wait())
    bells = store.open().held_locks._wakeups
    await until(lambda: bells.get("a"))
    await asyncio.sleep(0.1)
    let_go = time.monotonic()
    await holder.release()
    await waiting
    assert waits[0] - let_go < 5
    assert bells == {}


async def test_a_waiting_thread_is_woken_too(store: Store) -> None:
    got = threading.Event()

    def wait() -> None:
        with store.lock("a"):
            got.set()

    async with store.lock("a"):
        thread = threading.Thread(target=wait)
        thread.start()
        await until(lambda: store.open().held_locks._wakeups.get("a"))
        assert not got.is_set()
    await asyncio.to_thread(thread.join)
    assert got.is_set()


async def test_a_lock_is_renewed_while_it_is_held(store: Store) -> None:
    async with store.lock("a", ttl=1_000) as lock:
        for _ in range(4):
            await asyncio.sleep(0.3)
            assert lock.held
        with pytest.raises(LockNotAcquired):
            await store.lock("a", wait=0).acquire()


async def test_a_holder_that_was_not_renewed_is_told(store: Store) -> None:
    lock = store.lock("a", ttl=100)
    await lock.acquire()
    store.open().held_locks.forget_all()  # as if nothing had been heard of this process
    second_worker = store.lock("a")
    await second_worker.acquire()
    assert not lock.held
    with pytest.raises(LostLock, match="before it was extended"):
        await lock.extend()
    with pytest.raises(LostLock, match="was lost before it was released"):
        await lock.release()
    assert second_worker.held
    await second_worker.release()


async def test_a_block_whose_lock_was_lost_ends_with_that(store: Store) -> None:
    with pytest.raises(LostLock):
        async with store.lock("a", ttl=100):
            store.open().held_locks.forget_all()
            async with store.lock("a"):
                pass


async def test_the_error_of_a_block_is_not_hidden_by_a_lost_lock(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        async with store.lock("a", ttl=100):
            store.open().held_locks.forget_all()
            async with store.lock("a"):
                raise ZeroDivisionError


async def test_letting_go_twice_is_an_error_without_effect(store: Store) -> None:
    lock, other = store.lock("a"), store.lock("a")
    with pytest.raises(LostLock, match="not held by this object"):
        await lock.release()
    await lock.acquire()
    with pytest.raises(LostLock, match="not held by this object"):
        await other.release()
    await lock.release()
    async with other:
        with pytest.raises(LostLock):
            await lock.release()
        with pytest.raises(LostLock):
            await lock.extend()
        assert other.held


async def test_an_object_is_for_one_holder_at_a_time(store: Store) -> None:
    async with store.lock("a") as lock:
        with pytest.raises(LockNotAcquired, match="make another"):
            await lock.acquire()
        assert lock.held
    async with lock:
        assert lock.held


async def test_a_lock_is_extended(store: Store) -> None:
    async with store.lock("a", ttl=100) as lock:
        await lock.extend("10s")
        store.open().held_locks.forget_all()
        with pytest.raises(LockNotAcquired):
            await store.lock("a", wait=200).acquire()


async def test_who_gave_up_waiting_does_not_get_the_lock(store: Store) -> None:
    async with store.lock("a"):
        waiting = asyncio.create_task(enter(store.lock("a")))
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with store.lock("a", wait="5s"):
        pass


async def test_a_lock_whose_waiter_was_cancelled_on_the_way_is_free(store: Store) -> None:
    await asyncio.to_thread(store.open)
    for _ in range(20):
        taking = asyncio.ensure_future(enter(store.lock("a")))
        await asyncio.sleep(0.0005)
        taking.cancel()
        await asyncio.wait([taking])
        async with store.lock("a", wait="5s"):
            pass


async def enter(lock: NamedLock) -> None:
    async with lock:
        await asyncio.sleep(1)


async def test_another_store_on_the_same_database_waits(store: Store, location: str) -> None:
    other = Store(location)
    async with store.lock("a"):
        with pytest.raises(LockNotAcquired):
            await other.lock("a", wait=0).acquire()
    async with other.lock("a", wait=0):
        pass
    other.close()


def test_a_forked_child_does_not_hold_its_parents_lock(location: str) -> None:
    said = python(
        """
import os, sys
from bullite import LockNotAcquired, LostLock, Store
store = Store(sys.argv[1])
with store.lock("a") as lock:
    child = os.fork()
    if child == 0:
        try:
            assert not lock.held
            try:
                lock.release()
            except LostLock:
                pass
            try:
                store.lock("a", wait=50).acquire()
                code = 1
            except LockNotAcquired:
                code = 0
            store.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    print(status, lock.held)
store.close()
""",
        location,
    )
    assert said.split() == ["0", "True"]


def test_a_process_that_ends_without_letting_go_leaves_the_lock_to_others(
    location: str, store: Store
) -> None:
    python(
        """
import sys
from bullite import Store
Store(sys.argv[1]).lock("a", ttl=600_000).acquire()
""",
        location,
    )
    with store.lock("a", wait="10s"):
        pass


def test_a_lock_has_a_name_like_an_id(store: Store) -> None:
    for name in ["", "x" * 256, "a\x00b", "a\nb"]:
        with case(name), pytest.raises(InvalidOption, match="the name of a lock"):
            store.lock(name)


def test_a_bad_ttl_is_refused(store: Store) -> None:
    for bad in [0, 99, -1, "soon", 2**60, None, 1.5, True]:
        with case(bad):
            with pytest.raises(BulliteError, match="ttl"):
                store.lock("a", bad)
            with store.lock("a") as lock:
                if bad is not None:
                    with pytest.raises(BulliteError, match="ttl"):
                        lock.extend(bad)


@pytest.mark.parametrize(("bad", "error"), [(-1, InvalidOption), (1.5, InvalidOptionType)])
def test_a_bad_wait_is_refused(store: Store, bad: Any, error: type) -> None:
    with pytest.raises(error, match="wait"):
        store.lock("a", wait=bad)


def test_a_lock_says_whether_it_is_held(store: Store) -> None:
    lock = store.lock("a")
    assert repr(lock) == "<NamedLock 'a': not held>"
    with lock:
        assert repr(lock) == "<NamedLock 'a': held>"
