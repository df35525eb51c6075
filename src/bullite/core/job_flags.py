"""What else belongs to a job beside its own rows, told by one number: a plain job's is 0.

Whatever is kept about a job elsewhere has a bit here, so that a job without it pays nothing. The
bits are part of the compare-and-swap that ends a run: who ties something to a running job sets its
bit, and the worker that does not know of it yet finds that its verdict falls short, looks again,
and settles that, too.
"""

from __future__ import annotations

from collections.abc import Container

PLAIN = 0
UPSTREAM = 1
"""Others wait for it, or did: it has a parent, or jobs that depend on it."""
DOWNSTREAM = 2
"""It waits for others, or did: its children, or what it depends on."""
SCHEDULED = 4
"""A job scheduler made it."""
DEDUPLICATED = 8
"""It was added under a deduplication key."""
STEPPED = 16
"""It has steps that were done, or waits for an event."""
LIMITED = 32
"""It counts for the rate limit of a key."""
TAGGED = 64
"""It has tags."""
TELLING = 128
"""Another job is to be added when it fails for good."""
CANCELLED = 256
"""It was cancelled while it ran: unless it completes, it ends when its run does."""
COMMAND = 512
"""It has run a command, and what that said is kept."""
NOTICE = 1024
"""It tells of another's failure: nobody is told of its own."""

OF_OPTIONS = {"limit_key": LIMITED, "tags": TAGGED, "on_failure": TELLING}
"""What belongs to a job that has such an option."""


def flags_of(options: Container[str]) -> int:
    """What belongs to a job with these options, as they are stored."""
    return sum(trait for name, trait in OF_OPTIONS.items() if name in options)
