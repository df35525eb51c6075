"""`queuectl`: the queue from a shell. Nothing here is imported by the library."""

from __future__ import annotations

import gc


def main() -> None:
    """The program."""
    # To look through all that is imported for garbage takes longer than most verbs do. A verb has
    # it looked for again.
    gc.disable()
    try:
        from .program import run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()
