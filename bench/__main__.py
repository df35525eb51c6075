"""`python -m bench core`, `python -m bench against REVISION`: measure, and print it."""

from __future__ import annotations

import argparse

from . import against, core


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", choices=["core", "against"])
    parser.add_argument("revision", nargs="?", help="the commit to compare with, for against")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--rounds", type=int, help="how many rounds, for against")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument(
        "--only", type=_names, default=list(core.MEASUREMENTS), help=", ".join(core.MEASUREMENTS)
    )
    options = parser.parse_args()
    if options.what == "core":
        core.run(options.only, quick=options.quick, as_json=options.json)
    elif options.revision is None:
        parser.error("against needs a revision, such as HEAD~1")
    else:
        against.run(options.revision, quick=options.quick, number=options.rounds)


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in core.MEASUREMENTS:
            raise argparse.ArgumentTypeError(
                f"no measurement is called {name!r}; there are: {', '.join(core.MEASUREMENTS)}"
            )
    return names


if __name__ == "__main__":
    main()
