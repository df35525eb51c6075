"""Guards of `commands`: commands, webhooks and functions."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # --- commands and their workers ---
    Mutant(
        "a secret between the two halves of kept output is taken out",
        "commands/output.py",
        'return cls(redactor.clean(head + tail), b"", 0)',
        "return cls(redactor.clean(head), redactor.clean(tail), 0)",
        ["commands/test_output.py"],
    ),
    Mutant(
        "no half of a secret is kept beside what was left out",
        "commands/output.py",
        "return redactor.clean(data[:end]), len(data) - end",
        "return redactor.clean(data), 0",
        ["commands/test_output.py"],
    ),
    Mutant(
        "a secret in a very long line is not shown in two halves",
        "commands/output.py",
        "end = max(0, len(data) - MAX_SECRET_LENGTH)",
        "end = len(data)",
        ["commands/test_output.py"],
    ),
    Mutant(
        "no line of a log is forged by what a job raised",
        "commands/log_format.py",
        "lines = [on_one_line(self.formatMessage(record))]",
        "lines = [visible(self.formatMessage(record))]",
        ["unit/test_escaping.py"],
    ),
    Mutant(
        "no line of a traceback looks like a record",
        "commands/log_format.py",
        'return [f"    {visible(line)}"',
        "return [visible(line)",
        ["unit/test_escaping.py"],
    ),
    Mutant(
        "what follows a secret that two searches would cut is kept",
        "commands/output.py",
        "if found.start() >= following:",
        "if False:",
        ["commands/test_output.py"],
    ),
    Mutant(
        "what is left of a secret longer than a search is not kept",
        "commands/output.py",
        "if found.end() < end or end == len(text):",
        "if True:",
        ["commands/test_output.py"],
    ),
    Mutant(
        "a stored pattern is measured before it is used",
        "commands/processors.py",
        "return Redactor(usable_patterns(patterns))",
        "return Redactor(patterns)",
        ["commands/test_jobs.py"],
    ),
    Mutant(
        "what the machine lacks now it may have later",
        "commands/runner.py",
        "is_final = error.errno in _FINAL_ERRORS",
        "is_final = True",
        ["commands/test_jobs.py::test_a_command_that_cannot_be_started_now_is_tried_again"],
    ),
    Mutant(
        "a command that hides is dead before its job runs again",
        "commands/runner.py",
        "pass_fds=() if marker_fd is None else (marker_fd,)",
        "pass_fds=()",
        ["crash/test_commands.py::test_a_command_that_hides_is_dead_before_its_job_runs_again"],
    ),
    Mutant(
        "what a function started is not taken for a command's",
        "commands/processors.py",
        "CommandRunner(alone=not self._modules)",
        "CommandRunner()",
        ["commands/test_jobs.py::test_what_a_function_started_is_not_taken_for_a_commands"],
    ),
    Mutant(
        "a command that has ended is not stopped any more",
        "commands/runner.py",
        "                was_stopped = run.is_aborted\n            run.drain()",
        "                pass\n            run.drain()\n            was_stopped = run.is_aborted",
        [
            "commands/test_jobs.py::test_a_command_that_has_ended_completes_its_job_although_that_is_cancelled"
        ],
    ),
    Mutant(
        "who is in a hurry waits no longer for commands that are being ended",
        "commands/runner.py",
        "ended_at + min(grace, self.longest_grace)",
        "ended_at + grace",
        ["commands/test_jobs.py::test_a_command_that_is_being_ended_is_hurried_too"],
    ),
    Mutant(
        "a wait that cannot be counted is the longest",
        "commands/config.py",
        "    except OverflowError:",
        "    except KeyError:",
        ["commands/test_config.py"],
    ),
)
