"""Passwords in the variables of worker processes, which commands of the same user must not read."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullite.cli import program as queuectl
from bullite.cli import worker_process
from bullite.cli.verbs import worker
from bullite.cli.worker_process import SPEC, Spec
from bullite.processes import private_environment
from tests.cli.program import program, run_well
from tests.cli.worker_groups import crews, enqueue, stop
from tests.support.processes import say

SECRETS = {"QUEUECTL_SMTP_PASSWORD": "swordfish", "QUEUECTL_WEBHOOK_SECRET": "sésame \udcff"}
LOOK = (
    "cat /proc/$PPID/environ /proc/$PPID/fd/* /proc/$PPID/maps > /dev/null 2> refused;"
    " grep -c denied refused; cat /proc/$PPID/environ | wc -c"
)


def dumpable(set_to: int | None = None) -> int:
    prctl = ctypes.CDLL(None).prctl
    return int(prctl(3, 0, 0, 0, 0) if set_to is None else prctl(4, set_to, 0, 0, 0))


# --- what processes are started with -------------------------------------------------------------


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape")


def test_worker_processes_are_started_without_passwords_in_their_environment(
    tmp_path: Path,
) -> None:
    location = str(tmp_path / "jobs.db")
    with crews(location, tmp_path) as start:
        crew = start(**SECRETS)
        [pid] = crew.pids()
        names = {line.partition("=")[0] for line in environment_of(pid).split("\0")}
    assert "PATH" in names
    assert not {"BULLITE_URL", "BULLITE_WORKER", *SECRETS} & names


def test_worker_processes_have_the_variables_that_they_are_not_started_with(
    tmp_path: Path,
) -> None:
    location = str(tmp_path / "jobs.db")
    with crews(location, tmp_path) as start:
        line = 'printf %s "$QUEUECTL_SMTP_PASSWORD $QUEUECTL_WEBHOOK_SECRET"'
        words = [word for name in SECRETS for word in ("--env-from", name)]
        job = enqueue(location, line, *words)
        start(**SECRETS).pids()
        run_well("wait", job, "--timeout", "20s", db=location)
    output = run_well("output", job, "--json", db=location).json
    assert "swordfish sésame" in json.dumps(output, ensure_ascii=False)


def test_a_daemon_is_started_without_passwords_in_its_environment(tmp_path: Path) -> None:
    location = f"sqlite:///{tmp_path}/jobs.db?durability=relaxed"
    try:
        said = program("worker", "start", "--daemon", "--json", "--db", location, cwd=tmp_path)
        found = environment_of(said.json["pid"])
    finally:
        stop(location)
    assert "PATH=" in found
    assert "durability=relaxed" not in found


# --- what other processes of the user may look into ----------------------------------------------


def give_up_capabilities() -> None:
    """Be a root that may only do what other users may: also in the programs that it becomes."""
    libc = ctypes.CDLL(None)
    for number in range(64):
        libc.prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert libc.capset(header, (ctypes.c_uint32 * 6)()) == 0


def work_without_capabilities(folder: str) -> None:
    """Be a worker process that could be looked into when it began."""
    os.environ["BULLITE_URL"] = f"{folder}/jobs.db"
    os.environ[SPEC] = Spec(("default",), max_jobs=1).as_text()
    os.chdir(folder)
    give_up_capabilities()
    say(f"dumpable {dumpable()}")
    worker_process.main()


def test_a_command_reads_nothing_of_its_worker_process(tmp_path: Path, start) -> None:
    location = str(tmp_path / "jobs.db")
    job = enqueue(location, LOOK)

    child = start(work_without_capabilities, tmp_path)
    child.said("dumpable 1")
    child.ended()

    [run] = run_well("output", job, "--json", db=location).json["runs"]
    refused, size = run["stdout"].split()
    assert int(refused) > 2
    assert size == "0"


def supervise(location: str) -> None:
    """Say whether the supervisor could be looked into while it runs its workers."""

    class Supervised:
        def __init__(self, *arguments: object, **options: object) -> None:
            pass

        def run(self) -> int:
            say(f"dumpable {dumpable()}")
            return 0

    worker.Supervisor = Supervised  # type: ignore[assignment, misc]
    queuectl.run(["worker", "start", "--db", location])


def keep_house(location: str) -> None:
    """Say whether the scheduler could be looked into while it runs."""
    worker.signal.sigwait = lambda ends: say(f"dumpable {dumpable()}")  # type: ignore[attr-defined]
    queuectl.run(["scheduler", "--db", location])


@pytest.mark.parametrize("runs", [supervise, keep_house], ids=["supervisor", "scheduler"])
def test_who_knows_the_database_for_long_cannot_be_looked_into(tmp_path: Path, start, runs) -> None:
    start(runs, tmp_path / "jobs.db").said("dumpable 0")


# --- the socket ----------------------------------------------------------------------------------


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in SECRETS:
            patch.setenv(name, "")
        yield


@pytest.mark.usefixtures("offered")
def test_variables_are_received_as_they_were_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = private_environment.offer(SECRETS)
    monkeypatch.setenv(private_environment.PRIVATE, str(receiver.detach()))

    private_environment.receive()

    assert {name: os.environ[name] for name in SECRETS} == SECRETS
    assert private_environment.PRIVATE not in os.environ


@pytest.mark.parametrize("descriptor", ["", "x", "-1", "9" * 20, "0", "12345"])
def test_what_is_no_socket_is_not_received(
    monkeypatch: pytest.MonkeyPatch, descriptor: str
) -> None:
    monkeypatch.setenv(private_environment.PRIVATE, descriptor)
    private_environment.receive()
    assert private_environment.PRIVATE not in os.environ


def test_variables_that_are_too_long_are_refused() -> None:
    with pytest.raises(OSError, match="are too long"):
        private_environment.offer({"QUEUECTL_REDACT_OUTPUT": "x" * 100_000_000})


def test_the_mark_of_a_command_stays_in_the_environment() -> None:
    public, private = private_environment.split(
        {"BULLITE_RUN": "1", "BULLITE_URL": "x", "PATH": "/bin"}
    )
    assert (public, private) == ({"BULLITE_RUN": "1", "PATH": "/bin"}, {"BULLITE_URL": "x"})


def test_the_socket_cannot_be_opened_through_proc() -> None:
    with (
        private_environment.offer(SECRETS) as receiver,
        pytest.raises(OSError, match="No such device"),
    ):
        os.open(f"/proc/self/fd/{receiver.fileno()}", os.O_RDONLY)
