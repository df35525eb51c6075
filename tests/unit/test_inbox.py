"""Where requests wait for the engine: what was put in together or before comes out so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bullite.engine.inbox import BATCH_ROWS, Inbox
from bullite.engine.replies import PendingRequest


class Joined:
    """A joiner whose requests are the lists of their parts."""

    def merge(self, parts: Sequence[Any]) -> list[PendingRequest]:
        return [PendingRequest(list(parts), ignore)]


def ignore(answer: Any) -> None:
    pass


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox()
    yield inbox
    inbox.release()


def taken(inbox: Inbox) -> list[Any]:
    return [ask.request for ask in inbox.take()]


def test_parts_that_wait_become_one_request_of_each_joiner(inbox: Inbox) -> None:
    one, other = Joined(), Joined()
    for joiner, part in ((one, 1), (other, 2), (one, 3)):
        inbox.put_fragment(joiner, part)

    assert inbox
    assert taken(inbox) == [[1, 3], [2]]
    assert not inbox


def test_a_part_comes_behind_the_requests_that_were_put_in_before_it(inbox: Inbox) -> None:
    joiner = Joined()
    inbox.put_fragment(joiner, "part")
    inbox.put([PendingRequest("before the second", ignore)])
    inbox.put_fragment(joiner, "second")

    assert taken(inbox) == ["before the second", ["part", "second"]]


def test_parts_wait_while_requests_from_before_them_do(inbox: Inbox) -> None:
    joiner = Joined()
    inbox.put([PendingRequest(number, ignore) for number in range(BATCH_ROWS + 1)])
    inbox.put_fragment(joiner, "part")

    assert taken(inbox) == list(range(BATCH_ROWS))
    assert taken(inbox) == [BATCH_ROWS, ["part"]]


def test_a_part_keeps_the_engine_from_sleeping(inbox: Inbox) -> None:
    inbox.put_fragment(Joined(), "part")

    assert inbox.sleep([], timeout=60) is False


def test_a_part_without_hurry_waits_for_one_that_has_some(inbox: Inbox) -> None:
    joiner = Joined()
    inbox.put_fragment(joiner, 1, urgent=False)

    assert inbox, "it must not be forgotten when the engine stops"
    assert not inbox.has_urgent()
    assert inbox.take(only_urgent=True) == []
    inbox.put_fragment(joiner, 2)
    inbox.put_fragment(joiner, 3, urgent=False)
    assert inbox.has_urgent()
    assert taken(inbox) == [[1, 2, 3]]
    assert not inbox.has_urgent()


def test_a_part_without_hurry_comes_with_any_request(inbox: Inbox) -> None:
    inbox.put_fragment(Joined(), "part", urgent=False)
    inbox.put([PendingRequest("request", ignore)])

    assert taken(inbox) == ["request", ["part"]]


def test_a_closed_inbox_is_drained_of_everything(inbox: Inbox) -> None:
    inbox.put([PendingRequest("request", ignore)])
    inbox.put_fragment(Joined(), "part")
    inbox.close()

    assert [ask.request for ask in inbox.drain()] == ["request", ["part"]]
    assert inbox.drain() == []
