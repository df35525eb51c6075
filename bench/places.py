"""Where jobs are kept while something is measured: a fresh file, database or server each time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from .environments import Unavailable
from .redis import Redis

if TYPE_CHECKING:
    from .ground import Ground

Install = Callable[[str], object]
"""Makes the tables of a contestant at a place."""


class Place(Protocol):
    """Something that jobs can be kept in."""

    def fresh(self, who: str, install: Install) -> str:
        """An empty place for one measurement of `who`, its tables made."""

    def settle(self, place: str) -> None:
        """Filling is over: do what would have been done by the clock."""

    def sweep(self) -> None:
        """Throw away what was used; called where nobody is measured."""


class Files:
    """SQLite: a folder on a real disk, for on a tmpfs a sync is free and flatters somebody.

    A contestant's tables are made once, and that folder is copied.
    """

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._templates: dict[str, Path] = {}
        self._used: list[Path] = []

    def fresh(self, who: str, install: Install) -> str:
        if who not in self._templates:
            template = Path(tempfile.mkdtemp(dir=self._parent))
            install(str(template / "jobs.db"))
            self._templates[who] = template
        folder = Path(tempfile.mkdtemp(dir=self._parent))
        self._used.append(folder)
        shutil.copytree(self._templates[who], folder, dirs_exist_ok=True)
        return str(folder / "jobs.db")

    def settle(self, place: str) -> None:
        """Nothing to do."""

    def sweep(self) -> None:
        for folder in self._used:
            shutil.rmtree(folder, ignore_errors=True)
        self._used.clear()


class Databases:
    """PostgreSQL: a contestant's tables are made once, and that database is copied."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._templates: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def fresh(self, who: str, install: Install) -> str:
        if who not in self._templates:
            template = self._ground.make(f"template_{who}_{len(self._templates)}")
            install(self._ground.url(template))
            self._templates[who] = template
        name = self._ground.fresh(self._templates[who])
        url = self._ground.url(name)
        self._names[url] = name
        return url

    def settle(self, place: str) -> None:
        self._ground.analyze(self._names[place])

    def sweep(self) -> None:
        self._ground.sweep()
        self._names.clear()


class Servers:
    """Redis: one server, emptied before each measurement."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._install_nothing: set[str] = set()

    def fresh(self, who: str, install: Install) -> str:
        self._redis.flush()
        if who not in self._install_nothing:
            install(self._redis.url)
            if self._redis.is_empty():
                self._install_nothing.add(who)
        return self._redis.url

    def settle(self, place: str) -> None:
        """Nothing to do."""

    def sweep(self) -> None:
        self._redis.flush()


class Places:
    """All kinds; each server is started when it is first needed, and ended with us."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._open: dict[str, Place] = {}
        self._failed: dict[str, str] = {}
        self.versions: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def of(self, kind: str) -> Place:
        if kind in self._failed:
            raise Unavailable(self._failed[kind])
        if kind not in self._open:
            try:
                self._open[kind] = self._start(kind)
            except (RuntimeError, OSError, ImportError, AssertionError) as error:
                self._failed[kind] = f"no {kind} here: {error}"
                raise Unavailable(self._failed[kind]) from None
        return self._open[kind]

    def sweep(self) -> None:
        for place in self._open.values():
            place.sweep()

    def _start(self, kind: str) -> Place:
        if kind == "sqlite":
            return Files(self._stack.enter_context(folder()))
        if kind == "redis":
            redis = self._stack.enter_context(Redis())
            self.versions["Redis"] = redis.version
            return Servers(redis)
        from .ground import Ground  # needs psycopg and a server, which the others do without

        ground = self._stack.enter_context(Ground())
        self.versions["PostgreSQL"] = ground.version
        return Databases(ground)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder on a disk that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_on_a_disk()) as path:
        yield Path(path)


def _on_a_disk() -> Path:
    """The usual place for such things, unless that is memory."""
    usual = Path(tempfile.gettempdir())
    for candidate in (usual, Path("/var/tmp")):
        if candidate.is_dir() and _file_system(candidate) not in ("tmpfs", "ramfs"):
            return candidate
    return usual


def _file_system(path: Path) -> str:
    """The kind of the file system a path is on, as the kernel calls it; "" if it does not tell."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    real = path.resolve()
    holding = [mount for mount in mounts if real.is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[1]))[2] if holding else ""
