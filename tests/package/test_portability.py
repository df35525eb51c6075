"""What is imported on Windows, which has neither fcntl nor pwd, resource, termios and so on."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import bullite.cli
import bullite.commands

MISSING = ("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "syslog")

PROGRAM = """
import importlib, json, os, sys, traceback

# What the standard library and others look for at their import was decided before.
import asyncio, email.message, http.client, logging, signal, smtplib, socket, sqlite3, ssl
import subprocess, tempfile, tomllib, zoneinfo
import click, cronsim, msgspec

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {missing!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
sys.platform = "win32"
for name in ("getuid", "geteuid", "fork", "register_at_fork", "killpg", "setsid", "sysconf"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGCHLD", "pause"):
    delattr(signal, name)
del socket.AF_UNIX
problems = {{}}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception:
        problems[name] = traceback.format_exc()
print(json.dumps(problems), flush=True)
# Whatever cleans up at exit may look for what was taken away.
os._exit(0)
"""


def modules() -> list[str]:
    found = [
        f"{package.__name__}.{module.name}"
        for package in (bullite.cli, bullite.commands)
        for module in pkgutil.iter_modules(package.__path__)
    ]
    return [
        "bullite.client.queue.queue",
        "bullite.worker.worker",
        "bullite.processes.orphaned_commands",
        "bullite.processes.supervisor",
        *found,
    ]


def test_the_program_can_be_imported_on_windows() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(missing=MISSING), *modules()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == {}
