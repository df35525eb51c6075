"""`doctor`, `verify`: problems that need an operator, and consistency of the database."""

from __future__ import annotations

import sys
from shlex import quote
from typing import Any

import click

from ...client.queue.queue import Queue
from ...core.states import PRIORITIZED, State
from ..console import EXIT_FAILED, escape_control, pluralize, verb
from ..counts import count_due, heartbeat_age, workers_of
from ..session import Session
from ..times import lasted
from ..worker_groups import DEFAULT_GROUP, LOST, group_of, groups_of


@click.command()
@verb
def doctor(session: Session) -> None:
    """Report jobs, workers and groups that need attention, each with the remedy.

    Exits with 1 if it reports any.
    """
    facts = _facts(session)
    findings = [found for queue in session.queues(None) for found in _of_queue(session, queue)]
    findings += [*_lost_workers(session), *_lost_groups(session)]
    if session.console.as_json:
        session.console.data({"ok": not findings, **facts, "findings": findings})
    else:
        _print_facts(session, facts)
        for found in findings:
            about = found["queue"] or f"group {found['group']}"
            session.console.line(escape_control(f"{about}: {found['text']}"))
        if not findings:
            session.console.line("ok: nothing needs help")
    if findings:
        sys.exit(EXIT_FAILED)


# --- facts ---


def _facts(session: Session) -> dict[str, Any]:
    location = session.store().location
    is_durable = getattr(location, "durable", True)
    facts = {"database": str(location), "durability": "full" if is_durable else "relaxed"}
    if not hasattr(location, "path"):
        return {**facts, "store": "postgresql", "sqlite_version": None}
    import sqlite3

    return {**facts, "store": "sqlite", "sqlite_version": sqlite3.sqlite_version}


def _print_facts(session: Session, facts: dict[str, Any]) -> None:
    session.console.note(f"database: {facts['database']}")
    if facts["sqlite_version"] is not None:
        session.console.note(f"SQLite {facts['sqlite_version']}")
    session.console.note(f"durability is {facts['durability']}: {_DURABILITY[facts['durability']]}")


_DURABILITY = {
    "full": "what is acknowledged is on the disk",
    "relaxed": "a power cut may take the last jobs along; take durability=relaxed out of the URL "
    "to have everything synced",
}


# --- findings ---


Finding = dict[str, str | None]


def _of_queue(session: Session, queue: Queue) -> list[Finding]:
    waiting = session.wait(queue.get_job_count_by_types(State.WAITING, PRIORITIZED))
    findings = [_finding(queue.name, "stuck", text) for text in session.wait(queue.doctor())]
    if waiting and session.wait(queue.is_paused()):
        go_on = f"let it go on with `queuectl resume {quote(queue.name)}`"
        findings.append(
            _finding(queue.name, "paused", f"it is paused, and {_jobs_wait(waiting)}: {go_on}")
        )
    if all(worker.is_lost for worker in workers_of(session, queue.name)):
        # Due jobs, and jobs of lost workers, wait for a worker as well.
        waiting += count_due(session, queue) + session.wait(queue.get_active_count())
        if waiting:
            start = _start_command(session, queue.name)
            text = f"{_jobs_wait(waiting)}, and no worker serves it: start one with `{start}`"
            findings.append(_finding(queue.name, "no-worker", text))
    return findings


def _jobs_wait(number: int) -> str:
    return pluralize(number, "job waits", "jobs wait")


def _start_command(session: Session, queue: str) -> str:
    command = f"queuectl worker start --queue {quote(queue)}"
    return command if group_of(session, DEFAULT_GROUP) is None else f"{command} --group NAME"


def _lost_workers(session: Session) -> list[Finding]:
    return [
        _finding(
            worker.queue,
            "lost-worker",
            f"worker {worker.name} (pid {worker.pid} on {worker.host}) was last heard of "
            f"{lasted(heartbeat_age(session, worker))} ago: end that process, if it is there and "
            "hangs; its jobs go to others",
        )
        for worker in workers_of(session)
        if worker.is_lost
    ]


def _lost_groups(session: Session) -> list[Finding]:
    return [
        _finding(
            None,
            "lost-group",
            f"its supervisor (pid {group.get('pid')} on {group.get('host')}) is gone without a "
            f"word: start it again with `queuectl worker start --group {quote(group['name'])}`, or "
            f"forget it with `queuectl worker stop --group {quote(group['name'])}`",
            group["name"],
        )
        for group in groups_of(session)
        if group.get("state") == LOST
    ]


def _finding(queue: str | None, kind: str, text: str, group: str | None = None) -> Finding:
    return {"queue": queue, "kind": kind, "text": text, "group": group}


# --- verify ---


@click.command()
@verb
def verify(session: Session) -> None:
    """Check that what is stored is consistent; reads everything, changes nothing.

    Ends with 1 if there is a problem.
    """
    from ...client import verify as verifying

    checked = verifying.verify(session.store())
    number = len(verifying.CHECKS)
    if session.console.as_json:
        problems = [*checked.problems]
        session.console.data({"ok": checked.ok, "checks": number, "problems": problems})
    elif checked.ok:
        session.console.line(f"ok: {number} checks")
    else:
        for problem in checked.problems:
            session.console.line(escape_control(problem))
    if not checked.ok:
        sys.exit(EXIT_FAILED)
