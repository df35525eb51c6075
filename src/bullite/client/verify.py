"""Verify a store: check every invariant that the tables keep between each other."""

from __future__ import annotations

from dataclasses import dataclass

from ..database.driver import Reader
from .runtime.store import Store

CHECKS = (
    "verify_counts",
    "verify_active",
    "verify_tokens",
    "verify_payloads",
    "verify_belongings",
    "verify_times",
    "verify_links",
    "verify_queues",
    "verify_custom_ids",
    "verify_deduplication",
    "verify_schedulers",
    "verify_numbers",
    "verify_steps",
    "verify_limits",
    "verify_file",
)


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found."""

    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return "\n".join(self.problems) if self.problems else "no problems found"


def verify(store: Store) -> Verification:
    """Check the store; blocks while it reads everything. Changes nothing."""
    reader = store.open().driver.reader()
    try:
        return Verification(tuple(problem for check in CHECKS for problem in _check(reader, check)))
    finally:
        reader.close()


def _check(reader: Reader, check: str) -> list[str]:
    return [problem for [problem] in reader.read(check, {}).rows]
