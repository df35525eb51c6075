"""`enqueue-batch`: jobs from a file or a pipe, in constant memory, chunk by chunk."""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from ...core.codec import decode
from ...errors import BulliteError
from ..completers import files
from ..console import CommandError, InvalidInput, is_bad_input, pluralize, queue_option, verb
from ..job_spec import JobSpec, JobSpecFactory, check_queue, on_the_command_line
from ..session import Session
from .enqueue import (
    added_to,
    config_and_now,
    examples,
    load_template,
    resolve_dependencies,
    warnings_about,
)

if TYPE_CHECKING:
    from ...client.queue.queue import Queue

CHUNK = 10_000
"""Jobs that are stored together, or not at all."""

MAX_LINE_LENGTH = 2 * 1024 * 1024


BLOCK = 65_536
"""Bytes of an array that are read at a time."""


class SourceLine(NamedTuple):
    """The line that a job of the file begins on, and which element of an array it is."""

    line: int
    element: int | None = None

    def until(self, last: SourceLine) -> str:
        where = _numbered("line", self.line, last.line)
        if self.element is None or last.element is None:
            return where
        return f"{where}, {_numbered('element', self.element, last.element)}"


def _numbered(what: str, first: int, last: int) -> str:
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


class Entry(NamedTuple):
    """One job of the file, and where it is."""

    place: SourceLine
    given: Mapping[str, Any]


class BadLine(Exception):
    """A line that is no job, or lines that were refused together."""

    def __init__(
        self,
        first: SourceLine,
        problem: str,
        last: SourceLine | None = None,
        kind: type[InvalidInput] | type[CommandError] = InvalidInput,
    ) -> None:
        super().__init__(problem)
        self.first, self.kind = first, kind
        self.where = first.until(first if last is None else last)


@click.command(
    "enqueue-batch",
    epilog=examples(
        "queuectl enqueue-batch commands.txt",
        "queuectl enqueue-batch jobs.jsonl --queue nightly --chunk 1000",
        "find . -name '*.png' -printf 'optipng %p\\n' | queuectl enqueue-batch -",
        """echo '["a.sh", {"template": "backup", "priority": 5}]' | queuectl enqueue-batch -""",
    ),
)
@click.argument("file", metavar="FILE|-", shell_complete=files)
@click.option(
    "--input",
    "holds",
    type=click.Choice(["auto", "jsonl", "json", "lines"]),
    default="auto",
    help="What the file holds; found out from its beginning unless given.",
)
@click.option(
    "--chunk",
    default=CHUNK,
    type=click.IntRange(1, 100_000),
    help="Jobs that are stored together, or not at all.",
    show_default=True,
)
@queue_option(help="The queue of those that do not name one.")
@verb
def enqueue_batch(session: Session, file: str, holds: str, chunk: int, queue: str | None) -> None:
    """Add jobs from FILE, or from standard input.

    One job a line: a command, or an object with `command`, `argv`, `url` or `module` and options by
    their long names ({"command": "backup.sh", "priority": 10}); or one JSON array of these. If the
    first line is text in JSON ("backup.sh"), so is every line that is no object. An
    option of an object beats that of its `template`; relative paths are relative to your folder. A
    bad line is told by its number and nothing of its chunk is stored; the chunks before it are.
    """
    if queue is not None:
        with on_the_command_line():
            check_queue(queue)
    with _opened(file) as stream:
        batch = EnqueueBatch(session, chunk, _size_of(stream))
        if queue is not None:
            batch.defaults["queue"] = queue
        try:
            for entry in _entries(stream, holds):
                batch.put(entry, stream)
            batch.store()
        except BadLine as bad:
            lost = f"; {batch.stored} jobs before it were stored" if batch.stored else ""
            problem = f"{bad.where}: {bad}; nothing of its chunk was stored{lost}"
            if session.talk.as_json:
                session.talk.data({**batch.told(), "error": problem})
            raise bad.kind(problem) from None
        finally:
            batch.progress.end()
    text = f"{pluralize(batch.added, 'job', 'jobs')} added"
    if batch.existing:
        text += f", {batch.existing} were there already"
    session.talk.done(text, batch.told())


def _opened(file: str) -> Any:
    if file == "-":
        return _Unclosed(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None


class _Unclosed:
    """Standard input, which is not ours to close."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def __enter__(self) -> BinaryIO:
        return self._stream

    def __exit__(self, *error: object) -> None:
        pass


def _size_of(stream: BinaryIO) -> int | None:
    try:
        return os.fstat(stream.fileno()).st_size or None
    except (OSError, AttributeError):
        return None


# --- reading ---


def _entries(stream: BinaryIO, form: str) -> Iterator[Entry]:
    number, data = _beginning(stream)
    if not data:
        return
    if form != "auto":
        yield from _read(stream, form, number, data)
        return
    form = _form_of(data)
    try:
        yield from _read(stream, form, number, data)
    except BadLine as bad:
        # A first line that is an object shows that the others are meant to be; a bracket does not.
        if form == "json" or (form == "jsonl" and bad.first.line == number):
            hint = "if it holds commands, say --input lines"
            raise BadLine(bad.first, f"{bad}; {hint}") from None
        raise


def _form_of(beginning: bytes) -> str:
    sign = beginning.lstrip()[:1]
    if sign == b'"':
        return "jsonl" if _is_text(beginning) else "lines"
    return {b"[": "json", b"{": "jsonl"}.get(sign, "lines")


def _is_text(data: bytes) -> bool:
    try:
        return isinstance(decode(data), str)
    except ValueError:
        return False


def _read(stream: BinaryIO, form: str, number: int, data: bytes) -> Iterator[Entry]:
    if form == "json":
        yield from _Array(stream, number, data)
        return
    one = _plain if form == "lines" else _from_json
    while data:
        if len(data) > MAX_LINE_LENGTH:
            raise BadLine(SourceLine(number), f"longer than {MAX_LINE_LENGTH} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise BadLine(SourceLine(number), "not UTF-8") from None
        if not text.isspace():
            yield one(SourceLine(number), text)
        data = stream.readline(MAX_LINE_LENGTH + 1)
        number += 1


def _beginning(stream: BinaryIO) -> tuple[int, bytes]:
    """The first line that says something, and its number."""
    number = 1
    data = stream.readline(MAX_LINE_LENGTH + 1).removeprefix(codecs.BOM_UTF8)
    while data.isspace():
        data = stream.readline(MAX_LINE_LENGTH + 1)
        number += 1
    return number, data


def _plain(place: SourceLine, text: str) -> Entry:
    """A command; or an object, which is none that a shell would understand."""
    if text.lstrip()[:1] == "{":
        with suppress(ValueError, RecursionError):
            return _entry(place, decode(text))
    return Entry(place, {"command": text.rstrip("\r\n")})


def _from_json(place: SourceLine, text: str) -> Entry:
    try:
        return _entry(place, decode(text))
    except (ValueError, RecursionError) as error:
        raise BadLine(place, f"not JSON ({error})") from None


def _entry(place: SourceLine, value: Any) -> Entry:
    if isinstance(value, str):
        return Entry(place, {"command": value})
    if not isinstance(value, Mapping):
        raise BadLine(place, f"a job is text or an object, not {json.dumps(value)[:60]}")
    given = {name.replace("-", "_"): one for name, one in value.items()}
    return Entry(place, {_ALIASES.get(name, name): one for name, one in given.items()})


_ALIASES = {"tags": "tag", "headers": "header"}
_SPACE = re.compile(r"[ \t\r\n]*")


class _Array:
    """The members of one JSON array, read as they come and never all at once."""

    def __init__(self, stream: BinaryIO, line: int, data: bytes) -> None:
        self._stream, self._line = stream, line
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._decoder = json.JSONDecoder(parse_constant=_refuse_constant)
        self._text, self._at = "", 0
        self._take(data)

    def __iter__(self) -> Iterator[Entry]:
        if self._sign() != "[":
            raise BadLine(self._here(), "an array begins with [")
        self._at += 1
        sign = self._sign()
        number = 0
        while sign != "]":
            number += 1
            place = SourceLine(self._line, number)
            yield _entry(place, self._member(place))
            sign = self._sign()
            if sign == ",":
                self._at += 1
                sign = self._sign()
                if sign == "]":
                    raise BadLine(self._here(), "a job must follow a comma")
            elif sign != "]":
                raise BadLine(self._here(), "a comma or ] must follow a job")
        self._at += 1
        if self._sign():
            raise BadLine(self._here(), "nothing may follow the array")

    def _here(self) -> SourceLine:
        return SourceLine(self._line)

    def _sign(self) -> str:
        """The next character that is no space; none at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            end = self._at if found is None else found.end()
            self._pass(end)
            if end < len(self._text):
                return self._text[end]
            if not self._grow():
                return ""

    def _member(self, place: SourceLine) -> Any:
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at > MAX_LINE_LENGTH or not self._grow():
                    problem = error.msg if isinstance(error, json.JSONDecodeError) else error
                    raise BadLine(place, f"not JSON ({problem})") from None
            else:
                self._pass(end)
                return value

    def _pass(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _grow(self) -> bool:
        block = self._stream.read(BLOCK)
        self._take(block)
        return bool(block)

    def _take(self, block: bytes) -> None:
        try:
            text = self._utf8.decode(block, final=not block)
        except UnicodeDecodeError:
            raise BadLine(self._here(), "not UTF-8, here or further on") from None
        self._text, self._at = self._text[self._at :] + text, 0


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


# --- storing ---


class EnqueueBatch:
    """Jobs on their way into the database."""

    def __init__(self, session: Session, chunk: int, size: int | None) -> None:
        self._session, self._chunk = session, chunk
        self._config, now = config_and_now(session)
        self._book = JobSpecFactory(self._config, now)
        self._templates: dict[str, Mapping[str, Any]] = {}
        self._warned: set[str] = set()
        self._orders: list[tuple[SourceLine, JobSpec]] = []
        self._coming: dict[str, list[str]] = {}
        """The ids among these, with their queues."""
        self.progress = session.talk.progress("adding", size)
        self._has_size = size is not None
        self.defaults: dict[str, Any] = {}
        self.stored = self.added = 0

    @property
    def existing(self) -> int:
        """How many of those stored were there already."""
        return self.stored - self.added

    def told(self) -> dict[str, Any]:
        return {"added": self.added, "existing": self.existing}

    def put(self, entry: Entry, stream: BinaryIO) -> None:
        try:
            order = self._order(entry.given)
            if order.after:
                resolve_dependencies(self._session, order, self._coming)
        except (InvalidInput, CommandError) as error:
            raise BadLine(entry.place, error.message) from None
        except BulliteError as error:
            raise BadLine(entry.place, str(error), kind=_kind_of(error)) from None
        for warning in warnings_about(order, self._config):
            if warning not in self._warned:
                self._warned.add(warning)
                self._session.talk.note(warning)
        self._orders.append((entry.place, order))
        if "job_id" in order.options:
            self._coming.setdefault(order.options["job_id"], []).append(order.queue)
        if len(self._orders) >= self._chunk:
            self.store()
            self.progress.at(stream.tell() if self._has_size else self.stored, self.stored)

    def _order(self, given: Mapping[str, Any]) -> JobSpec:
        if "template" not in given:
            return self._book.make(given, self.defaults)
        own = {name: value for name, value in given.items() if name != "template"}
        return self._book.make(own, {**self.defaults, **self._template(given["template"])})

    def _template(self, name: Any) -> Mapping[str, Any]:
        if not isinstance(name, str):
            raise InvalidInput(f"template must be text, not {name!r}")
        if name not in self._templates:
            self._templates[name] = load_template(self._session, name)
        return self._templates[name]

    def store(self) -> None:
        """Store what has come together, all of it or nothing."""
        orders, self._orders = self._orders, []
        has_ids, self._coming = bool(self._coming), {}
        if not orders:
            return
        number = len(orders)
        if has_ids:
            orders = _first_of_each_id(orders)
        try:
            self.added += self._added([order for _, order in orders], has_ids)
        except BulliteError as error:
            raise _bad_line([place for place, _ in orders], error) from None
        self.stored += number

    def _added(self, orders: list[JobSpec], has_ids: bool) -> int:
        """How many of them were not there already."""
        names = {order.queue for order in orders}
        queues = {name: self._session.queue(name, make=True) for name in names}
        if not has_ids:
            self._session.wait(_add(queues, orders))
            return len(orders)
        with added_to(*queues.values()) as added:
            self._session.wait(_add(queues, orders))
        return len(added)


def _first_of_each_id(orders: list[tuple[SourceLine, JobSpec]]) -> list[tuple[SourceLine, JobSpec]]:
    seen: set[tuple[str, str]] = set()
    firsts: list[tuple[SourceLine, JobSpec]] = []
    for place, order in orders:
        job_id = order.options.get("job_id")
        if job_id is None or (order.queue, job_id) not in seen:
            firsts.append((place, order))
            seen.add((order.queue, job_id or ""))
    return firsts


async def _add(queues: Mapping[str, Queue], orders: list[JobSpec]) -> None:
    """Add jobs in one transaction."""
    jobs: list[Any] = [{"name": o.name, "data": o.data, "opts": o.options} for o in orders]
    if len(queues) == 1:
        [queue] = queues.values()
        await queue.add_bulk(jobs)
        return
    from ...client.queue.flow_builder import FlowDefinition, add_flow

    roots = [{"queue_name": o.queue, **job} for o, job in zip(orders, jobs, strict=True)]
    await add_flow(FlowDefinition(roots, queues.__getitem__, called="job"))


def _bad_line(places: list[SourceLine], error: BulliteError) -> BadLine:
    """The library counts jobs of a batch; people count lines."""
    problem, kind = str(error), _kind_of(error)
    index = problem.partition("jobs[")[2].partition("]")[0]
    if index.isdecimal():
        return BadLine(places[int(index)], problem, kind=kind)
    return BadLine(places[0], problem, places[-1], kind)


def _kind_of(error: BulliteError) -> type[InvalidInput] | type[CommandError]:
    return InvalidInput if is_bad_input(error) else CommandError
