"""The database that a user names by a path or a URL, and the default database."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from ..core.clock import Clock
from ..core.ownership import doubt_about, read_settings, settings_not_trusted
from ..errors import InvalidOption, InvalidOptionType
from .driver import Driver, Reader
from .urls import choice, means_server, without_password

DEFAULT_FILE = "bullite.db"


class Location(Protocol):
    """A database that can be opened; as text it shows no secrets."""

    def place(self) -> Hashable:
        """Return equal values for two locations of one place, even if it has no database yet."""

    def identity(self) -> Hashable:
        """Return equal values for two locations of one database; None if there is no database."""

    def reader(self) -> Reader | None:
        """Return a connection that only reads and changes nothing. Return None if only a driver can
        open the database, for whatever reason."""

    def import_driver(self) -> None:
        """Import all that a driver needs."""

    def driver(self, clock: Clock | None, random_bits: Callable[[int], int]) -> Driver:
        """Return a driver that is not open yet. Without `clock` it uses the default clock."""


def parse_location(location: str | os.PathLike[str]) -> Location:
    """Return the database that a path or a URL names. Raise InvalidOption if it names none."""
    if not isinstance(location, str | os.PathLike):
        raise InvalidOptionType(
            f"a store is a path, a sqlite:/// or postgresql:// URL or a Store, not {location!r}"
        )
    text = os.fspath(location)
    if "://" not in text:
        return _file(text)
    scheme = text.partition("://")[0].lower()
    if scheme in ("postgresql", "postgres"):
        from .postgres.location import server_location

        return server_location(text)
    if scheme != "sqlite":
        raise InvalidOption(
            f"unknown store {scheme}://; use a path, sqlite:///path/to/file.db or "
            "postgresql://host/database"
        )
    return _file_named_by_url(text)


def _file_named_by_url(text: str) -> Location:
    url = urlsplit(text)
    if url.netloc:
        raise InvalidOption(
            f"write sqlite:/// with three slashes, then the path: {without_password(text)!r}"
        )
    options = parse_qs(url.query, keep_blank_values=True)
    durability = choice(options, "durability", ("full", "relaxed"))
    network = choice(options, "network", ("refuse", "allow"))
    if options:
        raise InvalidOption(
            f"unknown store option {next(iter(options))!r}; use durability or network"
        )
    return _file(unquote(url.path)[1:], durability == "full", network == "allow", from_url=True)


def _file(
    text: str, durable: bool = True, allow_network: bool = False, *, from_url: bool = False
) -> Location:
    from .sqlite.location import FileLocation

    if not from_url and means_server(text):
        raise InvalidOption(
            "a store is given as the path of a file, and looks like the address of a server or "
            "holds a password: write postgresql://user:password@host/database; a file of such a "
            "name is sqlite:///name"
        )
    if not text or "\x00" in text:
        raise InvalidOption(f"a store needs the path of a file, not {text!r}")
    if text == ":memory:":
        raise InvalidOption("a store cannot be in memory: it is shared by processes; name a file")
    return FileLocation(Path(text).absolute(), durable, allow_network)


_logged: set[str] = set()


class Origin(Enum):
    """What named the default database."""

    ENVIRONMENT = "BULLITE_URL"
    SETTINGS = "a settings file"
    NOTHING = "nothing: it is the file bullite.db in the current folder"


class Default(NamedTuple):
    """The database that is used if the user names none."""

    location: str
    origin: Origin
    source: str


def default_location() -> str:
    """Return the default database, and log it once.

    Raise SettingsNotTrusted if another user can write the settings file that names it.
    """
    location, origin, source = default_database()
    logging = sys.modules.get("logging")  # without the import, the program has no log handler
    if logging is not None and location not in _logged:
        _logged.add(location)
        log = logging.getLogger("bullite.store")
        log.info("using the database %s (%s)", without_password(location), source)
        if origin is Origin.NOTHING and (doubt := doubt_about_default()) is not None:
            log.warning("%s", doubt)
    return location


def default_database() -> Default:
    """Return the default database and what named it."""
    if url := os.environ.get("BULLITE_URL"):
        return Default(url, Origin.ENVIRONMENT, "from BULLITE_URL")
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in ("bullite.toml", "pyproject.toml"):
            url = _url_in(folder / name)
            if url is not None:
                return Default(url, Origin.SETTINGS, f"from {folder / name}")
    return Default(DEFAULT_FILE, Origin.NOTHING, "the default")


def doubt_about_default() -> str | None:
    """Return why ./bullite.db is not trusted unless it is named; None if it is trusted.

    The files that SQLite reads together with the database are checked, too: pages in the WAL of
    another user are equal to pages in the database.
    """
    database = Path.cwd() / DEFAULT_FILE
    for suffix in ("", "-wal", "-shm", "-journal"):
        file = database.with_name(database.name + suffix)
        if (reason := doubt_about(file)) is not None:
            return (
                f"{file} is the default database and may be another user's work: {reason}; if you "
                f"trust it, name it: --db ./{DEFAULT_FILE}, or BULLITE_URL"
            )
    return None


def _url_in(file: Path) -> str | None:
    """Return the `url` of a settings file; a relative path counts from the folder of the file.

    A file that names no database is skipped, and may belong to any user.
    """
    try:
        text, doubt = read_settings(file)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeError) as error:
        raise InvalidOption(f"cannot read {file}: {error}") from error
    import tomllib

    try:
        settings = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidOption(f"cannot read {file}: {error}") from error
    if file.name == "pyproject.toml":
        settings = _table(_table(settings, "tool"), "bullite")
    url = settings.get("url")
    if url is None:
        return None
    if doubt is not None:
        raise settings_not_trusted(file, doubt)
    if not isinstance(url, str) or not url:
        raise InvalidOption(f"url in {file} must be text")
    if url.startswith("sqlite:///"):
        path, separator, options = url.removeprefix("sqlite:///").partition("?")
        return f"sqlite:///{file.parent / path}{separator}{options}"
    return url if "://" in url or means_server(url) else str(file.parent / url)


def _table(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a table of a settings file; an empty one if there is none."""
    found = settings.get(name)
    return found if isinstance(found, dict) else {}
