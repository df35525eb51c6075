"""URLs of stores: their parts, and their text without passwords."""

from __future__ import annotations

import re

from ..errors import InvalidOption


def choice(options: dict[str, list[str]], name: str, choices: tuple[str, ...]) -> str:
    """Remove an option from the options of a URL and return it; the first choice by default."""
    value = options.pop(name, [choices[0]])[-1]
    if value not in choices:
        raise InvalidOption(f"{name} must be {' or '.join(choices)}, not {value!r}")
    return value


def without_password(location: str) -> str:
    """Return a location without user, password and options, so that it can be shown.

    A password often holds a character that should have been escaped. So only text that is surely
    the address of the database is shown.
    """
    scheme, found, rest = location.partition("://")
    if not found:
        return "..." if means_server(location) else location
    who, place, _ = split(rest)
    host = place.partition("/")[0]
    if "?" in who or (host and "@" in place) or not _HOSTS.fullmatch(host):
        return f"{scheme}://..."
    return f"{scheme}://{place}"


def means_server(path: str) -> bool:
    """Return True if a path is a mistyped address of a server, or has a password in it.

    A file with such a name can be named by a sqlite:/// URL.
    """
    return _SERVER.search(path) is not None


def split(rest: str) -> tuple[str, str, str]:
    """Split the part after `://` as libpq does: user (with @), place, options."""
    who = rest[: rest.index("@") + 1] if "@" in rest.partition("/")[0] else ""
    place, _, query = rest[len(who) :].partition("?")
    return who, place, query


_HOSTS = re.compile(r"(?:(?:\[[^]]*\]|[^:,[]*)(?::\d*)?(?:,|$))*")

_SERVER = re.compile(
    r"""
    ^\W* (?:jdbc:)? (?:postgres\w*|pgsql|psql|pg|mysql|mariadb|rediss?|mongodb) (?:\+\w+)?
    (?: : | // )
    | ^\W* (?:host|hostaddr|dbname|database|user|username|service|port|sslmode) \s* =
    | (?:password|passwd|pwd) \s* =
    | ^// [^/]* : .* @
    | (?:^|/) [^/:@\s]+ : [^/@\s]+ @ [^/\s]  # user:password@host
    """,
    re.IGNORECASE | re.VERBOSE,
)
