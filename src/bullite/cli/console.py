"""How the program talks: data on standard output, talk on standard error, JSON when asked for."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, TypeVar

import click

from ..core.escaping import visible, visible_json
from ..errors import BulliteError, JobFailed

EXIT_FAILED = 1
"""It could not be done: no such job, no such database, refused."""
EXIT_BAD_INPUT = 2
EXIT_JOB_FAILED = 3
"""A job that was waited for failed."""
EXIT_TIMED_OUT = 124
EXIT_INTERRUPTED = 130

_BLANKS = str.maketrans("\t\n", "  ")
"""What would make a row look like several, or a cell."""

F = TypeVar("F", bound=Callable[..., Any])


class CommandError(click.ClickException):
    """Something cannot be done; the message says what to do about it."""

    exit_code = EXIT_FAILED


class InvalidInput(click.ClickException):
    """Something was asked for in a way that is not understood."""

    exit_code = EXIT_BAD_INPUT


def is_bad_input(error: BulliteError) -> bool:
    """Whether something of the library is wrong with what was asked for, not with what there is."""
    return isinstance(error, ValueError | TypeError) and not isinstance(error, JobFailed)


def escape_control(text: str) -> str:
    """Text as it can be written to a terminal: what cannot be seen spelled out."""
    return visible(text)


def one_line(text: str, width: int = 60) -> str:
    """The same on one line, cut where it gets too long."""
    flat = escape_control(" ".join(text.split()))
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def pluralize(number: int, one: str, more: str) -> str:
    """A number of things, called as one or as several are."""
    return f"{number} {one if number == 1 else more}"


class Console:
    """What a verb says, in the form that was asked for."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.on_terminal = sys.stdout.isatty()
        self.in_colour = self.on_terminal and not os.environ.get("NO_COLOR")

    def data(self, value: Any) -> None:
        """One JSON document."""
        text = json.dumps(value, ensure_ascii=False, default=str)
        self.line(visible_json(text))

    def line(self, text: str = "") -> None:
        """A line of the answer."""
        sys.stdout.write(text + "\n")

    def flush(self) -> None:
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Something for people, that is no answer."""
        if not self.as_json:
            with suppress(OSError):  # the terminal may be gone, and what is done goes on
                sys.stderr.write(escape_control(text) + "\n")

    def done(self, text: str, value: Mapping[str, Any]) -> None:
        """What was done: a sentence for people, the facts for programs."""
        if self.as_json:
            self.data(value)
        else:
            self.line(escape_control(text))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Rows under headings; for a program that reads them, tabs between."""
        rows = [[escape_control(cell).translate(_BLANKS) for cell in row] for row in rows]
        if not self.on_terminal:
            for row in rows:
                self.line("\t".join(row))
        elif rows:
            from .tables import draw

            draw(columns, rows, self.in_colour)

    def ask(self, question: str, yes: bool) -> None:
        """Have somebody agree to what cannot be undone."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise CommandError(f"{question} Say --yes to do it without being asked")
        sys.stderr.write(f"{escape_control(question)} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was changed")

    def progress(self, label: str, total: int | None) -> Progress:
        """A bar on a terminal, shown when something takes longer than a second."""
        return Progress(label, total, show=not self.as_json and sys.stderr.isatty())


class Progress:
    """How far something is, for people who wait for it."""

    def __init__(self, label: str, total: int | None, show: bool) -> None:
        import time

        self._label, self._total, self._show = label, total, show
        self._clock = time.monotonic
        self._began = self._told = time.monotonic()
        self._shown = False

    def at(self, done: int, jobs: int | None = None) -> None:
        """So much is done; with so many jobs, if it is not those that are counted."""
        now = self._clock()
        if not self._show or now - self._began < 1 or now - self._told < 0.1:
            return
        self._told, self._shown = now, True
        rate = (done if jobs is None else jobs) / (now - self._began)
        if self._total:
            filled = min(30, 30 * done // self._total)
            bar = "#" * filled + "-" * (30 - filled)
            text = f"{self._label} [{bar}] {100 * done // self._total} %, {rate:,.0f} jobs/s"
        else:
            text = f"{self._label} {done:,}, {rate:,.0f} jobs/s"
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def verb(function: F) -> F:
    """The options that every verb has: --db, --json, --format. It gets a Session first."""

    @click.option(
        "--db",
        metavar="PATH|URL",
        help="The database; what BULLITE_URL says, or ./bullite.db, unless given.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
    @click.option(
        "--format", "form", type=click.Choice(["text", "json"]), help="The same, as one of both."
    )
    @wraps(function)
    def wrapped(db: str | None, as_json: bool, form: str | None, **options: Any) -> Any:
        from .session import Session

        session = Session(
            db or named_before(click.get_current_context()), Console(as_json or form == "json")
        )
        if not gc.isenabled():
            gc.freeze()  # what was imported is no garbage, not even at the end
            gc.enable()
        try:
            with _telling_of_waits(session.talk):
                return function(session, **options)
        finally:
            session.close()

    return wrapped  # type: ignore[return-value]


def named_before(context: click.Context) -> str | None:
    """The database, if it was named before the verb."""
    named: str | None = context.find_root().params.get("db")
    return named


@contextmanager
def _telling_of_waits(talk: Console) -> Iterator[None]:
    """Meanwhile people hear when a database that somebody else holds is waited for."""
    if not sys.stderr.isatty():
        yield
        return
    import logging

    class Aloud(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            talk.note(record.getMessage())

    waits, aloud = logging.getLogger("bullite.sqlite.waiting"), Aloud()
    waits.addHandler(aloud)
    try:
        yield
    finally:
        waits.removeHandler(aloud)


def queue_option(*, multiple: bool = False, help: str = "The queue.") -> Callable[[F], F]:
    """--queue, whose names complete."""
    return click.option(
        "--queue",
        "-q",
        metavar="NAME",
        multiple=multiple,
        help=help,
        shell_complete=complete_queues,
    )


def state_option(*, help: str, default: str | None = None) -> Callable[[F], F]:
    """--state, whose words complete."""
    return click.option(
        "--state", metavar="STATE", default=default, help=help, shell_complete=_complete_states
    )


def queue_argument(function: F) -> F:
    """The name of a queue, which completes; `default` unless given."""
    return click.argument("queue", required=False, shell_complete=complete_queues)(function)


def job_argument(*, many: bool = False, required: bool = True) -> Callable[[F], F]:
    """The id of a job, which completes; or of several."""
    name = "job_ids" if many else "job_id"
    return click.argument(
        name, metavar="JOB..." if many else "JOB", nargs=-1 if many else 1, required=required,
        shell_complete=_complete_jobs,
    )  # fmt: skip


def yes_option(function: F) -> F:
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(function)


def complete_queues(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    from .completers import queue_names

    return queue_names(context, parameter, typed)


def _complete_states(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    from .job_format import STATUSES

    return [status for status in STATUSES if status.startswith(typed)]


def _complete_jobs(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    from .completers import job_ids

    return job_ids(context, parameter, typed)
