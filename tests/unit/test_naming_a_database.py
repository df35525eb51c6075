"""Which file is meant: paths, URLs, and what is meant when nothing is said."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bullite.client.runtime.store import Store
from bullite.database import locations
from bullite.database.locations import default_location, parse_location
from bullite.database.sqlite.location import FileLocation
from bullite.errors import InvalidOption, InvalidOptionType


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which nothing says which database is meant."""
    monkeypatch.delenv("BULLITE_URL", raising=False)
    monkeypatch.setattr(locations, "_logged", set())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def path_of(location: str | Path) -> Path:
    found = parse_location(location)
    assert isinstance(found, FileLocation)
    return found.path


# --- paths and URLs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("jobs.db", "jobs.db"),
        ("./jobs.db", "jobs.db"),
        (Path("jobs.db"), "jobs.db"),
        ("a folder/jobs#1?.db", "a folder/jobs#1?.db"),
        ("sqlite:///jobs.db", "jobs.db"),
        ("sqlite:///folder/jobs.db", "folder/jobs.db"),
        ("sqlite:///a%20folder/jobs%3F.db", "a folder/jobs?.db"),
    ],
)
def test_a_relative_path_counts_from_the_current_folder(
    somewhere: Path, location: str | Path, path: str
) -> None:
    assert path_of(location) == somewhere / path


@pytest.mark.parametrize("location", ["/srv/jobs.db", "sqlite:////srv/jobs.db"])
def test_an_absolute_path_is_taken_as_it_is(location: str) -> None:
    assert path_of(location) == Path("/srv/jobs.db")


def test_a_store_keeps_its_file_when_the_program_moves(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Store("jobs.db")
    monkeypatch.chdir("/")
    assert repr(named) == f"Store('{somewhere / 'jobs.db'}')"


@pytest.mark.parametrize(
    ("query", "durable", "network"),
    [
        ("", True, False),
        ("?durability=full", True, False),
        ("?durability=relaxed", False, False),
        ("?network=allow", True, True),
        ("?durability=relaxed&network=refuse", False, False),
    ],
)
def test_a_url_may_carry_options(query: str, durable: bool, network: bool) -> None:
    location = parse_location(f"sqlite:///jobs.db{query}")
    assert isinstance(location, FileLocation)
    assert (location.durable, location.allow_network) == (durable, network)


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("redis://localhost", "unknown store redis://; use a path, sqlite:///"),
        ("sqlite://jobs.db", "write sqlite:/// with three slashes"),
        ("sqlite:///jobs.db?durability=some", "durability must be full or relaxed, not 'some'"),
        ("sqlite:///jobs.db?network=", "network must be refuse or allow, not ''"),
        ("sqlite:///jobs.db?mode=ro", "unknown store option 'mode'; use durability or network"),
        ("", "a store needs the path of a file"),
        ("sqlite:///", "a store needs the path of a file"),
        ("jobs\x00.db", "a store needs the path of a file"),
    ],
)
def test_a_bad_location_is_told_the_fix(location: str, problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem.replace("?", r"\?")):
        parse_location(location)


@pytest.mark.parametrize("location", [5, b"jobs.db", None])
def test_a_location_is_a_path_or_a_url(location: object) -> None:
    with pytest.raises(InvalidOptionType, match="a store is a path, a sqlite:/// or"):
        parse_location(location)  # type: ignore[arg-type]


def test_a_database_in_memory_is_refused() -> None:
    with pytest.raises(InvalidOption, match="memory"):
        parse_location(":memory:")


@pytest.mark.parametrize("location", ["mysql://ada:secret@host/db", "sqlite://a:secret@b/c"])
def test_a_refused_url_does_not_give_its_password_away(location: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        parse_location(location)
    assert "secret" not in str(refused.value)


MISTYPED = [
    "postgresql:/u:PW@h",
    "postgresql:u:PW@h/db",
    "postgres:/u:PW@h/db",
    " POSTGRESQL:/u:PW@h",
    "postgresql//u:PW@h/db",
    "postgresql:\\\\u:PW@h",
    "postgresql+psycopg:/u:P/W@h",
    "jdbc:postgresql:/u:PW@h",
    "//u:P/W@h/db",
    "u:PW@h/db",
    "posgresql:/u:PW@h",
    "host=h password=PW",
    "host=h dbname=d user=u",
    "dbname=d password = PW",
    "jobs.db?password=PW",
    "jobs.db sslpassword=PW",
]


@pytest.mark.parametrize("location", MISTYPED)
@pytest.mark.parametrize("kind", [str, Path])
def test_a_mistyped_address_of_a_server_is_refused_and_not_shown(
    location: str, kind: type[str] | type[Path]
) -> None:
    with pytest.raises(InvalidOption, match="looks like the address of a server") as refused:
        parse_location(kind(location))
    assert "PW" not in str(refused.value)
    assert "@" not in str(refused.value).replace("user:password@host", "")


@pytest.mark.parametrize("location", ["postgresql:/u:PW@h", "host=h password=PW", "host=h"])
@pytest.mark.parametrize("source", ["environment", "settings"])
def test_a_mistyped_default_is_refused_and_not_shown(
    somewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    location: str,
    source: str,
) -> None:
    if source == "environment":
        monkeypatch.setenv("BULLITE_URL", location)
    else:
        (somewhere / "bullite.toml").write_text(f'url = "{location}"')
    with (
        caplog.at_level(logging.INFO, "bullite"),
        pytest.raises(InvalidOption, match="looks like the address of a server"),
    ):
        Store()
    assert "PW" not in caplog.text


@pytest.mark.parametrize(
    "location",
    [
        *(
            "postgres.db",
            "postgres/jobs.db",
            "postgresql-jobs.db",
            "my-host=a/jobs.db",
            "a@b/jobs.db",
        ),
        *("/srv/host=a/jobs.db", "10:30/jobs.db", "/srv/10:30/me@home/jobs.db", "a:b.db", "pg.db"),
    ],
)
def test_a_path_that_only_resembles_an_address_is_a_path(location: str) -> None:
    assert path_of(location) == Path(location).absolute()


def test_a_file_called_like_a_server_is_named_by_a_url(somewhere: Path) -> None:
    assert path_of("sqlite:///host=a") == somewhere / "host=a"


# --- when nothing is said ------------------------------------------------------------------------


def test_by_default_it_is_a_file_in_the_current_folder(somewhere: Path) -> None:
    assert path_of(default_location()) == somewhere / "bullite.db"


def test_the_environment_wins(somewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (somewhere / "bullite.toml").write_text('url = "other.db"')
    monkeypatch.setenv("BULLITE_URL", "sqlite:///from-environment.db")
    assert default_location() == "sqlite:///from-environment.db"


def test_bullite_toml_names_the_database(somewhere: Path) -> None:
    (somewhere / "bullite.toml").write_text('url = "sqlite:////srv/jobs.db"')
    assert default_location() == "sqlite:////srv/jobs.db"


def test_pyproject_toml_names_the_database(somewhere: Path) -> None:
    (somewhere / "pyproject.toml").write_text('[tool.bullite]\nurl = "/srv/jobs.db"')
    assert default_location() == "/srv/jobs.db"


def test_bullite_toml_comes_before_pyproject_toml(somewhere: Path) -> None:
    (somewhere / "pyproject.toml").write_text('[tool.bullite]\nurl = "/srv/second.db"')
    (somewhere / "bullite.toml").write_text('url = "/srv/first.db"')
    assert default_location() == "/srv/first.db"


def test_settings_are_looked_for_in_the_folders_above(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (somewhere / "bullite.toml").write_text('url = "/srv/jobs.db"')
    below = somewhere / "a" / "b"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[project]\nname = 'says nothing of it'")
    monkeypatch.chdir(below)
    assert default_location() == "/srv/jobs.db"


@pytest.mark.parametrize("url", ["data/jobs.db", "sqlite:///data/jobs.db"])
def test_a_relative_path_counts_from_the_folder_of_the_settings(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    (somewhere / "bullite.toml").write_text(f'url = "{url}"')
    below = somewhere / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert path_of(default_location()) == somewhere / "data" / "jobs.db"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [("url = ", "cannot read .*bullite.toml"), ("url = 5", "url in .*bullite.toml must be text")],
)
def test_broken_settings_are_named(somewhere: Path, settings: str, problem: str) -> None:
    (somewhere / "bullite.toml").write_text(settings)
    with pytest.raises(InvalidOption, match=problem):
        default_location()


def test_what_was_chosen_is_logged_once_and_with_its_source(
    somewhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (somewhere / "bullite.toml").write_text('url = "jobs.db"')
    with caplog.at_level(logging.INFO, "bullite"):
        default_location()
        default_location()
    [message] = caplog.messages
    assert str(somewhere / "jobs.db") in message
    assert str(somewhere / "bullite.toml") in message


def test_a_password_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BULLITE_URL", "postgresql://ada:secret@host/db?password=hidden")
    with caplog.at_level(logging.INFO, "bullite"):
        default_location()
    assert "host/db" in caplog.text
    assert "secret" not in caplog.text
    assert "hidden" not in caplog.text
