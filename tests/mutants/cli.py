"""Guards of `cli`: queuectl."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # --- files of other users ---
    Mutant(
        "workers do not work the default database of another user",
        "cli/verbs/worker.py",
        "    session.check_default()\n    session.store(make=True)\n",
        "    session.store(make=True)\n",
        [
            "cli/test_default_database.py::test_a_default_database_that_every_user_can_write_is_refused"
        ],
    ),
    Mutant(
        "an application has no task that is called like a kind of command",
        "cli/worker_process.py",
        "        if name in RESERVED:\n",
        "        if False:\n",
        ["cli/test_worker_process.py"],
    ),
    Mutant(
        "beside an application no commands are run",
        "cli/worker_process.py",
        "                builtin = self._builtin if self._spec.runs_commands_of(name) else None\n",
        "                builtin = self._builtin\n",
        ["cli/test_worker_start.py::test_workers_of_an_application_run_no_commands"],
    ),
    Mutant(
        "a command cannot look into its worker process",
        "cli/worker_process.py",
        "    forbid_inspection()\n",
        "",
        ["cli/test_privacy.py"],
    ),
    Mutant(
        "a command cannot look into a supervisor",
        "cli/verbs/worker.py",
        "    private_environment.receive()\n    private_environment.forbid_inspection()\n",
        "    private_environment.receive()\n",
        ["cli/test_privacy.py"],
    ),
    Mutant(
        "a command cannot look into a scheduler",
        "cli/verbs/worker.py",
        "    private_environment.forbid_inspection()\n    session.check_default()\n",
        "    session.check_default()\n",
        ["cli/test_privacy.py"],
    ),
    Mutant(
        "completion connects to no server that a settings file names",
        "cli/completers.py",
        "            if db is None and not _may_open_default():\n                return []\n",
        "",
        ["cli/test_completion.py"],
    ),
    # --- commands and their workers ---
    Mutant(
        "workers end when their supervisor is gone",
        "cli/worker_process.py",
        "        watch_lifeline(end)\n",
        "",
        ["cli/test_worker_start.py::test_workers_without_a_supervisor_finish_what_they_run"],
    ),
    Mutant(
        "to stop workers twice does not stop their jobs",
        "cli/verbs/worker.py",
        "_number(DRAIN_SIGNAL)",
        "signal.SIGTERM",
        ["cli/test_worker_stop.py::test_jobs_that_take_too_long_are_not_stopped_unless_forced"],
    ),
    Mutant(
        "a daemon is not called with the URL of its database",
        "cli/daemonize.py",
        '        if word == "--db":\n            next(given, None)\n        elif',
        "        if",
        ["cli/test_worker_start.py::test_no_process_is_called_with_what_opens_the_database"],
    ),
)
