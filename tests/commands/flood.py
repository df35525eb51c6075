"""`python -m tests.commands.flood`: two gigabytes on both pipes of a command, and what it costs."""

from __future__ import annotations

import argparse
import resource
import sys
import time

from bullite.commands.runner import Command, CommandRunner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2_048, help="on each pipe")
    size = parser.parse_args().megabytes
    line = f"yes | head -c {size}M & yes no | head -c {size}M >&2; wait"

    shell = CommandRunner()
    shell.run(Command("true"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    ended = shell.run(Command(line))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    kept = [len(one.head) + len(one.tail) for one in (ended.stdout, ended.stderr)]
    dropped = f"{ended.stdout.dropped} and {ended.stderr.dropped}"
    say(f"{size} MB on each pipe in {time.monotonic() - began:.1f} s, {ended.how}")
    say(f"kept {kept[0]} and {kept[1]} bytes, dropped {dropped}")
    say(f"memory grew by {grown:.1f} MB")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
