"""`python -m bullite`: the same as `queuectl`."""

from __future__ import annotations

import os
import sys


def _forget_current_folder() -> None:
    """Import nothing from the current folder from now on, as the installed `queuectl` does not.

    `python -m` puts the folder first. What Python itself imports before this line may still come
    from there: only `python -P -m bullite` and `queuectl` are safe in a folder of another user.
    """
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]


if __name__ == "__main__":
    _forget_current_folder()
    from .cli import main

    main()
