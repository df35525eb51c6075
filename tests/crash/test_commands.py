"""Commands whose worker is killed: they are dead, with all they started, before their jobs run
again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullite import Queue, Worker
from bullite.cli import worker_process
from bullite.cli.worker_process import SPEC, Spec
from bullite.commands.processors import BuiltinProcessors
from bullite.engine import maintenance
from bullite.engine import orphaned_commands as engine_commands
from bullite.engine.maintenance import Maintenance
from bullite.engine.orphaned_commands import MAX_LOOKS
from bullite.operations.workers import RecoverStalled
from bullite.processes import orphaned_commands, process_info
from bullite.processes.orphaned_commands import (
    COMMAND,
    NOTICE,
    OrphanScan,
    RunMarker,
    commands,
    end,
    env_marker_for,
    parse_marker,
    worker_is_gone,
)
from bullite.processes.process_info import ENV_MARKER, Process, pid_namespace, read_process
from bullite.processes.process_tree import adopt_orphans
from tests.commands.test_runner import sleepers
from tests.support.harness import Store, new_job
from tests.support.processes import (
    Child,
    add,
    finished,
    problems,
    registered,
    rows,
    states,
    wait_until,
)

_numbers = itertools.count(1)

# Its first run starts four processes and stays; the next tells who of them is there still.
LINE = """
alive() { test -d /proc/$1 && ! grep -q '^State:.[ZX]' /proc/$1/status; }
if test -s FOLDER/pids; then
    for pid in $(cat FOLDER/pids); do alive $pid && echo $pid >> FOLDER/survivors; done
    echo again >> FOLDER/again
    exit 0
fi
trap '' TERM
sleep MARK & one=$!
setsid sleep MARK & two=$!
env -u BULLITE_RUN sleep MARK & three=$!
(setsid sh -c 'sleep MARK & wait' &)
echo $$ $one $two $three > FOLDER/pids.new
mv FOLDER/pids.new FOLDER/pids
wait
"""
PROCESSES = 4
"""Those of its first run that sleep."""

# Its first run becomes another program, without its environment.
HIDING = """
alive() { test -d /proc/$1 && ! grep -q '^State:.[ZX]' /proc/$1/status; }
if test -s FOLDER/pids; then
    alive $(cat FOLDER/pids) && echo >> FOLDER/survivors
    echo again >> FOLDER/again
    exit 0
fi
echo $$ > FOLDER/pids
exec env -i HIDE /bin/sleep MARK
"""
HIDES = {"from its environment": "", "and from its session": "setsid -w"}


async def work(location: str, **settings: Any) -> None:
    """Run commands until killed."""
    adopt_orphans()
    queue = Queue("work", location)
    await Worker(queue, BuiltinProcessors(queue.store).processors(), **settings).run()


def begin(location: str) -> None:
    """A worker process as supervisors start it."""
    os.environ["BULLITE_URL"] = location
    os.environ[SPEC] = Spec(("work",)).as_text()
    worker_process.main()


@pytest.fixture
def marks() -> Iterator[Any]:
    """Seconds to sleep that nobody else sleeps; who still does in the end is killed."""
    made: list[str] = []

    def make() -> str:
        made.append(f"302.{os.getpid()}{next(_numbers):03}")
        return made[-1]

    yield make
    for mark in made:
        for pid in sleepers(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def line_for(folder: Path, mark: str, line: str = LINE) -> str:
    return line.replace("FOLDER", str(folder)).replace("MARK", mark)


def add_command(location: str, folder: Path, mark: str) -> int:
    [job] = add(location, "shell", data={"command": line_for(folder, mark)})
    return job


def leave_a_daemon(location: str, mark: str) -> None:
    """Have a worker run a command that ends and leaves somebody behind."""
    line = f"setsid sleep {mark} > /dev/null 2>&1 &"
    [job] = add(location, "shell", data={"command": line})
    wait_until(lambda: states(location)[job] == "completed" and len(sleepers(mark)) == 1)


def is_at_work(folder: Path, mark: str) -> bool:
    return (folder / "pids").exists() and len(sleepers(mark)) == PROCESSES


def test_the_commands_of_a_killed_worker_are_dead_before_their_job_runs_again(
    database, location, start, marks, tmp_path
):
    mark = marks()
    job = add_command(location, tmp_path, mark)
    killed_worker = start(work, location, **database.short_lease)
    wait_until(lambda: is_at_work(tmp_path, mark))
    second_worker = start(work, location, **database.short_lease)
    wait_until(lambda: registered(location, second_worker))

    killed_worker.kill()

    wait_until(lambda: finished(location, job))
    assert (tmp_path / "again").read_text() == "again\n"
    assert not (tmp_path / "survivors").exists()
    assert sleepers(mark) == []
    [(state, stalls)] = rows(location, "select state, stalled_count from bullite_jobs")
    assert (state, stalls) == ("completed", 1)
    assert problems(location) == ()


@pytest.mark.parametrize("how", HIDES.values(), ids=HIDES)
def test_a_command_that_hides_is_dead_before_its_job_runs_again(
    database, location, start, marks, tmp_path, how
):
    mark = marks()
    line = line_for(tmp_path, mark, HIDING).replace("HIDE", how)
    [job] = add(location, "shell", data={"command": line})
    killed_worker = start(work, location, **database.short_lease)
    wait_until(lambda: sleepers(mark))

    killed_worker.kill()
    start(work, location)

    wait_until(lambda: finished(location, job))
    assert (tmp_path / "again").read_text() == "again\n"
    assert not (tmp_path / "survivors").exists()
    assert sleepers(mark) == []


def test_a_worker_process_that_begins_ends_what_dead_ones_left(
    database, location, start, marks, tmp_path
):
    mark = marks()
    job = add_command(location, tmp_path, mark)
    killed_worker = start(work, location)  # whose lease is long
    wait_until(lambda: is_at_work(tmp_path, mark))
    killed_worker.kill()

    second_worker = start(begin, location)

    wait_until(lambda: sleepers(mark) == [])
    if not database.short_lease:  # there its death is known without one
        wait_until(lambda: finished(location, job))
        assert not (tmp_path / "survivors").exists()
    wait_until(lambda: registered(location, second_worker))
    second_worker.signal(signal.SIGTERM)
    assert second_worker.ended() == 0


@pytest.mark.parametrize("second_worker", [work, begin], ids=["of the library", "of a supervisor"])
def test_what_a_command_left_behind_when_it_ended_outlives_its_worker(
    database, location, start, marks, tmp_path, second_worker
):
    daemon, mark = marks(), marks()
    killed_worker = start(work, location, **database.short_lease)
    leave_a_daemon(location, daemon)
    job = add_command(location, tmp_path, mark)
    wait_until(lambda: is_at_work(tmp_path, mark))

    killed_worker.kill()
    start(second_worker, location)

    wait_until(lambda: finished(location, job))
    assert sleepers(mark) == []
    assert len(sleepers(daemon)) == 1


def test_the_command_of_a_job_that_was_cancelled_is_ended_with_it(
    database, location, start, marks, tmp_path
):
    mark = marks()
    job = add_command(location, tmp_path, mark)
    killed_worker = start(work, location, **database.short_lease)
    wait_until(lambda: is_at_work(tmp_path, mark))
    killed_worker.kill()
    asyncio.run(cancel(location, job))
    assert states(location)[job] == "active"

    start(work, location)

    wait_until(lambda: finished(location, job))
    assert sleepers(mark) == []
    assert not (tmp_path / "again").exists()


async def cancel(location: str, job: int) -> None:
    async with Queue("work", location) as queue:
        await queue.cancel(str(job))


def test_the_command_of_a_notice_is_dead_before_it_is_given_again(
    database, location, start, marks, tmp_path
):
    mark = marks()
    failed = {"job_id": "7", "queue": "work", "failed_reason": None, "attempts_made": 1}
    notice = {"notify": line_for(tmp_path, mark), "failed": {**failed, "failed_at": 0}}
    [job] = add(location, "notify", data=notice)
    killed_worker = start(work, location, **database.short_lease)
    wait_until(lambda: is_at_work(tmp_path, mark))

    killed_worker.kill()
    start(work, location)

    wait_until(lambda: finished(location, job))
    assert (tmp_path / "again").read_text() == "again\n"
    assert not (tmp_path / "survivors").exists()


def test_the_commands_of_a_living_worker_are_left_alone(database, location, start, marks, tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    workers: list[Child] = []
    held: list[str] = []
    for folder in folders:
        folder.mkdir()
        held.append(marks())
        add_command(location, folder, held[-1])
        workers.append(start(work, location, **database.short_lease))
        wait_until(lambda folder=folder: is_at_work(folder, held[-1]))
    before = sleepers(held[1])

    workers[0].kill()
    second_worker = start(begin, location)

    wait_until(lambda: registered(location, second_worker))
    wait_until(lambda: (folders[0] / "again").exists())
    assert sleepers(held[0]) == []
    assert sorted(sleepers(held[1])) == sorted(before)


# --- the marks -----------------------------------------------------------------------------------


def test_a_mark_tells_whose_a_command_is() -> None:
    here = read_process(os.getpid())
    assert here is not None
    mark = parse_marker(env_marker_for(-5, 1, 2))
    assert mark == (-5, 1, 2, os.getpid(), here.start_time, pid_namespace())


def test_a_mark_is_short() -> None:
    assert len(env_marker_for(-5, 10**12, 10**12)) < 100


@pytest.mark.parametrize(
    "cookie",
    [None, "", "x", "1-2-3", "g-1-1-1-1-a", "1-1-1-b-1-a", "1-2-3-4-5", "1-2-3-4-5-6-7"],
)
def test_what_is_no_mark_of_ours_tells_nothing(cookie: str | None) -> None:
    assert parse_marker(cookie) is None


LONG_AGO = 1
"""The tick after the machine began to run, when no test could have."""


def my_mark() -> RunMarker:
    mark = parse_marker(env_marker_for(77, 1, 1))
    assert mark is not None
    return mark


def test_commands_of_this_process_are_not_abandoned() -> None:
    assert not worker_is_gone(my_mark())


def test_a_worker_whose_number_nobody_has_is_dead() -> None:
    assert worker_is_gone(my_mark()._replace(pid=2**22 + 1))


def test_a_worker_whose_number_another_process_has_now_is_dead() -> None:
    assert worker_is_gone(my_mark()._replace(start_time=LONG_AGO))


def test_a_worker_that_only_waits_for_its_parent_is_dead() -> None:
    with subprocess.Popen(["true"]) as child:
        wait_until(lambda: (found := read_process(child.pid)) is not None and found.is_gone)
        zombie = read_process(child.pid)
        assert zombie is not None
        assert worker_is_gone(my_mark()._replace(pid=child.pid, start_time=zombie.start_time))


@pytest.mark.parametrize("space", ["", "0123456789abcdef"], ids=["unknown", "another"])
def test_numbers_that_count_elsewhere_tell_nothing_of_a_worker(space: str) -> None:
    assert not worker_is_gone(my_mark()._replace(pid=2**22 + 1, pid_namespace=space))


def test_where_numbers_cannot_be_told_nobody_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_info, "boot_id", lambda: "")
    assert pid_namespace() == ""
    assert not worker_is_gone(my_mark()._replace(pid=2**22 + 1, pid_namespace=""))


def test_numbers_count_anew_in_each_namespace() -> None:
    tells = [
        sys.executable,
        "-c",
        "from bullite.processes.process_info import *; print(pid_namespace())",
    ]
    found = []
    for shows_its_own in (["--mount-proc"], []):
        line = ["unshare", "--map-root-user", "--pid", "--fork", *shows_its_own, *tells]
        told = subprocess.run(line, capture_output=True, text=True)
        if told.returncode:
            pytest.skip(f"there are no namespaces here: {told.stderr}")
        found.append(told.stdout.strip())
    [inside, without_its_own] = found
    assert inside not in ("", pid_namespace())
    assert without_its_own == ""


@pytest.mark.parametrize("cookie", ["", "0123456789abcdef0123456789abcdef", "1-2-3"])
def test_orphaned_process_search_ignores_a_process_without_a_valid_run_marker(cookie: str) -> None:
    line = ["sh", "-c", "echo; exec sleep 300"]
    with subprocess.Popen(
        line,
        env={**os.environ, ENV_MARKER: cookie},
        start_new_session=True,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = {one.pid for members in commands().values() for one in members}
        child.kill()
    assert child.pid not in found


def test_who_shares_a_session_with_a_marked_process_is_ended_with_it() -> None:
    cookie = env_marker_for(2**61 + os.getpid(), 1, 1)
    line = "env -u BULLITE_RUN sleep 300 & echo $!; wait"
    with subprocess.Popen(
        ["sh", "-c", line],
        env={**os.environ, ENV_MARKER: cookie},
        start_new_session=True,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        unmarked = int(child.stdout.readline())
        mark = parse_marker(cookie)
        assert mark is not None
        members = commands()[mark]
        assert {one.pid for one in members} == {child.pid, unmarked}
        end(members)
        assert child.wait() == -signal.SIGKILL
        wait_until(lambda: mark not in commands())


# --- taking jobs back ----------------------------------------------------------------------------


NAMES = (COMMAND, NOTICE)


class Left:
    """What is found of commands, instead of real ones."""

    def __init__(self) -> None:
        self.found: dict[RunMarker, list[Process]] = {}
        self.looks = 0
        self.ended: list[int] = []

    def add(self, nonce: int, job: int, token: int, pid: int, space: str = "elsewhere") -> None:
        mark = RunMarker(nonce, job, token, os.getpid(), LONG_AGO, space)
        self.found[mark] = [Process(pid, "S", 1, pid, pid, LONG_AGO)]

    def look(self) -> dict[RunMarker, list[Process]]:
        self.looks += 1
        return self.found

    def end(self, members: list[Process]) -> None:
        self.ended += [one.pid for one in members]


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Left:
    left = Left()
    monkeypatch.setattr(orphaned_commands, "commands", left.look)
    monkeypatch.setattr(engine_commands, "end", left.end)
    monkeypatch.setattr(OrphanScan, "start", OrphanScan.run)
    return left


def recoveries(due: Maintenance, store: Store) -> list[int]:
    """The workers whose jobs would be taken back now."""
    found = due.due(store.clock.lease_now())
    return [one.worker.id for one in found if isinstance(one, RecoverStalled)]


def test_commands_are_looked_for_once_for_all_that_died(store: Store, left: Left) -> None:
    doomed = [store.process() for _ in range(2)]
    lost = [one.worker(names=NAMES).id for one in doomed for _ in range(2)]
    for one in doomed:
        store.kill(one)
    assert sorted(recoveries(Maintenance(store.home.driver), store)) == sorted(lost)
    assert left.looks == 1


def test_nobody_looks_for_commands_while_nobody_has_died(store: Store, left: Left) -> None:
    store.process().worker(names=NAMES)
    due = Maintenance(store.home.driver)
    for _ in range(3):
        recoveries(due, store)
        store.clock.advance(1_000)
    assert left.looks == 1  # for what there was before this process


def test_jobs_are_taken_back_when_the_commands_are_dead(store: Store, left: Left) -> None:
    store.add_all(new_job(COMMAND))
    doomed = store.process()
    lost = doomed.worker(names=NAMES)
    job = lost.claim_one()
    left.add(doomed.nonce, job.id, store.row(job.id).token, pid=7)
    store.kill(doomed)
    due = Maintenance(store.home.driver)

    assert recoveries(due, store) == []
    assert left.ended == [7]
    assert due.next_at() - store.clock.lease_now() <= maintenance.UNTIL_KILLED

    left.found.clear()
    store.clock.advance(maintenance.UNTIL_KILLED)
    assert recoveries(due, store) == [lost.id]


def test_what_a_process_left_that_is_gone_is_ended_while_its_lease_lasts(
    store: Store, left: Left
) -> None:
    store.add_all(new_job(COMMAND))
    gone = store.process()
    job = gone.worker(names=NAMES).claim_one()
    left.add(gone.nonce, job.id, store.row(job.id).token, pid=7, space=pid_namespace())
    assert recoveries(Maintenance(store.home.driver), store) == []
    assert left.ended == [7]


def test_who_cannot_be_killed_does_not_keep_a_job_for_ever(store: Store, left: Left) -> None:
    store.add_all(new_job(COMMAND))
    doomed = store.process()
    lost = doomed.worker(names=NAMES)
    job = lost.claim_one()
    left.add(doomed.nonce, job.id, store.row(job.id).token, pid=7)
    store.kill(doomed)
    due = Maintenance(store.home.driver)
    for _ in range(MAX_LOOKS):
        assert recoveries(due, store) == []
        store.clock.advance(maintenance.UNTIL_KILLED)
    assert recoveries(due, store) == [lost.id]


def test_only_commands_of_jobs_that_are_held_are_ended(store: Store, left: Left) -> None:
    store.add_all(new_job(COMMAND), new_job(COMMAND))
    doomed = store.process()
    worker = doomed.worker(names=NAMES)
    done, held = worker.claim(2)
    token = store.row(held.id).token
    worker.complete(done)
    left.add(doomed.nonce, done.id, token, pid=1)
    left.add(doomed.nonce, held.id, token - 1, pid=2)
    left.add(doomed.nonce + 1, held.id, token, pid=3)
    left.add(doomed.nonce, held.id, token, pid=4)
    left.add(doomed.nonce, held.id + 1_000, token, pid=5)
    store.kill(doomed)
    recoveries(Maintenance(store.home.driver), store)
    assert left.ended == [4]


def test_nobody_looks_for_commands_of_workers_that_run_none(
    store: Store, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("a process was looked at")

    for name in ("commands", "processes", "read_process", "env_marker_of"):
        monkeypatch.setattr(orphaned_commands, name, refuse)
    store.add_all(new_job(), new_job("mail"))
    doomed = store.process()
    lost = [doomed.worker(), doomed.worker(names=["mail"])]
    for one in lost:
        one.claim_one()
    due = Maintenance(store.home.driver)
    assert recoveries(due, store) == []
    store.kill(doomed)
    store.clock.advance(1_000)
    assert recoveries(due, store) == [one.id for one in lost]


def test_commands_are_looked_for_beside_the_engine(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, allowed, looks = threading.Event(), threading.Event(), list[threading.Thread]()

    def look() -> dict[RunMarker, list[Process]]:
        looks.append(threading.current_thread())
        looked.set()
        assert allowed.wait(20)
        return {}

    monkeypatch.setattr(orphaned_commands, "commands", look)
    doomed = store.process()
    lost = doomed.worker(names=NAMES)
    store.kill(doomed)
    due = Maintenance(store.home.driver)
    for _ in range(2):
        assert recoveries(due, store) == []
        assert looked.wait(20)
        store.clock.advance(maintenance.UNTIL_KILLED)
    allowed.set()
    [thread] = looks
    assert thread is not threading.current_thread()
    thread.join(20)
    assert recoveries(due, store) == [lost.id]


def test_who_is_lost_while_commands_are_looked_for_is_looked_for_again(
    store: Store, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[OrphanScan] = []
    monkeypatch.setattr(OrphanScan, "start", lambda look: started.append(look))
    first, second = store.process(), store.process()
    lost = [one.worker(names=NAMES).id for one in (first, second)]
    store.kill(first)
    due = Maintenance(store.home.driver)
    assert recoveries(due, store) == []
    store.kill(second)
    store.clock.advance(maintenance.UNTIL_KILLED)
    for expected in ([lost[0]], lost):  # what is not carried out is due again
        assert recoveries(due, store) == []
        started[-1].run()
        store.clock.advance(maintenance.UNTIL_KILLED)
        assert recoveries(due, store) == expected
        store.clock.advance(maintenance.UNTIL_KILLED)
    assert left.looks == 2


# --- marks that other processes forge ------------------------------------------------------------


NOBODY = 65534


@contextlib.contextmanager
def forging(*words: str, cookie: str | None, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a mark in its environment, or without one."""
    marked = {} if cookie is None else {ENV_MARKER: cookie}
    with subprocess.Popen(words, env={"PATH": os.environ["PATH"], **marked}, **how) as process:
        try:
            # Until it has become its program, its environment is still ours.
            wait_until(lambda: process_info.env_marker_of(process.pid) == cookie)
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def found_for(cookie: str) -> set[int]:
    """The processes that would be ended for a mark."""
    mark = parse_marker(cookie)
    assert mark is not None
    return {process.pid for process in commands().get(mark, [])}


def test_a_mark_of_another_users_process_is_not_believed():
    cookie = env_marker_for(1, 2, 3)
    with forging("sleep", "90", cookie=cookie, start_new_session=True, user=NOBODY) as theirs:
        assert found_for(cookie) == set()
        assert theirs.poll() is None


def test_a_mark_in_a_session_whose_leader_has_none_is_that_of_one_process():
    cookie = env_marker_for(1, 2, 4)
    line = f"sleep 90 & {ENV_MARKER}={cookie} sleep 90 & wait"
    with forging("sh", "-c", line, cookie=None, start_new_session=True) as leader:
        wait_until(lambda: found_for(cookie))
        [forged] = found_for(cookie)
        assert process_info.env_marker_of(forged) == cookie
        assert forged != leader.pid


def test_processes_of_another_user_in_the_session_of_a_command_belong_to_it():
    cookie = env_marker_for(1, 2, 5)
    line = f"env -u {ENV_MARKER} setpriv --reuid {NOBODY} --clear-groups sleep 90 & wait"
    with forging("sh", "-c", line, cookie=cookie, start_new_session=True) as leader:
        wait_until(lambda: len(found_for(cookie)) == 2)
        [theirs] = found_for(cookie) - {leader.pid}
        wait_until(lambda: process_info.user_of(theirs) == NOBODY)
        assert theirs in found_for(cookie)
