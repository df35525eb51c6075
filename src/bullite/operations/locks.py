"""Named locks: the holder, lease and fencing token of each.

A lock is held until its lease ends. If the lease ends without renewal, the holder has lost the
lock, even if no other process acquires it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.codec import as_json
from .request import ALONE, ALONE_BESIDE_OTHERS, Request
from .transaction import Operation, Transaction
from .transitions import allocate_ids


class Lease(NamedTuple):
    """The fencing token of a held lock, and the end of its lease by the clock of leases."""

    token: int
    until: int


class TakeLock(Request):
    """Acquire a lock. Reply with a Lease; with None if another process holds the lock."""

    name: str
    ttl: int
    boot: str
    instead_of: int | None = None
    """The token of a holder that is known to be dead."""
    apart = ALONE_BESIDE_OTHERS


def take_locks(tx: Transaction, requests: Sequence[TakeLock]) -> Operation[list[Lease | None]]:
    replies: dict[int, Lease | None] = {}
    numbers = yield from allocate_ids(len(requests))
    # Always in the order of names: otherwise two transactions could deadlock.
    for index, r in sorted(enumerate(requests), key=lambda pair: pair[1].name):
        token = numbers[index]
        params = {
            "name": r.name,
            "token": token,
            "nonce": tx.nonce,
            "boot": r.boot,
            "ttl": r.ttl,
            "lease_now": tx.lease_now,
            "instead_of": r.instead_of,
        }
        taken = (yield "take_lock", params).rows
        replies[index] = Lease(token, tx.lease_now + r.ttl) if taken else None
    return [replies[index] for index in range(len(requests))]


class RenewLocks(Request):
    """Renew the locks of this process. Reply with the ends of their leases by token.

    A lock that is not in the reply is lost.
    """

    locks: Sequence[tuple[str, int, int]]
    """Name, token and ttl of each lock."""
    apart = ALONE_BESIDE_OTHERS


def renew_locks(tx: Transaction, requests: Sequence[RenewLocks]) -> Operation[list[dict[int, int]]]:
    replies: list[dict[int, int]] = []
    for request in requests:
        params = {"locks": as_json(request.locks), "nonce": tx.nonce, "lease_now": tx.lease_now}
        renewed = {token for [token] in (yield "renew_locks", params).rows}
        replies.append(
            {token: tx.lease_now + ttl for _, token, ttl in request.locks if token in renewed}
        )
    return replies


class ExtendLock(Request):
    """Hold a lock for `ttl` ms from now and from each renewal. Reply with a Lease, or None."""

    name: str
    token: int
    ttl: int
    apart = ALONE_BESIDE_OTHERS


def extend_locks(tx: Transaction, requests: Sequence[ExtendLock]) -> Operation[list[Lease | None]]:
    replies: list[Lease | None] = []
    for r in requests:
        params = {**_held(tx, r.name, r.token), "ttl": r.ttl}
        extended = (yield "extend_lock", params).rows
        replies.append(Lease(r.token, tx.lease_now + r.ttl) if extended else None)
    return replies


class ReleaseLock(Request):
    """Release a lock. Reply with True if it was held."""

    name: str
    token: int
    durable = False
    apart = ALONE_BESIDE_OTHERS


def release_locks(tx: Transaction, requests: Sequence[ReleaseLock]) -> Operation[list[bool]]:
    replies: list[bool] = []
    for r in requests:
        released = (yield "release_lock", _held(tx, r.name, r.token)).rows
        replies.append(bool(released))
    return replies


def _held(tx: Transaction, name: str, token: int) -> dict[str, int | str]:
    return {"name": name, "token": token, "nonce": tx.nonce, "lease_now": tx.lease_now}


class PruneLocks(Request):
    """Delete the locks whose leases have ended."""

    boot: str
    durable = False
    apart = ALONE


def prune_locks(tx: Transaction, requests: Sequence[PruneLocks]) -> Operation[list[int]]:
    for request in requests:
        yield "delete_lapsed_locks", {"lease_now": tx.lease_now, "boot": request.boot}
    return [0] * len(requests)
