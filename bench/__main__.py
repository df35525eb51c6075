"""`python -m bench core`, `… against REVISION`, `… postgres`: measure, and print it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from . import against, core


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", choices=["core", "against", "postgres"])
    parser.add_argument("revision", nargs="?", help="the commit to compare with, for against")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--rounds", type=int, help="how many rounds, for against and postgres")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument("--only", help="measurements, separated by commas")
    options = parser.parse_args()
    if options.what == "core":
        names = _names(parser, options.only, core.MEASUREMENTS)
        core.run(names, quick=options.quick, as_json=options.json)
    elif options.what == "postgres":
        from . import postgres  # needs psycopg and a server, which the others do without

        names = _names(parser, options.only, postgres.MEASUREMENTS)
        postgres.run(names, quick=options.quick, as_json=options.json, number=options.rounds)
    elif options.revision is None:
        parser.error("against needs a revision, such as HEAD~1")
    else:
        against.run(options.revision, quick=options.quick, number=options.rounds)


def _names(parser: argparse.ArgumentParser, text: str | None, known: Iterable[str]) -> list[str]:
    """The measurements that were asked for; all of them if none were."""
    names = list(known) if text is None else text.split(",")
    for name in names:
        if name not in known:
            parser.error(f"no measurement is called {name!r}; there are: {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()
