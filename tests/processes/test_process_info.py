"""What the kernel tells of processes."""

from __future__ import annotations

import subprocess

from bullite.processes.process_info import now_ticks, start_time


def test_the_beginning_of_a_process_is_told_by_the_clock_that_we_read() -> None:
    before = now_ticks()
    child = subprocess.Popen(["sleep", "90"])
    try:
        found = start_time(child.pid)
    finally:
        child.kill()
        child.wait()
    assert found is not None
    assert before <= found <= now_ticks()
