"""The program: its verbs, imported when used, and its error messages and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from .. import __version__
from ..errors import BulliteError
from .console import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, escape_control, is_bad_input

VERBS: dict[str, tuple[str, str]] = {
    "enqueue": ("verbs.enqueue", "Add a command to a queue."),
    "run": ("verbs.enqueue", "Add a program with arguments, without a shell."),
    "add": ("verbs.enqueue", "Add a job for Python workers."),
    "enqueue-batch": ("verbs.enqueue_batch", "Add jobs from a file, or from standard input."),
    "worker": ("verbs.worker", "Start, stop and list workers."),
    "scheduler": ("verbs.worker", "Run maintenance without claiming jobs."),
    "status": ("verbs.inspect", "Show queues and workers."),
    "list": ("verbs.inspect", "List jobs."),
    "show": ("verbs.inspect", "Show one job."),
    "output": ("verbs.output", "Show the output of a command."),
    "logs": ("verbs.output", "Show the log of a job; -f follows it."),
    "stats": ("verbs.stats", "Show statistics."),
    "metrics": ("verbs.stats", "Show metrics of queues by the minute."),
    "why": ("verbs.inspect", "Explain the state of a job."),
    "wait": ("verbs.output", "Wait until jobs have finished."),
    "events": ("verbs.events", "Show events; -f follows them."),
    "doctor": ("verbs.health", "Report jobs, workers and groups that need attention."),
    "verify": ("verbs.health", "Check the consistency of the database."),
    "cancel": ("verbs.manage", "Cancel jobs."),
    "retry": ("verbs.manage", "Retry failed jobs."),
    "promote": ("verbs.manage", "Run delayed jobs now."),
    "pause": ("verbs.manage", "Pause a queue: workers claim no jobs."),
    "resume": ("verbs.manage", "Resume a queue."),
    "remove": ("verbs.manage", "Remove jobs; `restore` undoes it."),
    "restore": ("verbs.manage", "Restore removed jobs."),
    "cleanup": ("verbs.manage", "Delete old jobs permanently."),
    "drain": ("verbs.manage", "Remove the waiting jobs of a queue."),
    "dlq": ("verbs.dlq", "Dead jobs: list, show, retry, purge."),
    "schedule": ("verbs.schedule", "Schedule commands: cron or interval."),
    "template": ("verbs.template", "Manage named sets of `enqueue` options."),
    "config": ("verbs.config", "Show and change the configuration."),
    "queues": ("verbs.queues", "List queues and change their settings."),
    "completion": ("verbs.completion", "Print a shell completion script."),
}
"""Verbs by name: the module and the short help."""


class Interrupted(click.ClickException):
    """Ctrl-C was pressed."""

    exit_code = EXIT_INTERRUPTED


class Program(click.Group):
    """A group that imports only the module of the verb that is used."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        module = importlib.import_module(f".{VERBS[name][0]}", __package__)
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, help) for name, (_, help) in VERBS.items()])

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            # click would print a line of its own.
            raise Interrupted("interrupted") from None

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, cutoff=0.5) if args else []
            hint = f"; did you mean {' or '.join(near)}?" if near else "; see queuectl --help"
            raise click.UsageError(error.message.rstrip(".") + hint) from None


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="queuectl")
@click.option("--db", metavar="PATH|URL", help="The database; it may also stand behind the verb.")
def queuectl(db: str | None) -> None:
    """Background jobs from the shell: commands, web hooks and Python functions.

    The database is ./bullite.db unless --db, BULLITE_URL, bullite.toml or [tool.bullite] in
    pyproject.toml names another. Write access to the database is permission to run commands as the
    workers' user.
    """


def run(arguments: list[str] | None = None) -> None:
    """Run a command line; an error becomes one line on standard error and an exit code."""
    if "_QUEUECTL_COMPLETE" in os.environ:
        importlib.import_module(
            ".verbs.completion", __package__
        )  # registers our completion classes with click
    try:
        code = queuectl.main(arguments, prog_name="queuectl", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.ctx.get_help()}\n")
        sys.exit(EXIT_BAD_INPUT)
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
    except click.UsageError as error:
        _print_error(_sentence(error.format_message()))
        sys.exit(EXIT_BAD_INPUT)
    except click.ClickException as error:
        _print_error(_sentence(error.format_message()))
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _print_error("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has exited; a flush at exit would only fail again.
        sys.stdout = None
        sys.exit(EXIT_FAILED)
    except BulliteError as error:
        _print_error(str(error))
        sys.exit(EXIT_BAD_INPUT if is_bad_input(error) else EXIT_FAILED)
    except Exception as error:
        if os.environ.get("QUEUECTL_TRACEBACK"):
            raise
        kind = type(error).__name__
        _print_error(f"unexpected {kind}: {error} (set QUEUECTL_TRACEBACK=1 to see where)")
        sys.exit(EXIT_FAILED)
    sys.exit(code if isinstance(code, int) else 0)


def _print_error(message: str) -> None:
    sys.stderr.write(f"queuectl: {escape_control(message)}\n")


def _sentence(message: str) -> str:
    return " ".join(message.split()).rstrip(".")
