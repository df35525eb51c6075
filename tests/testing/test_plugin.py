"""The fixtures, as pytest gives them to the tests of users."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from tests.support.helpers import python

pytest_plugins = ["pytester"]

USERS_TESTS = """
from datetime import timedelta

import pytest


def test_jobs_run(bullite, bullite_queue, bullite_clock):
    before = bullite_clock.time
    bullite.process(bullite_queue, "greet", lambda job: f"hello {job.data}")
    job = bullite.run(bullite_queue.add("greet", "you", delay="2h"))
    bullite.assert_enqueued("test", "greet", "you", delay="2h")
    ran = bullite.advance("2h")
    assert ran.values == ["hello you"]
    assert bullite_clock.time - before == timedelta(hours=2)
    assert bullite_clock is bullite.clock


@pytest.mark.parametrize("number", range(3))
def test_each_has_its_own(bullite, number):
    assert bullite.queue_names() == []
    bullite.add("test", "job")
    bullite.assert_enqueued("test", count=1)


def test_that_fails(bullite):
    bullite.add("emails", "welcome", {"to": "ada"})
    bullite.assert_enqueued("emails", "goodbye")
"""


def how_to_load() -> list[str]:
    """An installation that is up to date loads it by itself."""
    installed = any(entry.name == "bullite" for entry in entry_points(group="pytest11"))
    return [] if installed else ["-p", "bullite.pytest_plugin"]


def test_a_users_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USERS_TESTS)
    result = pytester.runpytest_subprocess("-W", "error", *how_to_load())
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*expected a job called 'goodbye' in 'emails', found none.",
            "*in the queue:",
            "*1 'welcome' {'to': 'ada'} waiting",
        ]
    )


CRASHES = """
import pytest


def test_that_is_about_no_crash(bullite):
    bullite.process("test", None, lambda job: None)
    bullite.add("test", "job")
    bullite.kill_at("after_run", name="another")
    bullite.drain()


def test_that_fails_before_its_crash(bullite):
    bullite.kill_at("after_run")
    assert 1 == 2


@pytest.mark.xfail(strict=True)
def test_that_is_known_to_be_about_no_crash(bullite):
    bullite.drain(kill_at="after_claim")


def test_that_is_about_one(bullite):
    bullite.process("test", None, lambda job: None)
    bullite.add("test", "job")
    bullite.drain(kill_at="after_claim")
"""


def test_a_test_of_a_crash_that_never_came_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CRASHES)
    result = pytester.runpytest_subprocess("-W", "error", *how_to_load())
    result.assert_outcomes(passed=1, failed=2, xfailed=1)
    said = "E*AssertionError: no worker process came to where it was to be killed: {}"
    result.stdout.fnmatch_lines([said.format("kill_at('after_run', name='another')")])
    result.stdout.no_fnmatch_line(said.format("kill_at('after_run')"))


SHOP = """
from bullite import Bullite

app = Bullite("jobs.db", files={"mail": "mail.db"})


@app.task(queue="mail")
def welcome(name: str) -> str:
    return f"welcome, {name}"


@app.task
async def sign_up(name: str) -> None:
    await welcome.enqueue(name)
"""

TESTS_OF_THE_SHOP = """
from pathlib import Path

import pytest
import shop


@pytest.fixture(autouse=True)
def served(bullite):
    bullite.serve(shop.app)
    yield
    assert list(Path().glob("*.db*")) == []


@pytest.mark.parametrize("name", ["Ada", "Bob"])
def test_who_signs_up_is_welcomed(bullite, name):
    shop.sign_up.enqueue_sync(name)
    bullite.drain("default")
    bullite.assert_enqueued(shop.welcome, name)
    assert bullite.drain().values == [f"welcome, {name}"]
"""


def test_an_application_of_a_module_is_tested_again_and_again(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(shop=SHOP, test_shop=TESTS_OF_THE_SHOP)
    result = pytester.runpytest_subprocess("-W", "error", *how_to_load())
    result.assert_outcomes(passed=2)


def test_the_fixtures_are_documented(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures", *how_to_load())
    result.stdout.fnmatch_lines(["bullite -- *", "bullite_clock -- *", "bullite_queue -- *"])


def test_it_costs_next_to_nothing_unless_it_is_used() -> None:
    said = python(
        """
import sys, time
import pytest
before = set(sys.modules)
began = time.perf_counter()
import bullite.pytest_plugin
took = time.perf_counter() - began
new = sorted(name for name in set(sys.modules) - before)
print(new)
assert took < 0.5, took
"""
    )
    assert said.strip() == "['bullite', 'bullite.pytest_plugin']"


def test_the_package_does_not_need_pytest() -> None:
    program = "import sys, bullite.testing; print('pytest' in sys.modules)"
    assert python(program).strip() == "False"


def test_it_is_announced_to_pytest() -> None:
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"bullite": "bullite.pytest_plugin"}
