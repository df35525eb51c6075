"""What the kernel tells of processes."""

from __future__ import annotations

import subprocess

from bullite.processes.process_info import began, moment


def test_the_beginning_of_a_process_is_told_by_the_clock_that_we_read() -> None:
    before = moment()
    child = subprocess.Popen(["sleep", "90"])
    try:
        found = began(child.pid)
    finally:
        child.kill()
        child.wait()
    assert found is not None
    assert before <= found <= moment()
