"""`schedule COMMAND --cron ...`, and `schedule list|pause|resume|run|remove NAME`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

import click

from ...client.queue.job_schedulers import JobScheduler
from ...client.queue.queue import Queue
from ...client.queue.scheduler_spec import check_key
from ...commands.job_types import describe
from ...core.recurrence import check_recurrence
from .. import times
from ..completers import completes
from ..console import CommandError, InvalidInput, one_line, queue_option, verb, yes_option
from ..job_format import as_json
from ..job_spec import JobSpec
from ..masking import masked, masked_data, masked_text, secrets_option
from ..session import Session, check_only_one
from ..shared_options import checked_spec, given_options, options_of_enqueue
from .enqueue import make_job_spec

MAX_DERIVED_LENGTH = 40
"""Characters of a name that is made from a command."""


class CommandOrVerb(click.Group):
    """A group whose first argument is a command to schedule, unless it is a verb of the group."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["add", *args]
        return super().parse_args(context, args)

    def collect_usage_pieces(self, context: click.Context) -> list[str]:
        return ["COMMAND --cron PATTERN|--every TIME [OPTIONS]..., or one of the words below"]


@click.group(cls=CommandOrVerb)
def schedule() -> None:
    """Run a command again and again: `queuectl schedule "backup.sh" --cron "0 2 * * *"`.

    A command that is called like one of the words below is scheduled with `add`, or after --.
    `schedule add --help` shows the options.
    """


# --- add -----------------------------------------------------------------------------------------


@schedule.command()
@click.argument("command", required=False)
@click.option("--cron", metavar="PATTERN", help='When, such as "0 2 * * *": daily at 2.')
@click.option("--every", metavar="5m", help="How often; the first time at once.")
@click.option("--tz", metavar="ZONE", help="Whose clocks --cron means; UTC unless given.")
@click.option("--name", metavar="NAME", help="Its name; made from the command unless given.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Ends after so many times.")
@options_of_enqueue(without=("run_at", "delay", "after", "id"))
@verb
def add(
    session: Session,
    cron: str | None,
    every: str | None,
    tz: str | None,
    name: str | None,
    limit: int | None,
    **options: Any,
) -> None:
    """Run a command by a cron pattern, or every so often.

    A schedule of the same --name in the same queue is changed.
    """
    recurrence = _recurrence(options["command"], cron, every, tz, limit)
    if name is not None:
        check_key("--name", name)
    spec = _spec(session, options)
    queue = session.queue(spec.queue, make=True)
    key = name or _free_name(session, queue, spec, recurrence)
    template: Any = {"name": spec.name, "data": spec.data, "opts": spec.options}
    session.wait(queue.upsert_job_scheduler(key, **recurrence, template=template))
    entry = _entry(session, queue, key)
    session.console.done(f"{key}: next at {times.iso(entry.next_run_at)}", _as_json(queue, entry))


def _recurrence(
    command: str | None, cron: str | None, every: str | None, tz: str | None, limit: int | None
) -> dict[str, Any]:
    """Return the recurrence of the schedule, checked before anything is changed."""
    if (cron is None) == (every is None):
        word = f"; to use the word {command!r} write it first" if command in _verbs() else ""
        raise InvalidInput(f"say when with --cron or --every, one of them{word}")
    if every is not None and tz is not None:
        raise InvalidInput("--tz goes with --cron: --every is the same in all zones")
    ms = None if every is None else times.duration("--every", every)
    if ms == 0:
        raise InvalidInput("--every must be more than 0")
    recurrence = {"pattern": cron, "every": ms, "tz": tz, "limit": limit}
    check_recurrence(round(time.time() * 1000), **recurrence)  # type: ignore[arg-type]
    return recurrence


def _verbs() -> list[str]:
    return list(schedule.commands)


def _spec(session: Session, options: dict[str, Any]) -> JobSpec:
    given = given_options(options)
    if "template" not in given:
        checked_spec(given)
    else:
        session.store()
    spec = make_job_spec(session, {**given, "template": given.get("template")})
    for name in ("run_at", "delay", "job_id"):
        if name in spec.options:
            raise InvalidInput(f"the template has {name.removeprefix('job_')}: not for a schedule")
    if spec.after:
        raise InvalidInput("the template has after: not for a schedule")
    return spec


def _free_name(session: Session, queue: Queue, spec: JobSpec, recurrence: dict[str, Any]) -> str:
    """Return a name that is made from the job and free, or that an equal schedule has."""
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", describe(spec.name, spec.data)).strip("-.")
    base = slug[:MAX_DERIVED_LENGTH].rstrip("-.") or "schedule"
    if base.isdecimal():
        base = f"schedule-{base}"
    number = 1
    while True:
        name = base if number == 1 else f"{base}-{number}"
        existing = session.wait(queue.get_job_scheduler(name))
        if existing is None or _is_same(existing, spec, recurrence):
            return name
        number += 1


def _is_same(entry: JobScheduler, spec: JobSpec, recurrence: dict[str, Any]) -> bool:
    stored = (entry.name, entry.template["data"], entry.pattern, entry.every, entry.tz)
    tz = None if recurrence["pattern"] is None else recurrence["tz"] or "UTC"
    return stored == (spec.name, spec.data, recurrence["pattern"], recurrence["every"], tz)


# --- list, pause, resume, run, remove ------------------------------------------------------------


@schedule.command("list")
@queue_option(help="Those of this queue; of all unless given.")
@secrets_option
@verb
def list_(session: Session, queue: str | None) -> None:
    """List the schedules, the next to run first."""
    entries = [
        (each, entry)
        for each in session.queues(queue)
        for entry in session.wait(each.get_job_schedulers(asc=True))
    ]
    entries.sort(key=lambda pair: times.iso(pair[1].next_run_at) or "~")
    if session.console.as_json:
        session.console.data([_as_json(each, entry) for each, entry in entries])
        return
    columns = ("NAME", "QUEUE", "WHEN", "NEXT", "LAST", "COMMAND")
    on_terminal = session.console.on_terminal
    session.console.table(columns, [_row(each, entry, on_terminal) for each, entry in entries])
    if not entries:
        session.console.note("no schedules")


def _row(queue: Queue, entry: JobScheduler, on_terminal: bool) -> list[str]:
    when = entry.pattern or f"every {times.lasted(entry.every)}"
    is_off = entry.next_run_at is None and not entry.enabled
    return [
        entry.id,
        queue.name,
        when if entry.tz in (None, "UTC") else f"{when} {entry.tz}",
        _why_off(entry) if is_off else times.stamp(entry.next_run_at, on_terminal),
        times.stamp(entry.last_run_at, on_terminal),
        one_line(masked_text(describe(entry.name, entry.template["data"])), 40),
    ]


def _why_off(entry: JobScheduler) -> str:
    ended = entry.limit is not None and entry.iteration_count >= entry.limit
    return "ended" if ended else "paused"


def _as_json(queue: Queue, entry: JobScheduler) -> dict[str, Any]:
    return {
        "name": entry.id,
        "queue": queue.name,
        "command": masked_text(describe(entry.name, entry.template["data"])),
        "cron": entry.pattern,
        "every_ms": entry.every,
        "tz": entry.tz,
        "limit": entry.limit,
        "enabled": entry.enabled,
        "next_run_at": times.iso(entry.next_run_at),
        "last_run_at": times.iso(entry.last_run_at),
        "last_run_job_id": entry.last_run_job_id,
        "iterations": entry.iteration_count,
        "template": {
            **masked(entry.template),
            "data": masked_data(entry.name, entry.template["data"]),
        },
    }


@completes
def _names(session: Session, context: click.Context) -> Iterable[str]:
    for queue in session.queues(context.params.get("queue")):
        yield from (entry.id for entry in session.wait(queue.get_job_schedulers()))


name_argument = click.argument("name", shell_complete=_names)
where_option = queue_option(help="The queue it is in, where its name alone is not enough.")


@schedule.command()
@name_argument
@where_option
@verb
def pause(session: Session, name: str, queue: str | None) -> None:
    """Let a schedule make no jobs until it is resumed."""
    home = _find(session, name, queue)
    session.wait(home.pause_job_scheduler(name))
    session.console.done(f"paused {name}", _as_json(home, _entry(session, home, name)))


@schedule.command()
@name_argument
@where_option
@verb
def resume(session: Session, name: str, queue: str | None) -> None:
    """Let a paused schedule go on."""
    home = _find(session, name, queue)
    session.wait(home.resume_job_scheduler(name))
    entry = _entry(session, home, name)
    if not entry.enabled:
        raise CommandError(f"the schedule {name!r} has come to its end: schedule it anew")
    text = f"resumed {name}: next at {times.iso(entry.next_run_at)}"
    session.console.done(text, _as_json(home, entry))


@schedule.command()
@name_argument
@where_option
@verb
def run(session: Session, name: str, queue: str | None) -> None:
    """Add one job of a schedule now; the schedule goes on as it would. Prints the job's id."""
    home = _find(session, name, queue)
    job = session.wait(home.run_job_scheduler(name))
    session.console.done(job.id, as_json(job))


@schedule.command()
@name_argument
@where_option
@yes_option
@verb
def remove(session: Session, name: str, queue: str | None, yes: bool) -> None:
    """Remove a schedule and the job that it waits with; jobs that were made before stay."""
    home = _find(session, name, queue)
    session.console.confirm(f"Remove the schedule {name!r} of the queue {home.name!r}?", yes)
    session.wait(home.remove_job_scheduler(name))
    session.console.done(f"removed {name}", {"name": name, "queue": home.name, "removed": True})


def _find(session: Session, name: str, queue: str | None) -> Queue:
    """Return the queue that has a schedule of this name. Raise CommandError if none has."""
    check_key("NAME", name)
    queues = [
        each
        for each in session.queues(queue)
        if session.wait(each.get_job_scheduler(name)) is not None
    ]
    if not queues:
        raise CommandError(f"there is no schedule {name!r}; `queuectl schedule list` shows them")
    check_only_one(f"schedules {name!r} are in", [each.name for each in queues])
    return queues[0]


def _entry(session: Session, queue: Queue, name: str) -> JobScheduler:
    entry = session.wait(queue.get_job_scheduler(name))
    if entry is None:
        raise CommandError(f"the schedule {name!r} was removed meanwhile")
    return entry
