"""A PostgreSQL database as a location: the parts of its URL. No password is ever shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ...core.clock import Clock
from ...errors import InvalidOption, MissingDependency
from ..urls import choice, split, without_password

if TYPE_CHECKING:
    from .driver import PostgresDriver

DEFAULT_SCHEMA = "bullite"
MAX_NAME_LENGTH = 63
"""Bytes of a name in PostgreSQL, which cuts off longer names without an error."""

_OURS = ("schema", "durability", "pooler", "listen")
_SECRET = ("password", "passfile", "sslpassword", "sslkey")
_NOT_THE_PLACE = (*_SECRET, "user", "application_name", "connect_timeout", "options")
"""Parameters that may differ between two URLs of the same database."""


class Credentials:
    """The parameters that libpq needs to connect. As text, only host, port and database."""

    def __init__(self, url: str) -> None:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            self.parameters: Mapping[str, str] = {
                name: str(value) for name, value in conninfo_to_dict(url).items()
            }
        except (ProgrammingError, UnicodeError) as error:
            # Of libpq's message only an option's name is shown: the rest may hold the password.
            named = re.search(r'URI query parameter: "([\w-]+)"', str(error))
            wrong = f"it has no option {named[1]!r}" if named else "check it against the manual"
            raise InvalidOption(
                f"cannot read the URL {without_password(url)!r}: {wrong}; libpq's options and "
                "schema, durability, pooler and listen are known"
            ) from None

        ports = self.parameters.get("port", "").split(",")
        if not all(port.isdecimal() or not port for port in ports):
            raise InvalidOption(
                "cannot read the URL of the store: its port is not a number; in a user's name or "
                "password write / as %2F and : as %3A"
            )

    def place(self) -> Hashable:
        """Return equal values for two URLs of the same database."""
        known = self.parameters.items()
        return frozenset((name, value) for name, value in known if name not in _NOT_THE_PLACE)

    def __str__(self) -> str:
        known = self.parameters
        host = known.get("host") or known.get("hostaddr") or "localhost"
        port = f":{known['port']}" if "port" in known else ""
        database = known.get("dbname") or known.get("user") or ""
        return f"postgresql://{host}{port}/{database}"

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """A schema of a database on a server."""

    access: Credentials
    schema: str
    durable: bool
    pooled: bool
    """Whether there is a transaction pooler in between: then a session keeps no state."""
    listener: Credentials | None
    """The credentials for LISTEN on the server itself; None if it cannot be reached."""

    def __str__(self) -> str:
        schema = "" if self.schema == DEFAULT_SCHEMA else f" (schema {self.schema})"
        return f"{self.access}{schema}"

    def place(self) -> Hashable:
        return self.access.place(), self.schema

    def identity(self) -> Hashable:
        return self.place()

    def reader(self) -> None:
        """Return None: only a driver checks the server's version and the schema."""

    def import_driver(self) -> None:
        """Do nothing: `server_location` has imported the driver."""

    def driver(self, clock: Clock | None, random_bits: Callable[[int], int]) -> PostgresDriver:
        from .driver import PostgresDriver

        return PostgresDriver(self, clock, random_bits)


def server_location(url: str) -> ServerLocation:
    """Return the location of a postgresql:// URL. libpq does not get our own options."""
    try:
        import_module(".driver", __package__)  # its library is needed to read the URL, too
    except ImportError as error:
        raise MissingDependency(
            f"a postgresql:// store needs psycopg 3.3 or newer ({str(error).splitlines()[0]}): "
            "pip install 'bullite[postgres]'"
        ) from None
    front, query = _without_options(url)
    ours, libpqs = _parted(query)
    durable = choice(ours, "durability", ("full", "relaxed")) == "full"
    pooled = choice(ours, "pooler", ("none", "transaction")) == "transaction"
    schema = ours.pop("schema", [DEFAULT_SCHEMA])[-1]
    listen = ours.pop("listen", [""])[-1]
    if not 1 <= len(schema.encode(errors="replace")) <= MAX_NAME_LENGTH or not schema.isprintable():
        raise InvalidOption(
            f"schema must be a name of 1 to {MAX_NAME_LENGTH} bytes, not {schema!r}"
        )
    if listen and not listen.startswith(("postgresql://", "postgres://")):
        raise InvalidOption("listen must be a postgresql:// URL, percent-encoded")
    access = Credentials(f"{front}?{libpqs}")
    listener = (
        Credentials("?".join(_without_options(listen))) if listen else None if pooled else access
    )
    return ServerLocation(access, schema, durable, pooled, listener)


def _without_options(url: str) -> tuple[str, str]:
    """Return a URL up to its `?`, and the text behind it."""
    who, place, query = split(url.partition("://")[2])
    if "?" in who or (place[:1] != "/" and "@" in place):
        raise InvalidOption(
            "cannot read the URL of the store: in a user's name or password write / as %2F, "
            "? as %3F and @ as %40"
        )
    return f"postgresql://{who}{place}", query


def _parted(query: str) -> tuple[dict[str, list[str]], str]:
    """Return our options, and the unparsed options of libpq, which parses them itself."""
    ours: dict[str, list[str]] = {}
    libpqs: list[str] = []
    for option in filter(None, query.split("&")):
        name, _, value = option.partition("=")
        if name in _OURS:
            ours.setdefault(name, []).append(unquote(value))
        else:
            libpqs.append(option)
    return ours, "&".join(libpqs)
