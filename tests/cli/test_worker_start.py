"""`queuectl worker start`: processes that run jobs, are replaced and end."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullite import Store
from bullite.cli import daemonize
from bullite.cli.verbs import worker
from bullite.cli.worker_groups import GROUPS
from bullite.client.key_values import set_value
from bullite.client.runtime.blocking import run_blocking
from bullite.processes.group_lock import entry_of_this_process
from bullite.processes.process_info import processes
from tests.cli.program import command, environment, program, run, run_well
from tests.cli.worker_groups import (
    Start,
    crews,
    enqueue,
    forget,
    is_gone,
    is_worker,
    show,
    stop,
    until_state,
    words_of,
)
from tests.commands.test_runner import sleepers
from tests.support.databases import PATIENCE, Database, SQLiteDatabase
from tests.support.processes import wait_until

_numbers = itertools.count(1)

MEET = "echo $PPID > me{me}; until test -e me{other}; do sleep 0.02; done"
"""A command that ends only beside another one."""

TASKS = """
import time

held = []

def greet(job):
    return f"hello {job.data}"

async def ask(job):
    return "well?"

def anything(job):
    return f"any {job.name}"

def dawdle():
    time.sleep(0.5)

def grow(megabytes):
    held.append(bytearray(b"x" * megabytes * 2**20))

def blame(job):
    raise ValueError(job.data)

jobs = {"greet": greet, "ask": ask, "blame": blame}
nonsense = 5
"""

SHOP = """
from bullite import Bullite

app = Bullite()

@app.task(name="double")
def double(number: int) -> int:
    return 2 * number

@app.task(name="shout", queue="letters")
async def shout(word: str) -> str:
    return word.upper()

@app.every("100ms")
@app.task(name="tick", queue="clock")
async def tick() -> str:
    return "tick"

class Everything:
    queue_name = "all"

    def handle(self, payload, job):
        return job.name

app.register(Everything)
"""


@pytest.fixture
def start(database: Database, location: str, tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "shop.py").write_text(SHOP)
    with crews(location, tmp_path) as start:
        yield start
    forget(database)


@pytest.fixture
def mark() -> Iterator[str]:
    """Seconds to sleep that nobody else sleeps; who still does in the end is killed."""
    number = f"303.{os.getpid()}{next(_numbers):03}"
    yield number
    for pid in sleepers(number):
        os.kill(pid, signal.SIGKILL)


def result_of(database: Database, job: int) -> object:
    until_state(database, job, "completed")
    [[value]] = database.query("select return_value from bullite_results where job = ?", job)
    return json.loads(value)


# --- what runs -----------------------------------------------------------------------------------


def test_jobs_run_side_by_side_in_as_many_processes_as_asked_for(
    database: Database, location: str, start: Start, tmp_path: Path
) -> None:
    jobs = [enqueue(location, MEET.format(me=me, other=1 - me)) for me in (0, 1)]
    pids = start("--count", 2).pids(2)
    for job in jobs:
        until_state(database, job, "completed")
    assert {int((tmp_path / f"me{me}").read_text()) for me in (0, 1)} == set(pids)


def test_one_process_runs_as_many_jobs_at_a_time_as_asked_for(
    database: Database, location: str, start: Start, tmp_path: Path
) -> None:
    jobs = [enqueue(location, MEET.format(me=me, other=1 - me)) for me in (0, 1)]
    [pid] = start("--concurrency", 2).pids()
    for job in jobs:
        until_state(database, job, "completed")
    assert [int((tmp_path / f"me{me}").read_text()) for me in (0, 1)] == [pid, pid]


def test_several_queues_are_served_and_others_are_not(
    database: Database, location: str, start: Start
) -> None:
    jobs = {name: enqueue(location, "true", "--queue", name) for name in ("a", "b", "c")}
    start("--queue", "a", "-q", "b").pids()
    until_state(database, jobs["a"], "completed")
    until_state(database, jobs["b"], "completed")
    assert show(database, jobs["c"])[0] == "waiting"


def test_functions_of_an_app_run_the_jobs_of_their_names(
    database: Database, location: str, start: Start
) -> None:
    add = ["add", "default"]
    greet = int(run_well(*add, "greet", "--data", '"you"', db=location).lines[0])
    ask = int(run_well(*add, "ask", db=location).lines[0])
    other = int(run_well(*add, "other", db=location).lines[0])
    start("--app", "tasks:jobs").pids()
    assert result_of(database, greet) == "hello you"
    assert result_of(database, ask) == "well?"
    assert show(database, other)[0] == "waiting"


def test_a_function_of_an_app_runs_all_jobs_that_nobody_else_does(
    database: Database, location: str, start: Start
) -> None:
    other = int(run_well("add", "default", "other", db=location).lines[0])
    greet = int(run_well("add", "default", "greet", "--data", "1", db=location).lines[0])
    command = enqueue(location, "true")
    start("--app", "tasks:jobs", "--app", "tasks:anything", "--commands").pids()
    assert result_of(database, other) == "any other"
    assert result_of(database, greet) == "hello 1"
    assert result_of(database, command) == {"exit_code": 0}


def task_of(location: str, queue: str, name: str, argument: object) -> int:
    """Add a job as an application adds its tasks."""
    data = json.dumps({"args": [argument]})
    return int(run_well("add", queue, name, "--data", data, db=location).lines[0])


def test_an_application_serves_its_queues_and_makes_its_schedules(
    database: Database, location: str, start: Start
) -> None:
    double = task_of(location, "default", "double", 4)
    shout = task_of(location, "letters", "shout", "a")
    anything = int(run_well("add", "all", "shell", db=location).lines[0])
    start("--app", "shop:app").pids()
    assert result_of(database, double) == 8
    assert result_of(database, shout) == "A"
    assert result_of(database, anything) == "shell"
    ticks = "select count(*) from bullite_jobs where name = 'tick' and id > ?"
    wait_until(lambda: database.query(ticks, anything)[0][0] > 1)


@pytest.mark.parametrize("app", ["shop:app", "tasks:jobs", "tasks:anything"])
def test_workers_of_an_application_run_no_commands(
    tmp_path: Path, database: Database, location: str, start: Start, app: str
) -> None:
    ran = tmp_path / "ran"
    for name, data in (
        ("shell", {"command": f"touch {ran}"}),
        ("notify", {"notify": f"touch {ran}"}),
    ):
        run_well("add", "default", name, "--priority", 9, "--data", json.dumps(data), db=location)
    run_well("add", "notifications", "notify", "--data", json.dumps(data), db=location)
    last = task_of(location, "default", "greet" if app == "tasks:jobs" else "double", 4)
    start("--app", app).pids()
    until_state(database, last, "completed")
    assert not ran.exists()


def test_commands_are_run_beside_an_application_in_a_queue_that_is_named(
    database: Database, location: str, start: Start
) -> None:
    double = task_of(location, "default", "double", 4)
    theirs = enqueue(location, "true")
    mine = enqueue(location, "true", "--queue", "errands")
    start("--app", "shop:app", "--queue", "default", "--queue", "errands").pids()
    assert result_of(database, mine) == {"exit_code": 0}
    assert result_of(database, double) == 8
    assert show(database, theirs)[0] == "waiting"


def test_commands_are_run_beside_an_application_if_they_are_wanted(
    database: Database, location: str, start: Start
) -> None:
    double = task_of(location, "default", "double", 4)
    command = enqueue(location, "true")
    start("--app", "shop:app", "--commands").pids()
    assert result_of(database, double) == 8
    assert result_of(database, command) == {"exit_code": 0}


@pytest.mark.parametrize(
    "source",
    [
        "jobs = {{{name!r}: print}}",
        "from bullite import Bullite\njobs = Bullite()\njobs.task(name={name!r})(print)",
    ],
)
@pytest.mark.parametrize("more", [[], ["--no-commands"], ["--commands"]])
def test_an_application_with_a_reserved_name_is_not_started(
    tmp_path: Path, source: str, more: list[str]
) -> None:
    (tmp_path / "bad.py").write_text(source.format(name="notify"))
    said = program(
        "worker", "start", "--app", "bad:jobs", *more, db=str(tmp_path / "x.db"), cwd=tmp_path
    )
    assert said.code == 2
    assert "the task 'notify'" in said.err
    assert "give it another name" in said.err
    assert not (tmp_path / "x.db").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("", "--no-commands leaves nothing to run: name an application with --app"),
        ("--app tasks", "--no-commands leaves nothing to run: name an application with --app"),
        ("--app shop:app --queue others", "nothing serves the queue 'others'"),
    ],
)
def test_workers_without_commands_and_without_processors_are_refused(
    tmp_path: Path, words: str, problem: str
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "shop.py").write_text(SHOP)
    said = program(
        "worker", "start", "--no-commands", *words.split(), db=str(tmp_path / "x.db"), cwd=tmp_path
    )
    assert said.code == 2
    assert problem in said.err


def test_of_an_application_only_the_queues_that_are_named_are_served(
    database: Database, location: str, start: Start
) -> None:
    double = task_of(location, "default", "double", 4)
    shout = task_of(location, "letters", "shout", "a")
    start("--app", "shop:app", "--queue", "letters").pids()
    assert result_of(database, shout) == "A"
    assert show(database, double)[0] == "waiting"


def test_an_application_that_names_its_database_works_there(tmp_path: Path) -> None:
    own = str(tmp_path / "own.db")
    (tmp_path / "own.py").write_text(SHOP.replace("Bullite()", f"Bullite({own!r})"))
    job = task_of(own, "default", "double", 4)
    with crews(str(tmp_path / "other.db"), tmp_path) as start:
        start("--app", "own:app").pids()
        assert run_well("wait", job, "--timeout", "20s", db=own).lines == [f"{job} completed"]
    assert not (tmp_path / "other.db").exists()


def test_another_database_than_that_of_the_application_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SHOP.replace("Bullite()", "Bullite('own.db')"))
    said = program("worker", "start", "--app", "own:app", "--db", "other.db", cwd=tmp_path)
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines() == [
        f"queuectl: --db is not the database of the application, {tmp_path / 'own.db'}: "
        "leave it out"
    ]
    assert not list(tmp_path.glob("*.db"))


def test_functions_are_called_only_out_of_the_modules_that_were_named(
    database: Database, location: str, start: Start
) -> None:
    called = ["enqueue", "--module", "tasks.grow", "--args", "[1]", "--max-retries", 0]
    refused = ["enqueue", "--module", "os.getcwd", "--max-retries", 0]
    mine = int(run_well(*called, db=location).lines[0])
    theirs = int(run_well(*refused, db=location).lines[0])
    start("--app", "tasks").pids()
    until_state(database, mine, "completed")
    until_state(database, theirs, "failed")


def imports_in(folder: Path, module: str) -> Path:
    """Put a module into a folder; return a file that is there once it was imported."""
    imported = folder / f"{module}-was-imported"
    (folder / f"{module}.py").write_text(
        f"open({str(imported)!r}, 'w').close()\nraise SystemExit\n"
    )
    return imported


@pytest.mark.parametrize("module", ["msgspec", "bullite", "asyncio", "sqlite3"])
def test_workers_import_nothing_from_the_current_folder(
    tmp_path: Path, location: str, start: Start, module: str
) -> None:
    imported = imports_in(tmp_path, module)
    start().pids()
    assert not imported.exists()


@pytest.mark.parametrize("module", ["msgspec", "bullite"])
def test_workers_in_the_background_import_nothing_from_the_current_folder(
    tmp_path: Path, location: str, module: str
) -> None:
    imported = imports_in(tmp_path, module)
    try:
        said = program("worker", "start", "--daemon", db=location, cwd=tmp_path)
        assert said.code == 0, said.err
    finally:
        stop(location)
    assert not imported.exists()


@pytest.mark.parametrize("module", ["msgspec", "click", "sqlite3"])
def test_python_m_bullite_imports_nothing_from_the_current_folder(
    tmp_path: Path, module: str
) -> None:
    imported = imports_in(tmp_path, module)
    run_well("enqueue", "x", db=str(tmp_path / "jobs.db"))
    subprocess.run(
        [sys.executable, "-m", "bullite", "list"],
        env=environment(str(tmp_path / "jobs.db")),
        cwd=tmp_path,
        check=True,
    )
    assert not imported.exists()


def test_the_module_of_an_app_may_be_called_as_one_of_the_standard_library(
    tmp_path: Path, database: Database, location: str, start: Start
) -> None:
    (tmp_path / "wave.py").write_text("def sing():\n    return 'mine'\n")
    job = int(run_well("enqueue", "--module", "wave.sing", db=location).lines[0])
    start("--app", "wave").pids()
    assert result_of(database, job) == "mine"


def test_a_function_that_takes_too_long_has_timed_out(
    database: Database, location: str, start: Start
) -> None:
    called = ["enqueue", "--module", "tasks.dawdle", "--timeout", "100ms", "--max-retries", 0]
    job = int(run_well(*called, db=location).lines[0])
    start("--app", "tasks").pids()
    until_state(database, job, "failed")
    query = "select outcome from bullite_results where job = ?"
    assert database.query(query, job) == [("timed-out",)]


# --- one group at a time -------------------------------------------------------------------------


def test_a_group_that_runs_is_not_started_again_and_another_may_run_beside_it(
    location: str, start: Start
) -> None:
    first = start()
    first.pids()
    again = program("worker", "start", db=location)
    assert (again.code, again.out) == (1, "")
    [line] = again.err.splitlines()
    assert line.startswith("queuectl: workers of the group 'default' are running already, by")
    assert f"process {first.pid} on {socket.gethostname()}" in line
    assert "stop them with `queuectl worker stop --group default`, or start others" in line
    start("--group", "night").pids()
    assert first.process.poll() is None


def test_a_group_whose_lock_is_not_seen_is_not_started_again(
    location: str, start: Start, tmp_path: Path
) -> None:
    first = start("--group", "g1", XDG_STATE_HOME=str(tmp_path / "elsewhere"))
    first.pids()
    for how in ((), ("--daemon",)):
        again = program("worker", "start", "--group", "g1", *how, db=location)
        assert (again.code, again.out) == (1, "")
        [line] = again.err.splitlines()
        assert line.startswith(
            "queuectl: workers of the group 'g1' are running already, by process"
        )
        assert f"process {first.pid} on {socket.gethostname()}" in line
        assert "`queuectl worker stop --group g1`" in line


def test_a_group_whose_supervisor_was_killed_can_be_started_again_and_its_workers_end(
    database: Database, location: str, start: Start
) -> None:
    first = start("--count", 2)
    pids = first.pids(2)
    first.kill()
    job = enqueue(location, "true")
    start().pids()
    wait_until(lambda: all(is_gone(pid) for pid in pids))
    until_state(database, job, "completed")


def test_workers_without_a_supervisor_finish_what_they_run(
    database: Database, location: str, start: Start, tmp_path: Path
) -> None:
    job = enqueue(location, "touch begun; until test -e go; do sleep 0.02; done")
    crew = start()
    [pid] = crew.pids()
    wait_until((tmp_path / "begun").exists)
    crew.kill()
    (tmp_path / "go").touch()
    wait_until(lambda: is_gone(pid))
    assert show(database, job) == ("completed", 1, 1)


# --- in the background ---------------------------------------------------------------------------


def test_a_daemon_goes_on_alone_writes_a_log_and_is_stopped(
    database: Database, location: str, tmp_path: Path
) -> None:
    try:
        said = program("worker", "start", "--daemon", "--json", db=location, cwd=tmp_path)
        assert said.code == 0, said
        log = Path(said.json["log"])
        supervisor = said.json["pid"]
        job = enqueue(location, "true")
        until_state(database, job, "completed")
        assert "spawned" in log.read_text()
        assert log.stat().st_mode & 0o777 == 0o600
        assert program("worker", "start", "--daemon", db=location).code == 1
        assert run("worker", "stop", db=location).code == 0
        wait_until(lambda: is_gone(supervisor))
    finally:
        stop(location)
        forget(database)


def test_a_daemon_that_cannot_start_says_where_to_look(
    database: Database, location: str, tmp_path: Path
) -> None:
    # It is there for who asks, and gone for who is asked.
    (tmp_path / "once.py").write_text("import os; os.rename('once.py', 'gone.py'); jobs = {}")
    run_well("enqueue", "true", db=location)
    try:
        asked = ("worker", "start", "--daemon", "--app", "once")
        said = program(*asked, db=location, cwd=tmp_path)
        assert (said.code, said.out) == (1, "")
        [line] = said.err.splitlines()
        assert line.startswith("queuectl: the workers could not be started; see ")
        log = Path(line.rpartition("see ")[2])
        assert "No module named 'once'" in log.read_text()
    finally:
        stop(location)
        forget(database)


def test_of_daemons_that_start_at_one_time_one_runs_and_the_other_says_who_does(
    database: Database, location: str
) -> None:
    asked = command("worker", "start", "--daemon", "--json")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        both = [
            subprocess.Popen(asked, env=environment(location), text=True, **pipes) for _ in "ab"
        ]
        said = [(*one.communicate(timeout=60), one.returncode) for one in both]
        [out] = [out for out, _, code in said if code == 0]
        [line] = [err for _, err, code in said if code == 1]
        pid = json.loads(out)["pid"]
        assert f"are running already, by process {pid} on {socket.gethostname()}: stop" in line
    finally:
        stop(location)
        forget(database)


def test_a_daemon_that_finds_its_group_taken_meanwhile_says_who_has_it(
    database: Database, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_well("enqueue", "true", db=location)
    store = Store(location)
    run_blocking(set_value(store, GROUPS, "default", entry_of_this_process("default")))
    monkeypatch.setattr(worker, "holder_of", lambda session, lock: None)  # who asks is too early
    monkeypatch.setattr("sys.argv", ["queuectl", "worker", "start", "--daemon"])
    said = run("worker", "start", "--daemon", db=location)
    store.close()
    forget(database)
    assert (said.code, said.out) == (1, "")
    [line] = said.err.splitlines()
    assert f"are running already, by process {os.getpid()} on {socket.gethostname()}: " in line


def test_a_daemon_that_takes_too_long_to_start_is_ended(
    database: Database, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nwhile :; do sleep 0.1; done\n")
    slow.chmod(0o755)
    monkeypatch.setattr(daemonize, "STARTS_WITHIN", 0.3)
    monkeypatch.setattr("sys.executable", str(slow))
    monkeypatch.setattr("sys.argv", ["queuectl", "worker", "start", "--daemon"])
    said = run("worker", "start", "--daemon", db=location)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("queuectl: the workers did not start within 0.3 s; see ")
    assert not [one.pid for one in processes() if os.fsencode(slow) in words_of(one.pid)]
    forget(database)


def test_no_process_is_called_with_what_opens_the_database(
    database: Database, location: str, tmp_path: Path
) -> None:
    secret = "tell-nobody"
    if "://" in location:
        named = location.replace("postgres@", f"postgres:{secret}@", 1)
    else:
        named = str(tmp_path / f"{secret}.db")
    assert secret in named
    try:
        asked = ("worker", "start", "--daemon", "--json", "--count", "2")
        for form in (["--db", named], [f"--db={named}"]):
            said = program(*asked, *form, cwd=tmp_path)
            assert said.code == 0, said

            def of_it(supervisor: int = said.json["pid"]) -> list[int]:
                return [p.pid for p in processes() if supervisor in (p.pid, p.parent)]

            wait_until(lambda of_it=of_it: sum(is_worker(pid) for pid in of_it()) == 2)
            words = [word for pid in of_it() for word in words_of(pid)]
            assert words
            assert not any(secret.encode() in word for word in words)
            stop(named)
    finally:
        stop(named)
        forget(database)


# --- processes are replaced ----------------------------------------------------------------------


def test_a_process_is_replaced_after_so_many_jobs_and_none_is_lost(
    database: Database, location: str, start: Start, tmp_path: Path
) -> None:
    jobs = [enqueue(location, "echo $PPID >> who; sleep 0.3") for _ in range(5)]
    crew = start("--max-jobs", 2)
    for job in jobs:
        until_state(database, job, "completed")
    crew.until("ended", code=75)
    who = (tmp_path / "who").read_text().split()
    assert len(who) == len(jobs)
    # The end of its last job may have brought it one more.
    first, *_ = [who.count(pid) for pid in dict.fromkeys(who)]
    assert first in (2, 3)


def test_a_process_that_uses_too_much_memory_is_replaced(
    database: Database, location: str, start: Start
) -> None:
    crew = start("--app", "tasks", "--max-memory", "200M")
    crew.pids()
    called = ["enqueue", "--module", "tasks.grow", "--args", "[300]"]
    job = int(run_well(*called, db=location).lines[0])
    until_state(database, job, "completed")
    crew.until("ended", code=75)
    crew.until("ready", 2)
    assert len(crew.told("ended")) == 1


def test_a_worker_that_is_killed_is_replaced_and_its_job_runs_again(
    tmp_path: Path, mark: str
) -> None:
    database = SQLiteDatabase.make(tmp_path)  # where the kernel tells of deaths at once
    location = database.location
    line = f"echo $PPID >> who; test $(wc -l < who) = 2 || {{ sleep {mark} & sleep {mark}; }}"
    job = enqueue(location, line)
    with crews(location, tmp_path) as start:
        crew = start()
        [pid] = crew.pids()
        wait_until(lambda: len(sleepers(mark)) == 2)
        os.kill(pid, signal.SIGKILL)
        until_state(database, job, "completed")
        assert sleepers(mark) == []
        [_, second_worker] = crew.until("ready", 2)
        assert (tmp_path / "who").read_text().split() == [str(pid), str(second_worker["pid"])]
        assert database.problems() == []
    database.close()


def pids_at(location: str) -> list[int]:
    """The processes whose workers are on the register."""
    found = run_well("worker", "status", "--json", db=location).json["workers"]
    return [one["pid"] for one in found]


def test_people_are_told_how_a_process_ended(tmp_path: Path) -> None:
    location = SQLiteDatabase.make(tmp_path).location
    group = subprocess.Popen(
        command("worker", "start"),
        env=environment(location),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert group.stderr is not None

    def heard(beginning: str) -> str:
        """The next line that begins so."""
        assert group.stderr is not None
        return next(line.rstrip() for line in group.stderr if line.startswith(beginning))

    with group:
        try:
            pid = int(heard("worker 1 started, process").split()[-1])
            os.kill(pid, signal.SIGKILL)
            ended = f"worker 1 ended, process {pid}"
            assert heard("worker 1 ended") == f"{ended}, killed by signal 9 (SIGKILL)"
            heard("worker 1 is started again in 0.0 s")
            pid = int(heard("worker 1 started, process").split()[-1])
            wait_until(lambda: pid in pids_at(location))
            group.terminate()
            assert heard("worker 1 ended") == f"worker 1 ended, process {pid}"
            assert group.wait(PATIENCE) == 0
        finally:
            group.kill()


# --- Ctrl-C --------------------------------------------------------------------------------------


def test_the_first_signal_lets_running_jobs_finish(
    database: Database, location: str, start: Start, tmp_path: Path
) -> None:
    job = enqueue(location, "touch begun; until test -e go; do sleep 0.02; done")
    crew = start()
    wait_until((tmp_path / "begun").exists)
    crew.signal(signal.SIGINT)
    # The supervisor tells of the signal before its workers have received it.
    wait_until(lambda: "takes no more jobs; waiting for 1 that run" in crew.errors())
    following = enqueue(location, "true")
    (tmp_path / "go").touch()
    assert crew.code() == 0
    assert show(database, job)[0] == "completed"
    assert show(database, following)[0] == "waiting"
    assert [told["code"] for told in crew.told("ended")] == [0]


def test_the_second_signal_stops_them_at_no_cost(
    database: Database, location: str, start: Start, mark: str
) -> None:
    job = enqueue(location, f"trap '' TERM; sleep {mark} & sleep {mark}")
    crew = start()
    wait_until(lambda: len(sleepers(mark)) == 2)
    crew.signal(signal.SIGINT)
    crew.until("draining")
    crew.signal(signal.SIGINT)
    assert crew.code() == 0
    assert sleepers(mark) == []
    state, made, _ = show(database, job)
    assert (state, made) == ("waiting", 0)


def test_the_third_signal_leaves_at_once(
    database: Database, location: str, start: Start, mark: str
) -> None:
    job = enqueue(location, f"sleep {mark}")
    crew = start("--app", "tasks")
    [pid] = crew.pids()
    wait_until(lambda: bool(sleepers(mark)))
    os.kill(pid, signal.SIGSTOP)  # which hears nothing but KILL
    for event in ("draining", "stopping", "killing"):
        crew.signal(signal.SIGINT)
        crew.until(event)
    assert crew.code() == 1
    assert is_gone(pid)
    assert show(database, job)[0] == "active"


def test_a_job_that_outlasts_the_patience_of_its_group_is_stopped(
    database: Database, location: str, start: Start, mark: str
) -> None:
    job = enqueue(location, f"sleep {mark}")
    crew = start("--timeout", "200ms")
    wait_until(lambda: bool(sleepers(mark)))
    crew.signal(signal.SIGTERM)
    assert crew.code() == 0
    assert crew.told("stopping")
    state, made, _ = show(database, job)
    assert (state, made) == ("waiting", 0)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("app", "problem"),
    [
        ("not_there", "--app not_there: ModuleNotFoundError: No module named 'not_there'"),
        ("tasks:missing", "--app tasks:missing: AttributeError: module 'tasks' has no attribute"),
        ("tasks:nonsense", "--app tasks:nonsense must be a Bullite application, a function"),
        ("tasks:held", "--app tasks:held must be a Bullite application, a function"),
    ],
)
def test_an_app_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, app: str, problem: str
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    said = program("worker", "start", "--app", app, db=str(tmp_path / "jobs.db"), cwd=tmp_path)
    assert (said.code, said.out) == (2, "")
    [line] = said.err.splitlines()
    assert line.startswith(f"queuectl: {problem}")


def test_a_variable_with_a_bad_value_is_refused_before_jobs_could_fail_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECTL_KILL_GRACE", "soon")
    said = program("worker", "start", db=str(tmp_path / "jobs.db"))
    assert said.code == 2
    assert said.err.startswith("queuectl: QUEUECTL_KILL_GRACE must be seconds or a time such as ")
    assert said.err.endswith(", not 'soon'\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ("--count", "0"),
        ("--concurrency", "0"),
        ("--max-memory", "much"),
        ("--max-jobs", "0"),
        ("--timeout", "soon"),
        ("--queue", ""),
        ("--group", ""),
    ],
)
def test_bad_options_are_refused_in_one_line(tmp_path: Path, options: tuple[str, str]) -> None:
    for how in ((), ("--daemon",)):
        said = run("worker", "start", *how, *options, db=str(tmp_path / "jobs.db"))
        assert (said.code, said.out) == (2, "")
        assert len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("evil", ["\x1b[2J\x9b31m", "\n2026-01-01 00:00:00,000 1 job 99 completed"])
def test_what_a_job_raises_is_one_visible_line_of_the_log(
    database: Database, location: str, start: Start, evil: str
) -> None:
    crew = start("--app", "tasks:jobs")
    crew.pids()
    job = run_well("add", "default", "blame", "--data", json.dumps(evil), db=location).out.strip()
    until_state(database, int(job), "failed")
    wait_until(lambda: f"job {job} failed" in crew.errors())
    said = [line for line in crew.errors().splitlines() if not line.startswith("    ")]
    assert not any("\x1b" in line or "\x9b" in line for line in crew.errors().split("\n"))
    assert not any(line.endswith(" 1 job 99 completed") and "failed" not in line for line in said)
    crew.signal(signal.SIGTERM)


def test_workers_find_a_database_in_a_folder_called_like_a_server(
    start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "u:x@h #1"
    folder.mkdir()
    location = f"sqlite:///{folder}/jobs.db".replace(" ", "%20").replace("#", "%23")
    job = run_well("enqueue", "true", db=location).out.strip()
    crew = start("--db", location)
    crew.pids()
    wait_until(lambda: f"job {job} completed" in crew.errors())
    crew.signal(signal.SIGTERM)
