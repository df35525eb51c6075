"""Peers do not share our environment: each has a virtual one in `.bench/`, made when first used."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".bench"

TIME_LIMIT = 120.0
"""Seconds after which a program counts as stuck."""


class Unavailable(RuntimeError):
    """A peer could not be installed, or did not do what it was told."""


class Environment:
    """An environment with pinned packages, and the programs of `bench.peers` run in it."""

    def __init__(self, name: str, requirements: Sequence[str]) -> None:
        self._name = name
        self._folder = CACHE / name
        self._python = self._folder / "bin" / "python"
        self._install(requirements)

    def run(self, what: str, url: str, options: Mapping[str, Any]) -> Any:
        """Have the program do something; what it printed."""
        try:
            done = subprocess.run(
                self._command(what, url, options),
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{what} took more than {TIME_LIMIT:g} s") from None
        if done.returncode != 0:
            raise Unavailable(f"{what} failed: {_last_line(done.stderr)}")
        return answer(done.stdout)

    def start(self, what: str, url: str, options: Mapping[str, Any]) -> subprocess.Popen[str]:
        """Have the program start something that ends when its stdin is closed."""
        return subprocess.Popen(
            self._command(what, url, options),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _command(self, what: str, url: str, options: Mapping[str, Any]) -> list[str]:
        program = f"bench.peers.{self._name}"
        return [str(self._python), "-m", program, what, url, json.dumps(options)]

    def _install(self, requirements: Sequence[str]) -> None:
        """Make the environment, unless it is there with just these packages."""
        stamp = self._folder / "installed"
        pins = "\n".join(requirements)
        if stamp.exists() and stamp.read_text() == pins:
            return
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(self._folder)],
            [str(self._python), *pip, *requirements],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.stderr.write(done.stderr)  # the whole of it is for people, not for the table
                raise Unavailable(f"not installed: pip ended with {done.returncode}")
        stamp.write_text(pins)


def answer(output: str) -> Any:
    """What a program has to say is the last line it prints; a library may have said more."""
    try:
        return json.loads(_last_line(output))
    except ValueError:
        raise Unavailable("the program did not say how it went") from None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
