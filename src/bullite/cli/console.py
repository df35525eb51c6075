"""Output of queuectl: results on standard output, notes on standard error, text or JSON."""

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
"""The command failed: no such job, no such database, not allowed."""
EXIT_BAD_INPUT = 2
EXIT_JOB_FAILED = 3
"""A job that `wait` waited for failed."""
EXIT_TIMED_OUT = 124
EXIT_INTERRUPTED = 130

_BLANKS = str.maketrans("\t\n", "  ")
"""Characters that would separate rows or cells."""

F = TypeVar("F", bound=Callable[..., Any])


class CommandError(click.ClickException):
    """The command cannot be carried out; the message says what to do."""

    exit_code = EXIT_FAILED


class InvalidInput(click.ClickException):
    """An argument or an option is invalid."""

    exit_code = EXIT_BAD_INPUT


def is_bad_input(error: BulliteError) -> bool:
    """Return whether an error of the library is about the arguments."""
    return isinstance(error, ValueError | TypeError) and not isinstance(error, JobFailed)


def escape_control(text: str) -> str:
    """Return text with control and invisible characters escaped."""
    return visible(text)


def one_line(text: str, width: int = 60) -> str:
    """Return escaped text on one line, cut at `width` characters."""
    flat = escape_control(" ".join(text.split()))
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def pluralize(number: int, one: str, more: str) -> str:
    """Return a number with the singular or the plural of a noun."""
    return f"{number} {one if number == 1 else more}"


class Console:
    """Prints the output of a verb, as text or as JSON."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.on_terminal = sys.stdout.isatty()
        self.in_colour = self.on_terminal and not os.environ.get("NO_COLOR")

    def data(self, value: Any) -> None:
        """Print one JSON document."""
        text = json.dumps(value, ensure_ascii=False, default=str)
        self.line(visible_json(text))

    def line(self, text: str = "") -> None:
        """Print a line of the result."""
        sys.stdout.write(text + "\n")

    def flush(self) -> None:
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a note to standard error, unless the output is JSON."""
        if not self.as_json:
            with suppress(OSError):  # the terminal may be closed: the command continues
                sys.stderr.write(escape_control(text) + "\n")

    def done(self, text: str, value: Mapping[str, Any]) -> None:
        """Print what was done: a sentence, or `value` as JSON."""
        if self.as_json:
            self.data(value)
        else:
            self.line(escape_control(text))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print rows: with headings on a terminal, else separated by tabs."""
        rows = [[escape_control(cell).translate(_BLANKS) for cell in row] for row in rows]
        if not self.on_terminal:
            for row in rows:
                self.line("\t".join(row))
        elif rows:
            from .tables import draw

            draw(columns, rows, self.in_colour)

    def confirm(self, question: str, yes: bool) -> None:
        """Ask for confirmation, unless `yes`. Raise CommandError without it."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise CommandError(f"{question} Say --yes to do it without being asked")
        sys.stderr.write(f"{escape_control(question)} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was changed")

    def progress(self, label: str, total: int | None) -> Progress:
        """Return a progress bar, which is shown on a terminal after a second."""
        return Progress(label, total, show=not self.as_json and sys.stderr.isatty())


class Progress:
    """A progress bar on standard error."""

    def __init__(self, label: str, total: int | None, show: bool) -> None:
        import time

        self._label, self._total, self._show = label, total, show
        self._clock = time.monotonic
        self._started = self._updated = time.monotonic()
        self._shown = False

    def at(self, done: int, jobs: int | None = None) -> None:
        """Update the bar: `done` of the total; `jobs`, if another unit than jobs is counted."""
        now = self._clock()
        if not self._show or now - self._started < 1 or now - self._updated < 0.1:
            return
        self._updated, self._shown = now, True
        rate = (done if jobs is None else jobs) / (now - self._started)
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
    """Add the options of every verb (--db, --json, --format) and pass it a Session first."""

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
            gc.freeze()  # imported modules are no garbage: skip them, also at exit
            gc.enable()
        try:
            with _noting_waits(session.console):
                return function(session, **options)
        finally:
            session.close()

    return wrapped  # type: ignore[return-value]


def named_before(context: click.Context) -> str | None:
    """Return the database, if --db was given before the verb."""
    named: str | None = context.find_root().params.get("db")
    return named


@contextmanager
def _noting_waits(console: Console) -> Iterator[None]:
    """On a terminal, note inside the block when a locked database is waited for."""
    if not sys.stderr.isatty():
        yield
        return
    import logging

    class NoteHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            console.note(record.getMessage())

    waits, handler = logging.getLogger("bullite.sqlite.waiting"), NoteHandler()
    waits.addHandler(handler)
    try:
        yield
    finally:
        waits.removeHandler(handler)


def queue_option(*, multiple: bool = False, help: str = "The queue.") -> Callable[[F], F]:
    """Return the option --queue, with completion."""
    return click.option(
        "--queue",
        "-q",
        metavar="NAME",
        multiple=multiple,
        help=help,
        shell_complete=complete_queues,
    )


def state_option(*, help: str, default: str | None = None) -> Callable[[F], F]:
    """Return the option --state, with completion."""
    return click.option(
        "--state", metavar="STATE", default=default, help=help, shell_complete=_complete_states
    )


def queue_argument(function: F) -> F:
    """Add the argument for a queue, with completion; `default` unless given."""
    return click.argument("queue", required=False, shell_complete=complete_queues)(function)


def job_argument(*, many: bool = False, required: bool = True) -> Callable[[F], F]:
    """Return the argument for a job id, or several, with completion."""
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
