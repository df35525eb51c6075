"""The decision on a job that is added under a deduplication key.

It is pure: it uses no clock and no database. No column says whether a key is held: that follows
from the job that took the key and from the time, so no key can be held forever.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from .states import State

HOLDING = frozenset({State.WAITING, State.DELAYED, State.ACTIVE, State.WAITING_CHILDREN})
"""The states in which a job holds a key that has no window."""


class DeduplicationRule(NamedTuple):
    """The option `deduplication` of one job, checked."""

    id: str
    ttl: int | None = None
    """Ms for which the key is held, even if the job finishes earlier."""
    extend: bool = False
    replace: bool = False
    keep_last_if_active: bool = False

    def window_from(self, moment: int) -> int | None:
        """Return the end of the window that starts at `moment`.

        Return None if there is no window: the key is held until its job finishes.
        """
        if self.ttl is None or self.keep_last_if_active:
            return None
        return moment + self.ttl


class KeyHolder(NamedTuple):
    """The job that took a key last."""

    job: int
    custom_id: str | None
    until: int | None
    """The end of the window; None if there is none."""
    next: str | None
    """The job that is added when this one has finished, as JSON."""
    state: str | None
    """The state of the job; None if it was deleted."""

    @property
    def public_id(self) -> int | str:
        return self.custom_id or self.job

    def holds_at(self, now: int) -> bool:
        """Return True if the job holds the key: within the window or, without one, until the job
        finishes."""
        return self.state in HOLDING if self.until is None else now < self.until


class Decision(Enum):
    """The decisions on a new job."""

    TAKE = "it is added and takes the key"
    REPLACE = "it is added and takes the key; the holder is removed"
    KEEP = "it is kept, as the only one, to be added when the holder has ended"
    LEAVE_OUT = "it is not added"


def choose(rule: DeduplicationRule, holder: KeyHolder | None, now: int) -> Decision:
    if holder is None or not holder.holds_at(now):
        return Decision.TAKE
    if rule.replace and holder.state == State.DELAYED:
        return Decision.REPLACE
    # If a duplicate is kept already, a newer one replaces it, also while the holder is retried.
    if rule.keep_last_if_active and (holder.state == State.ACTIVE or holder.next is not None):
        return Decision.KEEP
    return Decision.LEAVE_OUT


def window_after(
    choice: Decision, rule: DeduplicationRule, holder: KeyHolder | None, now: int
) -> int | None:
    """Return the end of the key's window after this decision."""
    before = None if holder is None else holder.until
    match choice:
        case Decision.TAKE:
            return rule.window_from(now)
        case Decision.REPLACE if not rule.keep_last_if_active:
            return rule.window_from(now) if rule.extend and rule.ttl is not None else before
        case Decision.LEAVE_OUT:
            # With `replace`, duplicates would extend the window although no new job ever runs.
            anew = rule.extend and rule.ttl is not None and not rule.replace
            return rule.window_from(now) if anew and before is not None else before
        case _:
            return None


def emits_event(choice: Decision, rule: DeduplicationRule) -> bool:
    """Return True if the decision emits `deduplicated`: not if the holder could not be replaced."""
    return choice is not Decision.TAKE and not (choice is Decision.LEAVE_OUT and rule.replace)


def rule_of(stored: dict[str, Any]) -> DeduplicationRule:
    """Return the rule of a job, from its stored options."""
    return DeduplicationRule(**stored["deduplication"])
