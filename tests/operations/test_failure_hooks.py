"""Notices: jobs that are added because others failed for good."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bullite.core.job_flags import ON_FAILURE, ON_FAILURE_JOB
from bullite.core.retention import Retention
from bullite.core.states import CANCELLED, RETRY_FINISHED, STALLED, TIMED_OUT
from bullite.errors import StoreBusy
from bullite.operations.cancel_and_expire import Cancel, Expire
from tests.support.harness import NewJob, Store, new_job

NEWS = "news"


def notice(**more: Any) -> dict[str, Any]:
    return {"queue": NEWS, "name": "tell", "data": {}, "attempts": 1, **more}


def telling(store: Store, of: int | None = None, **more: Any) -> None:
    """Let a queue tell of its failures."""
    store.home.configure(of, on_failure=json.dumps(notice(**more)))


def telling_job(**more: Any) -> NewJob:
    """A job that wants its own failure to be told."""
    job = new_job(opts=json.dumps({"on_failure": notice(**more)}))
    assert job.rare_fields is not None
    return job._replace(rare_fields=job.rare_fields._replace(flags=ON_FAILURE))


def news(store: Store, name: str = NEWS) -> list[Any]:
    """The notices that were added, with what they say."""
    queue = store.home.open_queue(name)
    rows = store.database.query(
        "select id, name, attempts, data, opts from bullite_jobs join bullite_payloads on job = id "
        "where queue = ? order by id",
        queue,
    )
    return [
        (id, name, attempts, json.loads(data), opts and json.loads(opts))
        for id, name, attempts, data, opts in rows
    ]


def about(store: Store) -> list[Any]:
    """Of which jobs there are notices."""
    return [data["failed"]["job_id"] for _, _, _, data, _ in news(store)]


def fail_one(store: Store, queue: int | None = None, **details: Any) -> int:
    worker = store.worker(queue=queue)
    held = worker.claim_one()
    assert worker.fail(held, **details) == []
    return held.id


# --- who is told of ------------------------------------------------------------------------------


def test_a_queue_tells_what_failed(store: Store) -> None:
    telling(store, data={"to": "ops"}, attempts=4, backoff={"type": "fixed", "delay": 5})
    job = store.add()
    fail_one(store, reason="no such address", attempts_made=3, outcome=TIMED_OUT)
    [(_, name, attempts, data, opts)] = news(store)
    assert (name, attempts, opts) == ("tell", 4, {"backoff": {"type": "fixed", "delay": 5}})
    assert data == {
        "to": "ops",
        "failed": {
            "job_id": str(job),
            "queue": "work",
            "failed_reason": "no such address",
            "attempts_made": 3,
            "outcome": TIMED_OUT,
            "failed_at": store.clock.now(),
        },
    }
    assert store.counts(store.home.open_queue(NEWS)) == {"waiting": 1}


def test_a_custom_id_is_told(store: Store) -> None:
    telling(store)
    store.add(custom_id="order-7")
    fail_one(store)
    assert about(store) == ["order-7"]


def test_a_job_tells_of_itself_once(store: Store) -> None:
    jobs = store.add_all(telling_job(data={"own": 1}), new_job())
    worker = store.worker()
    worker.fail(worker.claim(2)[0])
    worker.fail(worker.received[1])
    [(_, _, _, data, opts)] = news(store)
    assert (data["own"], data["failed"]["job_id"], opts) == (1, str(jobs[0]), None)


def test_queue_and_job_each_have_their_notice(store: Store) -> None:
    telling(store, name="of the queue")
    store.add_all(telling_job(name="of the job"))
    fail_one(store)
    assert sorted(name for _, name, *_ in news(store)) == ["of the job", "of the queue"]


def test_all_that_fail_together_are_told_of(store: Store) -> None:
    telling(store)
    jobs = store.add_all(*[new_job() for _ in range(5)])
    worker = store.worker()
    worker.fail(*worker.claim(5))
    assert about(store) == [str(job) for job in jobs]
    assert store.counts(store.home.open_queue(NEWS)) == {"waiting": 5}


def test_a_job_may_have_it_told_in_its_own_queue(store: Store) -> None:
    store.add_all(telling_job(queue="work"))
    fail_one(store)
    assert store.counts() == {"failed": 1, "waiting": 1}


@pytest.mark.parametrize("how", ["retry", "back_off", "complete", "release", "give_back", "delay"])
def test_only_what_failed_for_good_is_told(store: Store, how: str) -> None:
    telling(store)
    store.add_all(telling_job())
    worker = store.worker()
    getattr(worker, how)(worker.claim_one())
    assert news(store) == []


def test_what_was_cancelled_is_not_told(store: Store) -> None:
    telling(store)
    waiting, running, failing = store.add_all(telling_job(), telling_job(), telling_job())
    store.ask(Cancel(waiting, str(waiting), "not wanted"))
    worker = store.worker()
    first, second = worker.claim(2)
    assert [first.id, second.id] == [running, failing]
    store.ask(Cancel(running, str(running), "not wanted"))
    worker.fail(first)
    worker.fail(second, outcome=CANCELLED)
    assert store.states(waiting, running, failing) == ["failed"] * 3
    assert news(store) == []


def test_what_expired_is_not_told(store: Store) -> None:
    telling(store)
    job = store.add(expires=5)
    store.clock.advance(10)
    assert store.ask(Expire(store.queue)) == 1
    assert store.state(job) == "failed"
    assert news(store) == []


def test_what_stalled_too_often_is_told(store: Store) -> None:
    telling(store)
    job = store.add()
    doomed = store.process()
    doomed.worker(max_stalled_count=0).claim_one()
    store.kill(doomed)
    store.home.recover()
    worker = store.worker()
    held = worker.claim_one()
    assert held.row.deferred_failure is not None
    worker.fail(held, reason=held.row.deferred_failure, outcome=STALLED)
    assert about(store) == [str(job)]


def test_a_job_that_is_tried_again_and_fails_again_is_told_again(store: Store) -> None:
    telling(store)
    job = store.add()
    fail_one(store)
    store.move(RETRY_FINISHED, job)
    fail_one(store)
    assert about(store) == [str(job)] * 2


def test_a_job_that_may_not_stay_is_told_all_the_same(store: Store) -> None:
    telling(store)
    job = store.add()
    fail_one(store, retention=Retention(0))
    assert store.state(job) is None
    assert about(store) == [str(job)]


def test_a_dead_letter_is_told_with_the_queue_it_failed_in(store: Store) -> None:
    telling(store)
    store.home.configure(dead_letter="dead")
    job = store.add()
    fail_one(store)
    assert store.row(job).queue == store.home.open_queue("dead")
    [(_, _, _, data, _)] = news(store)
    assert (data["failed"]["job_id"], data["failed"]["queue"]) == (str(job), "work")


def test_nobody_is_told_when_it_is_switched_off(store: Store) -> None:
    telling(store)
    store.home.configure(on_failure=None)
    store.add()
    fail_one(store)
    assert news(store) == []


# --- notices themselves --------------------------------------------------------------------------


def test_a_notice_is_added_with_the_failure_or_not_at_all(store: Store) -> None:
    telling(store)
    store.home.open_queue(NEWS)
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    before = store.everything()
    store.home.driver.fail_at["commit"] = StoreBusy("not now")
    with pytest.raises(StoreBusy):
        worker.fail(held)
    assert store.everything() == before
    assert worker.fail(held) == []
    assert store.state(job) == "failed"
    assert about(store) == [str(job)]


def test_a_verdict_that_is_sent_again_tells_nothing_again(store: Store) -> None:
    telling(store)
    store.add()
    worker = store.worker()
    held = worker.claim_one()
    worker.fail(held)
    assert worker.fail(held, again=True) == []
    assert len(news(store)) == 1


def test_the_failure_of_a_notice_is_told_to_nobody(store: Store) -> None:
    """Two queues that tell each other would never come to an end."""
    there = store.home.open_queue(NEWS)
    telling(store)
    telling(store, there, queue="work")
    store.add()
    fail_one(store)
    [(number, *_)] = news(store)
    assert store.row(number).traits == ON_FAILURE_JOB
    assert fail_one(store, queue=there) == number
    assert (store.counts(), store.counts(there)) == ({"failed": 1}, {"failed": 1})


def test_a_job_of_the_queue_of_notices_may_be_told_of(store: Store) -> None:
    there = store.home.open_queue(NEWS)
    telling(store, there, queue="elsewhere")
    store.add_all(new_job(), queue=there)
    fail_one(store, queue=there)
    assert len(news(store, "elsewhere")) == 1


def test_a_notice_wakes_a_worker_of_its_queue(store: Store) -> None:
    there = store.home.open_queue(NEWS)
    listener = store.worker(queue=there)
    listener.wants(1)
    telling(store)
    store.add()
    fail_one(store)
    assert [held.row.name for held in listener.received] == ["tell"]


def test_a_notice_comes_in_whatever_the_quotas(store: Store) -> None:
    there = store.home.open_queue(NEWS)
    store.home.configure(there, max_waiting=0)
    telling(store)
    store.add()
    fail_one(store)
    assert store.counts(there) == {"waiting": 1}


def test_a_notice_stands_in_the_lane_of_its_name(store: Store) -> None:
    there = store.home.open_queue(NEWS)
    store.worker(queue=there, names=["tell"])
    telling(store)
    store.add()
    fail_one(store)
    assert store.worker(queue=there, names=["tell"]).claim_one().row.name == "tell"
