"""Deletes one guard at a time and demands that the tests notice: `python -m tests.sabotage`.

Each mutant is one edit of the source, with the tests that must fail for it. First all those tests
must pass on the source as it is. Words on the command line choose the mutants whose description
contains one of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = Path("src") / "bullite"
SQL, PG = "database/sqlite/statements.sql", "database/postgres/statements.sql"


class Mutant(NamedTuple):
    why: str
    """What the source no longer makes sure of."""
    file: str
    old: str
    new: str
    tests: Sequence[str]
    """At least one of them must fail; those without a folder are in tests/store."""


MUTANTS = (
    # --- files of other users ---
    Mutant(
        "settings that another user can write name no database",
        "database/locations.py",
        "    if doubt is not None:\n",
        "    if False:\n",
        ["unit/test_trusted_settings.py"],
    ),
    Mutant(
        "a link of another user leads to no settings",
        "core/ownership.py",
        "if stat.S_ISLNK(link.st_mode) and not _is_trusted(link.st_uid):",
        "if False:",
        ["unit/test_trusted_settings.py"],
    ),
    Mutant(
        "a lock file does not choose a process of another user",
        "processes/group_lock.py",
        '        _refuse_process_of_another(lock.path, status, entry["pid"])\n',
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
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "only who holds the lock of the named file replaces it",
        "processes/group_lock.py",
        "    if is_named(fd, path):\n        path.unlink()",
        "    if True:\n        path.unlink()",
        [
            "sqlite/test_side_folder.py::test_a_file_that_another_process_has_replaced_already_is_left_alone"
        ],
    ),
    Mutant(
        "a lock in a side folder of another user is not used",
        "processes/group_lock.py",
        "        if self._database is not None:\n            doubt",
        "        if self._database is not None and False:\n            doubt",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a side folder of another user is not used",
        "database/sqlite/files.py",
        "        if (doubt := self.doubt()) is not None:\n",
        "        if False:\n",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a reader uses no side folder of another user",
        "database/sqlite/location.py",
        "        if places.doubt() is not None:\n",
        "        if False:\n",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a side folder that a group can write needs a database of that group",
        "core/ownership.py",
        "        and folder.st_gid == database.st_gid\n",
        "",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a file of another user in a side folder is not used",
        "database/sqlite/side_files.py",
        "        if (doubt := doubt_about_side_file(path, found)) is not None:\n",
        "        if (doubt := None) is not None:\n",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "no link in a side folder is followed",
        "database/sqlite/side_files.py",
        "_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK",
        "_SAFELY = os.O_CLOEXEC | os.O_NONBLOCK",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "the gate is closed to others",
        "database/sqlite/side_files.py",
        "            os.fchmod(descriptor, mode)\n",
        "            pass\n",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a database is not made through a link",
        "database/sqlite/driver.py",
        "        if self._link is not None and not self.path.exists():",
        "        if False:",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a new database is closed to others before it is opened",
        "database/sqlite/files.py",
        "os.close(os.open(self.database, flags, 0o600))",
        "os.close(os.open(self.database, flags, 0o644))",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a log that another user made is not written",
        "core/ownership.py",
        "or _may_write(found.st_uid, its_database):\n            continue",
        "or True:\n            continue",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "only sockets of the side folder are woken",
        "database/sqlite/notifications.py",
        "                if stat.S_ISSOCK(os.lstat(path).st_mode):",
        "                if True:",
        ["sqlite/test_side_folder.py"],
    ),
    Mutant(
        "only root trusts the user who called sudo",
        "core/ownership.py",
        "if os.geteuid() == ROOT and text.isdecimal()",
        "if text.isdecimal()",
        ["unit/test_trusted_settings.py"],
    ),
    Mutant(
        "a group with other members counts as other users",
        "core/ownership.py",
        "return _has_access_list(where) or not _is_private(found.st_gid, found.st_uid)",
        "return False",
        ["unit/test_trusted_settings.py"],
    ),
    Mutant(
        "settings with a second name in a shared folder are not obeyed",
        "core/ownership.py",
        "    if found.st_nlink > 1 and ",
        "    if False and ",
        ["unit/test_trusted_settings.py"],
    ),
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
        "worker processes import nothing from the current folder",
        "processes/child.py",
        'return [sys.executable, "-P", "-m", module]',
        'return [sys.executable, "-m", module]',
        ["cli/test_worker_start.py::test_workers_import_nothing_from_the_current_folder"],
    ),
    Mutant(
        "an application has no task that is called like a kind of command",
        "cli/worker_process.py",
        "        if name in RESERVED:\n",
        "        if False:\n",
        ["shell/test_process.py"],
    ),
    Mutant(
        "beside an application no commands are run",
        "cli/worker_process.py",
        "                crew = self._crew if self._spec.runs_commands_of(name) else None\n",
        "                crew = self._crew\n",
        ["cli/test_worker_start.py::test_workers_of_an_application_run_no_commands"],
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
        " if p.pid in marks and p.session == p.pid}",
        " if p.pid in marks}",
        [
            "crash/test_commands.py::"
            "test_a_mark_in_a_session_whose_leader_has_none_is_that_of_one_process"
        ],
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
        "worker processes are not started with passwords in their environment",
        "processes/private_environment.py",
        "if name.startswith(OURS) and name != MARK",
        "if False",
        ["cli/test_privacy.py"],
    ),
    Mutant(
        "completion connects to no server that a settings file names",
        "cli/completers.py",
        "            if db is None and not _default_may_be_asked():\n                return []\n",
        "",
        ["cli/test_completion.py"],
    ),
    # --- what is on the disk ---
    Mutant(
        "what was asked for is on the disk before it is answered",
        "engine/engine.py",
        "            self.driver.sync()\n",
        "            pass\n",
        ["sqlite/test_journal.py"],
    ),
    Mutant(
        "an event is on the disk before it is told",
        "database/sqlite/reader.py",
        "            self._sync()\n",
        "            pass\n",
        ["sqlite/test_journal.py"],
    ),
    Mutant(
        "an engine that read what cannot be synced ends",
        "engine/read_thread.py",
        "                if isinstance(error, ENDING):\n",
        "                if False:\n",
        ["sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "a failed sync of a checkpoint ends the engine",
        "engine/engine.py",
        "        if isinstance(error, ENDING):\n            log.error",
        "        if False:\n            log.error",
        ["sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "a failed sync is marked for other processes",
        "database/sqlite/wal_sync.py",
        "            self._mark.set()\n",
        "            pass\n",
        ["sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "a failed sync of SQLite's own is marked for other processes",
        "database/sqlite/driver.py",
        "        if is_failed_sync(error):\n            self._mark.set()\n",
        "",
        ["sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "a sync is not believed while another process's failure is marked",
        "database/sqlite/wal_sync.py",
        "        if self._mark.is_set():\n",
        "        if False:\n",
        ["sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "nobody writes behind what could not be synced",
        "database/sqlite/driver.py",
        "        if self._mark.is_set():\n            try:\n",
        "        if False:\n            try:\n",
        ["sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "what a failed sync has lost is written again before the database is changed",
        "database/sqlite/checkpoints.py",
        "        first()\n",
        "        pass\n",
        ["sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "a look leaves the log of a dead process as it is",
        "database/sqlite/reader.py",
        'mode = "ro" if os.path.exists(SideFiles(path).log) else "rw"',
        'mode = "rw"',
        ["sqlite/test_looking.py::test_the_log_of_a_dead_process_is_read_and_left_as_it_is"],
    ),
    Mutant(
        "a look leaves nothing behind",
        "database/sqlite/reader.py",
        'mode = "ro" if os.path.exists(SideFiles(path).log) else "rw"',
        'mode = "ro"',
        ["sqlite/test_looking.py::test_a_file_that_nobody_uses_is_left_alone_in_its_folder"],
    ),
    Mutant(
        "a result is on the disk before it is told",
        "engine/result_waiters.py",
        "                self._driver.sync()",
        "                pass",
        ["sqlite/test_journal.py"],
    ),
    Mutant(
        "rows are not fetched one by one beside somebody who computes",
        "database/sqlite/row_fetch.py",
        "            if time.perf_counter() - began > SLOW:",
        "            if False:",
        ["sqlite/test_folding.py"],
    ),
    Mutant(
        "a producer hears of its job before it begins",
        "engine/engine.py",
        " and not any(r.reply_before_claims for r in requests)",
        "",
        ["sqlite/test_journal.py"],
    ),
    # --- the guards of the moves ---
    Mutant(
        "a verdict needs the number of the token",
        SQL,
        "and bullite_jobs.token = asked.value and",
        "and",
        ["test_moves.py::test_a_held_move_of_jobs_of_several_claims_needs_the_token_of_each"],
    ),
    Mutant(
        "a verdict needs the nonce of the token",
        SQL,
        " = asked.value and bullite_jobs.nonce = :nonce",
        " = asked.value",
        ["test_moves.py::test_a_held_move_of_jobs_of_several_claims_needs_the_token_of_each"],
    ),
    Mutant(
        "verdicts on jobs of one claim need the number of the token",
        SQL,
        "-- template: one_token_guard\nand bullite_jobs.token = :token and",
        "-- template: one_token_guard\nand",
        [
            "test_moves.py::test_a_held_move_needs_the_number_of_the_token",
            "test_interleaving.py::test_settle_and_a_new_claim_by_the_same_process",
        ],
    ),
    Mutant(
        "verdicts on jobs of one claim need the nonce of the token",
        SQL,
        "and bullite_jobs.token = :token and bullite_jobs.nonce = :nonce",
        "and bullite_jobs.token = :token",
        [
            "test_moves.py::test_a_held_move_needs_the_nonce_of_the_token",
            "test_moves.py::test_a_verdict_of_another_process_with_the_same_number_is_refused",
        ],
    ),
    Mutant(
        "recovery needs the token it saw",
        SQL,
        "and bullite_jobs.token = asked.value ->> 0 and",
        "and",
        ["test_interleaving.py::test_recover_and_a_new_claim_by_the_same_worker"],
    ),
    Mutant(
        "a move with values starts from its source state",
        SQL,
        " = cast(asked.key as integer) and bullite_jobs.state = '{source}'{guards}\n\n"
        "-- template: plain_move",
        " = cast(asked.key as integer){guards}\n\n-- template: plain_move",
        [
            "test_interleaving.py::test_promote_and_promote",
            "test_moves.py::test_a_swap_moves_only_jobs_that_are_in_its_source_state",
        ],
    ),
    Mutant(
        "a plain move starts from its source state",
        SQL,
        "(select value from json_each(:jobs)) and bullite_jobs.state = '{source}'{guards}",
        "(select value from json_each(:jobs)){guards}",
        [
            "test_interleaving.py::test_claim_and_claim",
            "test_moves.py::test_a_swap_moves_only_jobs_that_are_in_its_source_state",
        ],
    ),
    # --- steps and locks ---
    Mutant(
        "only the holder of a job records its steps",
        "operations/steps.py",
        "answers.append(_lost_or_missing(tx, r.job, place, r.token))",
        "answers.append(_lost_or_missing(tx, r.job, place, None))",
        ["test_stepping.py"],
    ),
    Mutant(
        "an event wakes only the run that waits for it",
        SQL,
        "and ended_at is null\n    and run = attempts_started\n\n-- name: insert_signal",
        "and ended_at is null\n\n-- name: insert_signal",
        ["test_stepping.py::test_an_event_does_not_cut_a_back_off_short"],
    ),
    Mutant(
        "an event is taken once",
        "operations/steps.py",
        '    yield "delete_signal", {**this, "number": number}\n',
        "",
        ["test_stepping.py"],
    ),
    Mutant(
        "a lock is taken only when its lease has ended",
        SQL,
        "where bullite_locks.lease_until < :lease_now or bullite_locks.boot",
        "where true or bullite_locks.boot",
        ["test_locking.py"],
    ),
    Mutant(
        "a late holder cannot let go of a lock",
        SQL,
        "delete from bullite_locks\nwhere name = :name and token = :token and nonce = :nonce "
        "and lease_until >= :lease_now",
        "delete from bullite_locks\nwhere name = :name and token = :token and nonce = :nonce",
        ["test_locking.py"],
    ),
    # --- fetching ahead ---
    Mutant(
        "a job fetched ahead does not count as started",
        SQL,
        "attempts_started = attempts_started + 1 - :ahead",
        "attempts_started = attempts_started + 1",
        ["test_fetching_ahead.py"],
    ),
    Mutant(
        "a job fetched ahead is not blamed for the death of its worker",
        "operations/workers.py",
        "begun = [row for row in held.rows if not row[3]]",
        "begun = list(held.rows)",
        ["test_fetching_ahead.py"],
    ),
    Mutant(
        "the beginning of a job fetched ahead is told with its end",
        "operations/finish.py",
        "if any(map(_PREFETCHED, verdicts)):",
        "if False:",
        ["test_fetching_ahead.py"],
    ),
    Mutant(
        "a job fetched ahead that is given back is no longer ahead",
        SQL,
        "-- move: give_back\nahead = 0, ",
        "-- move: give_back\n",
        ["test_fetching_ahead.py"],
    ),
    Mutant(
        "what was fetched behind a job that takes long is given back",
        "engine/engine.py",
        "        self._dispatcher.return_stuck_prefetched()\n",
        "",
        ["test_fetching_ahead.py"],
    ),
    Mutant(
        "only finished and removed jobs are deleted",
        SQL,
        "(:jobs)) and state = '{source}'",
        "(:jobs))",
        ["test_interleaving.py::test_delete_and_revive"],
    ),
    Mutant(
        "a removed job is restored to where it came from (in the swap)",
        SQL,
        "where bullite_jobs.removed_from = 'waiting'",
        "",
        ["test_interleaving.py::test_restore_and_a_removal_from_somewhere_else"],
    ),
    Mutant(
        "a removed job is restored to where it came from (in the request)",
        "operations/move.py",
        "return place.removed_from == move.target",
        "return True",
        ["test_moves.py::test_a_move_is_made_if_and_only_if_the_table_allows_it"],
    ),
    Mutant(
        "a swap that falls short is a conflict",
        "operations/transitions.py",
        "if result.changed != len(asked):",
        "if False:",
        ["test_interleaving.py::test_claim_and_claim"],
    ),
    Mutant(
        "a deletion that falls short is a conflict",
        "operations/transitions.py",
        "if result.changed != len(jobs):",
        "if False:",
        ["test_interleaving.py::test_sweep_and_revive"],
    ),
    Mutant(
        "an active job cannot be removed under its worker",
        "core/states.py",
        'REMOVE = Move("remove", (_W, _D, _P, _C, _F)',
        'REMOVE = Move("remove", (_W, _D, _A, _P, _C, _F)',
        ["test_moves.py::test_the_diagram_in_the_documentation_is_the_table"],
    ),
    # --- progress ---
    Mutant(
        "progress needs the number of the token",
        SQL,
        " and bullite_jobs.token = asked.value ->> 0",
        "",
        ["test_settling.py::test_progress_with_the_wrong_number_is_refused"],
    ),
    Mutant(
        "progress needs the nonce of the token",
        SQL,
        "asked.value ->> 0\n    and bullite_jobs.nonce = :nonce",
        "asked.value ->> 0",
        ["test_settling.py::test_progress_of_another_process_with_the_same_number_is_refused"],
    ),
    Mutant(
        "progress needs an active job",
        SQL,
        "where bullite_jobs.state = 'active' and bullite_jobs.token",
        "where bullite_jobs.token",
        ["test_settling.py::test_progress_of_a_job_that_is_no_longer_active_is_refused"],
    ),
    # --- lost locks ---
    Mutant(
        "the second try looks before it moves",
        "operations/finish.py",
        "            tx.verify_first\n            or any(",
        "            any(",
        ["test_settling.py::test_only_the_lost_jobs_of_a_request_are_refused"],
    ),
    Mutant(
        "requests run alone are run with care",
        "engine/engine.py",
        "self._run_with_retries([ask], careful=True)",
        "self._run_with_retries([ask])",
        ["test_batches.py::test_a_lost_verdict_does_not_harm_the_others_of_its_batch"],
    ),
    Mutant(
        "a careful look compares the nonce",
        "operations/finish.py",
        "(place.token, place.nonce) != (verdict.token, tx.nonce)",
        "place.token != verdict.token",
        ["test_moves.py::test_a_verdict_of_another_process_with_the_same_number_is_refused"],
    ),
    Mutant(
        "a repeated verdict is recognised only in its target state",
        "operations/finish.py",
        "elif not (verdict.again and _already_applied(verdict, place)):",
        "elif not verdict.again:",
        [
            "test_settling.py::test_a_different_verdict_for_a_finished_job_is_a_lost_lock_however"
            "_often_it_is_sent"
        ],
    ),
    Mutant(
        "a verdict that was not sent before is not taken for a repetition",
        "operations/finish.py",
        "elif not (verdict.again and _already_applied(verdict, place)):",
        "elif not _already_applied(verdict, place):",
        ["test_settling.py::test_a_second_completion_is_a_lost_lock"],
    ),
    Mutant(
        "two verdicts for one job are looked at twice",
        "operations/finish.py",
        "if len(asked) != len(verdicts):",
        "if False:",
        [
            "test_settling.py::test_a_stale_and_a_fresh_verdict_for_one_job_in_one_request_are"
            "_told_apart"
        ],
    ),
    Mutant(
        "every claim has a token of its own",
        "engine/dispatcher.py",
        "self._last_token += 1\n                [claimed]",
        "self._last_token = 1\n                [claimed]",
        [
            "test_claiming.py::test_over_a_thousand_claims_no_token_comes_twice_and_no_stale_one"
            "_is_accepted"
        ],
    ),
    # --- who is dead ---
    Mutant(
        "only leases that ran out are recovered",
        SQL,
        " and worker = :worker and lease_until < :expired_before",
        " and worker = :worker",
        ["test_recovering.py::test_only_leases_that_ran_out_are_a_stall"],
    ),
    Mutant(
        "a worker that renewed in the meantime keeps its jobs",
        SQL,
        "where id = :worker and lease_until >= :expired_before",
        "where false",
        [
            "test_interleaving.py::test_a_recovery_decided_before_its_worker_renewed_leaves_its"
            "_jobs_alone"
        ],
    ),
    Mutant(
        "the lease of a worker that left counts",
        "database/sqlite/driver.py",
        "if not (worker.registered and worker.renews):",
        "if not worker.renews:",
        ["test_recovering.py::test_an_expired_lease_of_a_worker_that_left_is_a_stall"],
    ),
    Mutant(
        "the lease of a worker that was told to stop is renewed while it runs something",
        SQL,
        "seen_at = :now\nwhere nonce = :nonce and registered > 0",
        "seen_at = :now\nwhere nonce = :nonce and registered = 1",
        ["test_recovering.py::test_the_lease_of_a_leaving_worker_is_renewed"],
    ),
    Mutant(
        "what ran in a worker that was told to stop has not stalled",
        "operations/workers.py",
        "if begun and begun[0][6]:",
        "if False:",
        ["test_recovering.py::test_jobs_of_a_leaving_worker_whose_process_ended_have_not_stalled"],
    ),
    Mutant(
        "a process that still runs something is not taken for dead",
        "database/sqlite/liveness.py",
        "if keep_file and keep_lock:",
        "if False:",
        [
            "sqlite/test_liveness.py"
            "::test_a_process_that_still_runs_functions_lives_although_its_store_is_closed"
        ],
    ),
    Mutant(
        "a recovered job is nobody's",
        "operations/workers.py",
        'if held.rows:\n        yield "forget_tokens"',
        'if False:\n        yield "forget_tokens"',
        ["test_recovering.py::test_a_worker_is_told_which_of_its_jobs_were_taken_away"],
    ),
    Mutant(
        "what was fetched ahead and taken away is not begun",
        "worker/pool.py",
        "for job in runner.remove(numbers):",
        "for job in runner.remove(()):",
        ["api/test_jobs_taken_away.py::test_what_was_fetched_ahead_and_taken_away_is_not_begun"],
    ),
    Mutant(
        "a job that its own run has moved was not taken away",
        "worker/pool.py",
        " for job in self._held() if job.moving is None}",
        " for job in self._held()}",
        ["api/test_jobs_taken_away.py::test_a_job_that_its_own_run_has_moved_is_not_reported"],
    ),
    Mutant(
        "a job that must not run does not because its worker was lost",
        SQL,
        "when traits & 256 <> 0 or deferred_failure is not null then",
        "when traits & 256 <> 0 then",
        ["test_linking.py::test_a_parent_that_is_to_fail_is_to_fail_after_a_stall_too"],
    ),
    Mutant(
        "the dead are recovered in the order they came",
        "engine/maintenance.py",
        "sorted((WorkerRow(*row) for row in rows), key=lambda worker: worker.id)",
        "[WorkerRow(*row) for row in rows]",
        [
            "test_recovering.py::test_the_dead_are_recovered_in_the_order_they_came_however_the_database_keeps_them"
        ],
    ),
    Mutant(
        "the lease of a living worker does not count",
        "engine/maintenance.py",
        " and not self.driver.is_alive_despite_lease(worker)",
        "",
        [
            "sqlite/test_recovering_on_one_machine.py"
            "::test_an_expired_lease_is_no_stall_while_its_worker_is_registered_and_alive"
        ],
    ),
    Mutant(
        "a worker of another boot is dead",
        "database/sqlite/driver.py",
        "if worker.boot != self.clock.boot:",
        "if False:",
        [
            "sqlite/test_recovering_on_one_machine.py"
            "::test_a_worker_of_an_earlier_boot_is_dead_whatever_its_lease_says"
        ],
    ),
    Mutant(
        "a worker that left is not renewed",
        SQL,
        "seen_at = :now\nwhere nonce = :nonce and registered > 0",
        "seen_at = :now\nwhere nonce = :nonce",
        [
            "test_recovering.py::test_renewing_keeps_the_leases_of_registered_workers_of_this"
            "_process"
        ],
    ),
    Mutant(
        "a worker stays known while it holds jobs",
        SQL,
        "queue = bullite_workers.queue and state = 'active' and worker = bullite_workers.id\n)",
        "false\n)",
        ["test_recovering.py::test_a_worker_stays_on_the_register_until_all_its_jobs_are_back"],
    ),
    # --- stalls ---
    Mutant(
        "the cap on stalls is what the worker said",
        SQL,
        "stalled_count + 1 > :max_stalled_count",
        "stalled_count + 1 >= :max_stalled_count",
        ["test_recovering.py::test_a_job_that_stalls_too_often_is_to_fail_when_it_is_next_taken"],
    ),
    Mutant(
        "a stall is counted",
        SQL,
        "stalled_count = stalled_count + 1, lease_until = null, seq",
        "lease_until = null, seq",
        ["test_recovering.py::test_a_crash_is_no_attempt_made"],
    ),
    Mutant(
        "a claim counts as an attempt started",
        SQL,
        "attempts_started = attempts_started + 1 - :ahead, ",
        "",
        ["test_settling.py::test_every_claim_is_an_attempt_started"],
    ),
    Mutant(
        "a stalled job goes to the front",
        "operations/workers.py",
        "job: [token, -number]",
        "job: [token, number]",
        ["test_claiming.py::test_a_stalled_job_goes_to_the_front_of_the_line"],
    ),
    Mutant(
        "stalled jobs keep their order",
        SQL,
        "order by seq desc limit :most",
        "order by seq limit :most",
        ["test_claiming.py::test_stalled_jobs_keep_the_order_they_had"],
    ),
    # --- the line ---
    Mutant(
        "first in, first out",
        SQL,
        "order by rank, seq limit :want\n\n-- name: lane_heads",
        "order by rank, seq desc limit :want\n\n-- name: lane_heads",
        [
            "test_claiming.py::test_jobs_given_back_keep_their_old_places",
            "test_claiming.py::test_last_in_first_out_jobs_go_in_front_of_their_rank",
            "test_claiming.py::test_a_retried_job_goes_to_the_end_of_the_line",
        ],
    ),
    Mutant(
        "priority before age",
        SQL,
        "order by rank, seq limit :want\n\n-- name: lane_heads",
        "order by seq limit :want\n\n-- name: lane_heads",
        ["test_claiming.py::test_a_lower_rank_goes_first_and_equal_ranks_in_the_order_they_came"],
    ),
    Mutant(
        "due jobs in the order of their time",
        SQL,
        "order by due_at, id limit :most",
        "order by id limit :most",
        ["test_claiming.py::test_due_jobs_go_to_the_end_of_the_line_in_the_order_of_their_time"],
    ),
    Mutant(
        "old jobs are sorted into the lanes of their names",
        SQL,
        "update bullite_jobs set lane = name where",
        "update bullite_jobs set lane = lane where",
        ["test_claiming.py::test_jobs_added_before_the_first_worker_with_names_are_found_by_it"],
    ),
    Mutant(
        "new jobs do not overtake old ones that have no lane yet",
        "operations/claim.py",
        "return request.names if sorted_now.changed < MAX_SORTED else ()",
        "return request.names",
        ["test_claiming.py::test_a_new_job_does_not_overtake_an_old_one_that_has_no_lane_yet"],
    ),
    Mutant(
        "a line that is not sorted to its end is not empty",
        "operations/claim.py",
        "exhausted = found.everywhere and ",
        "exhausted = ",
        [
            "test_claiming.py::test_a_worker_with_names_finds_its_job_behind_many_old_ones_of"
            "_other_names"
        ],
    ),
    Mutant(
        "all lanes form one line",
        "operations/claim.py",
        "islice(merge(*heads), want)",
        "islice((row for lane in heads for row in lane), demand)",
        ["test_claiming.py::test_a_worker_with_names_takes_them_in_the_order_of_the_whole_line"],
    ),
    # --- ids ---
    Mutant(
        "no number is handed out twice",
        SQL,
        "set last = last + :count returning last",
        "set last = (select max(id) from bullite_jobs) + :count returning last",
        ["test_adding.py::test_ids_are_never_reused_even_after_deletion"],
    ),
    Mutant(
        "a removed job frees its custom id (in the look)",
        SQL,
        "(select value from json_each(:custom_ids))\n    and state <> 'removed'",
        "(select value from json_each(:custom_ids))",
        ["test_adding.py::test_removing_a_job_frees_its_custom_id"],
    ),
    Mutant(
        "a removed job frees its custom id (in the index)",
        "database/sqlite/migrations/0001_jobs.sql",
        "where custom_id is not null and state <> 'removed';",
        "where custom_id is not null;",
        ["test_adding.py::test_removing_a_job_frees_its_custom_id"],
    ),
    Mutant(
        "custom ids are unique within a request",
        "operations/add.py",
        "taken[job.custom_id] = id",
        "pass",
        ["test_adding.py::test_a_custom_id_twice_in_one_request_stands_for_one_job"],
    ),
    Mutant(
        "custom ids are unique within a batch",
        "operations/add.py",
        "tx, request, ids, new, taken, keys, duplicates",
        "tx, request, ids, new, {}, keys, duplicates",
        ["test_adding.py::test_a_custom_id_in_two_requests_of_one_batch_stands_for_one_job"],
    ),
    # --- the books ---
    Mutant(
        "what is settled is no longer active",
        "operations/finish.py",
        "tx.count_runs_ended(queue, len(verdicts))",
        "pass",
        ["test_books.py::test_every_job_is_counted_in_one_state"],
    ),
    Mutant(
        "what is claimed is active",
        "operations/claim.py",
        'tx.count(request.queue, "active", len(rows))',
        "pass",
        ["test_books.py::test_a_waiting_job_with_a_priority_is_counted_apart"],
    ),
    Mutant(
        "what is swept is no longer completed",
        "operations/retention.py",
        "tx.count(queue, state.value, -len(jobs))",
        "pass",
        ["test_sweeping.py::test_completed_jobs_are_deleted_when_they_are_older_than_the_limit"],
    ),
    Mutant(
        "jobs with a priority are counted apart",
        "operations/transaction.py",
        '"prioritized" if priority else "waiting"',
        '"waiting"',
        ["test_books.py::test_a_delayed_job_with_a_priority_is_counted_as_delayed_until_it_is_due"],
    ),
    Mutant(
        "a row of the event log counts its events",
        "operations/transaction.py",
        "size = before = before + size",
        "size = before = before + 1",
        ["test_books.py::test_a_row_of_the_event_log_knows_how_many_events_there_were_up_to_it"],
    ),
    Mutant(
        "a deleted job takes its payload along",
        "operations/transitions.py",
        'for statement in ("delete_payloads", ',
        "for statement in (",
        ["test_sweeping.py::test_a_deleted_job_takes_its_payload_and_its_result_along"],
    ),
    # --- editing ---
    Mutant(
        "a change needs the number of the token",
        "operations/update.py",
        "(place.token, place.nonce) != (token, tx.nonce)",
        "place.nonce != tx.nonce",
        ["test_editing.py::test_a_change_needs_the_number_of_the_token"],
    ),
    Mutant(
        "a change needs the nonce of the token",
        "operations/update.py",
        "(place.token, place.nonce) != (token, tx.nonce)",
        "place.token != token",
        ["test_editing.py::test_a_change_needs_the_nonce_of_the_token"],
    ),
    Mutant(
        "a change with a token needs an active job",
        "operations/update.py",
        "if place.state != State.ACTIVE or (",
        "if (",
        ["test_editing.py::test_a_change_with_a_token_needs_a_job_that_runs"],
    ),
    Mutant(
        "a removed job cannot be changed",
        "operations/update.py",
        "if place is None or place.state == State.REMOVED:",
        "if place is None:",
        ["test_editing.py::test_a_job_that_is_gone_cannot_be_changed_by_anybody"],
    ),
    Mutant(
        "a lease is set with the token in the same statement",
        SQL,
        "where id = :job and state = 'active' and token = :token and nonce = :nonce",
        "where id = :job",
        ["test_interleaving.py::test_extend_lease_does_not_change_the_lease_of_a_new_claim"],
    ),
    Mutant(
        "a finished job gets no priority",
        "operations/update.py",
        " and place.state not in _UNFINISHED:",
        " and False:",
        ["test_editing.py::test_a_finished_job_has_no_use_for_a_priority"],
    ),
    Mutant(
        "the counts follow a priority",
        "operations/update.py",
        "tx.count_waiting(place.queue, [place.priority], -1)",
        "pass",
        ["test_editing.py::test_the_counts_follow_a_priority"],
    ),
    Mutant(
        "a log keeps to its limit",
        "operations/update.py",
        "first = max(first, last - request.keep + 1)",
        "pass",
        ["test_editing.py::test_only_the_newest_lines_are_kept_when_that_is_wanted"],
    ),
    Mutant(
        "lines of one batch are written together",
        "engine/batching.py",
        ">= place + request.keeps_order for",
        ">= place for",
        ["test_batches.py::test_requests_that_keep_their_order_share_a_group_even_for_one_job"],
    ),
    Mutant(
        "what a job fetched ahead says begins it",
        "operations/update.py",
        "    if place.prefetched",
        "    if False and place.prefetched",
        ["test_fetching_ahead.py::test_a_job_that_says_something_has_begun_and_that_is_told_first"],
    ),
    # --- the gates of a queue ---
    Mutant(
        "a paused queue hands out nothing",
        SQL,
        "select by_name, paused,\n",
        "select by_name, 0,\n",
        ["test_queue_settings.py::test_a_paused_queue_hands_out_nothing"],
    ),
    Mutant(
        "a pause is told once",
        SQL,
        "where id = :queue and paused <> :paused",
        "where id = :queue",
        ["test_queue_settings.py::test_a_pause_is_told_once"],
    ),
    Mutant(
        "what was fetched ahead of a pause is given back",
        "engine/dispatcher.py",
        "if claimed.paused or (",
        "if False or (",
        [
            "test_queue_settings.py::test_a_worker_is_told_to_give_back_what_it_fetched_ahead_of_a_pause"
        ],
    ),
    Mutant(
        "an expired job is not handed out",
        "operations/claim.py",
        "gates.next_expiry is not None and gates.next_expiry <= tx.now",
        "False",
        ["test_expiring.py::test_an_expired_job_is_never_handed_out"],
    ),
    Mutant(
        "an expired job is counted out",
        "operations/end_unstarted.py",
        "count_out(tx, queue, source, priorities)",
        "pass",
        ["test_expiring.py::test_a_job_that_nobody_began_in_time_fails"],
    ),
    Mutant(
        "a job that was begun in time does not expire",
        SQL,
        "order by expires_at limit :most",
        "or attempts_started > 0 and queue = :queue and state = 'waiting' limit :most",
        ["test_expiring.py"],
    ),
    Mutant(
        "behind as many as one go can fail nothing is handed out",
        "operations/claim.py",
        "gates.paused or expired >= MAX_EXPIRED",
        "gates.paused",
        ["test_expiring.py"],
    ),
    Mutant(
        "only the run itself begins a job fetched ahead",
        "operations/update.py",
        "place.prefetched and token is not None",
        "place.prefetched",
        ["test_fetching_ahead.py"],
    ),
    Mutant(
        "of two jobs that shared an id one comes back",
        "operations/move.py",
        "taken.add(id)",
        "pass",
        ["test_moving_one.py"],
    ),
    Mutant(
        "a job past its stalls does not go through its back-off",
        "operations/workers.py",
        "if stalled_count < worker.max_stalled_count:",
        "if True:",
        ["test_recovering.py"],
    ),
    Mutant(
        "a job has some time to begin",
        "operations/add.py",
        "now + extras.expires",
        "now",
        ["test_expiring.py::test_a_job_that_nobody_began_in_time_fails"],
    ),
    Mutant(
        "an old version of the settings is refused",
        "operations/add.py",
        "if batch.terms[request.queue].version != request.version:",
        "if False:",
        ["test_queue_settings.py::test_jobs_resolved_under_older_settings_are_not_added"],
    ),
    Mutant(
        "a change makes a new version",
        SQL,
        "    version = version + 1, priority_order",
        "    priority_order",
        ["test_queue_settings.py::test_only_a_change_makes_a_new_version"],
    ),
    Mutant(
        "only a change makes a new version",
        "operations/queue_settings.py",
        "if new != old:",
        "if True:",
        ["test_queue_settings.py::test_only_a_change_makes_a_new_version"],
    ),
    Mutant(
        "a new order turns the ranks",
        "operations/queue_settings.py",
        "if new.priority_order != old.priority_order:",
        "if False:",
        ["test_queue_settings.py::test_a_new_order_of_priorities_turns_the_line_around"],
    ),
    # --- ids that are taken, moves of one job ---
    Mutant(
        "a job whose id is taken is not restored",
        "operations/move.py",
        "taken |= {(queue, row[0]) for row in found.rows}",
        "pass",
        ["test_moving_one.py::test_an_id_that_is_taken_is_the_reason"],
    ),
    Mutant(
        "a job of a list that was let run is not moved a second time",
        "operations/move.py",
        "MAX_TIME if is_taken_out else request.since",
        "MAX_TIME",
        ["test_moving_lists.py"],
    ),
    Mutant(
        "the next piece of a list begins after the last",
        SQL,
        "({first}, {second}) > (:first, :second)\n    and {aged}",
        "true\n    and {aged}",
        ["test_moving_lists.py"],
    ),
    Mutant(
        "jobs that a drain lets run are removed as well",
        "operations/move.py",
        "_unstarted(tx, request.queue) > ready - left",
        "False",
        ["api/test_costs.py::test_drain_removes_jobs_that_it_lets_run"],
    ),
    Mutant(
        "a dead letter whose id was taken meanwhile stays",
        "operations/move.py",
        "target = place.original_queue",
        "target = None",
        ["test_dead_letter.py::test_a_job_whose_id_was_taken_meanwhile_stays_with_the_dead"],
    ),
    Mutant(
        "a caller's one state is the only one",
        "operations/move.py",
        "place is not None and request.source in (None, place.state)",
        "place is not None",
        ["test_moving_one.py::test_a_caller_may_allow_only_one_of_the_states_a_move_starts_from"],
    ),
    # --- dead letters ---
    Mutant(
        "a job whose id is taken among the dead stays",
        "operations/dead_letter.py",
        " if verdict.custom_id not in taken]",
        "]",
        ["test_dead_letter.py::test_a_job_whose_id_is_taken_there_stays"],
    ),
    Mutant(
        "a queue is not its own dead letter",
        "operations/dead_letter.py",
        "settings.dead_letter == settings.name or ",
        "",
        ["test_dead_letter.py::test_a_queue_is_not_its_own_dead_letter"],
    ),
    Mutant(
        "a cancelled job is no dead letter",
        "operations/finish.py",
        " if v.outcome != CANCELLED]",
        "]",
        ["test_dead_letter.py::test_a_cancelled_job_stays"],
    ),
    Mutant(
        "a dead letter is spared by its own retention",
        "operations/finish.py",
        "v.retention) for v in verdicts if v.job not in buried]",
        "v.retention) for v in outcomes]",
        ["test_dead_letter.py::test_a_job_that_moves_is_spared_by_its_own_retention"],
    ),
    Mutant(
        "the dead are counted",
        "operations/dead_letter.py",
        'tx.count(target, "failed", len(jobs))',
        "pass",
        ["test_dead_letter.py::test_a_job_that_failed_for_good_moves_as_it_is"],
    ),
    Mutant(
        "a rank is turned for a queue of the other order",
        "operations/transitions.py",
        "else -1,",
        "else 1,",
        ["test_dead_letter.py::test_the_line_of_the_other_order_has_the_job_where_it_belongs"],
    ),
    Mutant(
        "a revived dead letter goes home",
        "operations/move.py",
        "places = yield from _prepare_to_run_again(tx, source, places)",
        "pass",
        ["test_dead_letter.py::test_a_revived_job_goes_back_to_the_queue_it_came_from"],
    ),
    # --- retention ---
    Mutant(
        "one end deletes no more than its limit",
        "operations/retention.py",
        "min(there - keep.count, limit)",
        "there - keep.count",
        ["test_retaining.py::test_one_end_deletes_no_more_than_its_limit_the_oldest_first"],
    ),
    Mutant(
        "each end has a limit of its own",
        "operations/retention.py",
        "keep.limit * jobs",
        "keep.limit",
        ["test_retaining.py::test_ends_that_share_a_batch_share_their_limits"],
    ),
    Mutant(
        "those who end now count",
        "operations/retention.py",
        " + tx.counted(queue, state.value)",
        "",
        ["test_retaining.py::test_only_so_many_stay_the_newest"],
    ),
    Mutant(
        "those young enough stay",
        "operations/retention.py",
        "tx.now - keep.age",
        "tx.now",
        ["test_retaining.py::test_those_that_ended_too_long_ago_go"],
    ),
    Mutant(
        "the oldest go first",
        SQL,
        "    ))\norder by {first}, {second} limit",
        "    ))\norder by {first} desc, {second} desc limit",
        ["test_retaining.py::test_only_so_many_stay_the_newest"],
    ),
    Mutant(
        "a job of exactly the limit survives a sweep",
        "operations/prune.py",
        "age + 1",
        "age",
        ["test_sweeping.py::test_a_completed_job_of_exactly_the_limit_is_kept"],
    ),
    Mutant(
        "the newest row of the log is not deleted",
        SQL,
        "        and id < (select id from bullite_events where queue = :queue"
        " order by total desc, id desc limit 1)\n    order by total",
        "    order by total",
        ["test_queue_settings.py::test_a_log_trimmed_to_nothing_hands_out_no_event_id_twice"],
    ),
    # --- history ---
    Mutant(
        "a job that failed without a run has made no attempt",
        "operations/finish.py",
        "        unrun = [v.job for v in verdicts if v.unrun]\n",
        "        unrun = []\n",
        ["api/test_unrun_jobs.py::test_a_job_whose_relative_failed_has_no_start_and_no_attempt"],
    ),
    Mutant(
        "a failed run is remembered",
        "operations/finish.py",
        "        yield from _write_history(tx, [v for v in verdicts if not v.unrun])\n",
        "",
        ["test_history.py::test_runs_are_numbered_in_the_order_they_ended"],
    ),
    Mutant(
        "a success is remembered when the job runs again",
        "operations/move.py",
        "if source is State.COMPLETED:",
        "if False:",
        ["test_history.py::test_a_success_is_told_by_the_job_itself_until_it_runs_again"],
    ),
    Mutant(
        "the newest stacks are kept",
        SQL,
        "stack is not null order by number desc limit :keep",
        "stack is not null order by number limit :keep",
        ["test_history.py::test_only_so_many_stacks_are_kept_the_newest"],
    ),
    Mutant(
        "a deleted job takes its history along",
        "operations/transitions.py",
        ', "delete_attempts"',
        "",
        ["test_editing.py::test_a_deleted_job_takes_its_log_and_its_history_along"],
    ),
    Mutant(
        "a retried job stays behind those that were due before",
        "operations/finish.py",
        "yield from promote_due(tx, queue)",
        "pass",
        ["test_settling.py::test_a_retried_job_goes_behind_those_whose_time_came_while_it_ran"],
    ),
    # --- leases that nobody renews, workers by hand ---
    Mutant(
        "a worker that is not renewed stays known while it lives",
        SQL,
        " and (renews = 1 or registered <> 1 or :dead)",
        "",
        ["test_by_hand.py::test_its_worker_stays_on_the_register"],
    ),
    Mutant(
        "a lease that nobody renews is not renewed",
        SQL,
        "registered > 0 and renews = 1",
        "registered > 0",
        ["test_by_hand.py::test_a_lease_that_is_not_renewed_ends_although_its_worker_lives"],
    ),
    Mutant(
        "a lease that nobody renews ends",
        "database/sqlite/driver.py",
        "if not (worker.registered and worker.renews):",
        "if not worker.registered:",
        ["test_by_hand.py::test_a_lease_that_is_not_renewed_ends_although_its_worker_lives"],
    ),
    Mutant(
        "the limit of stalls is the successor's",
        "engine/dispatcher.py",
        "min(limits, default=lost.max_stalled_count)",
        "lost.max_stalled_count",
        ["test_recovering.py::test_the_limit_is_that_of_the_worker_which_takes_its_place"],
    ),
    Mutant(
        "a worker by hand gets one job for each time it is asked",
        "engine/subscription.py",
        "self.concurrency -= jobs",
        "pass",
        ["test_by_hand.py::test_it_is_given_one_job_for_each_time_it_is_asked"],
    ),
    Mutant(
        "a manual claim gets nothing while the subscription is paused",
        "engine/engine.py",
        "if subscription.paused",
        "if False and subscription.paused",
        ["test_by_hand.py::test_manual_claim_returns_nothing_until_the_subscription_is_resumed"],
    ),
    Mutant(
        "who stops waiting twice owes nothing",
        "engine/engine.py",
        "max(0, subscription.concurrency + more)",
        "subscription.concurrency + more",
        ["test_by_hand.py::test_to_stop_waiting_twice_does_no_harm"],
    ),
    # --- those who wait and those who follow ---
    Mutant(
        "an earlier job of the same id has ended another time",
        SQL,
        "then coalesce(entry.value ->> 3, entry.value ->> 0) else entry.value end",
        "then (select value ->> 0 from json_each(:jobs)) else entry.value end",
        ["test_watching.py::test_the_end_of_an_earlier_job_of_the_same_id_does_not_count"],
    ),
    Mutant(
        "a lost verdict ends nobody's wait",
        "engine/result_waiters.py",
        "if verdict.job not in settled.lost and ",
        "if ",
        ["test_watching.py::test_a_verdict_that_was_lost_ends_nobodys_wait"],
    ),
    Mutant(
        "the event log is read once for all jobs that are gone",
        "engine/result_waiters.py",
        "        if not self._gone or self._looked_up:\n",
        "        if not self._gone:\n",
        ["test_watching.py::test_the_event_log_is_not_read_again_before_it_has_been_read"],
    ),
    Mutant(
        "a follower hears only of its queue",
        "engine/engine.py",
        "if entry.queue == queue and (",
        "if (",
        ["test_following.py::test_a_follower_hears_only_of_its_queue"],
    ),
    Mutant(
        "a follower hears only what it wants",
        "engine/engine.py",
        " and (kinds is None or entry.kind in kinds)",
        "",
        ["test_following.py::test_a_follower_may_want_some_kinds_only"],
    ),
    Mutant(
        "a caretaker has the chores done",
        "engine/engine.py",
        "return bool(self._dispatcher) or self._maintenance_users > 0",
        "return bool(self._dispatcher)",
        ["test_following.py::test_a_caretaker_has_the_chores_done_without_a_worker"],
    ),
    Mutant(
        "a run that ends may drain its queue",
        "operations/transaction.py",
        "self._drains.add(queue)",
        "pass",
        ["test_books.py::test_a_queue_is_drained_when_its_last_run_ends_and_nothing_waits"],
    ),
    Mutant(
        "a queue with a waiting job is not drained",
        SQL,
        "returning events, waiting + prioritized + active = 0",
        "returning events, true",
        ["test_books.py::test_a_queue_with_a_waiting_job_is_not_drained"],
    ),
    # --- batches ---
    Mutant(
        "added jobs are synced before anyone is told",
        "operations/request.py",
        "    durable: ClassVar[bool] = True\n",
        "    durable: ClassVar[bool] = False\n",
        ["test_claiming.py::test_a_batch_that_adds_or_settles_is_durable"],
    ),
    Mutant(
        "one durable request makes its batch durable",
        "engine/engine.py",
        "self.driver.begin(any(",
        "self.driver.begin(all(",
        ["test_claiming.py::test_one_durable_request_makes_its_whole_batch_durable"],
    ),
    Mutant(
        "requests for one job keep their order",
        "engine/batching.py",
        ">= place + request.keeps_order for key in keys",
        "> place + request.keeps_order for key in keys",
        [
            "test_batches.py::test_two_requests_of_one_kind_for_one_job_are_two_groups",
            "test_batches.py::test_requests_for_one_job_are_carried_out_in_the_order_they_came",
        ],
    ),
    Mutant(
        "a request does not overtake one for the same job",
        "engine/batching.py",
        "last_group_of_job.update(dict.fromkeys(keys, place))",
        "pass",
        ["test_batches.py::test_a_request_does_not_overtake_one_of_another_kind_for_the_same_job"],
    ),
    Mutant(
        "nothing passes a move by hand",
        "engine/batching.py",
        "if request.barrier:",
        "if False:",
        ["test_adding.py::test_a_custom_id_freed_earlier_in_the_same_batch_can_be_taken"],
    ),
    Mutant(
        "a full disk is not tried again",
        "engine/engine.py",
        "        except StoreError as error:\n            self._fail(asks, error)\n      "
        "  except Exception",
        "        except Exception",
        ["test_batches.py::test_when_the_disk_is_full_the_whole_batch_fails_once"],
    ),
    # --- PostgreSQL ---
    Mutant(
        "on PostgreSQL a verdict needs the number of the token",
        PG,
        "-- template: token_guard\nand j.token = asked.token and",
        "-- template: token_guard\nand",
        ["test_moves.py::test_a_held_move_of_jobs_of_several_claims_needs_the_token_of_each"],
    ),
    Mutant(
        "on PostgreSQL a verdict needs the nonce of the token",
        PG,
        "-- template: token_guard\nand j.token = asked.token and j.nonce = :nonce",
        "-- template: token_guard\nand j.token = asked.token",
        ["test_moves.py::test_a_held_move_of_jobs_of_several_claims_needs_the_token_of_each"],
    ),
    Mutant(
        "on PostgreSQL verdicts on jobs of one claim need the number of the token",
        PG,
        "-- template: one_token_guard\nand j.token = :token and",
        "-- template: one_token_guard\nand",
        ["test_moves.py::test_a_held_move_needs_the_number_of_the_token"],
    ),
    Mutant(
        "on PostgreSQL verdicts on jobs of one claim need the nonce of the token",
        PG,
        "and j.token = :token and j.nonce = :nonce",
        "and j.token = :token",
        ["test_moves.py::test_a_held_move_needs_the_nonce_of_the_token"],
    ),
    Mutant(
        "on PostgreSQL a retry needs its token",
        PG,
        "-- template: taken_token_guard\nand j.token = asked.token and j.nonce = :nonce",
        "-- template: taken_token_guard\n",
        ["test_moves.py::test_a_held_move_needs_the_nonce_of_the_token"],
    ),
    Mutant(
        "on PostgreSQL a move that falls short stops the transaction",
        "database/postgres/statements.py",
        "case when count(*) = :expected then 1 ",
        "case when count(*) >= 0 or :expected = 0 then 1 ",
        ["test_moves.py::test_a_swap_moves_only_jobs_that_are_in_its_source_state"],
    ),
    Mutant(
        "on PostgreSQL a commit whose answer was lost is asked after",
        "database/postgres/driver.py",
        "if not self._was_committed(error):",
        "if True:",
        ["postgres/test_ambiguous_commits.py::test_a_job_whose_commit_was_cut_off_is_added_once"],
    ),
    Mutant(
        "on PostgreSQL a commit that was lost is not taken for made",
        "database/postgres/driver.py",
        "if not self._was_committed(error):",
        "if False:",
        ["postgres/test_ambiguous_commits.py::test_a_job_whose_commit_was_cut_off_is_added_once"],
    ),
    Mutant(
        "on PostgreSQL a transaction that was given up cannot arrive late",
        PG,
        "committed = case when p.committed < excluded.committed then",
        "committed = case when true then",
        [
            "postgres/test_ambiguous_commits.py"
            "::test_a_commit_that_arrives_after_it_was_given_up_is_refused"
        ],
    ),
    Mutant(
        "on PostgreSQL the log is read only as far as it is settled",
        "database/postgres/reader.py",
        "if not now_adding:",
        "if True:",
        ["postgres/test_event_order.py::test_nothing_is_told_beyond_an_event_that_may_still_come"],
    ),
    Mutant(
        "what was handed over to begin is not given back behind a slow job",
        "worker/runner.py",
        "while self._jobs[-1].prefetched:",
        "while True:",
        [
            "api/test_fetching_quick_jobs_ahead.py"
            "::test_what_was_handed_over_to_begin_is_not_given_back_behind_a_slow_job"
        ],
    ),
    Mutant(
        "on PostgreSQL a move can only be planned one way",
        PG,
        "json_array_elements_text(:jobs::json) order by 1\n"
        ") as asked\nwhere j.id between asked.job and asked.job",
        "json_array_elements_text(:jobs::json) order by 1\n) as asked\nwhere j.id = asked.job",
        ["postgres/test_plans.py::test_no_index_is_read_from_end_to_end"],
    ),
    Mutant(
        "one process sweeps a queue at a time",
        "operations/queue_settings.py",
        "return bool(taken.rows[0][0])",
        "return True",
        [
            "postgres/test_sweeping.py"
            "::test_one_process_sweeps_a_queue_at_a_time_and_others_do_not_wait"
        ],
    ),
    Mutant(
        "on PostgreSQL the event of a drained queue is counted",
        PG,
        "+ (select unfinished from others) = 0 then 1 else 0 end\n    returning",
        "+ (select unfinished from others) = 0 then 0 else 0 end\n    returning",
        ["postgres/test_sweeping.py::test_the_event_that_tells_that_a_queue_is_drained_is_counted"],
    ),
    Mutant(
        "on PostgreSQL ids of events are never handed out again",
        "database/postgres/driver.py",
        '"skip_events", {"skipped": SKIPPED_EVENTS}',
        '"skip_events", {"skipped": 0}',
        ["postgres/test_event_order.py::test_event_ids_skip_ahead_when_a_process_connects"],
    ),
    Mutant(
        "a transaction that the server undoes in its first message is run again",
        "database/postgres/driver.py",
        "                    raise self._meaning(error) from error\n        "
        "self._first_statements.extend",
        "                    raise store_error(error, str(self.location)) from error\n"
        "        self._first_statements.extend",
        [
            "postgres/test_collisions.py"
            "::test_a_deadlock_at_the_very_beginning_of_a_transaction_is_got_over"
        ],
    ),
    Mutant(
        "a silent process is kept while it has a worker",
        PG,
        "not exists (select 1 from bullite.bullite_workers as w where w.nonce = p.nonce)",
        "true",
        ["postgres/test_processes.py::test_a_silent_process_is_kept_while_it_has_a_worker"],
    ),
    Mutant(
        "a silent process is kept while it has a named lock",
        PG,
        "not exists (select 1 from bullite.bullite_locks as l where l.nonce = p.nonce)",
        "true",
        ["postgres/test_processes.py::test_a_silent_process_is_kept_while_it_has_a_named_lock"],
    ),
    Mutant(
        "a commit of a process that was forgotten is not taken for undone",
        "database/postgres/driver.py",
        "if was_known or at - self._begun_at < CERTAIN:",
        "if True:",
        [
            "postgres/test_processes.py"
            "::test_what_became_of_an_old_commit_of_a_forgotten_process_is_not_known"
        ],
    ),
    Mutant(
        "housekeeping shares no transaction with claims",
        "engine/engine.py",
        "self._run_transaction([piece.ask], serves=False)",
        "self._run_transaction([piece.ask])",
        ["test_housekeeping.py"],
    ),
    Mutant(
        "one process does a chore for a queue at a time",
        "operations/scheduler_ticks.py",
        'if not (yield from may_keep_house(request.queue, "catch up")):',
        "if False:",
        ["postgres/test_sweeping.py"],
    ),
    Mutant(
        "who has locked jobs does not wait for a queue",
        "engine/lock_order.py",
        "if not self._holds or queue in locked:",
        "if True:",
        ["postgres/test_lock_order.py"],
    ),
    Mutant(
        "who has locked jobs does not wait for others",
        "engine/lock_order.py",
        "if not self._holds:\n            result",
        "if True:\n            result",
        ["postgres/test_lock_order.py"],
    ),
    Mutant(
        "deduplication keys are locked in one order",
        "engine/lock_order.py",
        "return self._group_of_keys not in (None, self._group)",
        "return False",
        ["postgres/test_lock_order.py"],
    ),
    Mutant(
        "a renewal does not wait for its engine",
        PG,
        "renews = 1 order by id for no key update skip locked",
        "renews = 1 order by id for no key update",
        [
            "postgres/test_leases.py"
            "::test_a_renewal_passes_over_a_row_that_its_engine_has_and_renews_the_others"
        ],
    ),
    Mutant(
        "on PostgreSQL a new listener looks for what it missed",
        "database/postgres/listener.py",
        "            self._tell(set(new.values()))",
        "            pass",
        ["postgres/test_listener.py::test_a_job_added_while_the_listener_is_gone_is_found"],
    ),
    Mutant(
        "the lease of a worker that comes later is renewed as often as it asks for",
        "engine/maintenance.py",
        "self._renew_at = min(self._renew_at, lease_now + ms)",
        "pass",
        [
            "store/test_recovering.py::"
            "test_the_lease_of_a_newcomer_is_renewed_as_often_as_it_asks_for"
        ],
    ),
    Mutant(
        "on PostgreSQL the listener renews a new lease at once",
        "database/postgres/driver.py",
        "self._listener.renew_now()",
        "pass",
        ["postgres/test_leases.py::test_the_lease_of_a_newcomer_is_renewed_beside_a_longer_one"],
    ),
    Mutant(
        "on PostgreSQL the time is the server's",
        "database/postgres/server_clock.py",
        "self._ahead = server_now * 1_000_000 - time.monotonic_ns()",
        "pass",
        ["postgres/test_clock.py::test_a_job_is_made_at_the_servers_time"],
    ),
    Mutant(
        "a worker that is not on the register takes nothing",
        SQL,
        "from bullite_queues join bullite_workers on bullite_workers.id = :worker",
        "from bullite_queues left join bullite_workers on bullite_workers.id = :worker",
        ["test_claiming.py::test_a_worker_that_others_gave_up_on_takes_nothing"],
    ),
    # --- deduplication ---
    Mutant(
        "a key without a window is free when its job has ended",
        "core/deduplication.py",
        "self.state in HOLDING if self.until is None",
        "self.state is not None if self.until is None",
        [
            "test_deduplicating.py::test_a_completed_job_that_is_restored_holds_nothing_without_a_window"
        ],
    ),
    Mutant(
        "what was kept behind a job is made when it ends",
        "operations/finish.py",
        "if traits & DEDUPLICATED and move in (COMPLETE, FAIL):",
        "if flags & DEDUPLICATED and move is COMPLETE:",
        ["test_deduplicating.py::test_a_final_failure_is_an_end_too"],
    ),
    Mutant(
        "a key that is asked for is locked, even when it is held",
        PG,
        "on conflict (queue, key) do update set job = excluded.job where false",
        "on conflict (queue, key) do nothing",
        [
            "postgres/test_keys_side_by_side.py::"
            "test_a_job_that_is_kept_while_its_holder_ends_is_made_by_that",
        ],
    ),
    Mutant(
        "who replaces a job waits for nobody who waits for its key",
        PG,
        "order by id for update skip locked\n\n-- name: jobs_with_dedup_key",
        "order by id for update\n\n-- name: jobs_with_dedup_key",
        [
            "postgres/test_keys_side_by_side.py::"
            "test_who_replaces_a_job_that_is_being_removed_lets_that_go_first",
        ],
    ),
    Mutant(
        "a job that comes back takes no key that another holds",
        "operations/deduplicate.py",
        "if present is None or not present.holds_at(now):",
        "if True:",
        [
            "test_deduplicating.py::"
            "test_a_restored_job_whose_key_was_taken_meanwhile_lives_without",
        ],
    ),
    # --- families ---
    Mutant(
        "a job that waits is held while its links change",
        PG,
        "order by id for update\n\n-- name: write_progress",
        "order by id\n\n-- name: write_progress",
        [
            "postgres/test_collisions_of_families.py"
            "::test_the_last_two_children_end_at_one_moment_and_the_parent_is_let_run_once"
        ],
    ),
    Mutant(
        "a parent waits until its last child has ended",
        "operations/dependencies.py",
        "    return [place for place in places if place.job not in still]\n",
        "    return [place for place in places if still is not None]\n",
        ["test_linking.py::test_the_last_child_lets_its_parent_run"],
    ),
    Mutant(
        "a running parent is held while its children are looked at",
        "operations/dependencies.py",
        "    places = yield from load_for_update(jobs)  # from here on nobody can give "
        "them another child\n",
        "    places: dict[int, LockedJob] = {}\n",
        [
            "postgres/test_collisions_of_families.py"
            "::test_a_child_that_comes_in_time_keeps_its_parent_from_completing"
        ],
    ),
    Mutant(
        "what was tied to a running job is part of the swap that ends its run",
        SQL,
        "finished_at = :now, lease_until = null\nwhere bullite_jobs.traits = :traits\n\n"
        "-- move: fail",
        "finished_at = :now, lease_until = null\nwhere :traits is not null\n\n-- move: fail",
        ["test_linking.py::test_a_child_is_taken_before_anybody_knows_of_its_parent"],
    ),
    Mutant(
        "no circle is closed through jobs that exist",
        "operations/flow_graph.py",
        "            graph[downstream].add(upstream)\n",
        "            pass\n",
        ["test_linking.py::test_a_circle_through_jobs_that_exist_is_found"],
    ),
    Mutant(
        "those who close two halves of a circle wait for each other",
        "operations/flow_graph.py",
        "        met = {job for row in found.rows for job in row} - held\n",
        "        met: set[int] = set()\n",
        [
            "postgres/test_collisions_of_families.py"
            "::test_two_halves_of_a_circle_that_have_no_job_in_common_are_not_both_added"
        ],
    ),
    Mutant(
        "a run that returns while its children are pending fails",
        "operations/finish.py",
        "if move is COMPLETE and traits & DOWNSTREAM:",
        "if False:",
        ["test_linking.py::test_a_run_that_did_not_wait_for_its_children_fails"],
    ),
    Mutant(
        "a parent goes with its last child when its queue is emptied",
        "operations/move.py",
        "queues = {place.queue for place in moved} if request.with_parents else frozenset[int]()",
        "queues = frozenset[int]()",
        ["test_linking.py::test_a_parent_goes_with_its_last_child_when_a_queue_is_emptied"],
    ),
    Mutant(
        "what others depend on is not deleted when it expires",
        "operations/end_unstarted.py",
        "[e for e in ended if e[0] not in needed]",
        "ended",
        ["test_linking.py::test_what_others_depend_on_is_not_removed_when_it_expires"],
    ),
    Mutant(
        "a child that comes back is waited for again",
        "operations/move.py",
        '            yield "restore_links", {"jobs": as_json(awaited)}\n',
        "",
        ["test_linking.py::test_a_child_that_comes_back_is_waited_for_again"],
    ),
    # --- job schedulers ---
    Mutant(
        "only the job that a scheduler waits for makes the next",
        SQL,
        "from bullite_schedulers where job in (select value from json_each(:jobs)) order by job",
        "from bullite_schedulers where :jobs is not null order by job",
        [
            "test_schedulers.py::test_failing_retrying_and_reviving_make_no_second_chain",
            "test_schedulers.py::test_a_job_that_its_scheduler_does_not_wait_for_any_more_makes"
            "_nothing",
        ],
    ),
    Mutant(
        "a scheduler is not changed while a claim is under way",
        "operations/schedulers.py",
        'queue = request.queue\n    yield "lock_queue", {"queue": queue}',
        "queue = request.queue",
        [
            "postgres/test_scheduler_locks.py"
            "::test_a_scheduler_is_not_changed_while_a_claim_is_under_way"
        ],
    ),
    Mutant(
        "who takes a missed tick looks for the next at once",
        "operations/claim.py",
        "exhausted = exhausted and not more",
        "exhausted = exhausted",
        ["test_schedulers.py::test_who_takes_a_missed_tick_looks_for_the_next_at_once"],
    ),
    Mutant(
        "the pending job of a scheduler cannot be removed",
        "operations/move.py",
        "if place.job not in owned",
        "if place",
        ["test_schedulers.py::test_the_pending_job_cannot_be_removed_by_itself"],
    ),
    Mutant(
        "a job whose scheduler is gone may fail of stalling",
        "operations/scheduler_ticks.py",
        "for job, key in keys.items() if key in known",
        "for job, key in keys.items() if key",
        ["test_schedulers.py::test_but_not_once_its_scheduler_is_removed"],
    ),
    Mutant(
        "an upsert with the same rhythm keeps the next tick",
        "operations/schedulers.py",
        "_rhythm(before) == _rhythm(recurrence) and is_started",
        "_rhythm(before) == 0",
        ["test_schedulers.py::test_an_upsert_with_the_same_interval_keeps_the_next_time"],
    ),
    # --- limits ---
    Mutant(
        "a claim under a limit waits for its turn",
        PG,
        "select id from bullite.bullite_queues where id = :queue for no key update\n)",
        "select id from bullite.bullite_queues where id = :queue\n)",
        ["postgres/test_turns.py"],
    ),
    Mutant(
        "under a limit, what may begin is looked at again when its turn has come",
        "operations/claim.py",
        "    return gates, (yield from available_slots(tx, queue, gates.limits, limiter, slots))",
        "    return gates, allowed",
        ["postgres/test_turns.py"],
    ),
    Mutant(
        "a slot under a limit that becomes free wakes somebody",
        "operations/transaction.py",
        "if shares_slots and freed > 0:",
        "if False:",
        ["test_limiting.py"],
    ),
    Mutant(
        "a window of a limit begins anew when it has ended",
        "operations/rate_limits.py",
        "if until <= tx.now:",
        "if not until:",
        ["test_limiting.py"],
    ),
    Mutant(
        "nothing is fetched ahead under a limit",
        "operations/claim.py",
        "slots = allowed = min(request.demand, request.start_now)",
        "slots = allowed = request.demand",
        ["test_limiting.py::test_nothing_is_fetched_ahead_under_a_limit"],
    ),
    Mutant(
        "jobs that stand aside for a limit come before later ones of their key",
        "operations/rate_limits_by_key.py",
        "            yield from _unpark(tx, queue, windows[key])\n        if not behind and",
        "            pass\n        if not behind and",
        ["test_keying.py"],
    ),
    Mutant(
        "a removed job does not stay aside for a limit",
        SQL,
        "removed_at = :now, removed_from = state,\nlane = case when substr(lane, 1, 1) = char(31)\n"
        "    then substr(lane, 2 + instr(substr(lane, 2), char(31))) else lane end\n",
        "removed_at = :now, removed_from = state\n",
        ["test_keying.py::test_one_that_is_removed_and_restored_waits_in_line"],
    ),
    Mutant(
        "jobs that a limit refused do not take their ids",
        "operations/add.py",
        "taken, keys = taken.copy(), keys.copy()",
        "pass",
        ["test_admitting.py::test_a_custom_id_of_jobs_that_were_refused_is_free"],
    ),
    # --- features that meet ---
    Mutant(
        "beside a repeat, a limit refuses others",
        "operations/schedulers.py",
        "        raise refusal",
        "        pass",
        [
            "api/test_model_together.py::test_a_repeat_among_others_lets_the_others_not_over_the_quota"
        ],
    ),
    Mutant(
        "a limit does not count what a key leaves out of a flow",
        "operations/add_flow.py",
        " and id not in left_out]",
        "]",
        ["api/test_model_together.py::test_a_flow_that_is_deduplicated_is_not_refused"],
    ),
    Mutant(
        "a limit counts nothing of a flow that another limit refuses",
        "operations/add_flow.py",
        "            raise FlowRejected(refusal)\n    for queue, door in doors.items():\n",
        "            raise FlowRejected(refusal)\n",
        ["api/test_model_together.py::test_a_flow_over_the_quota_of_one_queue_is_stored_nowhere"],
    ),
    Mutant(
        "a time that clocks show again soon matches again",
        "core/cron.py",
        "near, horizon = after + 2 * _DAY",
        "near, horizon = after",
        ["unit/test_cron_by_brute_force.py"],
    ),
    # --- cancelling ---
    Mutant(
        "a run that fails does not back off when it was cancelled",
        SQL,
        """lease_until = null, delay = asked.value ->> 1, due_at = :now + (asked.value ->> 1)
where bullite_jobs.traits = :traits
""",
        """lease_until = null, delay = asked.value ->> 1, due_at = :now + (asked.value ->> 1)
""",
        ["test_cancelling.py::test_a_cancelled_run_that_fails_is_cancelled"],
    ),
    Mutant(
        "a run that fails is not tried again when it was cancelled",
        SQL,
        """lease_until = null, seq = (asked.value ->> 1) * (1 - 2 * lifo)
where bullite_jobs.traits = :traits
""",
        """lease_until = null, seq = (asked.value ->> 1) * (1 - 2 * lifo)
""",
        ["test_cancelling.py::test_a_cancelled_run_that_fails_is_cancelled"],
    ),
    Mutant(
        "a verdict minds that its job was cancelled",
        "operations/finish.py",
        "    if any(verdict.flags & IS_CANCELLED for verdict in held.values()):",
        "    if False:",
        ["test_cancelling.py::test_a_cancelled_run_that_fails_is_cancelled"],
    ),
    Mutant(
        "a cancelled job whose children do not let it complete is cancelled",
        "operations/finish.py",
        "    if any(verdict.flags & IS_CANCELLED for verdict in refused):",
        "    if False:",
        ["test_cancelling.py"],
    ),
    Mutant(
        "a cancelled job that would have been tried again goes if it is not to be kept",
        "operations/finish.py",
        "            retention=keeps.get(job, verdict.retention),\n",
        "",
        ["test_cancelling.py::test_so_is_one_that_was_cancelled_while_it_ran"],
    ),
    Mutant(
        "a verdict on a cancelled job that is sent again is recognised",
        "operations/finish.py",
        "        return place.state == State.FAILED\n",
        "        return place.state == verdict.move.target\n",
        ["test_cancelling.py"],
    ),
    Mutant(
        "a cancelled job that its worker gives up ends",
        "operations/finish.py",
        "    if move in (RELEASE, RETURN_UNSTARTED, DELAY):\n",
        "    if False:\n",
        ["test_cancelling.py::test_a_cancelled_job_that_its_worker_gives_up_ends_at_once"],
    ),
    Mutant(
        "a cancelled job is no dead letter, and nobody is told of it",
        "operations/finish.py",
        "            deserving = [v for v in verdicts if v.outcome != CANCELLED]",
        "            deserving = list(outcomes)",
        ["test_cancelling.py"],
    ),
    Mutant(
        "a cancelled job whose worker dies is not run again",
        "operations/workers.py",
        "        yield from end_cancelled(tx, cancelled)\n",
        "        pass\n",
        ["test_cancelling.py::test_a_cancelled_job_whose_worker_dies_is_cancelled"],
    ),
    Mutant(
        "a cancelled job does not wait for its children",
        "operations/children.py",
        "    if place.flags & CANCELLED:\n",
        "    if False:\n",
        ["test_cancelling.py"],
    ),
    Mutant(
        "a job that was cancelled and is retried is like any other",
        SQL,
        "due_at = null, traits = traits & ~256,\n",
        "due_at = null,\n",
        ["test_cancelling.py"],
    ),
    Mutant(
        "why a job was cancelled outlives that it stalls too often",
        SQL,
        "deferred_failure = case when traits & 256 <> 0 or deferred_failure is not null"
        " then deferred_failure\n    when",
        "deferred_failure = case when",
        ["test_cancelling.py"],
    ),
    Mutant(
        "who waits for a job hears at once that it is cancelled",
        "engine/result_waiters.py",
        "_MOVING = AwaitChildren | Cancel | ",
        "_MOVING = AwaitChildren | ",
        ["test_cancelling.py"],
    ),
    Mutant(
        "a consumer outlives the job that is cancelled",
        "worker/runner.py",
        "        return task.uncancel() == 0\n",
        "        return False\n",
        ["api/test_cancelling.py"],
    ),
    Mutant(
        "a run that returned although it was cancelled leaves its consumer as it was",
        "worker/runner.py",
        "                if self._cancelled:\n",
        "                if False:\n",
        ["api/test_cancelling.py"],
    ),
    Mutant(
        "a run with a timeout that returns although it was cancelled has completed",
        "worker/runner.py",
        "            if in_time and job in self._cancelled and not run.cancelled():",
        "            if False:",
        ["api/test_cancelling.py"],
    ),
    Mutant(
        "a run that is cancelled while it moves its job ends",
        "worker/runner.py",
        "                if _is_cancelled():\n                    raise\n",
        "                raise\n",
        ["api/test_cancelling.py"],
    ),
    Mutant(
        "a job is told once that it is cancelled",
        "worker/runner.py",
        "        if consumer is not None and job not in self._cancelled:",
        "        if consumer is not None:",
        ["unit/test_cancelled_runs.py"],
    ),
    Mutant(
        "no thread sleeps while jobs are taken out of its line",
        "worker/runner.py",
        "        with self._counting:  # who finds the line empty meanwhile would sleep, unwoken\n",
        "        if True:\n",
        ["unit/test_cancelled_runs.py"],
    ),
    # --- finding ---
    Mutant(
        "pages go on from places in front of the line",
        "client/queue/search.py",
        "(?::-?[0-9]{1,19}){2}",
        "(?::[0-9]{1,19}){2}",
        ["api/test_finding.py::test_pages_go_through_everything_once"],
    ),
    Mutant(
        "pages lose nobody of those who were added at one time",
        SQL,
        "where queue + 0 = :queue and (created_at, id) < (:at, :before)",
        "where queue + 0 = :queue and created_at < :at and :before",
        ["api/test_finding.py::test_pages_go_through_everything_once"],
    ),
    Mutant(
        "what is removed is not found",
        "client/queue/search.py",
        "job.state != State.REMOVED",
        "True",
        ["api/test_finding.py::test_a_removed_job_is_not_found_until_it_is_restored"],
    ),
    Mutant(
        "the jobs of a queue that is not paused are not all paused",
        "client/queue/reads.py",
        "        lists = None if state is None else tuple(await self._lists(meant))\n",
        "        lists = tuple(await self._lists(meant)) or None\n",
        ["api/test_finding.py::test_the_jobs_of_a_queue_that_is_not_paused_are_not_paused"],
    ),
    Mutant(
        "tags go along with a dead letter",
        "operations/transitions.py",
        '    yield "move_tags", {"jobs": as_json(jobs), "target": target}\n',
        "",
        ["api/test_finding.py::test_a_dead_letter_is_found_by_its_tag_where_it_is"],
    ),
    Mutant(
        "tags go with their job",
        "operations/transitions.py",
        '    (TAGGED, "delete_tags"),\n',
        "",
        ["api/test_finding.py::test_what_is_deleted_leaves_no_tags"],
    ),
    Mutant(
        "the jobs of schedulers have what belongs to their options",
        "operations/scheduler_ticks.py",
        "SCHEDULED | flags_of(options)",
        "SCHEDULED",
        ["api/test_finding.py::test_the_jobs_of_a_scheduler_have_its_tags"],
    ),
    # --- measuring ---
    Mutant(
        "an idle process writes nothing",
        "engine/metrics.py",
        " if self._told.get(worker) != text}",
        "}",
        ["test_measuring.py::test_nothing_is_written_while_nothing_happens"],
    ),
    Mutant(
        "a worker that leaves leaves its readings",
        "engine/engine.py",
        "        last = self._record()",
        "        last = list[PendingRequest]()",
        ["test_measuring.py::test_a_worker_that_leaves_leaves_its_readings"],
    ),
    Mutant(
        "what was measured is written when the store is closed",
        "engine/engine.py",
        "PendingRequest(EngineCall(self._record), _ignore)",
        "PendingRequest(EngineCall(lambda ask: None), _ignore)",
        ["api/test_metrics.py::test_what_was_measured_is_written_when_the_store_is_closed"],
    ),
    Mutant(
        "minutes of several processes add up",
        "operations/metrics.py",
        "        before.merge(tally)\n        tally = before\n",
        "        pass\n",
        ["test_measuring.py::test_the_minutes_of_several_processes_add_up"],
    ),
    Mutant(
        "only who waited from the start tells how long",
        "operations/claim.py",
        " and abs(row[_SEQ]) == row[0]",
        "",
        ["test_measuring.py::test_who_did_not_wait_all_the_time_is_not_counted"],
    ),
    # --- dead letters ---
    Mutant(
        "the failure of a notice is told to nobody",
        "operations/failure_hooks.py",
        " if not verdict.flags & NOTICE]",
        "]",
        ["test_telling.py::test_the_failure_of_a_notice_is_told_to_nobody"],
    ),
    Mutant(
        "what was cancelled is neither told nor a dead letter",
        "operations/finish.py",
        "[v for v in verdicts if v.outcome != CANCELLED]",
        "outcomes",
        ["test_telling.py::test_what_was_cancelled_is_not_told"],
    ),
    Mutant(
        "failed jobs are tried again so often and no more",
        "operations/auto_retry.py",
        '            yield "count_auto_retries", {"jobs": as_json(moved)}\n',
        "",
        ["test_reviving.py::test_it_is_tried_again_so_often_and_no_more"],
    ),
    Mutant(
        "a dead letter whose id is taken is not tried in a loop",
        "operations/auto_retry.py",
        "            if left:",
        "            if False:",
        ["test_reviving.py::test_one_whose_id_is_taken_there_stays_and_is_not_tried_in_a_loop"],
    ),
    Mutant(
        "what failed before is tried again, too",
        "operations/queue_settings.py",
        "            if new[-2:] != old[-2:]:",
        "            if False:",
        ["test_reviving.py::test_what_failed_before_it_was_settled_is_tried_again_too"],
    ),
    Mutant(
        "the queue in which a dead letter failed has the first say on its retries",
        "operations/queue_settings.py",
        "    return there if own.retry_failed_after is None else own",
        "    return there",
        ["test_reviving.py::test_the_queue_it_came_from_has_the_first_say"],
    ),
    Mutant(
        "a worker that is not heard of serves nobody",
        "client/directory.py",
        "engine.clock.now() - heard > max(WORKER_LOST_AFTER, lease)",
        "False",
        ["api/test_why.py::test_a_worker_that_is_not_heard_of_serves_nobody"],
    ),
    Mutant(
        "that a worker was killed is known at once where the kernel tells",
        "client/directory.py",
        "    if engine.driver.is_dead(nonce, boot):",
        "    if False:",
        ["cli/test_why.py::test_that_workers_were_killed_is_known_at_once"],
    ),
    Mutant(
        "a worker process that is replaced finishes what it runs",
        "processes/supervisor.py",
        "        if self._pressed:  # one that is only replaced",
        "        if True:  # one that is only replaced",
        [
            "processes/test_supervisor.py::test_a_child_that_is_replaced_finishes_however_long_that_takes"
        ],
    ),
    Mutant(
        "on PostgreSQL one process adds to the minutes of a queue at a time",
        PG,
        "lock_minute\nselect id from bullite.bullite_queues where id = :queue for no key",
        "lock_minute\nselect id from bullite.bullite_queues where id = :queue for key share --",
        ["postgres/test_lock_order.py"],
    ),
    Mutant(
        "on PostgreSQL processes move the numbers of events one after the other",
        PG,
        "select from bullite.bullite_meta where key = 'schema' for no key update",
        "select from bullite.bullite_meta where key = 'schema'",
        ["postgres/test_lock_order.py"],
    ),
    # --- functions of strangers ---
    Mutant(
        "options in the URL do not change where functions are looked up",
        "database/postgres/connections.py",
        '[*ours, of_user, f"-c search_path={path}"]',
        '[*ours, f"-c search_path={path}", of_user]',
        ["postgres/test_strangers.py"],
    ),
    Mutant(
        "behind a pooler a statement of its own looks up functions of the server only",
        "database/postgres/pipeline.py",
        "    if pooled:\n        alone.add_sql(PIN)\n",
        "",
        ["postgres/test_pooling.py"],
    ),
    Mutant(
        "behind a pooler wake-ups look up functions of the server only",
        "database/postgres/driver.py",
        "if self.location.pooled and (self._announced or self._alerted):",
        "if False:",
        ["postgres/test_pooling.py"],
    ),
    Mutant(
        "behind a pooler a look at the schema looks up functions of the server only",
        "database/postgres/schema.py",
        "        connection.execute(PIN.encode())\n",
        "",
        ["postgres/test_pooling.py", "postgres/test_strangers.py"],
    ),
    # --- values by name ---
    Mutant(
        "a value is changed by one at a time",
        PG,
        "select key from bullite.bullite_meta where key = 'schema' for no key update",
        "select key from bullite.bullite_meta where key = 'schema' for key share",
        ["postgres/test_lock_order.py"],
    ),
    Mutant(
        "what a change raises is its caller's alone",
        "operations/key_values.py",
        "            answers.append(error)\n            continue\n",
        "            raise\n",
        ["api/test_catalogue.py::test_what_a_change_raises_reaches_who_asked_and_changes_nothing"],
    ),
    # --- commands and their workers ---
    Mutant(
        "the commands of a dead worker are ended before its jobs run again",
        "engine/maintenance.py",
        "        busy = self._end_commands(others, lost)\n",
        "        busy: set[int] = set()\n",
        [
            "crash/test_commands.py::test_the_commands_of_a_killed_worker_are_dead_before_their_job_runs_again"
        ],
    ),
    Mutant(
        "jobs wait until commands that may run have been looked for",
        "engine/maintenance.py",
        "            return gone\n",
        "            return set()\n",
        ["crash/test_commands.py::test_commands_are_looked_for_beside_the_engine"],
    ),
    Mutant(
        "a look that began before a process was lost says nothing of it",
        "engine/maintenance.py",
        " | (gone - look.lost)",
        "",
        [
            "crash/test_commands.py"
            "::test_who_is_lost_while_commands_are_looked_for_is_looked_for_again"
        ],
    ),
    Mutant(
        "a worker process that begins ends what dead ones left running",
        "engine/maintenance.py",
        "(self._has_looked or not known)",
        "True",
        [
            "crash/test_commands.py::test_what_a_process_left_that_is_gone_is_ended_while_its_lease_lasts"
        ],
    ),
    Mutant(
        "a process is known by when it began, not by its number alone",
        "processes/orphaned_commands.py",
        " or process.start_time != mark.start_time or",
        " or",
        ["crash/test_commands.py::test_a_worker_whose_number_another_process_has_now_is_dead"],
    ),
    Mutant(
        "the number of a process counts only where it was given",
        "processes/orphaned_commands.py",
        "    if not mark.pid_namespace or mark.pid_namespace != pid_namespace():\n"
        "        return False\n",
        "",
        ["crash/test_commands.py::test_numbers_that_count_elsewhere_tell_nothing_of_a_worker"],
    ),
    Mutant(
        "what a command left behind when it ended lives on",
        "engine/maintenance.py",
        "            if self._is_held(mark)\n",
        "",
        ["crash/test_commands.py::test_only_commands_of_jobs_that_are_held_are_ended"],
    ),
    Mutant(
        "jobs are taken back when the commands are dead",
        "engine/maintenance.py",
        "            if worker.nonce not in busy:\n",
        "            if worker.nonce:\n",
        ["crash/test_commands.py::test_jobs_are_taken_back_when_the_commands_are_dead"],
    ),
    Mutant(
        "who shares a session with a command is ended with it",
        "processes/orphaned_commands.py",
        "marks.get(process.pid) or sessions.get(process.session)",
        "marks.get(process.pid)",
        ["crash/test_commands.py"],
    ),
    Mutant(
        "what a command says counts only while its job is held",
        "operations/command_output.py",
        "        and (place.token, place.nonce) == (r.token, tx.nonce)\n",
        "",
        ["shell/test_jobs.py::test_what_a_command_says_after_its_job_was_lost_is_not_taken"],
    ),
    Mutant(
        "the pieces of what a command said go with its end",
        "operations/command_output.py",
        '            yield "clear_output", {"job": r.job, "run": r.run}\n',
        "            pass\n",
        [
            "shell/test_jobs.py::test_output_is_read_while_the_command_runs_and_its_pieces_go_with_its_end"
        ],
    ),
    Mutant(
        "a secret between the two halves of kept output is taken out",
        "commands/output.py",
        'return cls(redactor.clean(head + tail), b"", 0)',
        "return cls(redactor.clean(head), redactor.clean(tail), 0)",
        ["shell/test_output.py"],
    ),
    Mutant(
        "no half of a secret is kept beside what was left out",
        "commands/output.py",
        "return redactor.clean(data[:end]), len(data) - end",
        "return redactor.clean(data), 0",
        ["shell/test_output.py"],
    ),
    Mutant(
        "a secret in a very long line is not shown in two halves",
        "commands/output.py",
        "end = max(0, len(data) - MAX_SECRET_LENGTH)",
        "end = len(data)",
        ["shell/test_output.py"],
    ),
    Mutant(
        "a processor that raises GeneratorExit does not end its consumer",
        "worker/runner.py",
        "GeneratorExit) and not _is_current(this_consumer):",
        "GeneratorExit):",
        [
            "api/test_failing_jobs.py::test_a_job_that_fails_in_an_unusual_way_costs_the_worker_nothing"
        ],
    ),
    Mutant(
        "a consumer whose loop is gone is thrown away",
        "worker/runner.py",
        "GeneratorExit) and not _is_current(this_consumer):",
        "GeneratorExit) and False:",
        ["unit/test_consumers.py"],
    ),
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
        ["shell/test_output.py"],
    ),
    Mutant(
        "what is left of a secret longer than a search is not kept",
        "commands/output.py",
        "if found.end() < end or end == len(text):",
        "if True:",
        ["shell/test_output.py"],
    ),
    Mutant(
        "a stored pattern is measured before it is used",
        "commands/processors.py",
        "return Redactor(usable_patterns(patterns))",
        "return Redactor(patterns)",
        ["shell/test_jobs.py"],
    ),
    Mutant(
        "a worker that wanted nothing when nothing was left looks again when it does",
        "engine/dispatcher.py",
        "subscription.needs_poll = not subscription.advertised_idle",
        "subscription.needs_poll = not claimed.exhausted",
        ["store/test_fetching_ahead.py"],
    ),
    Mutant(
        "nobody holds more ahead than its share",
        "engine/subscription.py",
        "min(self.prefetched, self.fair_share)",
        "self.prefetched",
        ["store/test_fetching_ahead.py"],
    ),
    Mutant(
        "what is in no hurry is settled when its worker would be unloaded",
        "worker/runner.py",
        "if ahead > 0 and (",
        "if len(self._line) > 0 and (",
        ["unit/test_threads.py"],
    ),
    Mutant(
        "a verdict knows that its run was a command",
        "client/job/job.py",
        "        self._add_flags(COMMAND)\n",
        "",
        ["shell/test_jobs.py::test_what_a_command_came_to_is_recorded_at_the_first_try"],
    ),
    Mutant(
        "commands do not get the secrets of the configuration",
        "processes/private_environment.py",
        'OURS = ("BULLITE_", "QUEUECTL_")',
        'OURS = ("BULLITE_",)',
        ["shell/test_jobs.py::test_a_command_gets_no_variables_that_may_hold_our_secrets"],
    ),
    Mutant(
        "what the machine lacks now it may have later",
        "commands/runner.py",
        "is_final = error.errno in _ITS_OWN",
        "is_final = True",
        ["shell/test_jobs.py::test_a_command_that_cannot_be_started_now_is_tried_again"],
    ),
    Mutant(
        "who forgets where it comes from is known by what it writes to",
        "processes/process_tree.py",
        "self.pipes & output_files(process.pid) or ",
        "",
        ["shell/test_running.py"],
    ),
    Mutant(
        "a dead letter is found in the queue that it went to",
        PG,
        "    update bullite.bullite_payloads set its_queue = :target\n",
        "    update bullite.bullite_payloads set its_queue = its_queue\n",
        ["store/test_dead_letter.py"],
    ),
    Mutant(
        "what was removed is not found by its name",
        PG,
        "        and made_at >= :since\n"
        "        and (select state from bullite.bullite_jobs where id = job) <> 'removed'\n",
        "        and made_at >= :since\n",
        ["api/test_finding.py"],
    ),
    Mutant(
        "who forgets where it comes from is known by its badge",
        "processes/process_info.py",
        "    return _fd_marker_of(pid)\n",
        "    return None\n",
        ["shell/test_running.py::test_who_forgets_where_it_comes_from_is_known"],
    ),
    Mutant(
        "a command that hides is dead before its job runs again",
        "commands/runner.py",
        "pass_fds=() if badge is None else (badge,)",
        "pass_fds=()",
        ["crash/test_commands.py::test_a_command_that_hides_is_dead_before_its_job_runs_again"],
    ),
    Mutant(
        "who makes a badge does not wear it",
        "processes/process_info.py",
        "    return not int(flags, 8) & os.O_CLOEXEC\n",
        "    return True\n",
        ["shell/test_running.py"],
    ),
    Mutant(
        "what a function started is not taken for a command's",
        "commands/processors.py",
        "CommandRunner(alone=not self._modules)",
        "CommandRunner()",
        ["shell/test_jobs.py::test_what_a_function_started_is_not_taken_for_a_commands"],
    ),
    Mutant(
        "a command that has ended is not stopped any more",
        "commands/runner.py",
        "                was_stopped = run.is_to_stop\n            run.drain()",
        "                pass\n            run.drain()\n            was_stopped = run.is_to_stop",
        [
            "shell/test_jobs.py::test_a_command_that_has_ended_completes_its_job_although_that_is_cancelled"
        ],
    ),
    Mutant(
        "who is in a hurry waits no longer for commands that are being ended",
        "commands/runner.py",
        "told_at + min(grace, self.longest_grace)",
        "told_at + grace",
        ["shell/test_jobs.py::test_a_command_that_is_being_ended_is_hurried_too"],
    ),
    Mutant(
        "a server that asks for time gets it",
        "core/decide_outcome.py",
        "delay = max(delay, least_delay(error))",
        "pass",
        ["shell/test_jobs.py::test_a_server_that_asks_for_time_gets_it"],
    ),
    Mutant(
        "a wait that cannot be counted is the longest",
        "commands/config.py",
        "    except OverflowError:",
        "    except KeyError:",
        ["shell/test_configuration.py"],
    ),
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
        "a child is pressed by another signal each time",
        "processes/child.py",
        "STOP: signal.SIGINT",
        "STOP: signal.SIGTERM",
        [
            "processes/test_supervisor.py::test_a_child_that_was_not_scheduled_in_between_hears_of_both_signals"
        ],
    ),
    Mutant(
        "a daemon is not called with the URL of its database",
        "cli/daemonize.py",
        '        if word == "--db":\n            next(given, None)\n        elif',
        "        if",
        ["cli/test_worker_start.py::test_no_process_is_called_with_what_opens_the_database"],
    ),
    # --- applications and tasks ---
    Mutant(
        "an argument that JSON writes as text is told from text",
        "app/serialization.py",
        "            _convert_given(self._annotation, kept)\n",
        "            pass\n",
        ["app/test_arguments.py::test_an_argument_of_another_type_is_refused_by_name"],
    ),
    Mutant(
        "an argument is checked before it is stored",
        "app/serialization.py",
        "        kept, plain = _as_json(what, value)\n",
        "        return _as_json(what, value)[1]\n",
        ["app/test_arguments.py::test_nothing_is_written_when_an_argument_is_refused"],
    ),
    Mutant(
        "numbers that JSON has not are refused with their argument",
        "app/serialization.py",
        "    _check_json(what, plain)\n    return kept, plain\n",
        "    return kept, plain\n",
        ["app/test_arguments.py::test_what_json_cannot_say_is_refused_by_name"],
    ),
    Mutant(
        "annotations are made out one by one",
        "app/arguments.py",
        "        return UnresolvedAnnotation(annotation, on_one_line(error))\n",
        "        raise\n",
        [
            "app/test_arguments.py::test_an_annotation_that_cannot_be_made_out_says_nothing_and_the_others_count"
        ],
    ),
    Mutant(
        "two tasks have not one name",
        "app/application.py",
        "        if role.everything is not None or name in role.by_name:",
        "        if role.everything is not None:",
        ["app/test_tasks.py::test_two_tasks_of_one_name_are_refused"],
    ),
    Mutant(
        "options of one enqueueing beat those that say the same in another way",
        "app/task.py",
        "        return over(self._task.job_options, self._given)",
        "        return {**self._task.job_options, **self._given}",
        ["app/test_tasks.py::test_options_that_say_the_same_in_another_way_beat_those_of_the_task"],
    ),
    Mutant(
        "a job of newer code is parked",
        "app/task.py",
        "        return _version_of(job) > self.version",
        "        return False",
        ["app/test_versions.py::test_a_job_of_a_newer_version_is_parked_and_not_failed"],
    ),
    Mutant(
        "upcasters change a copy of what a job holds",
        "app/task.py",
        "copy.deepcopy(data)",
        "data",
        ["app/test_versions.py::test_what_upcasters_change_is_not_what_the_job_holds"],
    ),
    Mutant(
        "every version has an upcaster",
        "app/task.py",
        "    if missing is not None:",
        "    if False:",
        ["app/test_versions.py::test_a_missing_upcaster_is_refused_at_decoration"],
    ),
    Mutant(
        "a second schedule of a task has an id of its own",
        "app/application.py",
        "task.name if self._number == 1 else",
        "task.name if True else",
        ["app/test_schedules.py::test_a_task_may_have_several_schedules"],
    ),
    Mutant(
        "a schedule of somebody else is left alone",
        "app/application.py",
        "is_own = found.name in names and _is_own_id(found.id, found.name)",
        "is_own = found.name in names",
        ["app/test_schedules.py::test_a_schedule_that_was_made_by_hand_is_left_alone"],
    ),
    Mutant(
        "no store is closed under a worker",
        "app/application.py",
        "            while not ending.done():\n",
        "            while False:\n",
        [
            "app/test_lifecycle.py::test_a_stop_that_is_cancelled_gives_back_what_runs_before_it_ends"
        ],
    ),
    Mutant(
        "jobs that belong together are in one database",
        "app/application.py",
        "            if self._files:\n",
        "            if False:\n",
        ["app/test_lifecycle.py::test_jobs_of_two_files_cannot_belong_together"],
    ),
    Mutant(
        "what is wrong with a job is told before its queue is made",
        "client/queue/base.py",
        "            if first is not None:\n",
        "            if False:\n",
        ["api/test_adding_through_queue.py::test_a_refused_job_makes_neither_queue_nor_database"],
    ),
    Mutant(
        "one start at a time",
        "app/application.py",
        "            if self.is_running:\n                return\n            self._workers",
        "            self._workers",
        ["app/test_lifecycle.py::test_starting_twice_starts_once"],
    ),
    Mutant(
        "a forked child stops no workers of its parent",
        "app/application.py",
        "        workers = self._workers if self.is_running else []",
        "        workers = self._workers",
        ["app/test_lifecycle.py::test_a_forked_child_starts_its_own"],
    ),
    Mutant(
        "a store that was given is left open",
        "app/application.py",
        "        if self._owns_store and self._store is not None:",
        "        if self._store is not None:",
        ["app/test_lifecycle.py::test_stopping_leaves_a_store_open_that_was_given"],
    ),
    Mutant(
        "a thread is waited for although its job was cancelled",
        "app/middleware.py",
        "    while not work.done():\n        try:",
        "    if True:\n        try:",
        ["app/test_middleware.py"],
    ),
    Mutant(
        "hooks and threads share their context",
        "app/middleware.py",
        "    context = contextvars.copy_context()",
        "    context = contextvars.Context()",
        ["app/test_middleware.py::test_hooks_and_the_task_share_their_context"],
    ),
    Mutant(
        "nobody is answered without the token",
        "app/router.py",
        "not hmac.compare_digest(sent, token.encode())",
        "not sent",
        ["app/test_router.py::test_without_the_right_token_nobody_is_answered"],
    ),
    Mutant(
        "without a token everybody is refused",
        "app/router.py",
        "        if not token:\n            raise",
        "        if token is None:\n            raise",
        ["app/test_router.py::test_without_a_token_being_set_everybody_is_refused"],
    ),
    Mutant(
        "a long body is refused",
        "app/router.py",
        "        if len(data) > MAX_BODY_BYTES:",
        "        if False:",
        ["app/test_router.py::test_a_body_that_is_too_long_is_refused"],
    ),
    Mutant(
        "an id that several queues have is not guessed",
        "app/router.py",
        "        if len(found) > 1:",
        "        if False:",
        ["app/test_router.py::test_an_id_that_several_queues_have_asks_for_the_queue"],
    ),
    Mutant(
        "retrying from the web forgets the attempts that were made",
        "app/router.py",
        "reset_attempts=True",
        "reset_attempts=False",
        ["app/test_router.py::test_a_failed_job_is_tried_again_from_its_first_attempt"],
    ),
    Mutant(
        "the doctor leaves out the names that workers take",
        SQL,
        ") where name not in (select value from json_each(:names)) group by",
        ") group by",
        ["app/test_versions.py::test_the_doctor_lists_names_that_no_worker_takes"],
    ),
    Mutant(
        "what is logged for a job that has ended troubles nobody",
        "app/job_logging.py",
        ".ignore_result()",
        "",
        ["app/test_logs.py::test_what_is_logged_after_the_job_has_ended_troubles_nobody"],
    ),
)


def main(words: Sequence[str]) -> int:
    mutants = [m for m in MUTANTS if not words or any(word in m.why for word in words)]
    with tempfile.TemporaryDirectory(prefix="bullite-sabotage-") as folder:
        intact = _copy(Path(folder) / "intact")
        if _run_tests(intact, sorted({test for mutant in mutants for test in mutant.tests})):
            _say("the tests must pass on the source as it is, before it is sabotaged")
            return 2
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            copies = [Path(folder) / str(index) for index in range(len(mutants))]
            verdicts = list(pool.map(_verdict, mutants, copies))
    for mutant, verdict in zip(mutants, verdicts, strict=True):
        _say(f"{verdict:9} {mutant.file:32} {mutant.why}")
    survivors = [verdict for verdict in verdicts if verdict != "killed"]
    _say(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed")
    return 1 if survivors else 0


def _verdict(mutant: Mutant, copy: Path) -> str:
    file = _copy(copy) / PACKAGE / mutant.file
    source = file.read_text()
    if source.count(mutant.old) != 1:
        return "NOT FOUND"
    file.write_text(source.replace(mutant.old, mutant.new))
    failed = 1
    return {0: "SURVIVED", failed: "killed"}.get(_run_tests(copy, mutant.tests), "BROKEN")


def _copy(folder: Path) -> Path:
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _run_tests(copy: Path, tests: Sequence[str]) -> int:
    """Pytest's exit code: 0 when all passed, 1 when some failed, more when it could not run."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"),
            *(f"tests/{test if '/' in test else f'store/{test}'}" for test in tests),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1) or (done.returncode and copy.name == "intact"):
        _say(done.stdout[-3_000:] + done.stderr[-3_000:])
    return done.returncode


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
