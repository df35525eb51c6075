"""The methods of a queue that move many jobs: clean, purge, retry, promote, drain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

from ...core.checks import (
    MAX_TIME,
    Duration,
    Moment,
    check_bool,
    check_duration,
    check_int,
    check_moment,
)
from ...core.states import (
    PRIORITIZED,
    PROMOTE,
    REMOVE,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    Move,
    State,
)
from ...errors import InvalidOption
from ...operations.job_lists import START
from ...operations.move import Moved, MoveJobs, MoveListed
from ...operations.queues import LogCleaned
from ...operations.retention import Purge
from ..job.job import Job
from ..runtime import bridge
from .add import MAX_AT_ONCE
from .reads import QueueReads, finished_list, shown_name

MOVED_AT_ONCE = 1_000
"""Jobs that a method for many jobs moves in one transaction."""


class BulkMoves(QueueReads):
    """A queue whose jobs are moved many at a time, each piece in a transaction of its own."""

    async def clean(self, grace: Duration, limit: int = 0, state: str = "completed") -> list[str]:
        """Remove the jobs of a state that are older than `grace`. Return their ids.

        The oldest first, at most `limit`, 0 for all. Active jobs are never removed. `restore`
        brings a job back.
        """
        age = check_duration("grace", grace)
        check_int("limit", limit, 0, 2**31 - 1)
        names = await self._lists(shown_name(state))
        await self._ensure_open()
        before = self.store.open().clock.now() - age
        cleaned: list[str] = []
        for name in names:
            if name not in (State.ACTIVE, State.WAITING_CHILDREN):
                left = limit - len(cleaned) if limit else None
                async for moved in self._move_list(REMOVE, name, before=before, limit=left):
                    cleaned += moved.ids
        await bridge.submit(self.store, LogCleaned(self._pk, len(cleaned)))
        self.emit("cleaned", cleaned, shown_name(state))
        return cleaned

    async def purge(
        self,
        older_than: Duration,
        state: str = "completed",
        limit: int = 0,
        *,
        fits: Callable[[Job], bool] | None = None,
        on_piece: Callable[[int], object] | None = None,
    ) -> int:
        """Erase completed, or failed, jobs that finished longer ago than `older_than`. Return their
        number.

        The oldest first, at most `limit`, 0 for all; with `fits` only those for which it returns
        True. `state` may also be an outcome, such as `cancelled`. Jobs that other jobs wait for
        stay. After each transaction `on_piece` is called with the number of jobs erased so far.
        """
        age = check_duration("older_than", older_than)
        check_int("limit", limit, 0, 2**31 - 1)
        where, outcome = finished_list(state)
        await self._ensure_open()
        before = self.store.open().clock.now() - age
        purged, piece = 0, list[int]()

        async def delete() -> int:
            gone: int = await bridge.submit(self.store, Purge(self._pk, where, list(piece)))
            piece.clear()
            if on_piece is not None:
                on_piece(purged + gone)
            return gone

        async for job in self.iter_jobs(where.value, batch=MOVED_AT_ONCE):
            if (job.finished_on or 0) > before or (limit and purged >= limit):
                break
            if outcome in (None, job.outcome) and (fits is None or fits(job)):
                piece.append(job.pk)
            if len(piece) >= (min(MOVED_AT_ONCE, limit - purged) if limit else MOVED_AT_ONCE):
                purged += await delete()
        return purged + (await delete() if piece else 0)

    async def retry_jobs(
        self,
        count: int = 1_000,
        state: str = "failed",
        timestamp: Moment | None = None,
        *,
        delay: Duration = 0,
        reset_attempts: bool = False,
        fits: Callable[[Job], bool] | None = None,
        on_piece: Callable[[int], object] | None = None,
    ) -> list[str]:
        """Let all failed, or completed, jobs that finished by `timestamp` run again. Return
        their ids.

        They run after `delay`; with `fits` only those for which it returns True. Each runs once,
        even if it finishes again meanwhile. Jobs of a dead-letter queue return to their queues,
        unless their ids are taken there. `count` jobs are moved in one transaction; after each,
        `on_piece` is called with the number of jobs moved so far.
        """
        check_int("count", count, 1, MAX_AT_ONCE)
        name = shown_name(state)
        if name not in (State.FAILED, State.COMPLETED):
            raise InvalidOption(f'state must be "failed" or "completed", not {state!r}')
        wait = check_duration("delay", delay)
        check_bool("reset_attempts", reset_attempts)
        await self._ensure_open()
        now = self.store.open().clock.now()
        before = now if timestamp is None else check_moment("timestamp", timestamp)
        move = RETRY_FINISHED_DELAYED if wait else RETRY_FINISHED
        if fits is not None:
            request = partial(MoveJobs, move, delay=wait, forget_attempts=reset_attempts)
            return await self._retry_fitting(fits, name, before, count, request, on_piece)
        retried: list[str] = []
        async for moved in self._move_list(
            move, name, before=before, at_once=count, delay=wait, forget_attempts=reset_attempts
        ):
            retried += moved.ids
            if moved.ids and on_piece is not None:
                on_piece(len(retried))
        return retried

    async def _retry_fitting(
        self,
        fits: Callable[[Job], bool],
        name: str,
        before: int,
        count: int,
        request: Callable[[list[int]], MoveJobs],
        on_piece: Callable[[int], object] | None,
    ) -> list[str]:
        """Retry the jobs of a list for which `fits` returns True."""
        retried, piece = dict[int, str](), dict[int, str]()

        async def retry() -> None:
            moved = set(await bridge.submit(self.store, request(list(piece))))
            retried.update((pk, id) for pk, id in piece.items() if pk in moved)
            piece.clear()
            if on_piece is not None:
                on_piece(len(retried))

        async for job in self.iter_jobs(name, batch=min(count, MOVED_AT_ONCE)):
            if (job.finished_on or 0) > before:
                break
            if job.pk not in retried and fits(job):
                piece[job.pk] = job.id
            if len(piece) >= count:
                await retry()
        if piece:
            await retry()
        return list(retried.values())

    async def promote_jobs(self, count: int = 1_000) -> list[str]:
        """Move all delayed jobs to waiting, so that they run now. Return their ids.

        `count` jobs are moved in one transaction.
        """
        check_int("count", count, 1, MAX_AT_ONCE)
        await self._ensure_open()
        promoted: list[str] = []
        async for moved in self._move_list(PROMOTE, State.DELAYED.value, at_once=count):
            promoted += moved.ids
        return promoted

    async def drain(self, delayed: bool = False) -> None:
        """Remove all waiting jobs, and with `delayed` all delayed ones."""
        lists = [State.WAITING.value, PRIORITIZED]
        if check_bool("delayed", delayed):
            lists.append(State.DELAYED.value)
        await self._ensure_open()
        for name in lists:
            async for _ in self._move_list(REMOVE, name):
                pass

    empty = drain

    async def _move_list(
        self,
        move: Move,
        name: str,
        *,
        before: int = MAX_TIME,
        limit: int | None = None,
        at_once: int | None = None,
        delay: int = 0,
        forget_attempts: bool = False,
    ) -> AsyncIterator[Moved]:
        """Move the jobs of a list in their order, at most `limit`, and `at_once` in one
        transaction. Yield the result of each."""
        after, since, left, frees = START, MAX_TIME, MAX_TIME if limit is None else limit, False
        while left > 0:
            most = min(MOVED_AT_ONCE if at_once is None else at_once, left)
            request = MoveListed(
                self._pk, name, move, most, before, after, since, delay, forget_attempts
            )
            moved: Moved = await bridge.submit(self.store, request)
            since, left, frees = min(since, moved.at), left - len(moved.ids), frees or moved.frees
            yield moved
            if moved.after is None and not frees:
                return
            # Jobs that came to the list meanwhile may stand in front of the last one moved.
            after, frees = (START, False) if moved.after is None else (moved.after, frees)
