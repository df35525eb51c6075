"""These tests fail a real PostgreSQL server: none of them runs on another kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bullite import Store, verify
from tests.database.postgres.proxy import Proxy
from tests.support.postgres_database import PostgresDatabase, server_url
from tests.support.server import Server


@pytest.fixture
def database(tmp_path: Path) -> Iterator[PostgresDatabase]:
    """A schema of its own on the server that all tests of this process share."""
    database = PostgresDatabase.make(tmp_path)
    yield database
    database.close()


@pytest.fixture
def location(database: PostgresDatabase) -> Iterator[str]:
    """Where a store may be made; whatever a test did to it, its books must be right."""
    yield database.location
    assert_verified(database.location)


@pytest.fixture
def proxy(location: str) -> Iterator[Proxy]:
    """Stands between a store and the server."""
    with Proxy(server_url()) as proxy:
        yield proxy


@pytest.fixture
def behind_proxy(location: str, proxy: Proxy) -> str:
    """The same place as `location`, reached through the proxy: another engine of this process."""
    return proxy.url(location)


@pytest.fixture(scope="module")
def shared_by_module() -> Iterator[Server]:
    server = Server()
    yield server
    server.destroy()


@pytest.fixture
def own_server(shared_by_module: Server) -> Iterator[Server]:
    """A server that a test may stop, with nothing in it; its store must be right in the end."""
    yield shared_by_module
    try:
        assert_verified(url_of(shared_by_module))
    finally:
        with shared_by_module.connect() as connection:
            connection.execute("drop schema bullite cascade")


def url_of(server: Server) -> str:
    """A store on a server of a test's own."""
    return server.url(application_name="bullite")


def assert_verified(location: str) -> None:
    with closing(Store(location)) as store:
        assert verify(store).problems == ()
