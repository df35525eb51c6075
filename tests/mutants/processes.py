"""Guards of `processes`: processes of the operating system."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # --- files of other users ---
    Mutant(
        "a lock file does not choose a process of another user",
        "processes/group_lock.py",
        '        _require_same_user(lock.path, status, entry["pid"])\n',
        "",
        [
            "processes/test_supervisor.py::test_a_lock_file_of_another_user_gets_no_process_of_ours_signalled"
        ],
    ),
    Mutant(
        "a lock file that others can write gets nobody signalled",
        "processes/group_lock.py",
        "    if (doubt := _doubt_about_lock_file(path, status)) is not None:\n        raise",
        "    if (doubt := None) is not None:\n        raise",
        [
            "processes/test_supervisor.py::test_a_lock_file_that_others_could_have_written_gets_nobody_signalled"
        ],
    ),
    Mutant(
        "a lock file of another user is replaced",
        "processes/group_lock.py",
        "            _remove_if_not_ours(path, fd)\n",
        "            pass\n",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "only who holds the lock of the named file replaces it",
        "processes/group_lock.py",
        "    if is_named(fd, path):\n        path.unlink()",
        "    if True:\n        path.unlink()",
        [
            "database/sqlite/test_side_folder.py::test_a_file_that_another_process_has_replaced_already_is_left_alone"
        ],
    ),
    Mutant(
        "a lock in a side folder of another user is not used",
        "processes/group_lock.py",
        "        if self._database is not None:\n            doubt",
        "        if self._database is not None and False:\n            doubt",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "worker processes import nothing from the current folder",
        "processes/child.py",
        'return [sys.executable, "-P", "-m", module]',
        'return [sys.executable, "-m", module]',
        ["cli/test_worker_start.py::test_workers_import_nothing_from_the_current_folder"],
    ),
    Mutant(
        "a mark of another user's process is not believed",
        "processes/orphaned_commands.py",
        " and is_of_this_user(p.pid)\n",
        "\n",
        ["crash/test_commands.py::test_a_mark_of_another_users_process_is_not_believed"],
    ),
    Mutant(
        "a mark stands for a session only at its leader",
        "processes/orphaned_commands.py",
        " if p.pid in markers and p.session == p.pid}",
        " if p.pid in markers}",
        [
            "crash/test_commands.py::"
            "test_a_mark_in_a_session_whose_leader_has_none_is_that_of_one_process"
        ],
    ),
    Mutant(
        "worker processes are not started with passwords in their environment",
        "processes/private_environment.py",
        "if name.startswith(OURS) and name != MARK",
        "if False",
        ["cli/test_privacy.py"],
    ),
    # --- dead letters ---
    Mutant(
        "a worker process that is replaced finishes what it runs",
        "processes/supervisor.py",
        "        if self._stop_level:  # during a reload",
        "        if True:  # during a reload",
        [
            "processes/test_supervisor.py::test_a_child_that_is_replaced_finishes_however_long_that_takes"
        ],
    ),
    # --- commands and their workers ---
    Mutant(
        "a process is known by when it began, not by its number alone",
        "processes/orphaned_commands.py",
        " or process.start_time != marker.start_time or",
        " or",
        ["crash/test_commands.py::test_a_worker_whose_number_another_process_has_now_is_dead"],
    ),
    Mutant(
        "the number of a process counts only where it was given",
        "processes/orphaned_commands.py",
        "    if not marker.pid_namespace or marker.pid_namespace != pid_namespace():\n"
        "        return False\n",
        "",
        ["crash/test_commands.py::test_numbers_that_count_elsewhere_tell_nothing_of_a_worker"],
    ),
    Mutant(
        "who shares a session with a command is ended with it",
        "processes/orphaned_commands.py",
        "markers.get(process.pid) or sessions.get(process.session)",
        "markers.get(process.pid)",
        ["crash/test_commands.py"],
    ),
    Mutant(
        "commands do not get the secrets of the configuration",
        "processes/private_environment.py",
        'OURS = ("BULLITE_", "QUEUECTL_")',
        'OURS = ("BULLITE_",)',
        ["commands/test_jobs.py::test_a_command_gets_no_variables_that_may_hold_our_secrets"],
    ),
    Mutant(
        "who forgets where it comes from is known by what it writes to",
        "processes/process_tree.py",
        "self.pipes & output_files(process.pid) or ",
        "",
        ["commands/test_runner.py"],
    ),
    Mutant(
        "who forgets where it comes from is known by its badge",
        "processes/process_info.py",
        "    return _fd_marker_of(pid)\n",
        "    return None\n",
        ["commands/test_runner.py::test_who_forgets_where_it_comes_from_is_known"],
    ),
    Mutant(
        "who makes a badge does not wear it",
        "processes/process_info.py",
        "    return not int(flags, 8) & os.O_CLOEXEC\n",
        "    return True\n",
        ["commands/test_runner.py"],
    ),
    Mutant(
        "a child is pressed by another signal each time",
        "processes/child.py",
        "STOP: signal.SIGINT",
        "STOP: signal.SIGTERM",
        [
            "processes/test_supervisor.py::test_a_child_that_was_not_scheduled_in_between_hears_of_both_signals"
        ],
    ),
)
