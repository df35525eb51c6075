"""What a process measures and writes down: minutes of queues, and what its workers do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bullite.client.queue.metrics import Metrics, metrics_of
from bullite.core.histogram import DurationHistogram
from bullite.core.states import RETRY_FINISHED
from bullite.database.driver import InvalidData
from bullite.engine import metrics as engine_metrics
from bullite.engine.metrics import MetricsBuffer, RunTimings
from bullite.engine.replies import PendingRequest
from bullite.errors import StoreBusy
from bullite.operations.add import Added, AddJobs
from bullite.operations.metrics import KEPT_MINUTES, MINUTE, MinuteTotals, WriteMetrics
from tests.support.harness import Process, Store, Worker, new_job

LONG_WAIT = 1_000.0


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, nobody waits for the write lock."""
    monkeypatch.setattr(engine_metrics, "SLOW_LOCK", LONG_WAIT)


def write_down(process: Process) -> bool:
    """What the engine does every other second; whether there was anything to write."""
    record = process.engine.metrics.record(process.engine._dispatcher.all(), process.clock.now())
    if record is not None:
        process.ask(record)
    return record is not None


def metrics(store: Store, last: int = 60) -> Metrics:
    """Of so many minutes."""
    minute = store.clock.now() // MINUTE
    rows = store.read("minutes", queue=store.queue, first=minute - last, last=minute)
    return metrics_of(rows)


def read(worker: Worker, *seconds: float) -> RunTimings:
    """Have a worker measure runs of these lengths."""
    readings = RunTimings()
    worker.subscription.timings = (readings,)
    for length in seconds:
        readings.took(length)
    return readings


def run(store: Store, worker: Worker, completed: int, failed: int) -> None:
    store.add_all(*[new_job() for _ in range(completed + failed)])
    held = worker.claim(completed + failed)
    worker.complete(*held[:completed])
    if failed:
        worker.fail(*held[completed:])


# --- jobs that ended -----------------------------------------------------------------------------


def test_jobs_that_ended_are_counted_by_the_minute(store: Store) -> None:
    worker = store.worker()
    run(store, worker, completed=3, failed=1)
    store.clock.advance(MINUTE)
    run(store, worker, completed=1, failed=2)
    store.clock.advance(2 * MINUTE)
    run(store, worker, completed=1, failed=0)
    assert write_down(store.home)
    found = metrics(store)
    assert [(minute.completed, minute.failed) for minute in found.minutes] == [
        *((3, 1), (1, 2), (1, 0)),
    ]
    first, second, third = (minute.at.timestamp() for minute in found.minutes)
    assert (second - first, third - second) == (60, 120)
    assert first == store.clock.now() // MINUTE * 60 - 180
    assert (found.completed, found.failed) == (5, 3)
    assert metrics(store, last=2).completed == 2


def test_a_run_after_which_the_job_goes_on_is_none_that_ended(store: Store) -> None:
    worker = store.worker()
    for how in ("retry", "back_off", "release", "delay"):
        store.add()
        getattr(worker, how)(worker.claim_one())
    write_down(store.home)
    assert (metrics(store).completed, metrics(store).failed) == (0, 0)


def test_what_was_undone_is_not_counted(store: Store) -> None:
    worker = store.worker()
    store.add()
    held = worker.claim_one()
    store.home.driver.fail_at["commit"] = StoreBusy("not now")
    with pytest.raises(StoreBusy):
        worker.complete(held)
    worker.complete(held)
    write_down(store.home)
    assert metrics(store).completed == 1


def test_the_minutes_of_several_processes_add_up(store: Store) -> None:
    other = store.process()
    for process in (store.home, other, store.home, other):
        worker = process.worker()
        read(worker, 0.010, 0.020)
        run(store, worker, completed=2, failed=1)
        assert write_down(process)
        worker.leave()
    found = metrics(store)
    assert len(found.minutes) == 1
    assert (found.completed, found.failed, found.durations.count, found.waits.count) == (
        *(8, 4),
        *(8, 12),
    )


def test_queues_have_minutes_of_their_own(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    store.home.add_all(new_job(), queue=elsewhere)
    worker = store.worker(queue=elsewhere)
    worker.complete(worker.claim_one())
    write_down(store.home)
    assert metrics(store).completed == 0
    assert len(store.database.rows("minutes", f"queue = {elsewhere}")) == 1


def test_old_minutes_are_forgotten_when_a_new_one_begins(store: Store) -> None:
    worker = store.worker()
    for minutes in (0, 1, KEPT_MINUTES - 1, 1, 0):
        store.clock.advance(minutes * MINUTE)
        run(store, worker, completed=1, failed=0)
        write_down(store.home)
    ages = [store.clock.now() // MINUTE - row["minute"] for row in store.database.rows("minutes")]
    assert sorted(ages) == [0, 1, KEPT_MINUTES]


# --- how long they took --------------------------------------------------------------------------


def test_durations_are_what_they_were(store: Store) -> None:
    worker = store.worker()
    read(worker, *(length / 1000 for length in range(1, 101)))
    assert write_down(store.home)
    found = metrics(store).durations
    assert (found.count, found.least, found.most) == (100, 1, 100)
    assert found.mean == pytest.approx(50.5)
    assert (found.p50, found.p95, found.p99) == (
        pytest.approx(50, rel=0.02),
        pytest.approx(95, rel=0.02),
        pytest.approx(99, rel=0.02),
    )


def test_runs_that_take_no_time_are_counted_with_their_mean(store: Store) -> None:
    worker = store.worker()
    read(worker, 0.0002, 0.0004, 0.0006)
    write_down(store.home)
    found = metrics(store).durations
    assert found.count == 3
    assert found.mean == pytest.approx(0.4)
    assert found.p99 == pytest.approx(0.4, rel=0.02)


def test_nothing_that_took_no_time_has_no_durations(store: Store) -> None:
    found = metrics(store)
    assert found.minutes == []
    assert (found.durations.count, found.durations.mean, found.durations.p50) == (0, None, None)


def test_readings_are_written_down_once(store: Store) -> None:
    worker = store.worker()
    readings = read(worker, 0.010, 0.0001)
    write_down(store.home)
    readings.took(0.020)
    write_down(store.home)
    write_down(store.home)
    assert metrics(store).durations.count == 3
    assert readings.runs == 3


def test_a_worker_that_leaves_leaves_its_readings(store: Store) -> None:
    worker = store.worker()
    run(store, worker, completed=2, failed=0)
    read(worker, 0.010, 0.020)
    worker.leave()
    assert (metrics(store).completed, metrics(store).durations.count) == (2, 2)


# --- how long they waited ------------------------------------------------------------------------


def test_jobs_wait_from_when_they_are_added(store: Store) -> None:
    worker = store.worker()
    store.add()
    store.clock.advance(40)
    worker.complete(worker.claim_one())
    store.add()
    store.clock.advance(60)
    worker.complete(worker.claim_one())
    write_down(store.home)
    found = metrics(store).waits
    assert (found.count, found.mean, found.least, found.most) == (2, 50, 40, 60)


def test_those_taken_together_count_with_the_one_in_their_middle(store: Store) -> None:
    for _ in range(3):
        store.add()
        store.clock.advance(10)
    store.worker().claim(3)
    write_down(store.home)
    found = metrics(store).waits
    assert (found.count, found.mean) == (3, 20)


def test_a_backoff_that_was_not_needed_hides_no_wait(store: Store) -> None:
    store.add(opts=json.dumps({"backoff": {"type": "fixed", "delay": 5}}))
    store.clock.advance(40)
    store.worker().claim_one()
    write_down(store.home)
    assert metrics(store).waits.mean == 40


def delayed(store: Store, worker: Worker) -> None:
    store.add(delay=1_000)


def retried(store: Store, worker: Worker) -> None:
    store.add()
    worker.retry(worker.claim_one())


def revived(store: Store, worker: Worker) -> None:
    job = store.add()
    worker.fail(worker.claim_one())
    store.move(RETRY_FINISHED, job, forget_attempts=True)


@pytest.mark.parametrize("prepare", [delayed, retried, revived])
def test_who_did_not_wait_all_the_time_is_not_counted(store: Store, prepare: Any) -> None:
    worker = store.worker()
    prepare(store, worker)
    write_down(store.home)
    before = metrics(store).waits.count
    store.clock.advance(5_000)
    assert worker.claim(1)
    write_down(store.home)
    assert metrics(store).waits.count == before


# --- what workers say ----------------------------------------------------------------------------


def said(store: Store, worker: Worker) -> Any:
    [row] = store.database.rows("workers", f"id = {worker.id}")
    return None if row["stats"] is None else json.loads(row["stats"])


def test_a_worker_tells_its_runs_and_how_long_it_was_busy(store: Store) -> None:
    worker = store.worker()
    readings = read(worker, 0.0004, 0.100, 0.200)
    readings.failed = 1
    store.clock.advance(5_000)
    write_down(store.home)
    assert said(store, worker) == {
        "runs": 3,
        "failed": 1,
        "busy_ms": 300,
        "batches": 0,
        "batched": 0,
        "lock_waits": 0,
        "lock_wait_ms": 0,
    }
    [row] = store.database.rows("workers", f"id = {worker.id}")
    assert row["seen_at"] == store.clock.now()


def test_a_worker_with_several_runners_tells_of_all(store: Store) -> None:
    worker = store.worker()
    first, second = RunTimings(), RunTimings()
    worker.subscription.timings = (first, second)
    first.took(0.010)
    second.took(0.020)
    write_down(store.home)
    assert (said(store, worker)["runs"], said(store, worker)["busy_ms"]) == (2, 30)


def test_a_worker_is_seen_with_each_renewal(store: Store) -> None:
    worker = store.worker()
    store.clock.advance(15_000)
    store.home.renew()
    [row] = store.database.rows("workers", f"id = {worker.id}")
    assert row["seen_at"] == store.clock.now()


def test_how_many_jobs_end_in_one_transaction_is_told(store: Store) -> None:
    worker = store.worker()
    store.home.engine.metrics.transacted(0, 0)
    store.home.engine.metrics.transacted(3, 0)
    store.home.engine.metrics.transacted(2, 0)
    write_down(store.home)
    told = said(store, worker)
    assert (told["batches"], told["batched"]) == (2, 5)


def test_waits_for_the_write_lock_are_told(store: Store) -> None:
    worker = store.worker()
    store.home.engine.metrics.transacted(1, LONG_WAIT - 1)
    store.home.engine.metrics.transacted(1, LONG_WAIT + 1)
    write_down(store.home)
    assert said(store, worker)["lock_waits"] == 1
    assert said(store, worker)["lock_wait_ms"] == (LONG_WAIT + 1) * 1_000


# --- writing it down -----------------------------------------------------------------------------


def test_nothing_is_written_while_nothing_happens(store: Store) -> None:
    worker = store.worker()
    read(worker, 0.010)
    assert write_down(store.home)
    begun = len(store.home.driver.begun)
    assert [write_down(store.home) for _ in range(3)] == [False] * 3
    store.home.renew()
    assert not write_down(store.home)
    assert len(store.home.driver.begun) == begun + 1


def test_a_process_without_workers_has_nothing_to_write(store: Store) -> None:
    store.add()
    assert not write_down(store.home)
    assert store.database.rows("minutes") == []


def test_it_need_not_be_on_the_disk(store: Store) -> None:
    run(store, store.worker(), completed=1, failed=0)
    store.home.driver.begun.clear()
    write_down(store.home)
    assert store.home.driver.begun == [False]


BAD = WriteMetrics({(1, 1): MinuteTotals(completed=2**70)}, {})


def test_a_record_that_is_refused_disturbs_nobody(store: Store) -> None:
    bad, added = store.ask_together(BAD, AddJobs(store.queue, [new_job()]))
    assert isinstance(bad, Exception)
    assert isinstance(added, Added)
    assert store.counts() == {"waiting": 1}


def test_a_statement_that_is_refused_once_loses_nothing(store: Store) -> None:
    worker = store.worker()
    run(store, worker, completed=2, failed=0)
    store.home.driver.fail_at["write_minute"] = InvalidData("no")
    write_down(store.home)
    assert metrics(store).completed == 2


def test_when_the_store_fails_only_what_was_measured_is_lost(store: Store) -> None:
    worker = store.worker()
    run(store, worker, completed=2, failed=0)
    store.home.driver.fail_at["write_minute"] = StoreBusy("not now")
    with pytest.raises(StoreBusy):
        write_down(store.home)
    run(store, worker, completed=1, failed=0)
    write_down(store.home)
    assert metrics(store).completed == 1
    assert store.counts() == {"completed": 3}


def test_the_engine_writes_it_down_by_itself_from_time_to_time(store: Store) -> None:
    worker = store.worker()
    run(store, worker, completed=1, failed=0)
    engine = store.home.engine
    answers: list[Any] = []
    asks = engine._due_metrics()
    assert [type(ask.request) for ask in asks] == [WriteMetrics]
    engine.submit_all([PendingRequest(ask.request, answers.append) for ask in asks])
    engine.turn()
    assert answers == [None]
    assert metrics(store).completed == 1
    run(store, worker, completed=1, failed=0)
    assert engine._due_metrics() == []
    store.clock.advance(2_000)
    assert len(engine._due_metrics()) == 1


def test_what_is_stored_is_what_was_measured() -> None:
    measured = MetricsBuffer()
    measured.ended(1, 5 * MINUTE, 2, 1)
    measured.ended(1, 5 * MINUTE + 1, 1, 0)
    measured.waited(1, 6 * MINUTE, -5, 3)
    record = measured.record([], 7 * MINUTE)
    assert record is not None
    assert (record.minutes[1, 5].completed, record.minutes[1, 5].failed) == (3, 1)
    assert record.minutes[1, 6].waits == _sketch_of(0, times=3)
    assert measured.record([], 7 * MINUTE) is None


def _sketch_of(duration: float, times: int) -> DurationHistogram:
    sketch = DurationHistogram()
    sketch.add(duration, times)
    return sketch
