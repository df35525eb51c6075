"""`python -m bench`: the comparison; `… tune`: everybody's best settings for it; `… check`: ratios;
`… against REVISION`: two commits."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from .folders import CACHE


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=["compare", "tune", "check", "against"], default="compare"
    )
    parser.add_argument("revision", nargs="?", help="the commit to compare with, for against")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument("--rounds", type=int, help="how many rounds")
    parser.add_argument("--only", help="measurements, separated by commas")
    parser.add_argument("--peers", help="contestants, separated by commas")
    parser.add_argument(
        "--json", type=Path, default=CACHE / "results.json", help="where it is kept"
    )
    parser.add_argument("--write", action="store_true", help="put it into the documentation")
    parser.add_argument(
        "--accept", action="store_true", help="check: these ratios are the baseline"
    )
    parser.add_argument(
        "--store", choices=["sqlite", "postgres"], default="sqlite", help="for against"
    )
    options = parser.parse_args()
    # Who is told to end ends the servers that were started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.what == "check":
        from . import check

        raise SystemExit(0 if check.run(accept=options.accept) else 1)
    if options.what == "against":
        from . import against

        if options.revision is None:
            parser.error("against needs a revision, such as HEAD~1")
        against.run(
            options.revision, quick=options.quick, number=options.rounds, store=options.store
        )
        return
    _compare(parser, options)


def _compare(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    from .comparison import MEASUREMENTS, compare, tune
    from .contestants import everybody
    from .page import write_page
    from .tables import report

    names = _names(parser, options.only, MEASUREMENTS)
    peers = None if options.peers is None else _names(parser, options.peers, everybody())
    if options.what == "tune":
        tune(names, only=peers)
        return
    results = compare(
        names, quick=options.quick, only=peers, rounds=options.rounds, file=options.json
    )
    print(report(results))
    if options.write:
        write_page(results)


def _names(parser: argparse.ArgumentParser, text: str | None, known: Iterable[str]) -> list[str]:
    """What was asked for; all of it if nothing was."""
    names = list(known) if text is None else text.split(",")
    for name in names:
        if name not in known:
            parser.error(f"nothing is called {name!r}; there are: {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()
