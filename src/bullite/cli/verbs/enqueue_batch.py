"""`enqueue-batch`: add jobs from a file or a pipe, in constant memory, chunk by chunk."""

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
from ..job_spec import JobSpec, JobSpecFactory, check_queue, options_as_typed
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
    """Position of a job in the file: its first line and, in an array, its element."""

    line: int
    element: int | None = None

    def to(self, last: SourceLine) -> str:
        """Return the range from this position to another, for a message."""
        where = _numbered("line", self.line, last.line)
        if self.element is None or last.element is None:
            return where
        return f"{where}, {_numbered('element', self.element, last.element)}"


def _numbered(what: str, first: int, last: int) -> str:
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


class Entry(NamedTuple):
    """One job of the file, and its position."""

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
        self.where = first.to(first if last is None else last)


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
    "input_form",
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
def enqueue_batch(
    session: Session, file: str, input_form: str, chunk: int, queue: str | None
) -> None:
    """Add jobs from FILE, or from standard input.

    One job a line: a command, or an object with `command`, `argv`, `url` or `module` and options by
    their long names ({"command": "backup.sh", "priority": 10}); or one JSON array of these. If the
    first line is text in JSON ("backup.sh"), so is every line that is no object. An
    option of an object beats that of its `template`; relative paths are relative to your folder. A
    bad line is told by its number and nothing of its chunk is stored; the chunks before it are.
    """
    if queue is not None:
        with options_as_typed():
            check_queue(queue)
    with _opened(file) as stream:
        batch = EnqueueBatch(session, chunk, _size_of(stream))
        if queue is not None:
            batch.defaults["queue"] = queue
        try:
            for entry in _entries(stream, input_form):
                batch.put(entry, stream)
            batch.store()
        except BadLine as bad:
            stored = f"; {batch.stored} jobs before it were stored" if batch.stored else ""
            message = f"{bad.where}: {bad}; nothing of its chunk was stored{stored}"
            if session.console.as_json:
                session.console.data({**batch.counts(), "error": message})
            raise bad.kind(message) from None
        finally:
            batch.progress.end()
    text = f"{pluralize(batch.added, 'job', 'jobs')} added"
    if batch.existing:
        text += f", {batch.existing} were there already"
    session.console.done(text, batch.counts())


def _opened(file: str) -> Any:
    if file == "-":
        return _Unclosed(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None


class _Unclosed:
    """Standard input as a context manager that does not close it."""

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
    number, data = _first_line(stream)
    if not data:
        return
    if form != "auto":
        yield from _read(stream, form, number, data)
        return
    form = _form_of(data)
    try:
        yield from _read(stream, form, number, data)
    except BadLine as bad:
        # A first line that is an object makes JSON likely for all; a bracket can begin a command.
        if form == "json" or (form == "jsonl" and bad.first.line == number):
            hint = "if it holds commands, say --input lines"
            raise BadLine(bad.first, f"{bad}; {hint}") from None
        raise


def _form_of(line: bytes) -> str:
    """Return the form of a file that begins with this line."""
    character = line.lstrip()[:1]
    if character == b'"':
        return "jsonl" if _is_json_text(line) else "lines"
    return {b"[": "json", b"{": "jsonl"}.get(character, "lines")


def _is_json_text(data: bytes) -> bool:
    try:
        return isinstance(decode(data), str)
    except ValueError:
        return False


def _read(stream: BinaryIO, form: str, number: int, data: bytes) -> Iterator[Entry]:
    if form == "json":
        yield from _Array(stream, number, data)
        return
    parse = _plain_entry if form == "lines" else _json_entry
    while data:
        if len(data) > MAX_LINE_LENGTH:
            raise BadLine(SourceLine(number), f"longer than {MAX_LINE_LENGTH} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise BadLine(SourceLine(number), "not UTF-8") from None
        if not text.isspace():
            yield parse(SourceLine(number), text)
        data = stream.readline(MAX_LINE_LENGTH + 1)
        number += 1


def _first_line(stream: BinaryIO) -> tuple[int, bytes]:
    """Return the number of the first line that is not blank, and the line."""
    number = 1
    data = stream.readline(MAX_LINE_LENGTH + 1).removeprefix(codecs.BOM_UTF8)
    while data.isspace():
        data = stream.readline(MAX_LINE_LENGTH + 1)
        number += 1
    return number, data


def _plain_entry(place: SourceLine, text: str) -> Entry:
    """Return the job of a line: a command, or an object, which no shell would run."""
    if text.lstrip()[:1] == "{":
        with suppress(ValueError, RecursionError):
            return _entry(place, decode(text))
    return Entry(place, {"command": text.rstrip("\r\n")})


def _json_entry(place: SourceLine, text: str) -> Entry:
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
    """The elements of one JSON array, parsed while it is read, in constant memory."""

    def __init__(self, stream: BinaryIO, line: int, data: bytes) -> None:
        self._stream, self._line = stream, line
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._decoder = json.JSONDecoder(parse_constant=_refuse_constant)
        self._text, self._at = "", 0
        self._append(data)

    def __iter__(self) -> Iterator[Entry]:
        if self._next_character() != "[":
            raise BadLine(self._current_line(), "an array begins with [")
        self._at += 1
        character = self._next_character()
        number = 0
        while character != "]":
            number += 1
            place = SourceLine(self._line, number)
            yield _entry(place, self._element(place))
            character = self._next_character()
            if character == ",":
                self._at += 1
                character = self._next_character()
                if character == "]":
                    raise BadLine(self._current_line(), "a job must follow a comma")
            elif character != "]":
                raise BadLine(self._current_line(), "a comma or ] must follow a job")
        self._at += 1
        if self._next_character():
            raise BadLine(self._current_line(), "nothing may follow the array")

    def _current_line(self) -> SourceLine:
        return SourceLine(self._line)

    def _next_character(self) -> str:
        """Return the next character that is no space, without consuming it; "" at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            end = self._at if found is None else found.end()
            self._advance(end)
            if end < len(self._text):
                return self._text[end]
            if not self._read_block():
                return ""

    def _element(self, place: SourceLine) -> Any:
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at > MAX_LINE_LENGTH or not self._read_block():
                    problem = error.msg if isinstance(error, json.JSONDecodeError) else error
                    raise BadLine(place, f"not JSON ({problem})") from None
            else:
                self._advance(end)
                return value

    def _advance(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _read_block(self) -> bool:
        block = self._stream.read(BLOCK)
        self._append(block)
        return bool(block)

    def _append(self, block: bytes) -> None:
        try:
            text = self._utf8.decode(block, final=not block)
        except UnicodeDecodeError:
            raise BadLine(self._current_line(), "not UTF-8, here or further on") from None
        self._text, self._at = self._text[self._at :] + text, 0


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


# --- storing ---


class EnqueueBatch:
    """Jobs that are read, checked, and stored a chunk at a time."""

    def __init__(self, session: Session, chunk: int, size: int | None) -> None:
        self._session, self._chunk = session, chunk
        self._config, now = config_and_now(session)
        self._factory = JobSpecFactory(self._config, now)
        self._templates: dict[str, Mapping[str, Any]] = {}
        self._warned: set[str] = set()
        self._chunk_specs: list[tuple[SourceLine, JobSpec]] = []
        self._chunk_ids: dict[str, list[str]] = {}
        """The ids of these jobs, with their queues."""
        self.progress = session.console.progress("adding", size)
        self._has_size = size is not None
        self.defaults: dict[str, Any] = {}
        self.stored = self.added = 0

    @property
    def existing(self) -> int:
        """How many of the stored jobs existed before."""
        return self.stored - self.added

    def counts(self) -> dict[str, int]:
        """Return the counts for --json."""
        return {"added": self.added, "existing": self.existing}

    def put(self, entry: Entry, stream: BinaryIO) -> None:
        """Add a job to the chunk, and store the chunk if it is full."""
        try:
            spec = self._spec(entry.given)
            if spec.after:
                resolve_dependencies(self._session, spec, self._chunk_ids)
        except (InvalidInput, CommandError) as error:
            raise BadLine(entry.place, error.message) from None
        except BulliteError as error:
            raise BadLine(entry.place, str(error), kind=_kind_of(error)) from None
        for warning in warnings_about(spec, self._config):
            if warning not in self._warned:
                self._warned.add(warning)
                self._session.console.note(warning)
        self._chunk_specs.append((entry.place, spec))
        if "job_id" in spec.options:
            self._chunk_ids.setdefault(spec.options["job_id"], []).append(spec.queue)
        if len(self._chunk_specs) >= self._chunk:
            self.store()
            self.progress.at(stream.tell() if self._has_size else self.stored, self.stored)

    def _spec(self, given: Mapping[str, Any]) -> JobSpec:
        if "template" not in given:
            return self._factory.make(given, self.defaults)
        own = {name: value for name, value in given.items() if name != "template"}
        return self._factory.make(own, {**self.defaults, **self._template(given["template"])})

    def _template(self, name: Any) -> Mapping[str, Any]:
        if not isinstance(name, str):
            raise InvalidInput(f"template must be text, not {name!r}")
        if name not in self._templates:
            self._templates[name] = load_template(self._session, name)
        return self._templates[name]

    def store(self) -> None:
        """Store the chunk, all of it or nothing."""
        specs, self._chunk_specs = self._chunk_specs, []
        has_ids, self._chunk_ids = bool(self._chunk_ids), {}
        if not specs:
            return
        number = len(specs)
        if has_ids:
            specs = _first_of_each_id(specs)
        try:
            self.added += self._add([spec for _, spec in specs], has_ids)
        except BulliteError as error:
            raise _bad_line([place for place, _ in specs], error) from None
        self.stored += number

    def _add(self, specs: list[JobSpec], has_ids: bool) -> int:
        """Add jobs and return how many did not exist before."""
        names = {spec.queue for spec in specs}
        queues = {name: self._session.queue(name, make=True) for name in names}
        if not has_ids:
            self._session.wait(_add(queues, specs))
            return len(specs)
        with added_to(*queues.values()) as added:
            self._session.wait(_add(queues, specs))
        return len(added)


def _first_of_each_id(specs: list[tuple[SourceLine, JobSpec]]) -> list[tuple[SourceLine, JobSpec]]:
    """Return the specs without those whose id an earlier one of their queue has."""
    seen: set[tuple[str, str]] = set()
    firsts: list[tuple[SourceLine, JobSpec]] = []
    for place, spec in specs:
        job_id = spec.options.get("job_id")
        if job_id is None or (spec.queue, job_id) not in seen:
            firsts.append((place, spec))
            seen.add((spec.queue, job_id or ""))
    return firsts


async def _add(queues: Mapping[str, Queue], specs: list[JobSpec]) -> None:
    """Add jobs in one transaction."""
    jobs: list[Any] = [{"name": s.name, "data": s.data, "opts": s.options} for s in specs]
    if len(queues) == 1:
        [queue] = queues.values()
        await queue.add_bulk(jobs)
        return
    from ...client.queue.flow_builder import FlowDefinition, add_flow

    roots = [{"queue_name": s.queue, **job} for s, job in zip(specs, jobs, strict=True)]
    await add_flow(FlowDefinition(roots, queues.__getitem__, called="job"))


def _bad_line(places: list[SourceLine], error: BulliteError) -> BadLine:
    """Return the error of a chunk with the line of its job, if it names one by its index."""
    problem, kind = str(error), _kind_of(error)
    index = problem.partition("jobs[")[2].partition("]")[0]
    if index.isdecimal():
        return BadLine(places[int(index)], problem, kind=kind)
    return BadLine(places[0], problem, places[-1], kind)


def _kind_of(error: BulliteError) -> type[InvalidInput] | type[CommandError]:
    return InvalidInput if is_bad_input(error) else CommandError
