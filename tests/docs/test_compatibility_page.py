"""The page about BullMQ's behaviours says what is tested, and every known line is on it."""

from __future__ import annotations

from tests.bullmq.report import PAGE, page, unaccounted


def test_every_known_line_of_the_catalogue_is_tested_or_explained() -> None:
    assert unaccounted() == []


def test_the_page_is_what_the_command_writes() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.bullmq"
