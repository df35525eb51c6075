"""The books of a store: kept counts, the event log and what they promise to readers."""

from __future__ import annotations

from bullite.core.decide_outcome import RunOutcome
from bullite.core.states import COMPLETE, FAIL, REMOVE, RESTORE, State
from bullite.operations.add import AddJobs
from bullite.operations.finish import FinishRuns
from tests.support.harness import Event, Store, new_job


def test_every_job_is_counted_in_one_state(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(6)), new_job(priority=1), new_job(delay=1_000))
    worker = store.worker()
    one, two, _three = worker.claim(3)
    worker.complete(one)
    worker.fail(two)
    assert store.counts() == {
        "waiting": 3,
        "prioritized": 1,
        "delayed": 1,
        "active": 1,
        "completed": 1,
        "failed": 1,
    }


def test_a_waiting_job_with_a_priority_is_counted_apart(store: Store) -> None:
    job = store.add(priority=7)
    assert store.counts() == {"prioritized": 1}
    store.move(REMOVE, job)
    assert store.counts() == {}
    store.move(RESTORE[State.WAITING], job)
    assert store.counts() == {"prioritized": 1}
    worker = store.worker()
    held = worker.claim_one()
    assert store.counts() == {"active": 1}
    worker.give_back(held)
    assert store.counts() == {"prioritized": 1}


def test_a_delayed_job_with_a_priority_is_counted_as_delayed_until_it_is_due(store: Store) -> None:
    store.add(priority=7, delay=10)
    assert store.counts() == {"delayed": 1}
    store.clock.advance(10)
    store.home.promote_due()
    assert store.counts() == {"prioritized": 1}


def test_queues_are_counted_apart(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    store.ask_together(
        AddJobs(store.queue, [new_job()]), AddJobs(elsewhere, [new_job(), new_job(delay=5)])
    )
    assert store.counts() == {"waiting": 1}
    assert store.counts(elsewhere) == {"waiting": 1, "delayed": 1}


def test_a_batch_that_is_rolled_back_is_not_counted(store: Store) -> None:
    store.ask_together(AddJobs(store.queue, [new_job(), new_job(delay=2**70)]))
    assert store.counts() == {}
    assert store.events() == []


# --- events --------------------------------------------------------------------------------------


def test_adding_tells_the_name_and_when_a_delayed_job_is_due(store: Store) -> None:
    now, later = store.add("a"), store.add("b", delay=50)
    assert store.events() == [
        Event("add", now, "a"),
        Event("add_delayed", later, ["b", store.clock.now() + 50]),
    ]


def test_jobs_moved_together_share_a_row_of_the_event_log(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(5)))
    worker = store.worker()
    worker.complete(*worker.claim(5))
    assert [row.kind for row in store.event_rows()] == ["add", "claim", "complete", "drained"]
    assert len(store.events()) == 16


def test_a_row_of_the_event_log_knows_how_many_events_there_were_up_to_it(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(3)))
    worker = store.worker()
    one, two, three = worker.claim(3)
    store.clock.advance(4)
    store.ask(
        FinishRuns(
            store.queue,
            [
                RunOutcome(one.id, one.token, COMPLETE),
                RunOutcome(two.id, two.token, FAIL),
                RunOutcome(three.id, three.token, COMPLETE),
            ],
        )
    )
    rows = store.event_rows()
    assert [(row.kind, row.total) for row in rows] == [
        *(("add", 6), ("claim", 9), ("complete", 11), ("fail", 13), ("drained", 14))
    ]
    assert rows[-1].at == store.clock.now()


def test_events_are_numbered_by_queue(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    for _ in range(2):
        store.ask_together(
            AddJobs(store.queue, [new_job(), new_job()]), AddJobs(elsewhere, [new_job()])
        )
    assert [row.total for row in store.event_rows()] == [4, 8]
    assert [row.total for row in store.event_rows(elsewhere)] == [2, 4]


def test_the_events_of_a_job_are_in_causal_order_also_inside_a_batch(store: Store) -> None:
    worker = store.worker()
    worker.wants(5)
    job = store.add(delay=10)
    store.clock.advance(10)
    store.home.engine.turn()
    [held] = worker.received
    worker.retry(held)
    assert store.history(job) == ["add_delayed", "promote", "claim", "retry", "claim"]


def test_events_without_a_queue_of_their_own_change_no_counts(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    before = store.counts()
    worker.progress(held, "10")
    assert store.counts() == before
    assert store.history(job)[-1] == "progress"


def test_an_event_names_a_job_as_its_users_do(store: Store) -> None:
    store.add(custom_id="mine")
    worker = store.worker()
    worker.complete(worker.claim_one())
    assert [event.job for event in store.events()] == ["mine", "mine", "mine", None]


# --- running dry ---------------------------------------------------------------------------------


def test_a_queue_is_drained_when_its_last_run_ends_and_nothing_waits(store: Store) -> None:
    store.add_all(new_job(), new_job(priority=1))
    worker = store.worker()
    one, two = worker.claim(2)
    worker.complete(one)
    assert "drained" not in [event.kind for event in store.events()]
    worker.fail(two)
    assert store.events()[-1] == Event("drained", None, None)


def test_a_queue_with_a_waiting_job_is_not_drained(store: Store) -> None:
    store.add_all(new_job(), new_job(priority=1))
    worker = store.worker()
    worker.complete(worker.claim_one())
    assert store.events()[-1].kind == "complete"


def test_a_queue_with_only_delayed_jobs_is_drained(store: Store) -> None:
    store.add(delay=50)
    store.add()
    worker = store.worker()
    worker.complete(worker.claim_one())
    assert store.events()[-1].kind == "drained"


def test_a_job_that_goes_back_to_the_line_does_not_drain_its_queue(store: Store) -> None:
    store.add()
    worker = store.worker()
    worker.retry(worker.claim_one())
    assert store.events()[-1].kind == "retry"


def test_an_idle_queue_is_not_drained_again_by_what_happens_to_finished_jobs(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.complete(worker.claim_one())
    store.move(REMOVE, job)
    assert [event.kind for event in store.events()].count("drained") == 1


# --- due jobs without a worker -------------------------------------------------------------------


def test_the_scheduler_promotes_due_jobs_of_queues_that_have_no_worker(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    job = store.home.add(queue=elsewhere, delay=10)
    assert store.home.promote_due() == 0
    store.clock.advance(10)
    assert store.home.promote_due() == 1
    assert store.state(job) == "waiting"
    assert store.counts(elsewhere) == {"waiting": 1}


def test_a_promoted_job_is_no_longer_delayed(store: Store) -> None:
    job = store.add(delay=10)
    store.clock.advance(10)
    store.home.promote_due()
    row = store.row(job)
    assert (row.due_at, row.delay) == (None, 0)
