"""The statements of a SQL file: named statements, moves from the table in states.py, and pages.

Job flags are filled in by their names in job_flags.py: `traits & {cancelled}`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..core.job_flags import BY_NAME
from ..core.states import MOVES, Move, State

_HEADER = re.compile(
    r"^-- (name|move|template|page): ([\w-]+)(?: takes (\w+))?(?: by (\w+), (\w+) aged (\w+))?"
    r"(?: \((json_rows|json_rows, durable_read|payload_last|multi_row|durable_read|whole)\))?$"
)


class Statement(NamedTuple):
    """One SQL statement, ready to run. The driver of its database interprets the flag."""

    name: str
    text: str
    flag: str | None = None


class _Block(NamedTuple):
    kind: str
    name: str
    takes: bool
    keys: tuple[str, ...]
    flag: str | None
    text: str


def load(source: str) -> dict[str, Statement]:
    """Return all statements of an SQL file; moves are under the names of `move_statement`."""
    for name, bit in BY_NAME.items():
        source = source.replace(f"{{{name}}}", str(bit))
    blocks = _blocks(source)
    templates = {block.name: block.text for block in blocks if block.kind == "template"}
    changes = {block.name: block for block in blocks if block.kind == "move"}
    statements = {
        block.name: Statement(
            block.name,
            block.text.replace("{job}", templates.get("job", "")),
            block.flag,
        )
        for block in blocks
        if block.kind == "name"
    }
    for move in MOVES:
        for state in move.sources:
            name = move_statement(move, state)
            text = _compose(move, state, templates, changes)
            statements[name] = Statement(name, text, None if move.target is None else "move")
            if move.held and move.target is not None and not changes[move.name].takes:
                name = same_token_statement(move, state)
                text = _compose(move, state, templates, changes, same_token=True)
                statements[name] = Statement(name, text, "move")
    for block in blocks:
        if block.kind == "page":
            statements |= _page_statements(block, templates)
    return statements


def move_statement(move: Move, source: State) -> str:
    """Return the name of the statement that makes `move` from state `source`."""
    return f"{move.name}:{source}"


def same_token_statement(move: Move, source: State) -> str:
    """Return the name of that statement for jobs that are all claimed under one token."""
    return f"{move.name}:{source}:same_token"


def _page_statements(block: _Block, templates: dict[str, str]) -> dict[str, Statement]:
    """Return the statements of a list: pages in both directions, after and before a job, oldest."""
    first, second, aged = block.keys
    texts = {
        f"page_up:{block.name}": ("page", "asc"),
        f"page_down:{block.name}": ("page", "desc"),
        f"after:{block.name}": ("after", "asc"),
        f"before:{block.name}": ("before", "desc"),
        f"oldest:{block.name}": ("oldest", "asc"),
    }
    if aged == "finished_at":
        texts[f"take_oldest:{block.name}"] = ("take_oldest", "asc")
    return {
        name: Statement(
            name,
            templates[template].format(
                job=templates["job"],
                filter=block.text,
                first=first,
                second=second,
                aged=aged,
                direction=direction,
            ),
        )
        for name, (template, direction) in texts.items()
    }


def _compose(
    move: Move,
    source: State,
    templates: dict[str, str],
    changes: dict[str, _Block],
    same_token: bool = False,
) -> str:
    if move.target is None:
        return templates["delete"].format(source=source)
    block = changes[move.name]
    change, _, condition = block.text.partition("where ")
    guards = f" and {condition.strip()}" if condition else ""
    kind = (
        "move_with_value"
        if block.takes
        else "move"
        if move.held and not same_token
        else "move_without_token"
    )
    if move.held:
        guards += " " + templates[_TOKEN_GUARDS[kind]]
    return templates[kind].format(
        source=source, target=move.target, changes=f", {change.strip()}", guards=guards
    )


_TOKEN_GUARDS = {
    "move": "token_guard",
    "move_with_value": "token_with_value_guard",
    "move_without_token": "same_token_guard",
}


def _blocks(source: str) -> list[_Block]:
    blocks: list[_Block] = []
    header: re.Match[str] | None = None
    lines: list[str] = []

    def close() -> None:
        if header is not None:
            kind, name, takes, *keys, flag = header.groups()
            text = "\n".join(lines).strip()
            blocks.append(_Block(kind, name, takes is not None, tuple(keys), flag, text))

    for line in source.splitlines():
        if not line.lstrip().startswith("--"):
            lines.append(line)
        elif (match := _HEADER.match(line)) is not None:
            close()
            header, lines = match, []
    close()
    return blocks
