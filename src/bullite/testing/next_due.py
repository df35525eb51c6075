"""When something will be due next, as the store and the scheduler service would find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..database.driver import Driver, WorkerRow
from ..operations.scheduler_ticks import late_params
from ..operations.workers import MAX_RECOVERED

Finds = Callable[[int], bool]
"""Whether there would be something to do at a moment; once there is, there stays something."""


def next_moment(
    driver: Driver, exact: Iterator[int], deaths: Mapping[int, int], until: int
) -> int | None:
    """The first moment after now, and up to `until`, at which something is due; None if none is.

    `exact` are moments that are known already, `deaths` those at which killed processes will be
    found, by their nonces.
    """
    now = driver.clock.now()
    found = min((at for at in exact if now < at <= until), default=None)
    for finds in _questions(driver, deaths):
        latest = until if found is None else found - 1
        earlier = _first(finds, now, latest)
        found = found if earlier is None else earlier
    return found


def _first(finds: Finds, now: int, until: int) -> int | None:
    """The first moment in between at which `finds`; what is found now already cannot be done."""
    if until <= now or not finds(until) or finds(now):
        return None
    low, high = now, until
    while high - low > 1:
        middle = (low + high) // 2
        if finds(middle):
            high = middle
        else:
            low = middle
    return high


def _questions(driver: Driver, deaths: Mapping[int, int]) -> Iterator[Finds]:
    """What makes jobs run or end. What is only cleared away can wait for the next stop."""
    ahead = driver.clock.lease_now() - driver.clock.now()

    def has_rows(statement: str) -> Finds:
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


def _is_noticed(moment: int) -> Finds:
    return lambda at: at >= moment


def _loses_jobs(driver: Driver, worker: WorkerRow, ahead: int) -> Finds:
    def finds(at: int) -> bool:
        params = {
            "queue": worker.queue,
            "worker": worker.id,
            "expired_before": at + ahead,
            "most": MAX_RECOVERED,
        }
        return bool(driver.execute("held_by_worker", params).rows)

    return finds
