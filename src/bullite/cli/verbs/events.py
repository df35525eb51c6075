"""`events`: the event log of queues."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import click

from ...client.queue.base import pk_of
from ...client.runtime import bridge
from ...client.runtime.store import Store
from ...core.clock import moment_of
from ...core.codec import decode
from ...core.event_log import UNCOUNTED, unfold
from .. import times
from ..console import escape_control, one_line, queue_option, verb
from ..follow_output import POLL_EVERY
from ..session import Session

MAX_READ = 200
"""Rows of the log that are read at a time."""


@click.command()
@queue_option()
@click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--limit", "-n", default=100, type=click.IntRange(0), help="Of those before.")
@verb
def events(session: Session, queue: str | None, follow: bool, limit: int) -> None:
    """Show what happened in queues, one line each: jobs added, begun, ended and so on."""
    key = None if queue is None else pk_of(session.queue(queue))
    names = _queue_names(session)
    after, recent = 0, deque[dict[str, Any]](maxlen=limit)
    for event in _events(session, key, after):
        recent.append(event)
        after = event["row"]
    for event in recent:
        _print_event(session, names, event)
    while follow:
        session.console.flush()
        for event in _events(session, key, after):
            after = event["row"]
            if event["queue"] not in names:
                names = _queue_names(session)
            _print_event(session, names, event)
        time.sleep(POLL_EVERY)


def _queue_names(session: Session) -> dict[int, str]:
    return dict(session.wait(_read(session.store(), "queue_names", {})))


async def _read(store: Store, statement: str, params: dict[str, Any]) -> Any:
    return await bridge.query(store, statement, params)


def _events(session: Session, queue: int | None, after: int) -> Iterator[dict[str, Any]]:
    while True:
        params = {"after": after, "queue": queue, "most": MAX_READ, **UNCOUNTED}
        rows = session.wait(_read(session.store(), "events_after", params))
        for row, of_queue, kind, jobs, _, at in rows:
            after = row
            for event in unfold(row, of_queue, kind, decode(jobs)):
                yield {
                    "row": row,
                    "id": event.id,
                    "queue": of_queue,
                    "event": event.name,
                    "at": times.iso(moment_of(at)),
                    **event.payload,
                }
        if len(rows) < MAX_READ:
            return


def _print_event(session: Session, names: dict[int, str], event: dict[str, Any]) -> None:
    facts = {**event, "queue": names.get(event["queue"], str(event["queue"]))}
    del facts["row"]
    if session.console.as_json:
        session.console.data(facts)
        return
    rest = {k: v for k, v in facts.items() if k not in ("id", "queue", "event", "at", "job_id")}
    details = " ".join(
        f"{one_line(key, 80)}={one_line(str(value), 80)}" for key, value in rest.items()
    )
    about = f" {escape_control(str(facts['job_id']))}" if "job_id" in facts else ""
    head = f"{escape_control(facts['queue'])} {escape_control(facts['event'])}"
    session.console.line(f"{facts['at']} {head}{about} {details}".rstrip())
