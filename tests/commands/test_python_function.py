"""Functions found by name, and what cannot be reached by any name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullite.commands.python_function import FunctionNotAllowed, FunctionNotFound, resolve

TASKS = """
import functools
import os
import subprocess
from os import path as paths
from subprocess import run
from chores_elsewhere import helper
from .mail import send

NUMBER = 7
def process(): return "processed"
def _hidden(): pass
process.system = os.system
later = functools.partial(os.system, "true")
append = [].append

class Sender:
    shell = os
    run = staticmethod(subprocess.run)
    @staticmethod
    def to_all(): return "sent to all"
    @classmethod
    def named(cls): return cls.__name__
    def _quiet(self): pass
    class Inner:
        @staticmethod
        def deep(): return "deep"

class Worker(__import__("threading").Thread):
    pass

class Ready:
    def __call__(self): return "ready"
    def method(self): return "method"
ready = Ready()

@functools.wraps(process)
def wrapped(): return "wrapped"

def __getattr__(name):
    if name == "lazy":
        return os
    if name == "broken":
        raise RuntimeError("no")
    raise AttributeError(name)
"""

FILES = {
    "chores/__init__.py": TASKS,
    "chores/mail.py": "import chores.more\ndef send(): return 'mailed'\n",
    "chores/more.py": "def more(): return 'more'\n",
    "chores/_inner.py": "def inner(): return 'inner'\n",
    "chores/__main__.py": "raise AssertionError('it was run')\n",
    "chores/needy.py": "import absent_altogether\ndef need(): pass\n",
    "chores/faulty.py": "raise RuntimeError('not today')\ndef never(): pass\n",
    "chores/leaving.py": "raise SystemExit(3)\n",
    "chores_elsewhere.py": "def helper(): pass\n",
    "choresy.py": "def near(): pass\n",
    "_own.py": "def mine(): return 'mine'\n",
}


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield
    for name in list(sys.modules):
        if name.partition(".")[0] in ("chores", "chores_elsewhere", "choresy", "_own"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("chores.process", "processed"),
        ("chores:process", "processed"),
        ("chores.mail.send", "mailed"),
        ("chores.mail:send", "mailed"),
        ("chores:send", "mailed"),
        ("chores:Sender.to_all", "sent to all"),
        ("chores.Sender.to_all", "sent to all"),
        ("chores.Sender.Inner.deep", "deep"),
        ("chores:Sender.named", "Sender"),
        ("chores:ready", "ready"),
        ("chores:ready.method", "method"),
        ("chores:wrapped", "wrapped"),
    ],
)
def test_a_function_of_an_allowed_module_is_found(path: str, answer: str) -> None:
    assert resolve(path, ["chores"])() == answer


def test_a_module_below_may_be_allowed_alone() -> None:
    assert resolve("chores.mail.send", {"chores.mail"})() == "mailed"
    with pytest.raises(FunctionNotAllowed):
        resolve("chores.process", {"chores.mail"})


def test_an_underscore_that_was_allowed_is_allowed() -> None:
    assert resolve("_own:mine", ["_own"])() == "mine"
    assert resolve("chores._inner.inner", ["chores", "chores._inner"])() == "inner"


@pytest.mark.parametrize(
    "path", ["os.system", "os:system", "choresy.near", "chores_elsewhere:helper", "builtins:eval"]
)
def test_a_module_that_was_not_allowed_is_refused(path: str) -> None:
    with pytest.raises(FunctionNotAllowed, match="queuectl worker start --app "):
        resolve(path, ["chores"])


def test_a_refusal_says_how_to_allow_the_module() -> None:
    with pytest.raises(FunctionNotAllowed, match=r"--app choresy$"):
        resolve("choresy.near", ["chores"])
    with pytest.raises(FunctionNotAllowed, match=r"--app pkg.tasks$"):
        resolve("pkg.tasks:Class.method", [])


def test_what_is_refused_is_not_even_imported() -> None:
    for path in ("choresy.near", "choresy:near", "chores._inner:inner", "chores.__main__:x"):
        with pytest.raises(FunctionNotAllowed):
            resolve(path, ["chores"])
    assert not {"choresy", "chores._inner", "chores.__main__"} & set(sys.modules)


@pytest.mark.parametrize(
    "path",
    [
        "chores.os.system",
        "chores:os.system",
        "chores:os",
        "chores:subprocess.run",
        "chores:run",
        "chores:paths.join",
        "chores:helper",
        "chores:mail",
        "chores:mail.send",
        "chores:lazy.system",
        "chores:process.system",
        "chores:Sender.shell.system",
        "chores:Sender.run",
        "chores:Sender.mro",
        "chores:Worker.run",
        "chores:later",
        "chores:append",
    ],
)
def test_what_a_module_took_from_elsewhere_cannot_be_reached_through_it(path: str) -> None:
    with pytest.raises(FunctionNotAllowed, match="not defined in an allowed module"):
        resolve(path, ["chores"])


@pytest.mark.parametrize(
    "path",
    [
        "chores._hidden",
        "chores:_hidden",
        "chores:Sender._quiet",
        "chores:process.__globals__",
        "chores:Sender.__subclasses__",
        "chores.__builtins__",
        "chores._inner.inner",
        "chores.__main__:anything",
    ],
)
def test_private_names_are_refused(path: str) -> None:
    with pytest.raises(FunctionNotAllowed, match="is private"):
        resolve(path, ["chores"])


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(FunctionNotAllowed):
        resolve("chores:NUMBER", ["chores"])


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        ":",
        "chores:",
        "chores.",
        ":process",
        "chores::process",
        "chores:a:b",
        "chores..a",
        "chores:process()",
        "chores process",
        "chores:a b",
        "../chores:x",
        "chores\n:x",
        "a" * 600,
    ],
)
def test_what_is_no_name_is_refused(path: str) -> None:
    with pytest.raises(FunctionNotAllowed):
        resolve(path, ["chores"])


def test_a_module_alone_is_no_function() -> None:
    with pytest.raises(FunctionNotAllowed, match="write MODULE:FUNCTION"):
        resolve("chores", ["chores"])
    with pytest.raises(FunctionNotAllowed, match="write MODULE:FUNCTION"):
        resolve("chores.mail", ["chores.mail"])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("chores.absent", "there is no absent"),
        ("chores:process.absent", "there is no absent"),
        ("chores:broken", "RuntimeError"),
        ("chores.absent:process", "chores.absent cannot be imported: ModuleNotFoundError"),
        ("chores.needy.need", "chores.needy cannot be imported: .*absent_altogether"),
        ("chores.faulty.never", "chores.faulty cannot be imported: RuntimeError: not today"),
        ("chores.leaving:x", "chores.leaving cannot be imported: SystemExit: 3"),
    ],
)
def test_what_cannot_be_found_says_why(path: str, text: str) -> None:
    with pytest.raises(FunctionNotFound, match=text):
        resolve(path, ["chores"])


def test_an_allowed_module_that_does_not_exist_says_so() -> None:
    with pytest.raises(FunctionNotFound, match="The module absent_one cannot be imported"):
        resolve("absent_one.two.three", ["absent_one"])


def test_one_text_is_no_collection_of_modules() -> None:
    with pytest.raises(TypeError):
        resolve("chores.process", "chores")
