"""The package as a whole: what it exports, what importing it costs, what type checkers say."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bullite
from bullite import errors
from tests.support.databases import Database
from tests.support.helpers import python

PROGRAM = Path(__file__).with_name("typed_program.py")


CLASSES = (
    *(bullite.Queue, bullite.Job, bullite.Worker, bullite.QueueEvents),
    *(bullite.QueueEventsProducer, bullite.EventEmitter, bullite.Scheduler, bullite.Signal),
)

OPTIONS = (
    *(bullite.JobOptions, bullite.BackoffRule, bullite.KeepJobs, bullite.BulkJob),
    *(bullite.QueueSettings, bullite.OnFailure),
)


class Used(ast.NodeVisitor):
    """The names, attributes and keys that a program uses; imports alone are no use."""

    def __init__(self, program: str) -> None:
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.keys: set[str] = set()
        self.visit(ast.parse(program))

    def visit_Name(self, node: ast.Name) -> None:
        self.names.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.attributes.add(node.attr)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        self.keys.add(str(node.arg))
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        self.keys |= {key.value for key in node.keys if isinstance(key, ast.Constant)}
        self.generic_visit(node)


@pytest.fixture(scope="module")
def used() -> Used:
    return Used(PROGRAM.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", bullite.__all__)
def test_a_public_name_is_there_and_is_used_by_the_typed_program(used: Used, name: str) -> None:
    assert hasattr(bullite, name)
    assert name in used.names


@pytest.mark.parametrize("of", CLASSES, ids=lambda of: of.__name__)
def test_every_public_method_is_used_by_the_typed_program(used: Used, of: type) -> None:
    public = {name for name in dir(of) if not name.startswith("_")}
    assert public - used.attributes == set()


@pytest.mark.parametrize("of", OPTIONS, ids=lambda of: of.__name__)
def test_every_option_is_used_by_the_typed_program(used: Used, of: type) -> None:
    assert of.__annotations__.keys() - used.keys == set()


@pytest.mark.parametrize("of", [bullite.Queue, bullite.Worker, bullite.QueueEvents])
def test_every_argument_is_used_by_the_typed_program(used: Used, of: type) -> None:
    parameters = inspect.signature(of).parameters.values()
    optional = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert len(optional) > 1
    assert optional - used.keys == set()


def test_the_typed_program_works(location: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", PROGRAM, location],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{bullite.__version__} no problems found\n"


@pytest.mark.parametrize("program", [PROGRAM, PROGRAM.parents[2] / "examples" / "demo.py"])
def test_type_checkers_have_nothing_to_say(program: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", program],
        capture_output=True,
        text=True,
        cwd=PROGRAM.parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout


HEAVY = {"click", "rich", "psycopg", "starlette", "sqlalchemy", "django"}
LOADED = "print(*{name.partition('.')[0] for name in sys.modules})"


def test_importing_the_package_pulls_in_nothing_that_takes_time() -> None:
    loaded = set(python(f"import bullite, sys; {LOADED}").split())
    assert "bullite" in loaded
    assert not loaded & {*HEAVY, "asyncio", "sqlite3", "msgspec", "cronsim"}


def test_the_package_needs_four_others_and_no_more() -> None:
    project = tomllib.loads((PROGRAM.parents[2] / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=]", package)[0] for package in project["dependencies"]}
    assert needed == {"cronsim", "msgspec"} | {"click", "rich"}, "the latter for queuectl alone"


def test_extra_all_installs_every_extra_for_users() -> None:
    project = tomllib.loads((PROGRAM.parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras["all"] == [f"bullite[{name}]" for name in extras if name not in ("all", "dev")]


def test_using_the_package_pulls_in_no_heavy_library_but_that_of_the_database(
    database: Database, location: str
) -> None:
    program = f"import sys; from bullite import *; Store(sys.argv[1]).open(); {LOADED}"
    loaded = set(python(program, location).split())
    assert {"asyncio", *database.libraries} <= loaded
    assert loaded & HEAVY <= database.libraries


def test_adding_without_an_event_loop_imports_no_asyncio(tmp_path: Path) -> None:
    program = """
import sys
from bullite import Queue
from bullite.client.runtime.blocking import run_blocking
queue = Queue("q", sys.argv[1])
job = run_blocking(queue.add("n", 1))
assert run_blocking(queue.get_job(job.id)).data == 1
run_blocking(queue.close())
print("asyncio" in sys.modules)
"""
    assert python(program, tmp_path / "jobs.db") == "False\n"


def test_a_name_is_imported_when_it_is_first_asked_for() -> None:
    program = """
import sys, bullite
def loaded(): return {name for name in sys.modules if name.startswith("bullite.")}
assert loaded() == set(), loaded()
assert "Queue" not in vars(bullite)
bullite.BulliteError
assert loaded() == {"bullite.errors"}, loaded()
from bullite import Queue
assert bullite.Queue is Queue
assert "Queue" in vars(bullite)
"""
    assert python(program) == ""


def test_every_public_name_is_listed_and_no_other_is_known() -> None:
    assert set(bullite.__all__) <= set(dir(bullite))
    assert sorted(bullite.__all__) == bullite.__all__
    with pytest.raises(AttributeError, match="has no attribute 'Quue'"):
        _ = bullite.Quue


def test_the_lists_of_public_names_agree() -> None:
    """One is for type checkers, one for `dir`, one for the imports."""
    homes = {name for names in bullite._HOMES.values() for name in names}
    assert {*homes, "scheduler"} == set(bullite.__all__)
    source = Path(str(bullite.__file__)).read_text(encoding="utf-8")
    checked = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imported = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name for node in imported for alias in node.names} == set(bullite.__all__)


def test_every_error_is_a_bullite_error_and_says_what_it_means() -> None:
    classes = {thing for thing in vars(errors).values() if isinstance(thing, type)}
    assert len(classes) > 10
    for error in classes:
        assert error.__doc__
    # No error, but the end of a run: nobody's `except Exception` may catch it.
    assert not issubclass(errors.JobSuspended, Exception)
    for error in classes - {errors.JobSuspended}:
        assert issubclass(error, errors.BulliteError)


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (errors.InvalidOption, ValueError),
        (errors.InvalidOptionType, TypeError),
        (errors.UnserializableData, ValueError),
        (errors.QueueOptionMismatch, ValueError),
        (errors.PayloadTooLarge, ValueError),
        (errors.JobIdTaken, ValueError),
        (errors.JobNotFound, LookupError),
        (errors.JobTimedOut, TimeoutError),
    ],
)
def test_a_refused_argument_is_what_python_calls_it(
    error: type[Exception], base: type[Exception]
) -> None:
    assert issubclass(error, base)
