"""What cannot work is refused in one line that names the fix; nothing of psycopg shines through."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg import sql

from bullite import Queue, Store
from bullite.database.postgres.connections import cannot_connect
from bullite.database.postgres.location import Credentials
from bullite.errors import (
    BulliteError,
    InvalidOption,
    MissingDependency,
    NotABulliteDatabase,
    PostgresTooOld,
    StoreUnavailable,
    StoreUnwritable,
)
from tests.database.postgres.places import (
    Connection,
    database_of_its_own,
    guarded_server,
    role,
    schema_called,
    url_for,
)
from tests.support.helpers import python
from tests.support.server import Server


@pytest.fixture
def server() -> Server:
    return guarded_server()


@pytest.fixture
def shop(server: Server) -> Iterator[Connection]:
    """A database called shop, and somebody called ada who may connect to it and nothing else."""
    with role(server, "ada"), database_of_its_own(server, "shop") as connection:
        yield connection


def refusal(location: str) -> BulliteError:
    """What comes of naming and opening a store; whatever it is, it is told without noise."""
    try:
        with closing(Store(location)) as store:
            store.open()
    except BulliteError as error:
        assert_without_noise(error)
        return error
    raise AssertionError("it was opened")


def assert_without_noise(error: BulliteError) -> None:
    assert "\n" not in str(error)
    shown = "".join(traceback.format_exception(error))
    assert shown.count("Traceback") == 1
    assert "psycopg" not in shown.replace("needs psycopg", "")


# --- a server that says no -----------------------------------------------------------------------


def test_a_wrong_password_is_told_with_the_user(server, shop):
    error = refusal(url_for(server, "ada", "wrong", "shop"))

    assert type(error) is StoreUnwritable
    assert str(error).endswith("/shop refuses the password as user 'ada'; check the URL")


def test_a_missing_password_is_told_with_the_user(server, shop, monkeypatch):
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", "/nowhere")

    error = refusal(server.url("shop", "ada"))

    assert type(error) is StoreUnwritable
    assert str(error).endswith("/shop refuses the password as user 'ada'; check the URL")


def test_a_database_that_does_not_exist_is_named_with_the_fix(server):
    error = refusal(server.url("nowhere"))

    assert type(error) is StoreUnwritable
    assert str(error).endswith("there is no database 'nowhere'; make it with CREATE DATABASE")


def test_a_user_that_does_not_exist_is_named_with_the_fix(database):
    error = refusal(database.location.replace("postgres@", "nobody_here@"))

    assert type(error) is StoreUnwritable
    assert str(error).endswith("there is no user 'nobody_here'; make it with CREATE ROLE")


def test_who_may_not_connect_to_the_database_is_told_what_to_grant(server, shop):
    shop.execute("revoke connect on database shop from public")

    error = refusal(url_for(server, "ada", "secret", "shop"))

    assert type(error) is StoreUnwritable
    assert str(error).endswith("/shop: no permission to connect as user 'ada'; GRANT CONNECT")


def test_who_may_not_make_a_schema_is_told_who_should(server, shop):
    error = refusal(url_for(server, "ada", "secret", "shop"))

    assert type(error) is StoreUnwritable
    assert "no permission to make or read Bullite's tables" in str(error)
    assert "permission denied for database shop" in str(error)
    assert "let their owner open the store once" in str(error)
    assert "docs/postgresql.md" in str(error)


def test_who_may_not_make_tables_in_a_schema_is_told_who_should(server, shop):
    shop.execute("create schema bullite")
    shop.execute("grant usage on schema bullite to ada")

    error = refusal(url_for(server, "ada", "secret", "shop"))

    assert type(error) is StoreUnwritable
    assert "permission denied for schema bullite" in str(error)
    assert "docs/postgresql.md" in str(error)


def test_a_refused_opening_leaves_nothing_behind(server, shop):
    refusal(url_for(server, "ada", "secret", "shop"))

    assert shop.execute(
        "select count(*) from pg_namespace where nspname = 'bullite'"
    ).fetchone() == (0,)


def test_a_server_that_reads_only_is_unavailable(server, shop):
    shop.execute("alter database shop set default_transaction_read_only = on")

    error = refusal(server.url("shop"))

    assert type(error) is StoreUnavailable
    assert "cannot be reached (" in str(error)
    assert "read-only" in str(error)


def test_a_pooler_that_refuses_our_settings_is_told_with_the_fix():
    # As PgBouncer says it.
    said = psycopg.OperationalError("FATAL:  unsupported startup parameter: options")

    error = cannot_connect(
        said, "postgresql://pooler/shop", Credentials("postgresql://pooler/shop")
    )

    assert type(error) is StoreUnwritable
    assert str(error).endswith("add pooler=transaction to the URL")


# --- no server -----------------------------------------------------------------------------------


def test_a_socket_that_is_not_there_is_named(tmp_path):
    error = refusal(f"postgresql:///shop?host={tmp_path}")

    assert type(error) is StoreUnavailable
    assert str(error).startswith(f"postgresql://{tmp_path}/shop cannot be reached (")
    assert str(error).endswith("; nothing was written")


def test_a_port_where_nobody_listens_is_named():
    error = refusal("postgresql://127.0.0.1:1/shop")

    assert type(error) is StoreUnavailable
    assert str(error).startswith("postgresql://127.0.0.1:1/shop cannot be reached (")
    assert str(error).endswith("; nothing was written")


def test_a_host_that_has_no_address_is_named():
    error = refusal("postgresql://no-such-host.invalid/shop")

    assert type(error) is StoreUnavailable
    assert str(error).startswith("postgresql://no-such-host.invalid/shop cannot be reached (")


async def test_a_queue_says_the_same_as_its_store(server):
    with pytest.raises(StoreUnwritable, match="there is no database 'nowhere'"):
        async with Queue("emails", server.url("nowhere")) as queue:
            await queue.add("job")


# --- a server, or tables, that we cannot use -----------------------------------------------------


def test_an_old_server_is_refused_with_its_version_and_ours(database, monkeypatch):
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", property(lambda info: 13_0012))

    error = refusal(database.location)

    assert type(error) is PostgresTooOld
    assert str(error).endswith("is PostgreSQL 13; Bullite needs 14 or newer")


def test_the_oldest_server_that_works_is_not_refused(database, monkeypatch):
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", property(lambda info: 14_0000))

    with closing(Store(database.location)) as store:
        store.open()


def test_tables_of_somebody_else_are_named(server):
    with database_of_its_own(server, "shop") as connection:
        connection.execute("create schema bullite")
        connection.execute("create table bullite.bullite_jobs (mine text)")

        error = refusal(server.url("shop"))

    assert type(error) is NotABulliteDatabase
    assert "schema bullite holds tables called bullite_jobs that Bullite did not make" in str(error)
    assert str(error).endswith("; name another schema")


@pytest.mark.parametrize(
    "thing",
    [
        "create view bullite.bullite_jobs as select 1",
        "create materialized view bullite.bullite_jobs as select 1",
        "create sequence bullite.bullite_numbers",
        "create table bullite.t (i int); create index bullite_jobs_failed on bullite.t (i)",
    ],
    ids=["a view", "a materialized view", "a sequence", "an index"],
)
def test_whatever_else_has_a_name_of_ours_is_refused_like_a_table(server, thing):
    with database_of_its_own(server, "shop") as connection:
        connection.execute("create schema bullite")
        connection.execute(thing)

        error = refusal(server.url("shop"))

    assert type(error) is NotABulliteDatabase
    assert str(error).endswith("; name another schema")


def test_a_column_that_somebody_took_away_is_told_as_not_ours(server):
    with database_of_its_own(server, "shop") as connection:
        with closing(Store(server.url("shop"))) as store:
            store.open()
        connection.execute(sql.SQL("alter table bullite.bullite_meta drop column value"))

        error = refusal(server.url("shop"))

    assert type(error) is NotABulliteDatabase


# --- without psycopg -----------------------------------------------------------------------------

NAME_A_STORE = """
from bullite import Store, errors
try:
    Store("postgresql://ada:hidden@host/shop")
except errors.MissingDependency as error:
    print(error)
"""


def test_without_psycopg_the_message_says_how_to_install_it():
    said = python("import sys; sys.modules['psycopg'] = None" + NAME_A_STORE)

    [line] = said.splitlines()
    assert line.startswith("a postgresql:// store needs psycopg 3.3 or newer")
    assert line.endswith("pip install 'bullite[postgres]'")
    assert "hidden" not in line


def test_psycopg_without_libpq_is_told_in_one_line_too():
    parts = ("psycopg_c", "psycopg_binary", "psycopg.pq.pq_ctypes")
    said = python(f"import sys; sys.modules.update(dict.fromkeys({parts}))" + NAME_A_STORE)

    [line] = said.splitlines()
    assert line.endswith("pip install 'bullite[postgres]'")


def test_a_libpq_without_pipelines_is_told_in_one_line_too():
    old = "import psycopg; psycopg.Pipeline.is_supported = lambda: False"
    said = python(old + NAME_A_STORE)

    [line] = said.splitlines()
    assert "libpq, which it uses, is older than 14" in line
    assert line.endswith("pip install 'bullite[postgres]'")


def test_a_missing_package_is_an_import_error_too():
    assert issubclass(MissingDependency, ImportError)


def test_a_file_needs_no_psycopg(tmp_path):
    said = python(
        "import sys; sys.modules['psycopg'] = None\n"
        "from bullite import Store; store = Store(sys.argv[1]); store.open(); store.close()\n"
        "print('opened')",
        tmp_path / "jobs.db",
    )
    assert said == "opened\n"


# --- URLs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://h/db?shcema=x", "it has no option 'shcema'"),
        ("postgresql://h/db?sslmod=require", "it has no option 'sslmod'"),
        ("postgresql://h/db?schema=", "schema must be a name of 1 to 63 bytes, not ''"),
        ("postgresql://h/db?schema=a%00b", "schema must be a name of 1 to 63 bytes"),
        (f"postgresql://h/db?schema={'x' * 64}", "schema must be a name of 1 to 63 bytes"),
        (f"postgresql://h/db?schema={'%C3%BC' * 32}", "schema must be a name of 1 to 63 bytes"),
        ("postgresql://h/db?schema=\udc80", "schema must be a name of 1 to 63 bytes"),
        ("postgresql://h/db?durability=some", "durability must be full or relaxed, not 'some'"),
        ("postgresql://h/db?durability=", "durability must be full or relaxed, not ''"),
        ("postgresql://h/db?pooler=session", "pooler must be none or transaction, not 'session'"),
        ("postgresql://h/db?listen=yes", "listen must be a postgresql:// URL, percent-encoded"),
        ("postgresql://h/db?listen=mysql://h", "listen must be a postgresql:// URL"),
        ("postgresql://h/db?listen=postgresql://h?foo=1", "it has no option 'foo'"),
        ("postgresql://h/a%zzb", "cannot read the URL"),
        ("postgresql://[::1/db", "cannot read the URL"),
        ("postgresql://h/db?listen=postgresql://[::1/db", "cannot read the URL"),
        ("postgresql://h:port/db", "port"),
    ],
)
def test_a_bad_url_is_told_the_fix_before_anybody_connects(url, problem):
    with pytest.raises(InvalidOption) as refused:
        Store(url)

    assert problem in str(refused.value)
    assert_without_noise(refused.value)


def test_an_unknown_option_is_told_with_those_that_are_known():
    with pytest.raises(InvalidOption, match="libpq's options and schema, durability, pooler and"):
        Store("postgresql://h/db?shcema=x")


@pytest.mark.parametrize("name", ["x" * 63, "ü" * 31, "a", " "])
def test_names_of_schemas_up_to_63_bytes_are_taken(name):
    with schema_called(name) as location, closing(Store(location)) as store:
        store.open()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_both_schemes_of_libpq_are_known(scheme):
    assert repr(Store(f"{scheme}://h/db")) == "Store('postgresql://h/db')"


@pytest.mark.parametrize(
    "option",
    ["sslmode=require", "connect_timeout=3", "application_name=me", "options=-c%20jit%3Doff"],
)
def test_options_of_libpq_are_left_to_it(option):
    assert repr(Store(f"postgresql://h/db?{option}")) == "Store('postgresql://h/db')"
