"""What the URL of a store says, and how much of it may be shown."""

from __future__ import annotations

import re

from ..errors import InvalidOption


def choice(options: dict[str, list[str]], name: str, choices: tuple[str, ...]) -> str:
    """Take an option of a URL out of the others; the first choice if it is not there."""
    value = options.pop(name, [choices[0]])[-1]
    if value not in choices:
        raise InvalidOption(f"{name} must be {' or '.join(choices)}, not {value!r}")
    return value


def without_password(location: str) -> str:
    """A location as it may be shown: without what stands in front of the host, or after a `?`.

    A password often holds a character that should have been written otherwise: what is not surely
    the place is not shown.
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
    """Whether what was given as a path is the address of a server, mistyped, or holds a password.

    A file with such a name can be named by a sqlite:/// URL.
    """
    return _SERVER.search(path) is not None


def split(rest: str) -> tuple[str, str, str]:
    """What follows the `://` of a URL: who (with its @), where, and options; as libpq does it."""
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
