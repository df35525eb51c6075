"""Writes docs/bullmq-compatibility.md and prints how many lines of each area are accounted for."""

from __future__ import annotations

import sys

from tests.bullmq.report import PAGE, STATUSES, counts, page, unaccounted


def main() -> int:
    PAGE.write_text(page())
    say = sys.stdout.write
    say(f"{'area':24}" + "".join(f"{status:>16}" for status in STATUSES) + f"{'all':>8}\n")
    totals = dict.fromkeys(STATUSES, 0)
    for area, title, numbers in counts():
        totals = {status: totals[status] + numbers[status] for status in STATUSES}
        cells = "".join(f"{numbers[status]:>16}" for status in STATUSES)
        say(f"{area + ' ' + title:24}{cells}{sum(numbers.values()):>8}\n")
    say(f"{'':24}" + "".join(f"{totals[status]:>16}" for status in STATUSES))
    say(f"{sum(totals.values()):>8}\n")
    problems = unaccounted()
    say("".join(f"{problem}\n" for problem in problems) or "nothing unaccounted for\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
