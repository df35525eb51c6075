"""The demo: the first thing a new user runs."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
LIMIT = 20
"""Seconds it may take."""

ENVIRONMENT = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}


def check_summary(text: str) -> None:
    assert "43 jobs took 47 runs" in text
    assert "41 completed" in text
    assert "stock sync: worked at last, in try 3 of 5" in text
    assert "newsletter: added first, run after the receipts, by priority" in text
    assert "2 failed for good" in text
    assert "charge: the card was declined (try 3 of 3)" in text
    assert "charge: the card was reported stolen (try 1 of 3)" in text
    assert "no problems found" in text


def on_terminal(**environment: str) -> tuple[int, str]:
    """How it ends, and all it draws, on a terminal."""
    ours, theirs = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, DEMO], stdout=theirs, stderr=theirs, env=ENVIRONMENT | environment
    )
    os.close(theirs)
    drawn = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break  # how Linux says that the other side is closed
        if not piece:
            break
        drawn += piece
    os.close(ours)
    return demo.wait(LIMIT), drawn.decode()


def test_without_a_terminal_it_tells_its_story_in_plain_lines() -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, DEMO], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < LIMIT
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    lines = [line for line in done.stdout.splitlines() if "waiting" in line and "active" in line]
    assert len(set(lines)) == len(lines) > 3
    assert "video 100 %" in lines[-1]
    check_summary(done.stdout)


def test_on_a_terminal_it_draws_a_table_in_place() -> None:
    began = time.monotonic()
    code, drawn = on_terminal()
    assert code == 0
    assert time.monotonic() - began < LIMIT
    assert "\x1b[?25l" in drawn  # the cursor is hidden while it draws
    assert "\x1b[?25h" in drawn
    assert drawn.count("\x1b[11A") > 10  # redrawn over itself
    assert "━" in drawn
    check_summary(drawn)


def test_it_leaves_out_colours_when_asked_to() -> None:
    code, drawn = on_terminal(NO_COLOR="1")
    assert code == 0
    assert not re.search(r"\x1b\[[0-9;]*m", drawn)
    check_summary(drawn)


def test_an_interrupt_ends_it_and_its_workers() -> None:
    demo = subprocess.Popen(
        [sys.executable, "-u", DEMO], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if re.search(r"active [1-9]", line):
            break
    demo.send_signal(signal.SIGINT)
    rest = demo.stdout.read()  # ends when nobody can write any more, the workers included
    assert demo.wait(LIMIT) == 130
    assert "Stopped, and the workers with it." in rest
    assert "Traceback" not in rest
    demo.stdout.close()
