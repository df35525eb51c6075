"""`worker start|stop|restart|status` and `scheduler`."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...client import directory
from ...core.escaping import on_one_line
from ...core.names import check_name
from ...processes import private_environment
from ...processes.child import python_running
from ...processes.group_lock import GroupLock, GroupTaken, signal_owner
from ...processes.signals import DRAIN_SIGNAL, STOP_SIGNAL
from ...processes.supervisor import Supervisor
from .. import times
from ..console import CommandError, InvalidInput, queue_option, verb
from ..daemonize import start_in_background, until
from ..option_values import bytes_of
from ..session import DEFAULT_QUEUE, NOTICES, Session
from ..worker_groups import (
    DEFAULT_GROUP,
    DatabaseGroupRegistry,
    forget,
    group_line,
    group_of,
    groups_of,
    holder_of,
    is_here,
    lock_of,
    taken,
)

if TYPE_CHECKING:
    from ...app.application import Bullite
    from ..worker_process import Spec

group_option = click.option(
    "--group",
    default=DEFAULT_GROUP,
    show_default=True,
    metavar="NAME",
    help="The group: processes that are started, stopped and restarted together.",
)

F = TypeVar("F", bound=Callable[..., Any])


def timeout_option(*, help: str) -> Callable[[F], F]:
    return click.option("--timeout", default="30s", show_default=True, metavar="TIME", help=help)


@click.group()
def worker() -> None:
    """Start, stop and look at worker processes."""


@worker.command()
@click.option(
    "--count",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    metavar="N",
    help="How many processes.",
)
@queue_option(
    multiple=True,
    help="A queue to serve; `default`, and the app's, unless given. May be repeated.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Jobs of a queue that each process runs at a time; 1, or what an app says, unless given.",
)
@click.option(
    "--app",
    "apps",
    multiple=True,
    metavar="MODULE[:OBJECT]",
    help="Where Python code is: an application (tasks:app), a function or a mapping of names of "
    "jobs to functions (tasks:processors), or a module whose functions `enqueue --module` may "
    "call (tasks). May be repeated.",
)
@click.option(
    "--commands/--no-commands",
    default=None,
    help="Run commands, web hooks, functions and notices, or only what --app runs; with "
    "processors in --app they are run only in queues that --queue names and --app does not serve, "
    "unless given.",
)
@group_option
@click.option(
    "--daemon", is_flag=True, help="Go on in the background; it says which file its talk goes to."
)
@click.option(
    "--max-memory", metavar="500M", help="Replace a process that uses more; no limit unless given."
)
@click.option(
    "--max-jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a process after at least so many jobs; never unless given.",
)
@timeout_option(help="How long running jobs may take when it is told to stop.")
@verb
def start(
    session: Session,
    count: int,
    queue: tuple[str, ...],
    concurrency: int | None,
    apps: tuple[str, ...],
    commands: bool | None,
    group: str,
    daemon: bool,
    max_memory: str | None,
    max_jobs: int | None,
    timeout: str,
) -> None:
    """Start worker processes, and restart those that die.

    The first Ctrl-C (or TERM) waits for running jobs, the second stops them, the third leaves.

    \b
    Examples:
      queuectl worker start --count 3
      queuectl worker start --queue mail --concurrency 10 --group mail --daemon
      queuectl worker start --app tasks:app
    """
    from ...commands.config import configuration_without_database
    from ..worker_process import Spec, applications, load_app, queues_to_serve, queues_with_commands

    private_environment.receive()
    private_environment.forbid_inspection()
    stop_timeout = times.seconds("--timeout", timeout)
    queues = tuple(dict.fromkeys(check_name("--queue", name) for name in queue or (DEFAULT_QUEUE,)))
    check_name("--group", group)
    max_memory_bytes = None if max_memory is None else bytes_of("--max-memory", max_memory)
    configuration_without_database()  # raises for a bad variable, which would fail jobs
    loaded = {path: load_app(path)[1] for path in apps}
    with_commands = queues_with_commands(queues, bool(queue), loaded, commands)
    spec = Spec(
        queues,
        concurrency,
        apps,
        group,
        max_memory_bytes,
        max_jobs,
        NOTICES if with_commands else None,
        named=bool(queue),
        commands=with_commands,
    )
    _check_that_queues_are_served(spec, loaded)
    lock = _prepare(session, group, queues_to_serve(spec, loaded), applications(loaded))
    if daemon:
        start_in_background(session, lock)
        return
    public, private = private_environment.split(_environment(session, spec.as_text()))
    supervisor = Supervisor(
        lambda slot: python_running("bullite.cli.worker_process"),
        count,
        lock=lock,
        registry=DatabaseGroupRegistry(session, group),
        group=group,
        env=public,
        private=private,
        stop_timeout=stop_timeout,
        on_event=_EventPrinter(session),
    )
    try:
        code = supervisor.run()
    except GroupTaken as error:
        raise taken(group, error.holder) from None
    if code:
        raise click.exceptions.Exit(code)


def _check_that_queues_are_served(spec: Spec, apps: Mapping[str, Any]) -> None:
    """Raise InvalidInput if no queue is served, or a named one is not."""
    from ..worker_process import applications, queues_to_serve

    served = {name for app in applications(apps) for name in app.processors()}
    served.update(queues_to_serve(spec, apps))
    if not served:
        raise InvalidInput("--no-commands leaves nothing to run: name an application with --app")
    unserved = [name for name in spec.queues if spec.named and name not in served]
    if unserved:
        raise InvalidInput(
            f"nothing serves the queue {unserved[0]!r}: no --app does, and --no-commands is given"
        )


def _prepare(session: Session, group: str, queues: Sequence[str], apps: list[Bullite]) -> GroupLock:
    """Create the database and the queues; return the lock of the group.

    Raise CommandError if the group is running already.
    """
    for app in apps:
        if (location := app._queues.location) is not None:
            session.use(location)
    session.check_default()
    session.store(make=True)
    lock = lock_of(session, group)
    if (holder := holder_of(session, lock)) is not None:
        raise taken(group, holder)
    of_apps = {name for app in apps for name in app.processors()}
    for name in queues:
        if name not in of_apps:  # an application creates its queues itself
            session.queue(name, make=True)
    return lock


def _environment(session: Session, spec: str) -> dict[str, str]:
    """Return the environment of the processes; all users could read command line arguments."""
    from ..worker_process import SPEC

    return {**os.environ, "BULLITE_URL": session.absolute_location, SPEC: spec}


_EVENT_TEXTS = {
    "spawned": "worker {slot} started, process {pid}",
    "unstarted": "worker {slot} could not be started: {reason}",
    "ended": "worker {slot} ended, process {pid}{why}",
    "restarting": "worker {slot} is started again in {delay:.1f} s",
    "hopeless": "worker {slot} can never work as things are: all end",
    "draining": "waiting for running jobs; once more stops them",
    "stopping": "stopping running jobs; once more leaves them",
    "killing": "killing what is left",
    "unregistered": "what becomes of the workers could not be written down: {reason}",
    "lost": "process {pid} on {host} runs workers of this group by now: these end",
}


class _EventPrinter:
    """Prints the events of the supervisor."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __call__(self, event: str, details: Mapping[str, Any]) -> None:
        if self._session.console.as_json:
            self._session.console.data({"event": event, **details})
            self._session.console.flush()
        elif event in _EVENT_TEXTS:
            slot, reason = details.get("slot", 0) + 1, details.get("reason")
            values = {**details, "slot": slot, "why": f", {reason}" if reason else ""}
            self._session.console.note(on_one_line(_EVENT_TEXTS[event].format(**values)))


@worker.command()
@group_option
@timeout_option(help="How long running jobs may take.")
@click.option("--force", is_flag=True, help="Then, or at once with --timeout 0, stop them.")
@verb
def stop(session: Session, group: str, timeout: str, force: bool) -> None:
    """Let workers finish what they run, and end. A group that is lost is forgotten."""
    stop_timeout = times.seconds("--timeout", timeout)
    lock = lock_of(session, group)
    if lock.holder() is None and forget(session, group):
        text = f"the group {group!r} was lost and is forgotten"
        session.console.done(text, {"group": group, "stopped": True})
        return
    # Not SIGTERM: a second one interrupts jobs, and the group may have got the first already.
    _signal(session, lock, group, _number(DRAIN_SIGNAL))
    if not until(lambda: lock.holder() is None, stop_timeout):
        if not force:
            raise CommandError(
                f"workers of the group {group!r} still run jobs after {stop_timeout:g} s; wait, or "
                "stop them with --force"
            )
        for number in (_number(STOP_SIGNAL), signal.SIGTERM):  # stop the jobs, then leave them
            signal_owner(lock, number)
            if until(lambda: lock.holder() is None, 8):
                break
        else:
            raise CommandError(f"workers of the group {group!r} could not be stopped")
    session.console.done(
        f"workers of the group {group!r} have ended", {"group": group, "stopped": True}
    )


def _number(name: str) -> int:
    return int(getattr(signal, name, signal.SIGTERM))


def _signal(session: Session, lock: GroupLock, group: str, number: int) -> None:
    """Signal the supervisor that holds the lock. Raise CommandError if there is none."""
    if signal_owner(lock, number):
        return
    entry = group_of(session, group)
    if entry is None:
        raise CommandError(f"no workers of the group {group!r} are running")
    if not is_here(entry):
        raise CommandError(
            f"workers of the group {group!r} run on {entry['host']}: stop them there"
        )
    raise CommandError(
        f"workers of the group {group!r} are run by process {entry['pid']}, which was started by "
        "another user or with another XDG_STATE_HOME: do this as it was started"
    )


@worker.command()
@group_option
@verb
def restart(session: Session, group: str) -> None:
    """Replace worker processes one by one; each finishes what it runs."""
    _signal(session, lock_of(session, group), group, signal.SIGHUP)
    session.console.done(
        f"workers of the group {group!r} are replaced one by one",
        {"group": group, "restarting": True},
    )


@worker.command()
@verb
def status(session: Session) -> None:
    """Show groups of workers, and each process: its heartbeat, what it runs, what it did."""
    from ..worker_process import memory_used

    store = session.store()
    groups = groups_of(session)
    now = datetime.fromtimestamp(session.now() / 1000, UTC)
    here = socket.gethostname()
    found = session.wait(directory.workers(store))
    rows: list[dict[str, Any]] = [
        {
            "queue": one.queue,
            "name": one.name,
            "pid": one.pid,
            "host": one.host,
            "concurrency": one.concurrency,
            "heartbeat_ms": round((now - one.seen_at).total_seconds() * 1000),
            "uptime_ms": round((now - one.started_at).total_seconds() * 1000),
            "jobs": list(one.jobs),
            "done": one.runs,
            "failed": one.failed,
            "busy_share": round(one.busy_share, 4),
            "memory_bytes": memory_used(one.pid) if one.host == here else None,
        }
        for one in found
    ]
    if session.console.as_json:
        session.console.data({"groups": groups, "workers": rows})
        return
    for group in groups:
        session.console.line(group_line(group))
    if not rows:
        session.console.note("no workers are running; `queuectl worker start` starts one")
    columns = (
        "PID",
        "HOST",
        "QUEUES",
        "HEARTBEAT",
        "UPTIME",
        "JOBS",
        "DONE",
        "FAILED",
        "BUSY",
        "RSS",
    )
    processes: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for one in rows:
        processes.setdefault((one["host"], one["pid"]), []).append(one)
    session.console.table(columns, [_row(workers) for workers in processes.values()])


def _row(workers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the row of a process, which has a worker for every queue that it serves."""
    one = workers[0]
    memory = one["memory_bytes"]
    slots = sum(each["concurrency"] for each in workers)
    busy = sum(each["busy_share"] * each["concurrency"] for each in workers)
    return [
        str(one["pid"]),
        one["host"],
        ", ".join(sorted(each["queue"] for each in workers)),
        f"{times.lasted(max(0, *(each['heartbeat_ms'] for each in workers)))} ago",
        times.lasted(max(each["uptime_ms"] for each in workers)),
        ", ".join(job for each in workers for job in each["jobs"]) or "-",
        str(sum(each["done"] for each in workers)),
        str(sum(each["failed"] for each in workers)),
        f"{busy / slots:.0%}",
        "-" if not memory else f"{memory / 2**20:.0f}M",
    ]


@click.command()
@verb
def scheduler(session: Session) -> None:
    """Do what is due by the clock, without taking jobs, until Ctrl-C or TERM."""
    private_environment.forbid_inspection()
    session.check_default()
    ends = {signal.SIGTERM, signal.SIGINT}
    # Blocked in all threads, which inherit it: a signal before sigwait is not lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    engine = session.store(make=True).open()
    engine.change_maintenance_users(+1)
    session.console.note("housekeeping; Ctrl-C ends it")
    signal.sigwait(ends)
    engine.change_maintenance_users(-1)
