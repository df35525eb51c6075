"""Fixtures for every test; the database fixture runs a test on every kind that there is.

Coroutines run on an event loop of their own, each in a store of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import CallInfo
from _pytest.terminal import TerminalReporter
from hypothesis import settings

from bullite import Queue
from tests.support.databases import DATABASES, Database
from tests.support.harness import Store, open_store
from tests.support.processes import Child

# Who runs the tests in the background may ignore it, and all that they start would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

LIMIT = 30.0
"""Seconds after which a test that waits for something is told that it will not come."""

settings.register_profile(
    "usual",
    max_examples=100,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
)
settings.register_profile(
    "long", parent=settings.get_profile("usual"), max_examples=3_000, derandomize=False
)
settings.load_profile("usual")


@pytest.fixture(autouse=True, scope="session")
def _state_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks and logs of workers on a server are kept in the user's folder: not in the tester's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh database that nobody has used yet."""
    database = DATABASES[request.param](tmp_path)
    yield database
    database.close()


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    """A fresh store. Whatever a test did to it, its books must be right at the end."""
    with open_store(database) as store:
        yield store
        assert store.problems() == []


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is an `async def` on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(asyncio.wait_for(test, LIMIT))
    return True


@pytest.fixture
def location(database: Database) -> Iterator[str]:
    """Where a store may be made; whatever a test did to it, its books must be right."""
    yield database.location
    if database.exists():
        assert database.problems() == []


@pytest.fixture
def queue(location: str) -> Iterator[Queue]:
    """A queue in a store that nobody has made yet."""
    queue = Queue("emails", location)
    yield queue
    queue.store.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """Starts processes that do not outlive the test."""
    children: list[Child] = []

    def start(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Child:
        children.append(Child(function, *args, **kwargs))
        return children[-1]

    yield start
    for child in children:
        child.end()


# --- a server that cannot be started --------------------------------------------------------------


def pytest_exception_interact(node: pytest.Item | pytest.Collector, call: CallInfo[Any]) -> None:
    """End the test run, with the reason in one line: no test of PostgreSQL can pass."""
    if call.excinfo is not None and type(call.excinfo.value).__name__ == "ServerFailed":
        node.session.shouldfail = " ".join(str(call.excinfo.value).split())


# --- how many tests ran on each kind of database -------------------------------------------------

KIND = "database"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have its reports say which kind it runs on, also those that come from other processes."""
    if isinstance(item, pytest.Function):
        parameters = item.callspec.params if hasattr(item, "callspec") else vars(item.cls or object)
        if (kind := parameters.get(KIND)) in DATABASES:
            item.user_properties.append((KIND, kind))


def tests_per_kind(config: pytest.Config) -> dict[str, int]:
    """How many tests ran to their end, be it good or bad."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = chain.from_iterable(reporter.stats.values()) if reporter else ()
    ran = {
        (report.nodeid, kind)
        for report in reports
        if isinstance(report, pytest.TestReport)
        for name, kind in report.user_properties
        if name == KIND and not report.skipped and (report.when == "call" or report.failed)
    }
    number = Counter(kind for _, kind in ran)
    return {kind: number[kind] for kind in DATABASES}


def is_whole_suite(config: pytest.Config) -> bool:
    """Whether nobody asked for some tests only, nor to stop before the end."""
    choices = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "maxfail")
    chosen = any(getattr(config.option, choice, None) for choice in choices)
    return config.args_source is config.ArgsSource.TESTPATHS and not chosen


def is_unfair(config: pytest.Config) -> bool:
    """Whether a test was left out on one kind of database."""
    if hasattr(config, "workerinput") or config.option.collectonly or not is_whole_suite(config):
        return False
    return len(set(tests_per_kind(config).values())) > 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if is_unfair(session.config):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    ran = tests_per_kind(config)
    if any(ran.values()):
        numbers = ", ".join(f"{kind} {number:,}" for kind, number in ran.items())
        verdict = ": not every test ran on every store" if is_unfair(config) else ""
        terminalreporter.write_line(f"per store: {numbers}{verdict}")
