"""End the commands that lost processes left running, before their jobs run again."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.codec import as_json
from ..core.states import State
from ..database.driver import Driver, WorkerRow
from ..operations.transitions import LockedJob
from ..processes.orphaned_commands import OrphanScan, RunMarker, end, may_run_commands

MAX_LOOKS = 20
"""Looks that find commands before jobs run again all the same: some can never be killed."""


class OrphanedCommands:
    """Looks for such commands beside the engine's thread, and kills them."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._look: OrphanScan | None = None
        """Under way, or done."""
        self._has_looked = False
        """True if no command runs any more that was left when this process began."""
        self._looks = 0
        """Looks in a row that found such commands."""

    def end(self, others: Sequence[WorkerRow], lost: Sequence[WorkerRow]) -> set[int]:
        """Kill the commands of lost processes. Return the nonces of those that may still have some.

        Kill only commands whose job is still claimed: what a command left behind when it ended
        lives on. The first look is also for processes that are gone and not yet lost: their jobs
        may be recovered by a process on another machine, which cannot kill their commands.
        """
        known = {worker.nonce for worker in others if may_run_commands(worker.names)}
        gone = {worker.nonce for worker in lost} & known
        if not gone and (self._has_looked or not known):
            return set()
        if self._look is None:
            self._look = OrphanScan(known, gone)
            self._look.start()
        if not self._look.is_done:
            return gone
        look, self._look = self._look, None
        # A process that was alive when the look began may have started commands since.
        return self._end_found(look) | (gone - look.lost)

    def _end_found(self, look: OrphanScan) -> set[int]:
        left = {
            marker: members
            for marker, members in look.found.items()
            if marker.nonce in look.lost or marker in look.without_process
            if self._is_claimed(marker)
        }
        for members in left.values():
            end(members)
        self._has_looked = not left
        self._looks = self._looks + 1 if left else 0
        return {marker.nonce for marker in left} if self._looks <= MAX_LOOKS else set()

    def _is_claimed(self, marker: RunMarker) -> bool:
        """Return True if the job of a command is claimed under the token of its run."""
        # One row at a time: waiting for a row lock while holding another can deadlock.
        rows = self._driver.execute("load_jobs_for_update", {"jobs": as_json([marker.job])}).rows
        jobs = [LockedJob(*row) for row in rows]
        return any(
            (job.state, job.token, job.nonce) == (State.ACTIVE, marker.token, marker.nonce)
            for job in jobs
        )
