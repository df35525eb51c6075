"""Where a queue lives: finds the database a user named, and shares one engine per database.

All queues, workers and readers of a process on one database use one engine. A handle that was made
before a fork opens an engine of its own in the child, when it is first used there.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import tomllib
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from .clock import Clock, SystemClock
from .engine.reading import ReadingThread
from .engine.writer import Engine
from .errors import InvalidOption, InvalidOptionType, StoreClosed

log = logging.getLogger("bullite.store")

DEFAULT_FILE = "bullite.db"
EXIT_TIMEOUT = 30.0
"""Seconds an exiting interpreter waits for what was accepted to be written."""


class Store:
    """A handle to one database; cheap to make, opened when first used."""

    def __init__(
        self, location: str | os.PathLike[str] | None = None, *, clock: Clock | None = None
    ) -> None:
        self.location = default_location() if location is None else location
        self._path, self._durable, self._allow_network = parse_location(self.location)
        # Now, by whoever makes the handle: a fork while another thread imports would leave the
        # child waiting for that import for ever.
        from .sqlite.driver import SQLiteDriver

        self._driver_type = SQLiteDriver
        self._clock = clock or SystemClock()
        self._shared: _Shared | None = None
        self._pid = 0
        self._closed = False

    def open(self) -> Engine:
        """The engine of this database, opened if need be; may block while the file is prepared."""
        return self._open_shared().engine

    @property
    def is_open(self) -> bool:
        return self._shared is not None and self._pid == os.getpid()

    @property
    def reading(self) -> ReadingThread:
        return self._open_shared().reading

    def _open_shared(self) -> _Shared:
        shared = self._shared
        if shared is not None and self._pid == os.getpid():
            return shared
        with _lock:
            # Another thread may have opened it meanwhile: a handle counts once.
            if self._closed:
                raise StoreClosed(f"{self._path} was closed")
            if self._shared is None or self._pid != os.getpid():
                self._shared = _share(self)
                self._pid = os.getpid()
            return self._shared

    def close(self) -> None:
        """Let go; the last handle to let go has everything written and the file closed."""
        with _lock:
            shared, self._shared = self._shared, None
            self._closed = True
            is_last = shared is not None and self._pid == os.getpid() and _release(shared)
        if shared is not None and is_last:
            shared.reading.close()
            shared.engine.close()

    def __repr__(self) -> str:
        return f"Store({str(self._path)!r})"

    def _make_engine(self) -> Engine:
        driver = self._driver_type(
            self._path,
            self._clock,
            random.SystemRandom().getrandbits,
            durable=self._durable,
            allow_network=self._allow_network,
        )
        engine = Engine(driver)
        engine.start()
        return engine


class _Shared:
    """One engine, and how many handles use it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.reading = ReadingThread(engine.driver.reader)
        self.users = 0


_engines: dict[tuple[int, int], _Shared] = {}
_lock = threading.Lock()


def _share(store: Store) -> _Shared:
    shared = _engines.get(_key(store._path))
    if shared is None or shared.engine.is_stopping:
        shared = _Shared(store._make_engine())
        _engines[_key(store._path)] = shared
    shared.users += 1
    return shared


def _release(shared: _Shared) -> bool:
    """Whether nobody uses the engine any more; then it is known no more."""
    shared.users -= 1
    if shared.users > 0:
        return False
    for key in [key for key, value in _engines.items() if value is shared]:
        del _engines[key]
    return True


def _key(path: Path) -> tuple[int, int]:
    """Names the file, whatever path leads to it; a file that does not exist yet has no equal."""
    try:
        status = os.stat(path)
    except OSError:
        return (-1, -1)
    return status.st_dev, status.st_ino


def _flush_all() -> None:
    for shared in list(_engines.values()):
        shared.engine.close(EXIT_TIMEOUT)


def _forget_parent() -> None:
    global _lock
    _lock = threading.Lock()
    _engines.clear()


atexit.register(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


# --- naming a database ---------------------------------------------------------------------------


def parse_location(location: str | os.PathLike[str]) -> tuple[Path, bool, bool]:
    """The file, whether commits are synced, and whether a network file system is allowed."""
    if not isinstance(location, str | os.PathLike):
        raise InvalidOptionType(f"a store is a path, a sqlite:/// URL or a Store, not {location!r}")
    text = os.fspath(location)
    if "://" not in text:
        return _checked_path(text), True, False
    url = urlsplit(text)
    if url.scheme != "sqlite":
        raise InvalidOption(
            f"unknown store {url.scheme}://; use a path or sqlite:///path/to/file.db"
        )
    if url.netloc:
        raise InvalidOption(
            f"write sqlite:/// with three slashes, then the path: {_without_password(text)!r}"
        )
    options = parse_qs(url.query, keep_blank_values=True)
    durability = _choice(options, "durability", ("full", "relaxed"))
    network = _choice(options, "network", ("refuse", "allow"))
    if options:
        raise InvalidOption(
            f"unknown store option {next(iter(options))!r}; use durability or network"
        )
    return _checked_path(unquote(url.path)[1:]), durability == "full", network == "allow"


def _checked_path(text: str) -> Path:
    if not text or "\x00" in text:
        raise InvalidOption(f"a store needs the path of a file, not {text!r}")
    if text == ":memory:":
        raise InvalidOption("a store cannot be in memory: it is shared by processes; name a file")
    return Path(text).absolute()


def _choice(options: dict[str, list[str]], name: str, choices: tuple[str, str]) -> str:
    value = options.pop(name, [choices[0]])[-1]
    if value not in choices:
        raise InvalidOption(f"{name} must be {' or '.join(choices)}, not {value!r}")
    return value


_told: set[str] = set()


def default_location() -> str:
    """The database meant when none is named; logged once."""
    location, source = _find_default()
    if location not in _told:
        _told.add(location)
        log.info("using the database %s (%s)", _without_password(location), source)
    return location


def _find_default() -> tuple[str, str]:
    if url := os.environ.get("BULLITE_URL"):
        return url, "from BULLITE_URL"
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in ("bullite.toml", "pyproject.toml"):
            url = _url_in(folder / name)
            if url is not None:
                return url, f"from {folder / name}"
    return DEFAULT_FILE, "the default"


def _url_in(file: Path) -> str | None:
    """The `url` of a settings file; a relative path counts from the folder of the file."""
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidOption(f"cannot read {file}: {error}") from error
    if file.name == "pyproject.toml":
        settings = settings.get("tool", {}).get("bullite", {})
    url = settings.get("url")
    if url is None:
        return None
    if not isinstance(url, str) or not url:
        raise InvalidOption(f"url in {file} must be text")
    if url.startswith("sqlite:///"):
        path, separator, options = url.removeprefix("sqlite:///").partition("?")
        return f"sqlite:///{file.parent / path}{separator}{options}"
    return url if "://" in url else str(file.parent / url)


def _without_password(location: str) -> str:
    if "://" not in location:
        return location
    url = urlsplit(location)
    return url._replace(netloc=url.netloc.rpartition("@")[2], query="").geturl()
