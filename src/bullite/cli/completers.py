"""Shell completion of names. Errors complete nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

import click
from click.shell_completion import CompletionItem

from ..client.queue.search import JobFilter, find
from ..database.locations import Origin, default_database, doubt_about_default, parse_location
from .console import Console, named_before
from .session import Session, file_of

NEWEST = 50
"""Jobs of each queue that are offered."""

Completes = Callable[[click.Context, click.Parameter, str], list[str]]


def completes(read: Callable[[Session, click.Context], Iterable[str]]) -> Completes:
    """Return a completer that offers the names with the typed prefix."""

    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        try:
            db = context.params.get("db") or named_before(context)
            if db is None and not _may_open_default():
                return []
            with closing(Session(db, Console(as_json=True))) as session:
                return [name for name in read(session, context) if name.startswith(typed)]
        except Exception:
            # An error message would be printed into the command line that is being typed.
            return []

    return complete


def _may_open_default() -> bool:
    """Return whether shell completion may open the default database.

    A settings file comes with its folder and may be another user's. Completion must not send a
    password to the server that it names, and must not open an untrusted ./bullite.db.
    """
    found = default_database()
    if found.origin is Origin.SETTINGS:
        return file_of(parse_location(found.location)) is not None
    return found.origin is not Origin.NOTHING or doubt_about_default() is None


@completes
def queue_names(session: Session, context: click.Context) -> Iterable[str]:
    return session.queue_names()


@completes
def job_ids(session: Session, context: click.Context) -> Iterable[str]:
    return _newest(session, context.params.get("queue"))


@completes
def job_ids_of_all_queues(session: Session, context: click.Context) -> Iterable[str]:
    return _newest(session, None)


def _newest(session: Session, queue: str | None) -> Iterator[str]:
    for view in session.views(queue):
        jobs, _ = session.wait(find(view, JobFilter(), NEWEST, None))
        yield from (job.id for job in jobs)


@completes
def template_names(session: Session, context: click.Context) -> Iterable[str]:
    from .job_spec import TEMPLATES

    return sorted(
        name for name, *_ in session.reader().read("list_values", {"kind": TEMPLATES}).rows
    )


Paths = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]


def _paths(kind: str) -> Paths:
    """Return a completer that leaves paths to the shell."""
    return lambda context, parameter, typed: [CompletionItem(typed, type=kind)]


files, folders = _paths("file"), _paths("dir")
