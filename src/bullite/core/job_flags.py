"""Flags of a job: bits that say which rows of other tables, and which duties, it has. 0 for most.

Everything that is stored about a job outside of its row has a bit, so that a job without it costs
nothing. The compare-and-swap that ends a run compares the flags, too: a process that attaches rows
to a running job sets their bit, and the swap of the worker, which does not know of them, changes
nothing. The engine then loads the job and finishes it again with its new flags.
"""

from __future__ import annotations

from collections.abc import Container

PLAIN = 0
UPSTREAM = 1
"""Other jobs wait or waited for it: it has a parent, or jobs that depend on it."""
DOWNSTREAM = 2
"""It waits or waited for other jobs: its children or its dependencies."""
SCHEDULED = 4
"""A job scheduler made it."""
DEDUPLICATED = 8
"""It was added under a deduplication key."""
STEPPED = 16
"""It has finished steps, or waits for an event."""
LIMITED = 32
"""It counts for the rate limit of a key."""
TAGGED = 64
"""It has tags."""
ON_FAILURE = 128
"""Its options name an on-failure job."""
CANCELLED = 256
"""It was cancelled while it ran: it ends with its run, unless the run completes."""
COMMAND = 512
"""It has run a command whose output is stored."""
ON_FAILURE_JOB = 1024
"""It is itself an on-failure job, so its own failure adds none."""

BY_NAME = {
    "upstream": UPSTREAM,
    "downstream": DOWNSTREAM,
    "scheduled": SCHEDULED,
    "deduplicated": DEDUPLICATED,
    "stepped": STEPPED,
    "limited": LIMITED,
    "tagged": TAGGED,
    "on_failure": ON_FAILURE,
    "cancelled": CANCELLED,
    "command": COMMAND,
    "on_failure_job": ON_FAILURE_JOB,
}
"""The bits as SQL names them: a statement writes `traits & {cancelled}`."""

_OF_OPTIONS = {"limit_key": LIMITED, "tags": TAGGED, "on_failure": ON_FAILURE}


def flags_of(options: Container[str]) -> int:
    """Return the flags of a job with these stored options."""
    return sum(flag for name, flag in _OF_OPTIONS.items() if name in options)
