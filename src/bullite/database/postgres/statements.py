"""The statements of the SQL file for psycopg and one schema, and texts PostgreSQL can store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ..statements import Statement, load

SOURCE = load((files(__package__) / "statements.sql").read_text(encoding="utf-8"))
_NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")
_ARRAY = re.compile(r"(?<![:\w]):([a-z]+\[\])")
_INSERT = re.compile(
    r"(insert into (\S+) (\([^)]*\)))\s+select \* from unnest\([^)]*\)(.*)", re.DOTALL
)

REFUSAL = "bullite undoes a transaction:"
"""The beginning of an error that a statement of ours raises on purpose.

Plain SQL cannot raise an error. So the statement casts this text to a number, and the log of the
server shows it in quotes.
"""

NUL, NUL_IN_JSON, INSTEAD = "\x00", "\\u0000", "\ufffd"
_JSON = (
    *("jobs", "attempts", "custom_ids", "links", "reasons", "keys", "schedulers", "locks"),
    "queues",
    "nonces",
)
_TEXTS = frozenset(
    {
        *(*_JSON, "name", "names", "lane", "custom_id", "data", "progress", "reason", "channel"),
        *("priority_order", "default_job_options", "dead_letter", "host", "boot", "address"),
        *("opts", "kind", "state", "key", "recurrence", "missed", "value", "payload"),
        *("home", "first_lane", "last_lane", "tag", "durations", "waits", "stats", "stream", "how"),
        *(
            "chore",
            "stdout_head",
            "stdout_tail",
            "stderr_head",
            "stderr_tail",
            "on_failure",
            "seen",
        ),
    }
)
"""The parameters that are texts. All other parameters are integers."""
_NUL_IN_JSON = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement in all forms in which it is sent."""

    name: bytes
    text: bytes
    """The statement with psycopg's placeholders."""
    flag: str | None = None
    parameters: tuple[str, ...] = ()
    prepare: bytes = b""
    """The PREPARE command for the statement."""
    head: str = ""
    tail: str = ""
    """Of an insert of many rows: the text before the values (`head`) and behind them (`tail`)."""
    copy: bytes | None = None
    """The COPY command, for a statement that only inserts rows."""


class Statements(dict[str, Prepared]):
    """The statements for the tables of one schema, each prepared at its first use."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def __missing__(self, name: str) -> Prepared:
        statement = SOURCE[name] if name in SOURCE else _now(name)
        make = _multi_row if statement.flag == "multi_row" else _single
        self[name] = make(statement, self._schema)
        return self[name]


def _now(name: str) -> Statement:
    """Return the variant `x_now` of a locking statement `x`: it skips locked rows."""
    statement = SOURCE[name.removesuffix("_now")]
    assert name.endswith("_now")
    return statement._replace(name=name, text=f"{statement.text} skip locked")


@cache
def statements(schema: str) -> Statements:
    return Statements(schema)


def in_schema(text: str, schema: str) -> str:
    """Return SQL in which the schema `bullite.` is replaced by this one."""
    quoted = f"{quote(schema)}."
    in_text = quoted.replace("'", "''")
    return re.sub(r"('?)\bbullite\.", lambda found: f"'{in_text}" if found[1] else quoted, text)


def with_parameters(text: str, schema: str) -> bytes:
    """Do the same for SQL with psycopg's placeholders: each `%` in the name is doubled."""
    return in_schema(text, schema.replace("%", "%%")).encode()


def quote(name: str) -> str:
    """Return a name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def _single(statement: Statement, schema: str) -> Prepared:
    text = statement.text
    if statement.flag == "move":
        # A move that does not find all its jobs fails, so no later statement runs.
        text = (  # from our own SQL file; values are parameters
            f"with moved as ({text} returning 1) select case when count(*) = :expected then 1 "  # noqa: S608
            f"else ('{REFUSAL} not all jobs are where they were; moved ' || count(*))::integer end "
            "from moved"
        )
    parameters = tuple(dict.fromkeys(_NAMED.findall(text)))
    numbers = {parameter: f"${n}" for n, parameter in enumerate(parameters, start=1)}
    types = ", ".join("text" if p in _TEXTS else "bigint" for p in parameters)
    numbered = in_schema(_NAMED.sub(lambda found: numbers[found[1]], text), schema)
    prepared = "bullite_" + re.sub(r"\W", "_", statement.name)
    return Prepared(
        prepared.encode(),
        with_parameters(_NAMED.sub(r"%(\1)s", text), schema),
        statement.flag,
        parameters,
        f"prepare {prepared}{f' ({types})' if types else ''} as {numbered}".encode(),
    )


def _multi_row(statement: Statement, schema: str) -> Prepared:
    text = statement.text
    found = _INSERT.fullmatch(text)
    assert found is not None
    head, table, columns, tail = found.groups()
    head, table = in_schema(head, schema), in_schema(table, schema)
    types = [array.removesuffix("[]") for array in _ARRAY.findall(text)]
    row = ", ".join(f"${n}" for n in range(1, len(types) + 1))
    prepared = f"bullite_{statement.name}"
    return Prepared(
        prepared.encode(),
        with_parameters(_ARRAY.sub(r"%s::\1", text), schema),
        prepare=f"prepare {prepared} ({', '.join(types)}) as {head} values ({row}){tail}".encode(),
        head=head,
        tail=tail,
        copy=None if tail else f"copy {table} {columns} from stdin".encode(),
    )


def storable(value: Any) -> Any:
    """Return a value that PostgreSQL can store: its texts cannot contain NUL."""
    return value.replace(NUL, INSTEAD) if type(value) is str and NUL in value else value


def storable_parameter(name: str, value: Any) -> Any:
    """Do the same for a parameter, which may be JSON from which a statement takes texts."""
    if name in _JSON and NUL_IN_JSON in value:
        return _NUL_IN_JSON.sub(r"\1\\ufffd", value)
    return storable(value)
