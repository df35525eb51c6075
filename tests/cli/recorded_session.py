"""A tour of queuectl in a real terminal; puts what the screen shows into docs/queuectl.md.

    python -m tests.cli.recorded_session

Needs tmux. Two windows: workers in one, a user in the other, who adds jobs, looks at them, kills a
worker and stops the rest.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "queuectl.md"
MARK = "<!-- captures -->"
PROMPT = "$ "


class Window:
    """One window of a terminal."""

    def __init__(self, socket: Path, name: str, folder: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket)]
        self._name = name
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PS1": PROMPT,
            "HOME": str(folder),
            "TERM": "screen",
        }
        pairs = [f"{key}={value}" for key, value in environment.items()]
        shell = shlex.join(["env", "-i", *pairs, "sh"])
        size = ["-x", "100", "-y", "48"]
        self._run("new-session", "-d", "-s", name, *size, "-c", str(folder), shell)
        self.wait_for(lambda screen: screen.endswith(PROMPT.rstrip()))

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-t", self._name).rstrip()

    def clear(self) -> None:
        self._run("send-keys", "-t", self._name, "clear", "Enter")
        self.wait_for(lambda screen: screen == PROMPT.rstrip())

    def type(self, line: str) -> None:
        self._run("send-keys", "-t", self._name, "-l", line)
        self._run("send-keys", "-t", self._name, "Enter")

    def do(self, line: str) -> None:
        """Type a line, and wait until it is done."""
        before = self.screen().count(PROMPT.rstrip())
        self.type(line)
        self.wait_for(
            lambda screen: (
                screen.count(PROMPT.rstrip()) > before and screen.endswith(PROMPT.rstrip())
            )
        )

    def wait_for(self, is_so: Callable[[str], bool], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not is_so(self.screen()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the screen still shows:\n{self.screen()}")
            time.sleep(0.05)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-session", "-t", self._name], capture_output=True)


def tour(folder: Path) -> list[tuple[str, str]]:
    """What there is to see, each with a sentence about it."""
    seen: list[tuple[str, str]] = []
    user = Window(folder / "tmux", "user", folder)
    workers = Window(folder / "tmux", "workers", folder)
    try:
        user.do('queuectl enqueue "echo hello"')
        user.do('queuectl enqueue "sleep 300" --tag slow --priority 5')
        user.do('queuectl enqueue "exit 3" --max-retries 1')
        user.do('queuectl enqueue "echo afterwards" --after 1')
        user.do("queuectl list")
        seen.append(("Four jobs are added and listed.", user.screen()))
        workers.type("queuectl worker start --count 3")
        workers.wait_for(lambda screen: "job 4 completed" in screen)
        user.clear()
        user.do("queuectl wait 1 4")
        user.do("queuectl worker status")
        seen.append(("Three workers start in the other window.", user.screen()))
        user.clear()
        holder = _worker_of(folder)
        user.do(f"kill -9 {holder}")
        workers.wait_for(lambda screen: screen.count("started, process") >= 4)
        time.sleep(1.5)
        seen.append((f"One of them, process {holder}, is killed.", workers.screen()))
        user.do("queuectl show 2")
        user.do("queuectl why 2")
        seen.append(("Its job runs again, elsewhere.", user.screen()))
        user.clear()
        user.do("queuectl cancel 2 --reason enough")
        user.do("queuectl wait 2 3")
        user.do("queuectl output 3")
        user.do("queuectl status")
        seen.append(("The long one is cancelled; the other has failed for good.", user.screen()))
        user.clear()
        user.do("queuectl worker stop")
        seen.append(("They are told to stop.", user.screen()))
        workers.wait_for(lambda screen: screen.endswith(PROMPT.rstrip()))
        seen.append(("What their window shows in the end.", workers.screen()))
    finally:
        user.close()
        workers.close()
    return seen


def _worker_of(folder: Path) -> str:
    """The process that runs the long job."""
    argv = [sys.executable, "-m", "bullite", "worker", "status", "--json", "--db"]
    done = subprocess.run([*argv, str(folder / "bullite.db")], capture_output=True, text=True)
    found = re.search(r'"pid": (\d+)[^}]*"jobs": \["2"\]', done.stdout)
    assert found is not None, done.stdout
    return found[1]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tour-") as name:
        seen = tour(Path(name))
    text = "\n\n".join(f"{sentence}\n\n```text\n{screen}\n```" for sentence, screen in seen)
    page = PAGE.read_text()
    head, _, rest = page.partition(MARK)
    _, _, tail = rest.partition("## Adding jobs")
    PAGE.write_text(f"{head}{MARK}\n\n{text}\n\n## Adding jobs{tail}")


if __name__ == "__main__":
    main()
