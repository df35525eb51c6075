"""A soak: a mixed load on both stores for minutes, with kills, and a verdict at the end.

    python -m tests.soak --minutes 30

`load` holds the programs under load, `processes` starts, kills and replaces them, `ledger` records
what they did in files that no queue reads, `stores` looks at a database from outside, `measures`
takes the figures of each minute, `verdict` judges, `run` does it in order.
"""

from __future__ import annotations
