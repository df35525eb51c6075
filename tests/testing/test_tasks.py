"""Claims about the jobs of tasks: by what the task is called with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from bullite import Bullite, BulliteError, Job, Priority
from bullite.errors import InvalidArguments, InvalidOption, InvalidOptionType
from bullite.testing import Playground

app = Bullite("never-made.db")


@dataclass(eq=False)
class Address:
    """One that is not equal to another that says the same."""

    street: str


@dataclass
class Size:
    width: int
    height: int


@app.task(name="shop.welcome", queue="mail")
async def welcome(name: str, greeting: str = "hello", *, copies: int = 1) -> str:
    return f"{greeting} {name}" * copies


@app.task(name="shop.ship")
def ship(job: Job, to: Address, day: date) -> None: ...


@app.task(name="shop.measure")
def measure(thing: str) -> Size:
    return Size(1, 2)


@app.task(name="shop.tidy")
def tidy() -> None: ...


@app.task(name="shop.charge", version=2, upcasters={1: lambda data: {"kwargs": {"amount": 1}}})
def charge(*, amount: int) -> Address:
    if amount < 0:
        raise ValueError("no such amount")
    return Address(f"{amount}")


@pytest.fixture
def play(play: Playground) -> Playground:
    """One that the application has moved into."""
    play.serve(app)
    return play


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("Ada",), {}),
        ((), {"name": "Ada"}),
        (("Ada", "hello"), {}),
        (("Ada",), {"greeting": "hello", "copies": 1}),
        ((), {"copies": 1, "name": "Ada"}),
    ],
)
async def test_a_call_is_found_however_it_is_spelled(
    play: Playground, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    await welcome.enqueue("Ada")
    await welcome.enqueue(greeting="hello", name="Ada")
    assert len(play.assert_enqueued(welcome, *args, **kwargs)) == 2


def test_another_call_is_not(play: Playground) -> None:
    welcome.enqueue_sync("Ada")
    play.assert_not_enqueued(welcome, "Bob")
    play.assert_not_enqueued(welcome, "Ada", copies=2)
    with pytest.raises(AssertionError, match=r"no job that calls shop\.welcome\(name='Ada'\)"):
        play.assert_not_enqueued(welcome, name="Ada")


def test_without_arguments_any_call_is(play: Playground) -> None:
    play.assert_not_enqueued(welcome)
    welcome.enqueue_sync("Ada")
    [job] = play.assert_enqueued(welcome)
    assert job.data == {"args": ["Ada"]}
    tidy.enqueue_sync()
    play.assert_enqueued(tidy)


def test_what_an_argument_says_is_compared_not_what_it_is(play: Playground) -> None:
    ship.enqueue_sync(Address("Main Street"), date(2029, 1, 1))
    play.assert_enqueued(ship, Address("Main Street"), day=date(2029, 1, 1))
    play.assert_not_enqueued(ship, Address("Side Street"), date(2029, 1, 1))


def test_a_job_that_was_made_by_hand_or_by_older_code_is_found(play: Playground) -> None:
    play.add("mail", "shop.welcome", {"kwargs": {"name": "Ada"}})
    play.assert_enqueued(welcome, "Ada")
    play.add("default", "shop.charge", {"args": ["one"]})
    play.assert_enqueued(charge, amount=1)


def test_a_job_that_does_not_fit_its_task_is_no_call(play: Playground) -> None:
    play.add("mail", "shop.welcome", {"args": [5, 6, 7, 8]})
    play.assert_not_enqueued(welcome, "Ada")
    play.assert_enqueued(welcome)


def test_options_are_those_of_the_task_under_them(play: Playground) -> None:
    welcome.options(delay="10m", priority=Priority.HIGH).enqueue_sync("Ada")
    play.assert_enqueued(welcome, "Ada")
    play.assert_enqueued(welcome.options(delay="10m"), "Ada")
    play.assert_enqueued(welcome.options(delay=600_000, priority=Priority.HIGH))
    play.assert_not_enqueued(welcome.options(delay="5m"), "Ada")
    play.assert_not_enqueued(welcome.options(delay="10m"), "Bob")


def test_the_message_shows_calls(play: Playground) -> None:
    welcome.options(delay="2h").enqueue_sync("Bob", copies=2)
    play.add("mail", "by hand", {"args": "nothing"})
    charge.enqueue_sync(amount=5)
    with pytest.raises(AssertionError) as caught:
        play.assert_enqueued(welcome.options(delay="1h"), "Ada", greeting="hi")
    assert str(caught.value).splitlines() == [
        "expected a job that calls shop.welcome('Ada', greeting='hi') with delay='1h' "
        "in 'mail', found none.",
        "  in the queue:",
        "    2 'by hand' {'args': 'nothing'} waiting",
        "    1 shop.welcome('Bob', copies=2) delayed until 2029-01-01 02:00:00",
    ]
    with pytest.raises(AssertionError, match=r"a job that calls shop\.tidy in 'default'"):
        play.assert_enqueued(tidy)
    with pytest.raises(AssertionError, match=r"    3 shop\.charge\(amount=5\) waiting"):
        play.assert_enqueued(charge, amount=4)


def test_a_call_that_the_task_would_refuse_is_refused(play: Playground) -> None:
    claim: Any = play.assert_enqueued
    with pytest.raises(InvalidArguments, match=r"shop\.welcome"):
        claim(welcome, "Ada", "hello", "and more")
    with pytest.raises(InvalidOption, match="delay"):
        claim(welcome.options(delay="soon"), "Ada")


@pytest.mark.parametrize("what", [5, None, len])
def test_what_has_no_jobs_is_refused(play: Playground, what: Any) -> None:
    with pytest.raises(InvalidOptionType, match="of a queue, or of a task"):
        play.assert_enqueued(what)
    with pytest.raises(InvalidOptionType, match="of a queue, or of a task"):
        play.assert_not_enqueued(what)


def test_a_task_that_is_elsewhere_is_refused() -> None:
    with Playground() as empty, pytest.raises(BulliteError, match="serve its application first"):
        empty.assert_not_enqueued(welcome)


def test_what_enqueueing_gave_is_a_job_to_claim_things_about(play: Playground) -> None:
    fine, bad = welcome.enqueue_sync("Ada"), charge.enqueue_sync(amount=-1)
    play.drain()
    assert play.assert_completed(fine, "hello Ada").state == "completed"
    play.assert_failed(bad, reason="no such amount")
    with pytest.raises(AssertionError, match="to be failed"):
        play.assert_failed(fine)


def test_a_result_is_compared_as_the_task_returned_it_or_as_it_is_stored(play: Playground) -> None:
    job = measure.enqueue_sync("a")
    play.drain()
    play.assert_completed(job, Size(1, 2))
    play.assert_completed(job, {"width": 1, "height": 2})
    with pytest.raises(AssertionError, match=r"returned Size\(width=2, height=2\), not Size\("):
        play.assert_completed(job, Size(2, 2))
