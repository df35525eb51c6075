"""The classes of `bullite.sync` are those that its program makes from the asynchronous ones."""

from __future__ import annotations

from tools import make_sync


def test_what_is_committed_is_what_the_program_makes() -> None:
    for path, text in make_sync.make().items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m tools.make_sync`"
