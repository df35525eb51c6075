"""The next time at which something is due in the store or in maintenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..database.driver import Driver, WorkerRow
from ..operations.scheduler_ticks import late_params
from ..operations.workers import MAX_RECOVERED

IsDue = Callable[[int], bool]
"""Returns whether something is due at a time; monotonic: once due, it stays due."""


def next_moment(
    driver: Driver, exact: Iterator[int], deaths: Mapping[int, int], until: int
) -> int | None:
    """Return the first time after now and up to `until` at which something is due, else None.

    `exact` are times that are known already. `deaths` are the times, by nonce, at which killed
    processes are found.
    """
    now = driver.clock.now()
    found = min((at for at in exact if now < at <= until), default=None)
    for is_due in _conditions(driver, deaths):
        latest = until if found is None else found - 1
        earlier = _first(is_due, now, latest)
        found = found if earlier is None else earlier
    return found


def _first(is_due: IsDue, now: int, until: int) -> int | None:
    """Return the first time in between at which something is due; None if it is due now.

    What is due now was found before and cannot be done.
    """
    if until <= now or not is_due(until) or is_due(now):
        return None
    low, high = now, until
    while high - low > 1:
        middle = (low + high) // 2
        if is_due(middle):
            high = middle
        else:
            low = middle
    return high


def _conditions(driver: Driver, deaths: Mapping[int, int]) -> Iterator[IsDue]:
    """Yield the conditions that make jobs run or finish. Pruning can wait for the next stop."""
    ahead = driver.clock.lease_now() - driver.clock.now()

    def has_rows(statement: str) -> IsDue:
        return lambda at: bool(driver.execute(statement, {"now": at}).rows)

    yield has_rows("due_queues")
    yield has_rows("expired_queues")
    yield has_rows("auto_retry_queues")
    yield lambda at: bool(driver.execute("late_schedulers", late_params(at)).rows)
    for row in driver.execute("workers", {}).rows:
        worker = WorkerRow(*row)
        if worker.nonce in deaths:
            yield _is_noticed(deaths[worker.nonce] - ahead)
        elif not driver.is_alive_despite_lease(worker):
            yield _loses_jobs(driver, worker, ahead)


def _is_noticed(moment: int) -> IsDue:
    return lambda at: at >= moment


def _loses_jobs(driver: Driver, worker: WorkerRow, ahead: int) -> IsDue:
    def is_due(at: int) -> bool:
        params = {
            "queue": worker.queue,
            "worker": worker.id,
            "expired_before": at + ahead,
            "most": MAX_RECOVERED,
        }
        return bool(driver.execute("held_by_worker", params).rows)

    return is_due
