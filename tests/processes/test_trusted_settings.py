"""Settings files: only one that no other user can write may name the database."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullite.database import locations
from bullite.database.locations import default_location
from bullite.errors import InvalidOption, SettingsNotTrusted
from tests.support.processes import say

NOBODY = 65534
STRANGER = 54_321
URL = 'url = "postgresql://strangers-server/jobs"\n'


def ask_as_nobody(folder: str, own_file: str = "", linked: str = "") -> None:
    """Ask for the default database as a user who owns `own_file` and the link `linked`."""
    for module in ("tomllib", "grp", "pwd"):  # while the interpreter's own files can be read
        importlib.import_module(module)
    for path in filter(None, (own_file, linked)):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    os.environ.pop("BULLITE_URL", None)
    os.chdir(folder)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    try:
        say(default_location())
    except Exception as error:
        say(f"{type(error).__name__}: {error}")


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which no database is named."""
    monkeypatch.delenv("BULLITE_URL", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(locations, "_logged", set())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder of root in which each user can make files, like /tmp."""
    with tempfile.TemporaryDirectory(prefix="bullite-") as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


def written(
    folder: Path,
    name: str = "bullite.toml",
    text: str = URL,
    owner: int | None = None,
    mode: int = 0o644,
) -> Path:
    file = folder / name
    file.write_text(text)
    os.chmod(file, mode)
    if owner is not None:
        os.chown(file, owner, owner)
    return file


def refusal() -> str:
    with pytest.raises(SettingsNotTrusted) as refused:
        default_location()
    return str(refused.value)


# --- the owner -----------------------------------------------------------------------------------


def test_settings_of_another_user_in_a_folder_above_are_refused(shared: Path, start) -> None:
    file = written(shared, owner=STRANGER)
    below = shared / "below"
    below.mkdir()

    answer = start(ask_as_nobody, below).line()

    assert answer.startswith(f"SettingsNotTrusted: {file} names the database and is not trusted")
    assert f"it belongs to user {STRANGER}" in answer
    assert "--db" in answer
    assert "BULLITE_URL" in answer
    assert "strangers-server" not in answer


def test_pyproject_of_another_user_is_refused(somewhere: Path) -> None:
    file = written(somewhere, "pyproject.toml", f"[tool.bullite]\n{URL}", owner=STRANGER)
    assert str(file) in refusal()


def test_own_settings_in_a_shared_folder_are_obeyed(shared: Path, start) -> None:
    file = written(shared, text='url = "mine.db"')
    answer = start(ask_as_nobody, shared, own_file=file).line()
    assert answer == str(shared / "mine.db")


def test_settings_of_root_are_obeyed_by_other_users(shared: Path, start) -> None:
    written(shared, text='url = "roots.db"')
    assert start(ask_as_nobody, shared).line() == str(shared / "roots.db")


def test_settings_in_a_folder_of_another_user_are_refused(somewhere: Path) -> None:
    written(somewhere)
    os.chown(somewhere, STRANGER, STRANGER)
    assert f"its folder {somewhere} belongs to user {STRANGER}" in refusal()


def test_a_refusal_does_not_fall_back_to_settings_above(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(somewhere, text='url = "mine.db"')
    below = somewhere / "below"
    below.mkdir()
    file = written(below, owner=STRANGER)
    monkeypatch.chdir(below)
    assert str(file) in refusal()


def test_pyproject_of_another_user_that_names_no_database_is_passed_over(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(somewhere, text='url = "/srv/jobs.db"')
    below = somewhere / "below"
    below.mkdir()
    written(below, "pyproject.toml", "[project]\nname = 'x'\n", owner=STRANGER)
    monkeypatch.chdir(below)
    assert default_location() == "/srv/jobs.db"


def test_a_named_database_is_used_beside_settings_of_another_user(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(somewhere, owner=STRANGER)
    monkeypatch.setenv("BULLITE_URL", "mine.db")
    assert default_location() == "mine.db"


# --- sudo ----------------------------------------------------------------------------------------


def test_root_obeys_settings_of_the_user_who_called_sudo(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(somewhere, text='url = "mine.db"', owner=STRANGER)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert default_location() == str(somewhere / "mine.db")


@pytest.mark.parametrize("claimed", [str(STRANGER + 1), "", "somebody", "-1", "9" * 30])
def test_root_refuses_settings_of_users_who_did_not_call_sudo(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch, claimed: str
) -> None:
    written(somewhere, owner=STRANGER)
    monkeypatch.setenv("SUDO_UID", claimed)
    assert f"user {STRANGER}" in refusal()


def test_only_root_trusts_sudo_uid(shared: Path, start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    file = written(shared, owner=STRANGER)
    assert start(obey_sudo_as_nobody, shared).line().startswith(f"SettingsNotTrusted: {file}")


def obey_sudo_as_nobody(folder: str) -> None:
    os.environ["SUDO_UID"] = str(STRANGER)
    ask_as_nobody(folder)


# --- the mode ------------------------------------------------------------------------------------


def test_settings_that_every_user_can_write_are_refused(somewhere: Path) -> None:
    written(somewhere, mode=0o666)
    assert "other users can write it: chmod go-w" in refusal()


def test_settings_that_a_group_can_write_are_refused(somewhere: Path) -> None:
    file = written(somewhere, mode=0o664)
    os.chown(file, -1, STRANGER)
    assert "other users can write it" in refusal()


def test_settings_that_the_private_group_of_their_owner_can_write_are_obeyed(
    somewhere: Path,
) -> None:
    written(somewhere, text='url = "/srv/jobs.db"', mode=0o664)  # root's group has no other member
    assert default_location() == "/srv/jobs.db"


def test_settings_in_a_folder_that_every_user_can_write_are_refused(somewhere: Path) -> None:
    written(somewhere)
    os.chmod(somewhere, 0o777)
    assert f"other users can replace it: chmod go-w {somewhere}" in refusal()


# --- links ---------------------------------------------------------------------------------------


def test_settings_behind_a_link_of_another_user_are_refused(shared: Path, start) -> None:
    target = written(shared, "notes.toml")
    link = shared / "bullite.toml"
    link.symlink_to(target)
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)

    answer = start(ask_as_nobody, shared, own_file=target).line()

    assert answer.startswith(f"SettingsNotTrusted: {link} ")
    assert f"it is a symbolic link of user {STRANGER}" in answer


def test_settings_of_another_user_behind_an_own_link_are_refused(shared: Path, start) -> None:
    link = shared / "bullite.toml"
    link.symlink_to(written(shared, "notes.toml", owner=STRANGER))

    answer = start(ask_as_nobody, shared, linked=link).line()

    assert f"it belongs to user {STRANGER}" in answer


def test_own_settings_behind_an_own_link_are_obeyed(somewhere: Path) -> None:
    elsewhere = somewhere / "elsewhere"
    elsewhere.mkdir()
    (somewhere / "bullite.toml").symlink_to(written(elsewhere, text='url = "/srv/jobs.db"'))
    assert default_location() == "/srv/jobs.db"


def test_settings_behind_a_link_into_a_folder_of_another_user_are_refused(somewhere: Path) -> None:
    elsewhere = somewhere / "elsewhere"
    elsewhere.mkdir()
    (somewhere / "bullite.toml").symlink_to(written(elsewhere))
    os.chown(elsewhere, STRANGER, STRANGER)
    assert f"its folder {elsewhere} belongs to user {STRANGER}" in refusal()


def test_an_own_file_that_another_user_linked_into_a_shared_folder_is_refused(
    shared: Path, start
) -> None:
    # Kernels with fs.protected_hardlinks=0 let other users make such a link.
    with tempfile.TemporaryDirectory(dir=shared.parent, prefix="bullite-") as home:
        file = written(Path(home))
        os.link(file, shared / "bullite.toml")
        answer = start(ask_as_nobody, shared, own_file=file).line()
    assert "it has several names (hard links)" in answer


def test_what_another_user_linked_is_not_even_opened(somewhere: Path, monkeypatch) -> None:
    # It may be a database: to close a descriptor of it would drop the locks of SQLite.
    (somewhere / "jobs.db").touch()
    for name in ("bullite.toml", "pyproject.toml"):
        (somewhere / name).symlink_to("jobs.db")
        os.chown(somewhere / name, STRANGER, STRANGER, follow_symlinks=False)
    opened: list[object] = []
    really = os.open

    def note(path: object, *arguments: int) -> int:
        opened.append(path)
        return really(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", note)
    assert "symbolic link" in refusal()
    assert opened == []


# --- what is no settings file --------------------------------------------------------------------


def test_a_pipe_in_the_place_of_settings_does_not_block(somewhere: Path) -> None:
    os.mkfifo(somewhere / "bullite.toml")
    with pytest.raises(InvalidOption, match=r"cannot read .*bullite.toml: not a regular file"):
        default_location()


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "#" * 2_000_000])
def test_settings_that_cannot_be_parsed_are_named(somewhere: Path, text: str) -> None:
    written(somewhere, text=text)
    with pytest.raises(InvalidOption, match=r"cannot read .*bullite.toml"):
        default_location()
