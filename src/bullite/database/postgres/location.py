"""A PostgreSQL database as a location: what its URL says, kept so that no password is shown."""

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
"""Bytes of a name in PostgreSQL; longer ones it cuts off without a word."""

_OURS = ("schema", "durability", "pooler", "listen")
_SECRET = ("password", "passfile", "sslpassword", "sslkey")
_NOT_THE_PLACE = (*_SECRET, "user", "application_name", "connect_timeout", "options")
"""What may differ between two ways to the same database."""


class Credentials:
    """What libpq needs to connect; never shows more than who and where."""

    def __init__(self, url: str) -> None:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            self.parameters: Mapping[str, str] = {
                name: str(value) for name, value in conninfo_to_dict(url).items()
            }
        except (ProgrammingError, UnicodeError) as error:
            # Of what libpq says only the name of an option is told: the rest may hold the password.
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
        """The same for two that lead to the same database."""
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
    """Whether a transaction pooler stands in between: then no session can keep anything."""
    listener: Credentials | None
    """How to reach the server itself for wake-ups; None if that cannot be done."""

    def __str__(self) -> str:
        schema = "" if self.schema == DEFAULT_SCHEMA else f" (schema {self.schema})"
        return f"{self.access}{schema}"

    def place(self) -> Hashable:
        return self.access.place(), self.schema

    def identity(self) -> Hashable:
        return self.place()

    def reader(self) -> None:
        """None: what a server can do, and whether its schema is ours, is a driver's to find out."""

    def import_driver(self) -> None:
        """Nothing to do: who named the database has imported it."""

    def driver(self, clock: Clock | None, random_bits: Callable[[int], int]) -> PostgresDriver:
        from .driver import PostgresDriver

        return PostgresDriver(self, clock, random_bits)


def server_location(url: str) -> ServerLocation:
    """What a postgresql:// URL means; our own options are taken out before libpq sees it."""
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
    """A URL up to its `?`, and what stands behind that."""
    who, place, query = split(url.partition("://")[2])
    if "?" in who or (place[:1] != "/" and "@" in place):
        raise InvalidOption(
            "cannot read the URL of the store: in a user's name or password write / as %2F, "
            "? as %3F and @ as %40"
        )
    return f"postgresql://{who}{place}", query


def _parted(query: str) -> tuple[dict[str, list[str]], str]:
    """Our options, and those of libpq as they are written: it has rules of its own for them."""
    ours: dict[str, list[str]] = {}
    libpqs: list[str] = []
    for option in filter(None, query.split("&")):
        name, _, value = option.partition("=")
        if name in _OURS:
            ours.setdefault(name, []).append(unquote(value))
        else:
            libpqs.append(option)
    return ours, "&".join(libpqs)
