"""What systemd hears of a service, on a real socket."""

from __future__ import annotations

import configparser
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullite.processes.systemd import notify, watchdog_interval
from tests.processes.groups import Group, groups
from tests.processes.test_supervisor import HUP, TERM
from tests.support.fork_server import ROOT
from tests.support.processes import Child

PATIENCE = 20.0


class Manager:
    """Hears what a service tells."""

    def __init__(self, address: str | bytes) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(PATIENCE)

    def next(self) -> str:
        return self._socket.recv(4096).decode()

    def until(self, beginning: str) -> str:
        while not (said := self.next()).startswith(beginning):
            pass
        return said

    def rest(self) -> list[str]:
        """All that was told and not yet heard."""
        found = []
        self._socket.settimeout(0)
        try:
            while True:
                found.append(self.next())
        except BlockingIOError:
            return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    address = str(tmp_path / "s")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    manager = Manager(address)
    yield manager
    manager.close()


@pytest.fixture
def begin(start: Callable[..., Child], tmp_path: Path) -> Iterator[Callable[..., Group]]:
    with groups(start, tmp_path) as begin:
        yield begin


# --- one message ---------------------------------------------------------------------------------


def test_a_message_arrives_as_it_was_sent(manager):
    assert notify("READY=1\nSTATUS=all is well")
    assert manager.next() == "READY=1\nSTATUS=all is well"


def test_a_socket_may_have_a_name_that_is_in_no_file_system(monkeypatch):
    name = f"bullite-{os.getpid()}-{secrets.token_hex(4)}"
    manager = Manager(b"\0" + name.encode())
    try:
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        assert notify("READY=1")
        assert manager.next() == "READY=1"
    finally:
        manager.close()


@pytest.mark.parametrize(
    "address", [None, "", "/no/such/socket", "relative", "vsock:2:1", "@", "/" + "x" * 200]
)
def test_where_nobody_listens_nothing_is_sent_and_nothing_raised(monkeypatch, address):
    if address is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")


@pytest.mark.parametrize(
    ("every", "pid", "seconds"),
    [
        ("3000000", None, 1.5),
        ("3000000", "ours", 1.5),
        ("3000000", "1", None),
        ("3000000", "", None),
        (None, None, None),
        ("0", None, None),
        ("-1", None, None),
        ("soon", None, None),
    ],
)
def test_systemd_is_told_twice_in_its_interval_if_it_watches_us(monkeypatch, every, pid, seconds):
    for name, value in (("WATCHDOG_USEC", every), ("WATCHDOG_PID", pid)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, str(os.getpid()) if value == "ours" else value)
    assert watchdog_interval() == seconds


# --- what a supervisor tells ---------------------------------------------------------------------


def test_a_supervisor_tells_of_its_life_in_order(manager, begin):
    group = begin()
    group.until("running")
    group.signal(HUP)
    group.until("reloaded")
    group.signal(TERM)
    assert group.code() == 0
    told = [said for said in manager.rest() if not said.startswith("STATUS=")]
    assert [said.splitlines()[0] for said in told] == [
        "READY=1",
        "RELOADING=1",
        "READY=1",
        "STOPPING=1",
    ]
    assert told[1].splitlines()[1].startswith("MONOTONIC_USEC=")


def test_a_supervisor_is_ready_when_all_its_children_are(manager, begin):
    group = begin("slow", 2)
    group.until_each("spawned", 2)
    assert manager.next() == "STATUS=starting, 0 of 2 workers ready"
    group.touch("go")
    manager.until("READY=1")
    assert len(group.pids(2)) == 2
    assert manager.until("STATUS=") == "STATUS=running, 2 of 2 workers ready"


def test_a_supervisor_is_ready_after_a_while_whatever_its_children_say(manager, begin):
    begin("mute", moments={"READY_WITHIN": 0.1})
    manager.until("READY=1")


def test_systemd_hears_in_words_how_many_work(manager, begin):
    group = begin("dies", 1, restart_base=60, restart_longest=60)
    group.until("restarting", delay=60)
    group.signal(TERM)
    group.code()
    assert "STATUS=starting, 0 of 1 workers ready" in manager.rest()


def test_a_supervisor_that_is_watched_says_that_it_lives(manager, begin, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    begin(count=1)
    for _ in range(4):
        manager.until("WATCHDOG=1")


def test_children_do_not_see_the_socket(manager, begin, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    (pid,) = begin(count=1).pids(1)
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    names = {entry.partition(b"=")[0] for entry in environment}
    assert b"BULLITE_LIFELINE" in names
    assert not names & {b"NOTIFY_SOCKET", b"WATCHDOG_USEC", b"WATCHDOG_PID"}


# --- the sample ----------------------------------------------------------------------------------


def test_the_sample_unit_gives_the_supervisor_the_time_it_takes_to_end():
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign, assignment]
    unit.read(ROOT / "docs" / "queuectl.service")
    service = unit["Service"]
    assert (service["Type"], service["KillMode"]) == ("notify", "mixed")
    assert int(service["TimeoutStopSec"]) > 30 + 5 + 1
