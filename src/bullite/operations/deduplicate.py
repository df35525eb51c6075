"""Adds under deduplication keys: lock each key, read its holder, decide, write it once.

All processes lock keys in the same order. An add reads the holder of a key without locking that
job: a transaction that finishes a job locks the job first and then its key, so the reverse order
could deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ..core.codec import as_json
from ..core.deduplication import (
    Decision,
    DeduplicationRule,
    KeyHolder,
    choose,
    emits_event,
    window_after,
)
from ..core.event_log import DEDUPLICATED
from ..core.job_flags import UPSTREAM
from ..core.states import REMOVE, State
from ..database.driver import TransactionAborted
from . import dependencies
from .transaction import Event, Operation, Transaction
from .transitions import count_out, load_for_update, transition

if TYPE_CHECKING:
    from .add import NewJob

Key = tuple[int, str]
"""A queue, and the id of a deduplication key in it."""


def lock_keys(asked: Iterable[Key]) -> Operation[LockedKeys]:
    """Lock keys until the end of the transaction, also keys that no job holds."""
    by_queue: dict[int, list[str]] = defaultdict(list)
    for queue, id in sorted(set(asked)):
        by_queue[queue].append(id)
    holders: dict[Key, KeyHolder | None] = {}
    for queue, ids in by_queue.items():
        yield "lock_dedup_keys", [(queue, id) for id in ids]
        # Only a new statement sees the changes of a transaction that held the lock before.
        found = yield "key_holders", {"queue": queue, "keys": as_json(ids)}
        for id, *row in found.rows:
            holder = KeyHolder(*row)
            holders[queue, id] = holder if holder.job else None
    return LockedKeys(holders)


class LockedKeys:
    """Locked keys and their holders, which change with each job that is added."""

    def __init__(self, holders: dict[Key, KeyHolder | None]) -> None:
        self._holders = holders
        self._changed: set[Key] = set()
        self._replaced: list[int] = []
        self._events: dict[int, list[Event]] = defaultdict(list)

    def copy(self) -> LockedKeys:
        """Return a copy, for decisions that may be dropped."""
        other = LockedKeys(dict(self._holders))
        other._changed, other._replaced = set(self._changed), list(self._replaced)
        other._events.update({queue: list(events) for queue, events in self._events.items()})
        return other

    def resolve(
        self, now: int, queue: int, number: int, job: NewJob, rule: DeduplicationRule, state: State
    ) -> KeyHolder | None:
        """Give a key to a new job in `state`. Return the holder if that job keeps the key."""
        key = queue, rule.id
        holder = self._holders[key]
        choice = choose(rule, holder, now)
        until = window_after(choice, rule, holder, now)
        if holder is not None and emits_event(choice, rule):
            here, gone = holder.public_id, job.custom_id or number
            if choice is Decision.REPLACE:
                here, gone = gone, here
            self._events[queue].append((here, [rule.id, gone]))
        if holder is not None and choice in (Decision.KEEP, Decision.LEAVE_OUT):
            kept = dump_named(job) if choice is Decision.KEEP else holder.next
            self._set(key, holder._replace(until=until, next=kept))
            return holder
        if holder is not None and choice is Decision.REPLACE:
            self._replaced.append(holder.job)
        self._set(key, KeyHolder(number, job.custom_id, until, None, state))
        return None

    def retake(self, now: int, key: Key, holder: KeyHolder) -> None:
        """Give a key to a restored or retried job, unless another job holds it."""
        present = self._holders[key]
        if present is None or not present.holds_at(now):
            self._set(key, holder)

    def _set(self, key: Key, holder: KeyHolder) -> None:
        if holder != self._holders[key]:
            self._holders[key] = holder
            self._changed.add(key)

    def save(self, tx: Transaction) -> Operation[None]:
        """Store the new holders of the keys, after their jobs; then remove the replaced jobs."""
        changed = {key: self._holders[key] for key in sorted(self._changed)}
        rows = [(*key, *holder[:-1]) for key, holder in changed.items() if holder is not None]
        if rows:
            yield "update_dedup_keys", rows
        yield from delete_keys(key for key, holder in self._holders.items() if holder is None)
        if self._replaced:
            yield from _remove_replaced(tx, self._replaced)
        for queue, events in self._events.items():
            tx.log(queue, DEDUPLICATED, events)


def delete_keys(keys: Iterable[Key]) -> Operation[list[str | None]]:
    """Delete keys, even if jobs hold them. Return the jobs kept until the holders have finished."""
    by_queue: dict[int, list[str]] = defaultdict(list)
    for queue, id in keys:
        by_queue[queue].append(id)
    kept: list[str | None] = []
    for queue, ids in by_queue.items():
        deleted = yield "delete_keys", {"queue": queue, "keys": as_json(ids)}
        kept += [job for [job] in deleted.rows]
    return kept


def _remove_replaced(tx: Transaction, jobs: list[int]) -> Operation[None]:
    """Remove delayed jobs whose keys other jobs have taken.

    A transaction that has locked such a job may wait for its key, which this one has locked. Then
    this one is aborted, so that the other one can continue.
    """
    locked = yield "lock_delayed", {"jobs": as_json(jobs)}
    if len(locked.rows) < len(jobs):
        raise TransactionAborted("a job that was to be replaced is on the move")
    rows = (yield from load_for_update(jobs)).values()
    yield from transition(tx, REMOVE, State.DELAYED, jobs)
    for queue in {row.queue for row in rows}:
        here = [row for row in rows if row.queue == queue]
        count_out(tx, queue, State.DELAYED, [row.priority for row in here])
        tx.log(queue, REMOVE.name, [(row.public_id, State.DELAYED.value) for row in here])
    awaited = [row.job for row in rows if row.flags & UPSTREAM]
    if awaited:
        yield from dependencies.on_removed(tx, awaited, for_good=False)


# --- jobs that are kept for later ----------------------------------------------------------------


_STORED = {"rare_fields": "extras", "flags": "traits"}
"""The stored names of fields that have other names in Python: stored names do not change."""

_FIELDS = {stored: field for field, stored in _STORED.items()}


def dump_named(job: NewJob) -> str:
    """Return a job as text with the names of its fields, so that fields can be added later."""
    return as_json(_named(job))


def _named(value: Any) -> Any:
    if hasattr(value, "_fields"):
        names = (_STORED.get(field, field) for field in value._fields)
        return {name: _named(part) for name, part in zip(names, value, strict=True)}
    return [_named(part) for part in value] if isinstance(value, tuple | list) else value


def load_named(kind: Any, value: Any) -> Any:
    """Return the value of type `kind` from the parsed text of `dump_named`."""
    kinds = (kind, *get_args(kind))
    if isinstance(value, Mapping):
        for named in kinds:
            if hasattr(named, "_fields"):
                types = get_type_hints(named)
                parts = {_FIELDS.get(name, name): part for name, part in value.items()}
                return named(**{n: load_named(types[n], p) for n, p in parts.items() if n in types})
    if isinstance(value, list):
        inner = next((a for k in kinds for a in get_args(k) if hasattr(a, "_fields")), None)
        return [load_named(inner, part) for part in value]
    return value
