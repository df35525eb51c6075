"""Sweeping: one process at a time, and the size of the event log is counted, not read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bullite.database.driver import Result
from bullite.database.postgres import driver as driver_module
from bullite.operations import queues
from bullite.operations.after_failure import RetryFailedDue, retry_failed_due
from bullite.operations.cancel_and_expire import Expire, expire
from bullite.operations.claim import Promote, promote
from bullite.operations.queues import PublishEvent, TrimEvents
from bullite.operations.request import Request
from bullite.operations.retention import PruneQueue, prune_queues
from bullite.operations.scheduler_ticks import CatchUpScheduler, catch_up
from tests.support.harness import Store, new_job, open_store
from tests.support.postgres_database import PostgresDatabase


@pytest.fixture
def store(database: PostgresDatabase) -> Iterator[Store]:
    with open_store(database) as store:
        yield store
        assert store.problems() == []


def counted(database: PostgresDatabase) -> int:
    """How many events the log holds by the counts; `problems` compares it with the log."""
    [(events,)] = database.query(
        "select (select sum(events) from bullite_counts) - events_trimmed from bullite_queues"
    )
    return int(events)


def test_one_process_sweeps_a_queue_at_a_time_and_others_do_not_wait(store):
    other = store.process()
    for _ in range(5):
        store.add()
    other.configure(max_events=2)

    with store.home.transaction() as transaction:
        assert transaction.run(prune_queues(transaction.tx, [PruneQueue(store.queue)])) == [4]
        other.driver.fail_at["trim_events"] = AssertionError()
        assert other.ask(PruneQueue(store.queue)) == 0
        assert other.driver.fail_at.pop("trim_events"), "it did not even look"

    assert other.ask(PruneQueue(store.queue)) == 0, "nothing is left to do"
    assert len(store.events()) == 1, "it tells of two"


CHORES = [
    (promote, Promote(1)),
    (expire, Expire(1)),
    (retry_failed_due, RetryFailedDue(1)),
    (catch_up, CatchUpScheduler(1, "every hour")),
]


@pytest.mark.parametrize(("operation", "chore"), CHORES, ids=lambda part: type(part).__name__)
def test_one_process_keeps_house_for_a_queue_at_a_time_and_others_do_not_wait(
    store, operation, chore
):
    other = store.process()
    with store.home.transaction() as transaction:
        transaction.run(operation(transaction.tx, [chore]))
        with other.transaction() as beside:
            passing_over = operation(beside.tx, [chore])
            assert next(passing_over)[0] == "try_housekeeping"
            with pytest.raises(StopIteration) as ended:
                passing_over.send(Result([(False,)], 1))
            assert ended.value.value == [0]
            assert not other.driver.execute(
                "try_housekeeping", {"queue": 1, "chore": name_of(chore)}
            ).rows[0][0]


def name_of(chore: Request) -> str:
    names = {
        Promote: "promote",
        Expire: "expire",
        RetryFailedDue: "revive",
        CatchUpScheduler: "catch up",
    }
    return names[type(chore)]


def test_an_event_that_is_published_while_another_process_sweeps_does_not_wait(store):
    other = store.process()
    for _ in range(5):
        store.add()

    with store.home.transaction() as transaction:
        transaction.run(prune_queues(transaction.tx, [PruneQueue(store.queue)]))
        other.ask(PublishEvent(store.queue, "mine", {}, keep=1))

    assert len(store.events()) == 6
    other.ask(PublishEvent(store.queue, "mine", {}, keep=1))
    assert [event.kind for event in store.events()] == ["custom", "custom"]


def test_the_size_of_the_log_is_the_sum_of_what_processes_added(store, database):
    other = store.process()
    store.home.add_all(*[new_job() for _ in range(3)])
    other.add_all(*[new_job() for _ in range(2)])
    store.ask(TrimEvents(store.queue, 4))

    assert counted(database) == 4


def test_the_event_that_tells_that_a_queue_is_drained_is_counted(store, database):
    for process in (store.home, store.process()):
        worker = process.worker()
        for _ in range(2):
            store.add()
            worker.complete(worker.claim_one())

    assert [event.kind for event in store.events()].count("drained") == 4
    assert counted(database) == len(store.events()) + 4, "an add tells of two events"


def test_a_drained_event_is_counted_by_a_process_that_had_counted_nothing(store, database):
    gone = store.process()
    store.add()
    worker = gone.worker()
    worker.claim_one()
    store.kill(gone)
    store.clock.advance(60_000)
    database.write(f"delete from bullite_processes where nonce = {gone.nonce}")
    last = store.process()
    last.configure(keep_failed_count=5)
    last.recover()

    assert store.problems() == []


def test_the_size_of_the_log_stays_when_counts_of_silent_processes_are_folded(store, database):
    silent = store.process()
    silent.add()
    store.clock.advance(driver_module.SILENT + 1)
    store.home.add()
    before = counted(database)

    store.home.driver.remove_stale_files(())

    assert {row["nonce"] for row in database.rows("counts")} == {0, store.home.nonce}
    assert counted(database) == before


def test_verifying_finds_a_wrong_size_of_the_log_and_trimming_by_hand_rights_it(database):
    with open_store(database) as store:
        store.add()
        database.write("update bullite_counts set events = events + 5")

        assert store.problems() == ["queue work: the events of its log are kept as 7 but count 2"]
        store.ask(TrimEvents(store.queue, 10))
        assert store.problems() == []


def test_a_log_is_trimmed_by_hand_in_pieces(store, monkeypatch):
    monkeypatch.setattr(queues, "MAX_TRIMMED", 3)
    for _ in range(8):
        store.add()

    pieces = [store.ask(TrimEvents(store.queue, 2, recount=not n)) for n in range(4)]

    assert pieces == [3, 3, 1, 0]
