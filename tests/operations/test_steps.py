"""Steps, sleeps and awaited events: what is recorded, who may, what wakes a job."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.core.checks import MAX_TIME
from bullite.core.decide_outcome import RunOutcome
from bullite.core.job_flags import STEPPED
from bullite.core.states import (
    COMPLETE,
    DELETE,
    DELETE_ACTIVE,
    PROMOTE,
    REMOVE,
    RESCHEDULE,
    RESTORE,
    RETRY_FINISHED,
    State,
)
from bullite.database.driver import Conflict
from bullite.errors import IllegalMove, JobNotFound, LostLock
from bullite.operations.finish import FinishRuns, finish_runs
from bullite.operations.steps import (
    EVENT,
    SLEEP,
    RecordStep,
    SendEvent,
    StepDone,
    Suspend,
    Suspended,
    send_events,
    suspend,
)
from tests.support.harness import Held, Store, Worker, new_job


def record(store: Store, held: Held, name: str = "charge", value: str = "1", place: int = 1) -> Any:
    return store.ask(RecordStep(held.id, held.token, name, place, value))


def sleep(store: Store, held: Held, ms: int | None = 1_000, **more: Any) -> Any:
    this = {"name": "", "number": 1, "place": 1, **more}
    return store.ask(Suspend(store.queue, held.id, held.token, SLEEP, duration=ms, **this))


def wait(store: Store, held: Held, name: str = "paid", ms: int | None = None, **more: Any) -> Any:
    this = {"name": name, "number": 1, "place": 1, **more}
    return store.ask(Suspend(store.queue, held.id, held.token, EVENT, duration=ms, **this))


def send(store: Store, job: int, name: str = "paid", payload: str = "7") -> Any:
    return store.ask(SendEvent(job, name, payload))


def steps(store: Store, job: int) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in store.read("steps", job=job)]


def run(store: Store, **options: Any) -> tuple[Worker, Held]:
    """A job that has begun, and its worker."""
    store.add(**options)
    worker = store.worker()
    return worker, worker.claim_one()


# --- steps ---------------------------------------------------------------------------------------


def test_a_step_is_recorded_with_its_value_and_its_time(store: Store) -> None:
    _, held = run(store)
    record(store, held, "charge", '{"paid":true}')
    now = store.clock.now()
    assert steps(store, held.id) == [("step", "charge", 1, '{"paid":true}', None, now, now)]


def test_a_recorded_step_is_on_the_disk_before_it_is_answered(store: Store) -> None:
    _, held = run(store)
    store.home.driver.begun.clear()
    record(store, held)
    assert store.home.driver.begun == [True]


def test_a_job_with_steps_has_their_trait_and_one_without_has_none(store: Store) -> None:
    worker, held = run(store)
    other = store.add()
    record(store, held)
    assert store.row(held.id).traits == STEPPED
    assert store.row(other).traits == 0
    assert worker.complete(held, flags=STEPPED) == []


def test_a_verdict_that_does_not_know_of_the_steps_yet_is_carried_out_all_the_same(
    store: Store,
) -> None:
    worker, held = run(store)
    record(store, held)
    assert worker.complete(held) == []
    assert store.state(held.id) == "completed"


def test_steps_of_several_jobs_are_recorded_together(store: Store) -> None:
    jobs = store.add_all(new_job(), new_job())
    held = store.worker().claim(2)
    answers = store.ask_together(*(RecordStep(h.id, h.token, "a", 1, str(h.id)) for h in held))
    assert answers == [None, None]
    assert [steps(store, job)[0][3] for job in jobs] == [str(job) for job in jobs]


def test_several_steps_of_one_job_in_one_batch_are_all_recorded(store: Store) -> None:
    _, held = run(store)
    requests = [RecordStep(held.id, held.token, name, n, "1") for n, name in enumerate("ba")]
    assert store.ask_together(*requests) == [None, None]
    assert [row[1] for row in steps(store, held.id)] == ["b", "a"]


def test_of_two_results_of_one_step_the_first_stays(store: Store) -> None:
    _, held = run(store)
    record(store, held, "a", "1")
    record(store, held, "a", "2")
    assert [row[3] for row in steps(store, held.id)] == ["1"]


def test_a_run_that_lost_its_job_records_nothing(store: Store) -> None:
    worker, held = run(store)
    worker.release(held)
    again = worker.claim_one()
    with pytest.raises(LostLock, match=f"job {held.id} is no longer held"):
        record(store, held)
    assert steps(store, held.id) == []
    record(store, again)
    assert len(steps(store, held.id)) == 1


def test_another_process_with_the_same_number_records_nothing(store: Store) -> None:
    _, held = run(store)
    other = store.process()
    with pytest.raises(LostLock):
        other.ask(RecordStep(held.id, held.token, "a", 1, "1"))
    assert steps(store, held.id) == []


def test_the_step_of_a_job_that_is_gone_is_refused(store: Store) -> None:
    _, held = run(store)
    store.move(DELETE_ACTIVE, held.id)
    with pytest.raises(JobNotFound):
        record(store, held)


def test_a_step_tells_that_a_job_which_was_fetched_ahead_has_begun(store: Store) -> None:
    store.add_all(new_job(), new_job())
    worker = store.worker()
    _, held = worker.claim(1, ahead=1)
    record(store, held)
    assert store.row(held.id).attempts_started == 1
    assert store.history(held.id) == ["add", "claim"]


@pytest.mark.parametrize("end", ["back_off", "retry", "release", "delay", "stall"])
def test_steps_outlive_the_run(store: Store, end: str) -> None:
    worker, held = run(store)
    record(store, held)
    if end == "stall":
        store.clock.advance(60_000)
        worker.leave()
        store.home.recover()
    else:
        getattr(worker, end)(held)
    assert len(steps(store, held.id)) == 1


@pytest.mark.parametrize(("forget", "left"), [(False, 1), (True, 0)])
def test_a_retry_by_hand_keeps_the_steps_unless_attempts_are_reset(
    store: Store, forget: bool, left: int
) -> None:
    worker, held = run(store)
    record(store, held)
    send(store, held.id)
    worker.fail(held)
    store.move(RETRY_FINISHED, held.id, forget_attempts=forget)
    assert len(steps(store, held.id)) == left
    assert len(store.database.rows("signals")) == left


def test_steps_and_events_are_deleted_with_their_job(store: Store) -> None:
    worker, held = run(store)
    record(store, held)
    send(store, held.id)
    worker.complete(held)
    store.move(DELETE, held.id)
    assert store.database.rows("steps") == store.database.rows("signals") == []


def test_a_removed_job_that_is_restored_has_its_steps(store: Store) -> None:
    worker, held = run(store)
    record(store, held)
    worker.delay(held)
    store.move(REMOVE, held.id)
    store.move(RESTORE[State.DELAYED], held.id)
    assert len(steps(store, held.id)) == 1


# --- sleeping ------------------------------------------------------------------------------------


def test_a_sleeping_job_is_delayed_and_has_ended_its_run(store: Store) -> None:
    _, held = run(store)
    now = store.clock.now()
    assert sleep(store, held, 500) == Suspended(now + 500, now)
    row = store.row(held.id)
    assert (row.state, row.due_at, row.lease_until) == ("delayed", now + 500, None)
    assert (row.attempts_made, row.attempts_started) == (0, 1)
    assert store.counts() == {"delayed": 1}
    assert store.history(held.id) == ["add", "claim", "delay"]


def test_a_job_that_wakes_finds_its_sleep_over(store: Store) -> None:
    worker, held = run(store)
    sleep(store, held, 500)
    store.clock.advance(500)
    assert sleep(store, worker.claim_one(), 500) == StepDone(None)
    assert steps(store, held.id)[0][6] == store.clock.now()


def test_a_job_that_is_woken_too_early_sleeps_on_for_the_rest(store: Store) -> None:
    worker, held = run(store)
    until, _ = sleep(store, held, 500)
    store.clock.advance(100)
    store.move(PROMOTE, held.id)
    assert sleep(store, worker.claim_one(), 500) == Suspended(until, store.clock.now())
    assert store.row(held.id).due_at == until


def test_a_sleep_that_is_over_stays_over_when_the_clock_goes_back(store: Store) -> None:
    worker, held = run(store)
    sleep(store, held, 500)
    store.clock.advance(500)
    held = worker.claim_one()
    sleep(store, held, 500)
    store.clock.advance(-400)
    assert sleep(store, held, 500) == StepDone(None)


def test_a_sleep_of_no_time_is_over_at_once(store: Store) -> None:
    _, held = run(store)
    assert sleep(store, held, 0) == StepDone(None)
    assert store.state(held.id) == "active"


def test_sleeps_of_other_numbers_and_names_are_slept_each(store: Store) -> None:
    worker, held = run(store)
    sleep(store, held, 500)
    store.clock.advance(500)
    held = worker.claim_one()
    assert sleep(store, held, 500) == StepDone(None)
    assert isinstance(sleep(store, held, 500, number=2), Suspended)
    store.clock.advance(500)
    assert isinstance(sleep(store, worker.claim_one(), 500, name="again"), Suspended)


def test_no_sleep_leads_past_the_year_9999(store: Store) -> None:
    _, held = run(store)
    assert sleep(store, held, 2**60).until == MAX_TIME


def test_a_run_that_lost_its_job_cannot_put_it_to_sleep(store: Store) -> None:
    worker, held = run(store)
    worker.release(held)
    with pytest.raises(LostLock):
        sleep(store, held)
    assert store.state(held.id) == "waiting"
    assert steps(store, held.id) == []


# --- waiting for events --------------------------------------------------------------------------


def test_a_job_that_waits_for_an_event_is_delayed_for_as_long_as_it_will_wait(store: Store) -> None:
    _, held = run(store)
    now = store.clock.now()
    assert wait(store, held, ms=500) == Suspended(now + 500, now)
    assert (store.state(held.id), store.row(held.id).due_at) == ("delayed", now + 500)


def test_a_job_that_waits_for_ever_is_due_at_the_end_of_time(store: Store) -> None:
    _, held = run(store)
    wait(store, held)
    assert store.row(held.id).due_at == MAX_TIME


def test_the_event_wakes_the_job_and_is_found_by_its_next_run(store: Store) -> None:
    worker, held = run(store)
    wait(store, held)
    assert send(store, held.id, payload='{"sum":3}') is True
    assert store.state(held.id) == "waiting"
    assert store.counts() == {"waiting": 1}
    assert store.history(held.id) == ["add", "claim", "delay", "promote"]
    again = worker.claim_one()
    assert wait(store, again) == StepDone('{"sum":3}')
    assert wait(store, again) == StepDone('{"sum":3}')
    assert store.database.rows("signals") == []


def test_another_event_does_not_wake_it_and_is_kept(store: Store) -> None:
    worker, held = run(store)
    wait(store, held, "paid")
    assert send(store, held.id, "shipped") is False
    assert store.state(held.id) == "delayed"
    send(store, held.id, "paid")
    again = worker.claim_one()
    wait(store, again, "paid")
    assert wait(store, again, "shipped") == StepDone("7")


def test_an_event_that_was_sent_before_is_taken_at_once(store: Store) -> None:
    job = store.add()
    assert send(store, job) is False
    held = store.worker().claim_one()
    assert wait(store, held) == StepDone("7")
    assert store.state(job) == "active"


def test_each_wait_takes_one_event_in_the_order_they_were_sent(store: Store) -> None:
    _, held = run(store)
    send(store, held.id, payload="1")
    send(store, held.id, payload="2")
    assert wait(store, held, number=1) == StepDone("1")
    assert wait(store, held, number=2) == StepDone("2")
    assert isinstance(wait(store, held, number=3), Suspended)


def test_without_the_event_the_wait_is_over_when_its_time_is_and_stays_so(store: Store) -> None:
    worker, held = run(store)
    wait(store, held, ms=500)
    store.clock.advance(500)
    again = worker.claim_one()
    assert wait(store, again, ms=500) == StepDone(None)
    assert send(store, held.id) is False
    assert wait(store, again, ms=500) == StepDone(None)
    assert wait(store, again, number=2) == StepDone("7")


def test_an_event_that_comes_after_the_time_but_before_the_run_is_not_too_late(
    store: Store,
) -> None:
    worker, held = run(store)
    wait(store, held, ms=500)
    store.clock.advance(500)
    store.home.promote_due()
    assert send(store, held.id) is False
    assert wait(store, worker.claim_one(), ms=500) == StepDone("7")


def test_a_wait_of_no_time_only_looks(store: Store) -> None:
    _, held = run(store)
    assert wait(store, held, ms=0) == StepDone(None)
    assert store.state(held.id) == "active"


def test_an_event_does_not_cut_a_back_off_short(store: Store) -> None:
    worker, held = run(store)
    wait(store, held)
    store.move(PROMOTE, held.id)
    worker.back_off(worker.claim_one(), delay=10_000)
    assert send(store, held.id) is False
    assert store.state(held.id) == "delayed"


def test_a_job_that_was_put_off_by_hand_while_it_waits_is_woken_all_the_same(store: Store) -> None:
    _, held = run(store)
    wait(store, held)
    store.move(RESCHEDULE, held.id, delay=50)
    assert send(store, held.id) is True


def test_a_finished_job_is_sent_nothing(store: Store) -> None:
    worker, held = run(store)
    worker.complete(held)
    with pytest.raises(IllegalMove, match=f"job {held.id} is completed"):
        send(store, held.id)
    assert store.database.rows("signals") == []


def test_a_job_that_does_not_exist_is_sent_nothing(store: Store) -> None:
    job = store.add()
    store.move(REMOVE, job)
    for missing in (job, 999):
        with pytest.raises(JobNotFound):
            send(store, missing)
    assert store.database.rows("signals") == []


def test_an_event_for_a_waiting_job_and_its_end_do_not_miss_each_other(store: Store) -> None:
    """The event comes in the middle of the verdict: one of them must give way."""
    _, held = run(store)
    verdict = RunOutcome(held.id, held.token, COMPLETE)
    with pytest.raises(Conflict), store.home.transaction(careful=True) as open:
        settling = open.start(finish_runs(open.tx, [FinishRuns(store.queue, [verdict])]))
        settling.until("load_jobs_for_update")
        open.run(send_events(open.tx_of(store.home), [SendEvent(held.id, "paid", "7")]))
        settling.finish()
    assert store.state(held.id) == "active"


def test_two_sendings_in_one_batch_wake_the_job_once(store: Store) -> None:
    _, held = run(store)
    wait(store, held)
    sent = [SendEvent(held.id, "paid", str(n)) for n in range(2)]
    assert store.ask_together(*sent) == [True, False]
    assert store.history(held.id) == ["add", "claim", "delay", "promote"]


def test_the_wait_and_the_event_in_one_batch(store: Store) -> None:
    _, held = run(store)
    waiting = Suspend(store.queue, held.id, held.token, EVENT, "paid", 1, 1, None)
    [put_off, sent] = store.ask_together(waiting, SendEvent(held.id, "paid", "7"))
    assert isinstance(put_off, Suspended)
    assert sent is True
    assert store.state(held.id) == "waiting"


def test_a_pause_inside_a_careful_transaction_moves_the_job(store: Store) -> None:
    _, held = run(store)
    request = Suspend(store.queue, held.id, held.token, SLEEP, "", 1, 1, 500)
    with store.home.transaction(careful=True) as open:
        [answer] = open.run(suspend(open.tx, [request]))
    assert isinstance(answer, Suspended)
    assert store.state(held.id) == "delayed"
