"""What becomes of a job that is added under a deduplication key: the one pure place that decides.

No clock, no database. Whether a key is held is never stored: it follows from the job that took it
and from the time, so nothing can hold a key for ever.
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
    """Ms for which the key is held, whatever becomes of the job."""
    extend: bool = False
    replace: bool = False
    keep_last_if_active: bool = False

    def window_from(self, moment: int) -> int | None:
        """When the window ends that begins at `moment`; None if the key is held as long as its
        job lives."""
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
    """The job that is to be made when this one has ended."""
    state: str | None
    """Of the job; None if it is gone."""

    @property
    def public_id(self) -> int | str:
        return self.custom_id or self.job

    def holds_at(self, now: int) -> bool:
        """Whether it keeps others out: within its window, or without one while it lives."""
        return self.state in HOLDING if self.until is None else now < self.until


class Decision(Enum):
    """What is done with a new job."""

    TAKE = "it is added and takes the key"
    REPLACE = "it is added and takes the key; the holder is removed"
    KEEP = "it is kept, as the only one, to be added when the holder has ended"
    LEAVE_OUT = "it is not added"


def choose(rule: DeduplicationRule, holder: KeyHolder | None, now: int) -> Decision:
    if holder is None or not holder.holds_at(now):
        return Decision.TAKE
    if rule.replace and holder.state == State.DELAYED:
        return Decision.REPLACE
    # Once one is kept the newest is, also while the holder waits for its next try.
    if rule.keep_last_if_active and (holder.state == State.ACTIVE or holder.next is not None):
        return Decision.KEEP
    return Decision.LEAVE_OUT


def window_after(
    choice: Decision, rule: DeduplicationRule, holder: KeyHolder | None, now: int
) -> int | None:
    """The end of the key's window when that was done."""
    before = None if holder is None else holder.until
    match choice:
        case Decision.TAKE:
            return rule.window_from(now)
        case Decision.REPLACE if not rule.keep_last_if_active:
            return rule.window_from(now) if rule.extend and rule.ttl is not None else before
        case Decision.LEAVE_OUT:
            # With `replace` the window would be drawn out while nothing new ever runs.
            anew = rule.extend and rule.ttl is not None and not rule.replace
            return rule.window_from(now) if anew and before is not None else before
        case _:
            return None


def is_told(choice: Decision, rule: DeduplicationRule) -> bool:
    """Whether listeners hear of it: not where something was to be replaced and could not be."""
    return choice is not Decision.TAKE and not (choice is Decision.LEAVE_OUT and rule.replace)


def rule_of(stored: dict[str, Any]) -> DeduplicationRule:
    """The rule of a job, from its stored options."""
    return DeduplicationRule(**stored["deduplication"])
