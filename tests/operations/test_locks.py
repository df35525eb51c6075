"""Named locks in the database: who gets one, until when, and who is told that it was lost."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.engine.held_locks import LockRequest
from bullite.engine.maintenance import Maintenance
from bullite.operations.locks import (
    ExtendLock,
    Lease,
    PruneLocks,
    ReleaseLock,
    RenewLocks,
    TakeLock,
)
from tests.support.harness import Process, Store

TTL = 10_000


def take(process: Process, name: str = "invoice", instead_of: int | None = None) -> Lease | None:
    lease: Lease | None = process.ask(TakeLock(name, TTL, process.clock.boot, instead_of))
    return lease


def taken(process: Process, name: str = "invoice") -> Lease:
    lease = take(process, name)
    assert lease is not None
    return lease


def locks(store: Store) -> dict[str, int]:
    """The locks that somebody holds, and under which token."""
    return {row["name"]: row["token"] for row in store.database.rows("locks")}


def test_a_lock_is_held_by_one_at_a_time(store: Store) -> None:
    lease = taken(store.home)
    assert lease.until == store.clock.lease_now() + TTL
    assert take(store.home) is None
    assert take(store.process()) is None
    assert locks(store) == {"invoice": lease.token}


def test_locks_of_other_names_are_other_locks(store: Store) -> None:
    taken(store.home, "invoice")
    taken(store.home, "Invoice")
    taken(store.home, "invoice ")
    assert len(locks(store)) == 3


def test_of_two_who_ask_in_one_batch_the_first_gets_it(store: Store) -> None:
    asked = [TakeLock("invoice", TTL, store.clock.boot) for _ in range(2)]
    first, second = store.ask_together(*asked)
    assert isinstance(first, Lease)
    assert second is None


def test_tokens_only_grow(store: Store) -> None:
    tokens = []
    for process in (store.home, store.process(), store.home):
        lease = taken(process)
        tokens.append(lease.token)
        process.ask(ReleaseLock("invoice", lease.token))
    assert tokens == sorted(set(tokens))


def test_a_lock_that_is_taken_is_on_the_disk_before_it_is_answered(store: Store) -> None:
    store.home.driver.begun.clear()
    taken(store.home)
    assert store.home.driver.begun == [True]


def test_a_released_lock_can_be_taken_by_others(store: Store) -> None:
    lease = taken(store.home)
    assert store.ask(ReleaseLock("invoice", lease.token)) is True
    assert locks(store) == {}
    taken(store.process())


@pytest.mark.parametrize("verb", ["release", "extend", "renew"])
def test_a_late_holder_changes_nothing(store: Store, verb: str) -> None:
    late = taken(store.home)
    store.clock.advance(TTL + 1)
    second_worker = taken(store.process())
    assert not ask_for(store.home, verb, late.token)
    assert locks(store) == {"invoice": second_worker.token}


@pytest.mark.parametrize("verb", ["release", "extend", "renew"])
def test_a_holder_is_too_late_even_if_nobody_else_wanted_the_lock(store: Store, verb: str) -> None:
    late = taken(store.home)
    store.clock.advance(TTL + 1)
    assert not ask_for(store.home, verb, late.token)
    assert locks(store) == {"invoice": late.token}


@pytest.mark.parametrize("verb", ["release", "extend", "renew"])
def test_only_the_process_that_holds_it_can_change_a_lock(store: Store, verb: str) -> None:
    lease = taken(store.home)
    assert not ask_for(store.process(), verb, lease.token)
    assert locks(store) == {"invoice": lease.token}


def ask_for(process: Process, verb: str, token: int) -> Any:
    request: Any = {
        "release": ReleaseLock("invoice", token),
        "extend": ExtendLock("invoice", token, TTL),
        "renew": RenewLocks([("invoice", token, TTL)]),
    }[verb]
    return process.ask(request)


def test_a_lock_can_be_had_when_its_lease_has_ended_and_not_before(store: Store) -> None:
    taken(store.home)
    other = store.process()
    store.clock.advance(TTL)
    assert take(other) is None
    store.clock.advance(1)
    taken(other)


def test_a_renewed_lock_is_held_longer(store: Store) -> None:
    lease = taken(store.home)
    store.clock.advance(TTL - 1)
    renewed = store.ask(RenewLocks([("invoice", lease.token, TTL)]))
    assert renewed == {lease.token: store.clock.lease_now() + TTL}
    store.clock.advance(TTL)
    assert take(store.process()) is None


def test_of_several_locks_those_that_were_lost_are_not_renewed(store: Store) -> None:
    kept, lost = taken(store.home, "kept"), taken(store.home, "lost")
    store.ask(ReleaseLock("lost", lost.token))
    both = [("kept", kept.token, TTL), ("lost", lost.token, TTL)]
    assert list(store.ask(RenewLocks(both))) == [kept.token]


def test_an_extended_lock_has_a_lease_of_its_own_length_at_every_renewal(store: Store) -> None:
    lease = taken(store.home)
    extended = store.ask(ExtendLock("invoice", lease.token, 5 * TTL))
    assert extended == Lease(lease.token, store.clock.lease_now() + 5 * TTL)
    store.clock.advance(4 * TTL)
    assert take(store.process()) is None
    store.ask(RenewLocks([("invoice", lease.token, 5 * TTL)]))
    store.clock.advance(4 * TTL)
    assert take(store.process()) is None


def test_from_a_holder_that_is_known_to_be_gone_a_lock_is_taken_at_once(store: Store) -> None:
    dead = taken(store.process())
    other = store.process()
    assert take(other, instead_of=dead.token + 1_000) is None
    assert take(other, instead_of=dead.token) is not None


def test_a_lease_of_another_boot_means_nothing(store: Store) -> None:
    taken(store.home)
    other = store.process()
    assert other.ask(TakeLock("invoice", TTL, "another boot")) is not None


def test_lapsed_locks_are_cleared_away_and_no_others(store: Store) -> None:
    taken(store.home, "old")
    store.clock.advance(TTL + 1)
    fresh = taken(store.home, "fresh")
    store.home.do_chores(PruneLocks)
    assert locks(store) == {"fresh": fresh.token}
    assert store.home.chores(PruneLocks) == []


# --- what the engine does with those of its process ----------------------------------------------


def granted(process: Process, name: str = "invoice") -> LockRequest:
    grant = LockRequest(name, TTL)
    process.ask(process.engine.held_locks.acquire_call(grant, None))
    return grant


def test_the_engine_renews_what_is_held(store: Store) -> None:
    grant = granted(store.home)
    for _ in range(10):
        store.clock.advance(TTL // 2)
        store.home.engine.turn()
    assert grant.until == store.clock.lease_now() + TTL
    assert not grant.lost
    assert take(store.process()) is None


def test_the_engine_knows_when_to_renew_next(store: Store) -> None:
    keeping = store.home.engine.held_locks
    assert keeping.next_at() is None
    granted(store.home)
    assert keeping.next_at() == store.clock.lease_now() + TTL // 3


def test_a_lock_that_was_not_renewed_in_time_is_lost(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    grant = granted(store.home)
    store.clock.advance(TTL + 1)
    store.home.engine.turn()
    assert grant.lost
    assert "'invoice' was lost" in caplog.text
    assert store.home.engine.held_locks.next_at() is None


def test_what_is_released_is_not_renewed(store: Store) -> None:
    grant = granted(store.home)
    assert store.home.ask(store.home.engine.held_locks.release_call(grant)) is True
    assert store.home.engine.held_locks.next_at() is None


def test_a_lock_that_nobody_waits_for_any_more_is_let_go_when_it_comes(store: Store) -> None:
    grant, engine = LockRequest("invoice", TTL), store.home.engine
    engine.submit(engine.held_locks.acquire_call(grant, None), lambda answer: None)
    engine.held_locks.abandon(grant)
    engine.turn()
    engine.turn()
    assert locks(store) == {}


def test_a_lock_that_came_just_before_its_waiter_went_is_let_go(store: Store) -> None:
    grant = granted(store.home)
    store.home.engine.held_locks.abandon(grant)
    store.home.engine.turn()
    assert locks(store) == {}


def test_who_waited_longest_in_this_process_is_woken_when_a_lock_is_let_go(store: Store) -> None:
    grant, keeping = granted(store.home), store.home.engine.held_locks
    first, second = keeping.queue_up("invoice"), keeping.queue_up("invoice")
    store.home.ask(store.home.engine.held_locks.release_call(grant))
    assert (first.done(), second.done()) == (True, False)


def test_who_waits_no_more_is_not_woken(store: Store) -> None:
    grant, keeping = granted(store.home), store.home.engine.held_locks
    first, second = keeping.queue_up("invoice"), keeping.queue_up("invoice")
    keeping.leave_queue("invoice", first)
    store.home.ask(store.home.engine.held_locks.release_call(grant))
    assert (first.done(), second.done()) == (False, True)


def test_locks_of_a_closed_engine_are_lost(store: Store) -> None:
    other = store.process()
    grant = granted(other)
    store.quit(other)
    assert grant.lost


def test_others_see_that_the_holder_of_a_lock_has_gone(store: Store) -> None:
    other = store.process()
    granted(other)
    assert not is_free(store)
    store.quit(other)
    Maintenance(store.home.driver).due(store.clock.lease_now())
    assert is_free(store)


def is_free(store: Store) -> bool:
    [[_, nonce, boot, _, has_left]] = store.read("lock_holder", name="invoice")
    return bool(has_left) or store.home.driver.is_dead(nonce, boot)
