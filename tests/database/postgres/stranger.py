"""A role without rights in Bullite's schema that may create in `public`, as every role may on 14.

It makes overloads of the functions and operators that our SQL calls. Each is a better match for
some types of arguments than the one of the server. It notes in a sequence, which no rollback takes
back, that it ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import product

from tests.database.postgres.places import Connection, database_of_its_own, role, url_for
from tests.support.processes import ROOT
from tests.support.server import Server

NAME = "mallory"

_SQL = (
    *sorted((ROOT / "src/bullite/postgres").rglob("*.sql")),
    *sorted((ROOT / "src/bullite/postgres").glob("*.py")),
)
_TYPES = ("text", "bigint", "integer", "json", "oid", "numeric", "boolean", "name", "timestamptz")
_FEWER = {0: (), 1: _TYPES, 2: _TYPES[:6], 3: ("text", "bigint", "integer", "boolean")}
_COMPARING = ("=", "<>", "<", ">", "<=", ">=", "~", "~~")
_OPERATORS = (*_COMPARING, "||", "+", "-", "*", "/", "%", "&", "->>")


def called() -> list[str]:
    """The names that stand in front of a bracket in our SQL."""
    texts = (path.read_text() for path in _SQL)
    return sorted({name for text in texts for name in re.findall(r"\b([a-z_0-9]+)\s*\(", text)})


class Stranger:
    """What the role has made in one database."""

    def __init__(self, shop: Connection) -> None:
        self._shop = shop
        self.made: list[str] = []

    def make_overloads(self, connection: Connection) -> None:
        connection.execute("create schema mallory; create sequence mallory.ran")
        connection.execute("grant usage on schema mallory to public")
        connection.execute("grant all on sequence mallory.ran to public")
        statements = [*self._functions(), *self._operators(), *self._types()]
        connection.execute("; ".join(statements).encode())

    def ran(self) -> str | None:
        """The overload that ran last, if one did."""
        [[last, is_called]] = self._shop.execute("select last_value, is_called from mallory.ran")
        return self.made[int(str(last)) - 1] if is_called else None

    def _functions(self) -> Iterator[str]:
        known = self._shop.execute(
            "select distinct on (proname, pronargs) proname, pronargs, prokind::text, proretset, "
            "typname, typtype = 'p' from pg_proc join pg_type on pg_type.oid = prorettype "
            "where pronamespace = 'pg_catalog'::regnamespace and proname = any (%s) "
            "and prokind in ('f', 'a') and pronargs between 1 and 3 "
            "order by proname, pronargs, typtype = 'p'",
            (called(),),
        ).fetchall()
        for name, count, kind, is_set, returned, is_pseudo in known:
            if is_pseudo and (is_set or returned == "record"):
                continue
            for types in product(_FEWER[int(str(count))], repeat=int(str(count))):
                gives = types[0] if is_pseudo else str(returned)
                gives = "text" if gives == "void" else gives
                if kind == "a":
                    yield from self._aggregate(str(name), types, gives)
                else:
                    yield self._function(f"public.{name}", types, gives, bool(is_set))

    def _function(self, name: str, types: tuple[str, ...], gives: str, is_set: bool = False) -> str:
        self.made.append(f"{name}({', '.join(types)})")
        returns, answer = (f"setof {gives}", "") if is_set else (gives, "null")
        return (
            f"create function {name}({', '.join(types)}) returns {returns} language plpgsql as $$ "
            f"begin perform pg_catalog.setval('mallory.ran', {len(self.made)}); return {answer}; "
            "end $$"
        )

    def _aggregate(self, name: str, types: tuple[str, ...], gives: str) -> Iterator[str]:
        step = f"mallory.step_{len(self.made)}"
        yield self._function(step, (gives, *types), gives)
        self.made[-1] = f"public.{name}({', '.join(types)})"
        yield (
            f"create aggregate public.{name} ({', '.join(types)}) (sfunc = {step}, stype = {gives})"
        )

    def _operators(self) -> Iterator[str]:
        for symbol, left, right in product(_OPERATORS, _TYPES, _TYPES):
            gives = "boolean" if symbol in _COMPARING else "text"
            if symbol in "+-*/%&":
                gives = "bigint" if "bigint" in (left, right) else left
            function = f"mallory.operator_{len(self.made)}"
            yield self._function(function, (left, right), gives)
            self.made[-1] = f"{left} {symbol} {right}"
            yield (
                f"create operator public.{symbol} "
                f"(function = {function}, leftarg = {left}, rightarg = {right})"
            )

    def _types(self) -> Iterator[str]:
        for name in ("json", "jsonb", "text", "regclass"):
            checked = self._function(f"mallory.check_{name}", ("pg_catalog.text",), "boolean")
            self.made[-1] = f"domain public.{name}"
            yield checked
            yield f"create domain public.{name} as text check (mallory.check_{name}(value))"


@contextmanager
def shop_of_a_stranger(server: Server) -> Iterator[tuple[Connection, Stranger]]:
    """A database in which every role may create in `public`, and one has; gone afterwards."""
    with role(server, NAME), database_of_its_own(server, "shop") as shop:
        shop.execute("grant create on schema public to public")
        shop.execute(f"grant create on database shop to {NAME}")
        stranger = Stranger(shop)
        with closing(
            Connection.connect(url_for(server, NAME, "secret", "shop"), autocommit=True)
        ) as connection:
            stranger.make_overloads(connection)
        shop.execute(f"revoke create on database shop from {NAME}")
        yield shop, stranger
