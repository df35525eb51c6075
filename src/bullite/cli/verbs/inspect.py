"""`status`, `list`, `show`, `why`: show queues and jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ...core.states import State
from ..console import escape_control, job_argument, queue_option, state_option, verb
from ..job_format import as_json, status_of, statuses_worth_a_column
from ..masking import secrets_option
from ..session import Session

MAX_LISTED = 10_000

# --- status ---


@click.command()
@queue_option(help="One queue; all unless given.")
@verb
def status(session: Session, queue: str | None) -> None:
    """Show queues, with how many jobs they have, and workers."""
    from ..counts import counts_of, workers_line, workers_of, workers_summary
    from ..worker_groups import group_line, groups_of

    queues = [
        {"name": one.name, "paused": session.wait(one.is_paused()), **counts_of(session, one)}
        for one in session.queues(queue)
    ]
    workers = {**workers_summary(workers_of(session, queue)), "groups": groups_of(session)}
    if session.console.as_json:
        session.console.data({"queues": queues, "workers": workers})
        return
    _print_queues(session, queues)
    session.console.line(workers_line(workers))
    for group in workers["groups"]:
        session.console.line(group_line(group))


def _print_queues(session: Session, queues: Sequence[Mapping[str, Any]]) -> None:
    if not queues:
        session.console.note("there are no queues yet; `queuectl enqueue` makes one")
        return
    words = statuses_worth_a_column(queues, session.console.on_terminal)
    rows = [
        [one["name"], "paused" if one["paused"] else "running", *(str(one[w]) for w in words)]
        for one in queues
    ]
    session.console.table(["QUEUE", "STATE", *(word.upper() for word in words)], rows)


# --- jobs ---


@click.command()
@state_option(help="pending, processing, completed, failed, dead, ... or the library's word.")
@queue_option(help="One queue; all unless given.")
@click.option("--name", metavar="NAME", help="Jobs of this name.")
@click.option("--tag", metavar="TAG", help="Jobs with this tag.")
@click.option("--since", metavar="2h|DATE", help="Jobs added since then.")
@click.option("--search", metavar="TEXT", help="Jobs with this in their data, results or errors.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_LISTED),
    default=50,
    show_default=True,
    help="The newest so many.",
)
@click.option("--cursor", metavar="CURSOR", help="Go on from where an earlier list ended.")
@secrets_option
@verb
def list(
    session: Session,
    state: str | None,
    queue: str | None,
    name: str | None,
    tag: str | None,
    since: str | None,
    search: str | None,
    limit: int,
    cursor: str | None,
) -> None:
    """List jobs, newest first: of one queue, or of all.

    `failed` are those that wait for a retry, `dead` those that failed for good.
    """
    from ...client.queue.search import JobFilter
    from .. import times
    from ..job_list import COLUMNS, page_of, row_of

    views, now = session.views(queue), session.reader().clock.now()
    moment = None if since is None else max(0, times.since("--since", since, now))
    page = page_of(session, views, JobFilter(name, tag, moment, search), state, limit, cursor)
    if session.console.as_json:
        jobs = [as_json(job) for job in page.jobs]
        session.console.data({"jobs": jobs, "cursor": page.cursor, "more": page.may_be_more})
        return
    if not page.jobs:
        session.console.note("no jobs were found")
    else:
        on_terminal = session.console.on_terminal
        session.console.table(COLUMNS, [row_of(job, on_terminal) for job in page.jobs])
    if page.cursor is not None:
        session.console.note(f"there may be more: go on with --cursor {page.cursor}")
    elif page.may_be_more:
        session.console.note(
            "there are more: see them with --limit, or queue by queue with --queue"
        )


@click.command()
@job_argument()
@queue_option(help="The queue it is in, where several have its id.")
@secrets_option
@verb
def show(session: Session, job_id: str, queue: str | None) -> None:
    """Show all that is known of a job."""
    from ..job_details import everything_of, sections

    found, job = session.job(job_id, queue)
    facts = everything_of(session, found, job)
    if session.console.as_json:
        session.console.data(facts)
        return
    for line in sections(facts):
        session.console.line(escape_control(line))


@click.command()
@job_argument()
@queue_option(help="The queue it is in, where several have its id.")
@verb
def why(session: Session, job_id: str, queue: str | None) -> None:
    """Explain the state of a job: what it waits for, or how it ended."""
    found, job = session.job(job_id, queue)
    if job.state == State.FAILED:  # queuectl says dead, cancelled or expired
        reason = f"job {job.id} is {status_of(job)}: {job.failed_reason}"
    else:
        reason = session.wait(found.why(job.id))
    session.console.done(reason, {"id": job.id, "queue": found.name, "why": reason})
