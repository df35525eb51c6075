"""Claims about jobs, and what a test is told when one is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from bullite import Job, Priority
from bullite.errors import InvalidOption, InvalidOptionType
from bullite.testing import Playground


async def test_what_is_enqueued_is_found_by_name_data_and_options(play: Playground) -> None:
    queue = play.queue("emails")
    job = await queue.add("welcome", {"to": "ada"}, delay="2h", priority=3, tags=["new"])
    await queue.add("welcome", {"to": "bob"}, job_id="bob", attempts=4)
    assert [found.id for found in play.assert_enqueued("emails", "welcome", count=2)] == [
        "bob",
        job.id,
    ]
    play.assert_enqueued(queue, data={"to": "ada"}, count=1)
    play.assert_enqueued(queue, "welcome", delay=7_200_000, priority=3, tags=["new"], count=1)
    play.assert_enqueued(queue, job_id="bob", attempts=4, count=1)
    play.assert_enqueued(queue, attempts=1, count=1)
    await queue.add("urgent", priority=Priority.HIGH)
    play.assert_enqueued(queue, priority=Priority.HIGH, count=1)
    play.assert_enqueued(queue, "goodbye", count=0)
    play.assert_not_enqueued(queue, "goodbye")
    play.assert_not_enqueued(queue, "welcome", delay="3h")
    play.assert_not_enqueued("nobody's queue")
    assert play.queue_names() == ["emails"]


def test_a_job_is_told_by_its_parent(play: Playground) -> None:
    parent, other = play.add("emails", "parent"), play.add("emails", "other")
    child = play.add("emails", "child", parent=parent)
    play.add("emails", "orphan")
    for option in (
        {"parent": parent},
        {"parent": {"id": parent.id, "queue": "emails"}},
        {"parent_id": parent.id},
    ):
        [found] = play.assert_enqueued("emails", **option)
        assert found.id == child.id
    play.assert_not_enqueued("emails", parent=other)
    play.assert_not_enqueued("emails", "child", parent_id=None)
    play.assert_enqueued("emails", "orphan", parent=None)


@pytest.mark.parametrize(
    "options", [{"dellay": "10m"}, {"delay": "xx"}, {"children": [{"name": "a"}]}], ids=str
)
def test_options_that_no_job_could_have_are_refused_whatever_there_is(
    play: Playground, options: Any
) -> None:
    with pytest.raises(InvalidOption):
        play.assert_not_enqueued("emails", "nothing", **options)
    with pytest.raises(InvalidOption):
        play.assert_enqueued("emails", "nothing", **options)


def test_how_many_are_expected_is_a_number(play: Playground) -> None:
    with pytest.raises(InvalidOptionType, match="count"):
        play.assert_enqueued("emails", count="x")  # type: ignore[call-overload]


def test_the_message_says_what_was_wanted_and_what_there_is(play: Playground) -> None:
    def fail(job: Job) -> None:
        raise ValueError("no such address")

    play.process("emails", "fails", fail)
    play.process("emails", "works", lambda job: "sent")
    play.add("emails", "fails")
    play.add("emails", "works")
    play.drain()
    play.add("emails", "welcome", {"to": "ada"}, delay="2h")
    with pytest.raises(AssertionError) as caught:
        play.assert_enqueued("emails", "welcome", {"to": "bob"}, delay="1h")
    assert str(caught.value).splitlines() == [
        "expected a job called 'welcome' with data={'to': 'bob'} with delay='1h' in 'emails', "
        "found none.",
        "  in the queue:",
        "    3 'welcome' {'to': 'ada'} delayed until 2029-01-01 02:00:00",
        "  finished:",
        "    2 'works' None completed, returned 'sent'",
        "    1 'fails' None failed, attempt 1 of 1 failed: no such address",
    ]


def test_other_messages(play: Playground) -> None:
    first = play.add("emails", "welcome")
    with pytest.raises(AssertionError, match=r"expected 2 jobs of any name in 'emails', found 1"):
        play.assert_enqueued("emails", count=2)
    with pytest.raises(AssertionError, match=r"expected no job called 'welcome'.*found 1"):
        play.assert_not_enqueued("emails", "welcome")
    with pytest.raises(AssertionError, match=r"nothing to be left to run in 'emails'"):
        play.assert_drained()
    with pytest.raises(AssertionError, match=r"job 1 .* to be completed:\n  1 'welcome' None wait"):
        play.assert_completed(first)
    with pytest.raises(AssertionError, match=r"in the queue: nothing"):
        play.assert_enqueued("empty")
    play.process("emails", None, lambda job: "sent")
    play.drain()
    with pytest.raises(AssertionError, match=r"to have returned 'lost', not 'sent'"):
        play.assert_completed(first, "lost")
    with pytest.raises(AssertionError, match=r"to be failed:"):
        play.assert_failed(first)
    play.run(play.queue("emails").obliterate())
    with pytest.raises(AssertionError, match=r"but it does not exist"):
        play.assert_completed(first)


def test_the_reason_of_a_failure_is_compared(play: Playground) -> None:
    def fail(job: Job) -> None:
        raise ValueError("no such address")

    play.process("test", None, fail)
    job = play.add("test", "job")
    play.drain()
    play.assert_failed(job, reason="such address")
    with pytest.raises(AssertionError, match="with 'timeout', not 'no such address'"):
        play.assert_failed(job, reason="timeout")


def test_a_long_list_is_cut(play: Playground) -> None:
    for _ in range(25):
        play.add("test", "job")
    with pytest.raises(AssertionError, match="… and 5 more"):
        play.assert_enqueued("test", "other")


def test_what_is_delayed_does_not_keep_a_queue_from_being_drained(play: Playground) -> None:
    play.add("test", "job", delay="1h")
    play.assert_drained()
    play.assert_drained("test")
