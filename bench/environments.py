"""Contestants do not share our environment: each has its own in `.bench/`, made when first used.

A Python peer gets a virtual environment with just the pinned packages, a Node peer a folder with
its modules and its program; ours run in the interpreter that runs the benchmark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .folders import CACHE, PROGRAMS, ROOT

TIME_LIMIT = 90.0
"""Seconds after which a program counts as stuck."""


INSTALL_LIMIT = 1_200.0
"""Seconds for one step of an installation: some packages compile."""


class Unavailable(RuntimeError):
    """A contestant could not be installed, or did not do what it was told."""


class Environment:
    """Runs the program of one contestant, in an environment that holds what it needs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = CACHE / name

    def install(self, requirements: Sequence[str]) -> None:
        """Make the environment, unless it is there with just these packages."""
        stamp = self.folder / "installed"
        pins = "\n".join(requirements)
        if stamp.exists() and stamp.read_text() == pins:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for command in self._to_install(requirements):
            try:
                done = subprocess.run(
                    command,
                    cwd=self.folder,
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_LIMIT,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise Unavailable(f"not installed: {command[0]} took too long") from None
            except OSError as error:
                raise Unavailable(f"not installed: {command[0]}: {error.strerror}") from None
            if done.returncode != 0:
                sys.stderr.write(done.stderr)  # the whole of it is for people, not for the table
                raise Unavailable(f"not installed: {last_line(done.stderr)}")
        stamp.write_text(pins)

    def run(self, what: str, place: str, options: Mapping[str, Any]) -> Any:
        """Have the program do something; what it said."""
        try:
            done = subprocess.run(
                [*self._program(), what, place, json.dumps(options)],
                cwd=self._runs_in(),
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{what} took more than {TIME_LIMIT:g} s") from None
        if done.returncode != 0:
            raise Unavailable(f"{what} failed: {last_line(done.stderr)}")
        return answer(done.stdout)

    def start(self, what: str, place: str, options: Mapping[str, Any], log: Any) -> Any:
        """Have the program start something that ends when its stdin is closed."""
        return subprocess.Popen(
            [*self._program(), what, place, json.dumps(options)],
            cwd=self._runs_in(),
            env=self._variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # A contestant that forks is ended with all its children, by the number of its group.
            start_new_session=True,
        )

    def _to_install(self, requirements: Sequence[str]) -> list[list[str]]:
        raise NotImplementedError

    def _program(self) -> list[str]:
        raise NotImplementedError

    def _runs_in(self) -> Path:
        return ROOT

    def _variables(self) -> dict[str, str]:
        """Ours, without what leads to our packages."""
        ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NODE_PATH", "BULLITE_URL")
        return {name: value for name, value in os.environ.items() if name not in ours}


class PythonEnvironment(Environment):
    """A virtual environment."""

    def _to_install(self, requirements: Sequence[str]) -> list[list[str]]:
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        return [
            [sys.executable, "-m", "venv", "--clear", str(self.folder)],
            [str(self._python), *pip, *requirements],
        ]

    def _program(self) -> list[str]:
        return [str(self._python), "-m", f"bench.peers.{self.name}"]

    @property
    def _python(self) -> Path:
        return self.folder / "bin" / "python"


class NodeEnvironment(Environment):
    """A folder of modules; the program is copied there, for imports are found from where it is."""

    def _to_install(self, requirements: Sequence[str]) -> list[list[str]]:
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        return [["npm", "install", *quiet, "--prefix", str(self.folder), *requirements]]

    def _program(self) -> list[str]:
        program = self.folder / f"{self.name}.mjs"
        for source in PROGRAMS.glob("*.mjs"):
            # Helpers go along; only what changed is copied, for others may be running it.
            copy = self.folder / source.name
            if not copy.exists() or copy.read_bytes() != source.read_bytes():
                shutil.copyfile(source, copy)
        # Resolved: a program that asks whether it is the main one compares real paths.
        return ["node", str(program.resolve())]

    def _runs_in(self) -> Path:
        return self.folder

    def _variables(self) -> dict[str, str]:
        return super()._variables() | {"NODE_PATH": str(self.folder / "node_modules")}


class OurEnvironment(Environment):
    """The interpreter that runs the benchmark, with the package of a tree."""

    def __init__(self, name: str, tree: Path = ROOT) -> None:
        super().__init__(name)
        self._tree = tree

    def install(self, requirements: Sequence[str]) -> None:
        """It is there."""

    def _program(self) -> list[str]:
        return [sys.executable, "-m", f"bench.peers.{self.name}"]

    def _variables(self) -> dict[str, str]:
        return super()._variables() | {"PYTHONPATH": str(self._tree / "src")}


KINDS: Mapping[str, type[Environment]] = {
    "python": PythonEnvironment,
    "node": NodeEnvironment,
    "ours": OurEnvironment,
}


def answer(output: str) -> Any:
    """What a program has to say is the last line it prints; a library may have said more."""
    try:
        return json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise Unavailable("the program did not say how it went") from None


def last_line(text: str) -> str:
    """The line of an error that tells most: the last one that is not a place or a version."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("at ", "Node.js", "}"))]
    return telling[-1][:300] if telling else "no reason given"
