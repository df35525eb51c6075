"""Guards of `core`: the rules about jobs."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # --- files of other users ---
    Mutant(
        "a link of another user leads to no settings",
        "core/ownership.py",
        "if stat.S_ISLNK(link.st_mode) and not _is_trusted(link.st_uid):",
        "if False:",
        ["processes/test_trusted_settings.py"],
    ),
    Mutant(
        "a side folder that a group can write needs a database of that group",
        "core/ownership.py",
        "        and folder.st_gid == database.st_gid\n",
        "",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a log that another user made is not written",
        "core/ownership.py",
        "or _may_write(found.st_uid, its_database):\n            continue",
        "or True:\n            continue",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "only root trusts the user who called sudo",
        "core/ownership.py",
        "if os.geteuid() == ROOT and text.isdecimal()",
        "if text.isdecimal()",
        ["processes/test_trusted_settings.py"],
    ),
    Mutant(
        "a group with other members counts as other users",
        "core/ownership.py",
        "return _has_access_list(where) or not _is_private(found.st_gid, found.st_uid)",
        "return False",
        ["processes/test_trusted_settings.py"],
    ),
    Mutant(
        "settings with a second name in a shared folder are not obeyed",
        "core/ownership.py",
        "    if found.st_nlink > 1 and ",
        "    if False and ",
        ["processes/test_trusted_settings.py"],
    ),
    # --- fetching ahead ---
    Mutant(
        "an active job cannot be removed under its worker",
        "core/states.py",
        'REMOVE = Move("remove", (_W, _D, _P, _C, _F)',
        'REMOVE = Move("remove", (_W, _D, _A, _P, _C, _F)',
        ["test_moves.py::test_the_diagram_in_the_documentation_is_the_table"],
    ),
    # --- deduplication ---
    Mutant(
        "a key without a window is free when its job has ended",
        "core/deduplication.py",
        "self.state in HOLDING if self.until is None",
        "self.state is not None if self.until is None",
        [
            "test_deduplicate.py::test_a_completed_job_that_is_restored_holds_nothing_without_a_window"
        ],
    ),
    # --- features that meet ---
    Mutant(
        "a time that clocks show again soon matches again",
        "core/cron.py",
        "near, horizon = after + 2 * _DAY",
        "near, horizon = after",
        ["unit/test_cron_by_brute_force.py"],
    ),
    # --- commands and their workers ---
    Mutant(
        "a value that is nested too deeply is refused",
        "core/codec.py",
        "_refuse_too_deep(encoded)\n        return",
        "pass\n        return",
        ["unit/test_json.py"],
    ),
    Mutant(
        "brackets in texts are no levels",
        "core/codec.py",
        'if b\'"\' in marks or b"\\\\" in marks:',
        "if False:",
        ["unit/test_json.py"],
    ),
    Mutant(
        "a server that asks for time gets it",
        "core/decide_outcome.py",
        "delay = max(delay, least_delay(error))",
        "pass",
        ["commands/test_jobs.py::test_a_server_that_asks_for_time_gets_it"],
    ),
)
