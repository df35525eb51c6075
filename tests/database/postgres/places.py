"""Servers, databases and schemas for tests of what lies around the jobs: names, roles, secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from tests.support.postgres_database import server_url, with_options
from tests.support.server import Server

Connection = psycopg.Connection[tuple[object, ...]]

HBA = """
local all postgres trust
local all all scram-sha-256
"""


@cache
def guarded_server() -> Server:
    """A server that asks everybody for a password, except its superuser."""
    server = Server()
    with server.connect() as connection:
        [file] = connection.execute("show hba_file").fetchone() or ()
        Path(str(file)).write_text(HBA)
        connection.execute("select pg_reload_conf()")
    return server


def url_for(
    server: Server, user: str, password: str, database: str = "postgres", **options: str
) -> str:
    """The URL of a database for somebody who has a password."""
    query = "&".join(
        f"{name}={quote(value, safe='')}"
        for name, value in {"host": str(server.folder), **options}.items()
    )
    who = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return f"postgresql://{who}@/{quote(database)}?{query}"


@contextmanager
def database_of_its_own(server: Server, name: str) -> Iterator[Connection]:
    """A database that is gone afterwards; a connection of the superuser to it."""
    server.make_database(name)
    try:
        with closing(server.connect(name)) as connection:
            yield connection
    finally:
        with closing(server.connect()) as connection:
            drop = sql.SQL("drop database {} with (force)").format(sql.Identifier(name))
            connection.execute(drop)


@contextmanager
def role(server: Server, name: str, password: str = "secret") -> Iterator[str]:
    """Somebody who may log in and nothing else; gone afterwards."""
    who = sql.Identifier(name)
    with closing(server.connect()) as connection:
        connection.execute(
            sql.SQL("create role {} login password {}").format(who, sql.Literal(password))
        )
    try:
        yield name
    finally:
        with closing(server.connect()) as connection:
            connection.execute(sql.SQL("drop owned by {}").format(who))
            connection.execute(sql.SQL("drop role {}").format(who))


@contextmanager
def schema_called(name: str) -> Iterator[str]:
    """A schema of that name, once somebody opens its location; gone afterwards."""
    yield with_options(server_url(), schema=name)
    with closing(plain()) as connection:
        connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(name)))


def plain(**options: str) -> Connection:
    """A connection to the shared server of somebody who knows nothing of Bullite."""
    return psycopg.connect(with_options(server_url(), **options), autocommit=True)
