"""The command: run a soak, print its table and its verdict."""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
from pathlib import Path
from types import FrameType

from . import measures
from .measures import Minute
from .run import Report, soak
from .verdict import counted_errors

STORES = {"both": ["sqlite", "postgres"], "sqlite": ["sqlite"], "postgres": ["postgres"]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--store", choices=sorted(STORES), default="both")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--json", type=Path, help="a file for all figures")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _exit)
    say(f"{arguments.minutes:g} minutes, seed {arguments.seed}")
    say(f"{'store':8}  {measures.header()}")
    names = STORES[arguments.store]
    reports = soak(arguments.minutes, names, arguments.seed, say_minute)
    for report in reports:
        say_report(report)
    if arguments.json is not None:
        figures = {report.store: as_figures(report) for report in reports}
        arguments.json.write_text(json.dumps(figures, indent=1))
    sys.exit(not all(report.passed for report in reports))


def _exit(number: int, frame: FrameType | None) -> None:
    """Leave as an exception does, so that everything is put away."""
    sys.exit(128 + number)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def say_minute(store: str, minute: Minute) -> None:
    say(f"{store:8}  {measures.line(minute)}")


def say_report(report: Report) -> None:
    say(f"\n{report.store}: {report.runs} runs, {report.kills} kills, {report.stops} stops")
    for line in report.lines:
        say(f"  {line}")
    for title, messages in (("logged", report.logged), ("server", report.server_errors)):
        for message in counted_errors(messages):
            say(f"  {title}: {message}")


def as_figures(report: Report) -> dict[str, object]:
    return {
        "passed": report.passed,
        "runs": report.runs,
        "kills": report.kills,
        "stops": report.stops,
        "minutes": [measures.as_json(minute) for minute in report.minutes],
        "verdict": [vars(line) for line in report.lines],
        "logged": report.logged,
        "server_errors": report.server_errors,
    }


if __name__ == "__main__":
    main()
