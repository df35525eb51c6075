"""Roles that may connect and have no right in Bullite's schema: what they can do, and what not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from bullite import Store
from tests.database.postgres.places import Connection, guarded_server
from tests.database.postgres.stranger import Stranger, shop_of_a_stranger
from tests.database.postgres.test_pooling import use_everything
from tests.support.postgres_database import with_options
from tests.support.server import Server


@pytest.fixture
def server() -> Server:
    return guarded_server()


@pytest.fixture
def both(server: Server) -> Iterator[tuple[Connection, Stranger]]:
    with shop_of_a_stranger(server) as both:
        yield both


@pytest.fixture
def shop(both: tuple[Connection, Stranger]) -> Connection:
    return both[0]


@pytest.fixture
def stranger(both: tuple[Connection, Stranger]) -> Stranger:
    return both[1]


@pytest.fixture
def location(server: Server, shop: Connection) -> str:
    return server.url("shop")


FIRST = "-c search_path=public,pg_catalog"
"""What a user may have in the URL: with it even a function of the same arguments comes first."""


def ways(location: str, way: str) -> str:
    """The location as a program may write it."""
    direct = with_options(location, application_name="direct")
    return {
        "plain": location,
        "options": with_options(location, options=FIRST),
        "pooler": with_options(location, pooler="transaction"),
        "pooler and options": with_options(location, pooler="transaction", options=FIRST),
        "pooler and listen": with_options(location, pooler="transaction", listen=direct),
    }[way]


WAYS = ("plain", "options", "pooler", "pooler and options", "pooler and listen")


# --- functions, operators and types in public ----------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_no_function_of_a_stranger_runs_while_the_tables_are_made(location, stranger, way):
    with closing(Store(ways(location, way))) as store:
        store.open()

    assert stranger.ran() is None


@pytest.mark.parametrize("way", WAYS)
async def test_no_function_of_a_stranger_runs_while_jobs_do(location, stranger, way):
    try:
        await use_everything(ways(location, way))
    finally:
        ran = stranger.ran()
    assert ran is None

    assert stranger.ran() is None
