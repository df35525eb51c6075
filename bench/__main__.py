"""`python -m bench core`: measure, and print what was measured."""

from __future__ import annotations

import argparse

from . import core


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", choices=["core"])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument(
        "--only", type=_names, default=list(core.MEASUREMENTS), help=", ".join(core.MEASUREMENTS)
    )
    options = parser.parse_args()
    core.run(options.only, quick=options.quick, as_json=options.json)


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
