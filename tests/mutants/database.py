"""Guards of `database`: the two databases."""

from __future__ import annotations

from .mutant import PG, SQL, Mutant

MUTANTS = (
    # --- files of other users ---
    Mutant(
        "settings that another user can write name no database",
        "database/locations.py",
        "    if doubt is not None:\n",
        "    if False:\n",
        ["processes/test_trusted_settings.py"],
    ),
    Mutant(
        "a side folder of another user is not used",
        "database/sqlite/files.py",
        "        if (doubt := self.doubt()) is not None:\n",
        "        if False:\n",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a reader uses no side folder of another user",
        "database/sqlite/location.py",
        "        if places.doubt() is not None:\n",
        "        if False:\n",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a file of another user in a side folder is not used",
        "database/sqlite/side_files.py",
        "        if (doubt := doubt_about_side_file(path, found)) is not None:\n",
        "        if (doubt := None) is not None:\n",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "no link in a side folder is followed",
        "database/sqlite/side_files.py",
        "_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK",
        "_SAFELY = os.O_CLOEXEC | os.O_NONBLOCK",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "the gate is closed to others",
        "database/sqlite/side_files.py",
        "            os.fchmod(descriptor, mode)\n",
        "            pass\n",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a database is not made through a link",
        "database/sqlite/driver.py",
        "        if self._link is not None and not self.path.exists():",
        "        if False:",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "a new database is closed to others before it is opened",
        "database/sqlite/files.py",
        "os.close(os.open(self.database, flags, 0o600))",
        "os.close(os.open(self.database, flags, 0o644))",
        ["database/sqlite/test_side_folder.py"],
    ),
    Mutant(
        "only sockets of the side folder are woken",
        "database/sqlite/notifications.py",
        "                if stat.S_ISSOCK(os.lstat(path).st_mode):",
        "                if True:",
        ["database/sqlite/test_side_folder.py"],
    ),
    # --- what is on the disk ---
    Mutant(
        "an event is on the disk before it is told",
        "database/sqlite/reader.py",
        "            self._sync()\n",
        "            pass\n",
        ["database/sqlite/test_wal_sync.py"],
    ),
    Mutant(
        "a failed sync is marked for other processes",
        "database/sqlite/wal_sync.py",
        "            self._mark.set()\n",
        "            pass\n",
        ["database/sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "a failed sync of SQLite's own is marked for other processes",
        "database/sqlite/driver.py",
        "        if is_failed_sync(error):\n            self._mark.set()\n",
        "",
        ["database/sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "a sync is not believed while another process's failure is marked",
        "database/sqlite/wal_sync.py",
        "        if self._mark.is_set():\n",
        "        if False:\n",
        ["database/sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "nobody writes behind what could not be synced",
        "database/sqlite/driver.py",
        "        if self._mark.is_set():\n            try:\n",
        "        if False:\n            try:\n",
        ["database/sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "what a failed sync has lost is written again before the database is changed",
        "database/sqlite/checkpoints.py",
        "        first()\n",
        "        pass\n",
        ["database/sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "a look leaves the log of a dead process as it is",
        "database/sqlite/reader.py",
        'mode = "ro" if os.path.exists(SideFiles(path).log) else "rw"',
        'mode = "rw"',
        [
            "database/sqlite/test_reader.py::test_the_log_of_a_dead_process_is_read_and_left_as_it_is"
        ],
    ),
    Mutant(
        "a look leaves nothing behind",
        "database/sqlite/reader.py",
        'mode = "ro" if os.path.exists(SideFiles(path).log) else "rw"',
        'mode = "ro"',
        [
            "database/sqlite/test_reader.py::test_a_file_that_nobody_uses_is_left_alone_in_its_folder"
        ],
    ),
    Mutant(
        "rows are not fetched one by one beside somebody who computes",
        "database/sqlite/row_fetch.py",
        "            if time.perf_counter() - began > SLOW:",
        "            if False:",
        ["database/sqlite/test_row_fetch.py"],
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
        "-- template: same_token_guard\nand bullite_jobs.token = :token and",
        "-- template: same_token_guard\nand",
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
        "-- template: move_without_token",
        " = cast(asked.key as integer){guards}\n\n-- template: move_without_token",
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
        "an event wakes only the run that waits for it",
        SQL,
        "and ended_at is null\n    and run = attempts_started\n\n-- name: insert_signal",
        "and ended_at is null\n\n-- name: insert_signal",
        ["test_steps.py::test_an_event_does_not_cut_a_back_off_short"],
    ),
    Mutant(
        "a lock is taken only when its lease has ended",
        SQL,
        "where bullite_locks.lease_until < :lease_now or bullite_locks.boot",
        "where true or bullite_locks.boot",
        ["test_locks.py"],
    ),
    Mutant(
        "a late holder cannot let go of a lock",
        SQL,
        "delete from bullite_locks\nwhere name = :name and token = :token and nonce = :nonce "
        "and lease_until >= :lease_now",
        "delete from bullite_locks\nwhere name = :name and token = :token and nonce = :nonce",
        ["test_locks.py"],
    ),
    # --- fetching ahead ---
    Mutant(
        "a job fetched ahead does not count as started",
        SQL,
        "attempts_started = attempts_started + 1 - :ahead",
        "attempts_started = attempts_started + 1",
        ["test_prefetch.py"],
    ),
    Mutant(
        "a job fetched ahead that is given back is no longer ahead",
        SQL,
        "-- move: give_back\nahead = 0, ",
        "-- move: give_back\n",
        ["test_prefetch.py"],
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
    # --- progress ---
    Mutant(
        "progress needs the number of the token",
        SQL,
        " and bullite_jobs.token = asked.value ->> 0",
        "",
        ["test_finish.py::test_progress_with_the_wrong_number_is_refused"],
    ),
    Mutant(
        "progress needs the nonce of the token",
        SQL,
        "asked.value ->> 0\n    and bullite_jobs.nonce = :nonce",
        "asked.value ->> 0",
        ["test_finish.py::test_progress_of_another_process_with_the_same_number_is_refused"],
    ),
    Mutant(
        "progress needs an active job",
        SQL,
        "where bullite_jobs.state = 'active' and bullite_jobs.token",
        "where bullite_jobs.token",
        ["test_finish.py::test_progress_of_a_job_that_is_no_longer_active_is_refused"],
    ),
    # --- who is dead ---
    Mutant(
        "only leases that ran out are recovered",
        SQL,
        " and worker = :worker and lease_until < :expired_before",
        " and worker = :worker",
        ["test_workers.py::test_only_leases_that_ran_out_are_a_stall"],
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
        ["test_workers.py::test_an_expired_lease_of_a_worker_that_left_is_a_stall"],
    ),
    Mutant(
        "the lease of a worker that was told to stop is renewed while it runs something",
        SQL,
        "seen_at = :now\nwhere nonce = :nonce and registered > 0",
        "seen_at = :now\nwhere nonce = :nonce and registered = 1",
        ["test_workers.py::test_the_lease_of_a_leaving_worker_is_renewed"],
    ),
    Mutant(
        "a process that still runs something is not taken for dead",
        "database/sqlite/liveness.py",
        "if keep_file and keep_lock:",
        "if False:",
        [
            "database/sqlite/test_liveness.py"
            "::test_a_process_that_still_runs_functions_lives_although_its_store_is_closed"
        ],
    ),
    Mutant(
        "a job that must not run does not because its worker was lost",
        SQL,
        "when traits & {cancelled} <> 0 or deferred_failure is not null then",
        "when traits & {cancelled} <> 0 then",
        ["test_dependencies.py::test_a_parent_that_is_to_fail_is_to_fail_after_a_stall_too"],
    ),
    Mutant(
        "a worker of another boot is dead",
        "database/sqlite/driver.py",
        "if worker.boot != self.clock.boot:",
        "if False:",
        [
            "database/sqlite/test_recovering_on_one_machine.py"
            "::test_a_worker_of_an_earlier_boot_is_dead_whatever_its_lease_says"
        ],
    ),
    Mutant(
        "a worker that left is not renewed",
        SQL,
        "seen_at = :now\nwhere nonce = :nonce and registered > 0",
        "seen_at = :now\nwhere nonce = :nonce",
        ["test_workers.py::test_renewing_keeps_the_leases_of_registered_workers_of_this_process"],
    ),
    Mutant(
        "a worker stays known while it holds jobs",
        SQL,
        "queue = bullite_workers.queue and state = 'active' and worker = bullite_workers.id\n)",
        "false\n)",
        ["test_workers.py::test_a_worker_stays_on_the_register_until_all_its_jobs_are_back"],
    ),
    # --- stalls ---
    Mutant(
        "the cap on stalls is what the worker said",
        SQL,
        "stalled_count + 1 > :max_stalled_count",
        "stalled_count + 1 >= :max_stalled_count",
        ["test_workers.py::test_a_job_that_stalls_too_often_is_to_fail_when_it_is_next_taken"],
    ),
    Mutant(
        "a stall is counted",
        SQL,
        "stalled_count = stalled_count + 1, lease_until = null, seq",
        "lease_until = null, seq",
        ["test_workers.py::test_a_crash_is_no_attempt_made"],
    ),
    Mutant(
        "a claim counts as an attempt started",
        SQL,
        "attempts_started = attempts_started + 1 - :ahead, ",
        "",
        ["test_finish.py::test_every_claim_is_an_attempt_started"],
    ),
    Mutant(
        "stalled jobs keep their order",
        SQL,
        "order by seq desc limit :most",
        "order by seq limit :most",
        ["test_claim.py::test_stalled_jobs_keep_the_order_they_had"],
    ),
    # --- the line ---
    Mutant(
        "first in, first out",
        SQL,
        "order by rank, seq limit :want\n\n-- name: lane_heads",
        "order by rank, seq desc limit :want\n\n-- name: lane_heads",
        [
            "test_claim.py::test_jobs_given_back_keep_their_old_places",
            "test_claim.py::test_last_in_first_out_jobs_go_in_front_of_their_rank",
            "test_claim.py::test_a_retried_job_goes_to_the_end_of_the_line",
        ],
    ),
    Mutant(
        "priority before age",
        SQL,
        "order by rank, seq limit :want\n\n-- name: lane_heads",
        "order by seq limit :want\n\n-- name: lane_heads",
        ["test_claim.py::test_a_lower_rank_goes_first_and_equal_ranks_in_the_order_they_came"],
    ),
    Mutant(
        "due jobs in the order of their time",
        SQL,
        "order by due_at, id limit :most",
        "order by id limit :most",
        ["test_claim.py::test_due_jobs_go_to_the_end_of_the_line_in_the_order_of_their_time"],
    ),
    Mutant(
        "old jobs are sorted into the lanes of their names",
        SQL,
        "update bullite_jobs set lane = name where",
        "update bullite_jobs set lane = lane where",
        ["test_claim.py::test_jobs_added_before_the_first_worker_with_names_are_found_by_it"],
    ),
    # --- ids ---
    Mutant(
        "no number is handed out twice",
        SQL,
        "set last = last + :count returning last",
        "set last = (select max(id) from bullite_jobs) + :count returning last",
        ["test_add.py::test_ids_are_never_reused_even_after_deletion"],
    ),
    Mutant(
        "a removed job frees its custom id (in the look)",
        SQL,
        "(select value from json_each(:custom_ids))\n    and state <> 'removed'",
        "(select value from json_each(:custom_ids))",
        ["test_add.py::test_removing_a_job_frees_its_custom_id"],
    ),
    Mutant(
        "a removed job frees its custom id (in the index)",
        "database/sqlite/migrations/0001_jobs.sql",
        "where custom_id is not null and state <> 'removed';",
        "where custom_id is not null;",
        ["test_add.py::test_removing_a_job_frees_its_custom_id"],
    ),
    # --- editing ---
    Mutant(
        "a lease is set with the token in the same statement",
        SQL,
        "where id = :job and state = 'active' and token = :token and nonce = :nonce",
        "where id = :job",
        ["test_interleaving.py::test_extend_lease_does_not_change_the_lease_of_a_new_claim"],
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
        "a job that was begun in time does not expire",
        SQL,
        "order by expires_at limit :most",
        "or attempts_started > 0 and queue = :queue and state = 'waiting' limit :most",
        ["test_expire.py"],
    ),
    Mutant(
        "a change makes a new version",
        SQL,
        "    version = version + 1, priority_order",
        "    priority_order",
        ["test_queue_settings.py::test_only_a_change_makes_a_new_version"],
    ),
    # --- ids that are taken, moves of one job ---
    Mutant(
        "the next piece of a list begins after the last",
        SQL,
        "({first}, {second}) > (:first, :second)\n    and {aged}",
        "true\n    and {aged}",
        ["test_move_lists.py"],
    ),
    # --- retention ---
    Mutant(
        "the oldest go first",
        SQL,
        "    ))\norder by {first}, {second} limit",
        "    ))\norder by {first} desc, {second} desc limit",
        ["test_retention.py::test_only_so_many_stay_the_newest"],
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
        "the newest stacks are kept",
        SQL,
        "stack is not null order by number desc limit :keep",
        "stack is not null order by number limit :keep",
        ["test_history.py::test_only_so_many_stacks_are_kept_the_newest"],
    ),
    # --- leases that nobody renews, workers by hand ---
    Mutant(
        "a worker that is not renewed stays known while it lives",
        SQL,
        " and (renews = 1 or registered <> 1 or :dead)",
        "",
        ["test_manual_workers.py::test_its_worker_stays_on_the_register"],
    ),
    Mutant(
        "a lease that nobody renews is not renewed",
        SQL,
        "registered > 0 and renews = 1",
        "registered > 0",
        ["test_manual_workers.py::test_a_lease_that_is_not_renewed_ends_although_its_worker_lives"],
    ),
    Mutant(
        "a lease that nobody renews ends",
        "database/sqlite/driver.py",
        "if not (worker.registered and worker.renews):",
        "if not worker.registered:",
        ["test_manual_workers.py::test_a_lease_that_is_not_renewed_ends_although_its_worker_lives"],
    ),
    # --- those who wait and those who follow ---
    Mutant(
        "an earlier job of the same id has ended another time",
        SQL,
        "then coalesce(entry.value ->> 3, entry.value ->> 0) else entry.value end",
        "then (select value ->> 0 from json_each(:jobs)) else entry.value end",
        ["test_result_waiters.py::test_the_end_of_an_earlier_job_of_the_same_id_does_not_count"],
    ),
    Mutant(
        "a queue with a waiting job is not drained",
        SQL,
        "returning events, waiting + prioritized + active = 0",
        "returning events, true",
        ["test_counts_and_events.py::test_a_queue_with_a_waiting_job_is_not_drained"],
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
        "-- template: same_token_guard\nand j.token = :token and",
        "-- template: same_token_guard\nand",
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
        "-- template: token_with_value_guard\nand j.token = asked.token and j.nonce = :nonce",
        "-- template: token_with_value_guard\n",
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
        [
            "database/postgres/test_ambiguous_commits.py::test_a_job_whose_commit_was_cut_off_is_added_once"
        ],
    ),
    Mutant(
        "on PostgreSQL a commit that was lost is not taken for made",
        "database/postgres/driver.py",
        "if not self._was_committed(error):",
        "if False:",
        [
            "database/postgres/test_ambiguous_commits.py::test_a_job_whose_commit_was_cut_off_is_added_once"
        ],
    ),
    Mutant(
        "on PostgreSQL a transaction that was given up cannot arrive late",
        PG,
        "committed = case when p.committed < excluded.committed then",
        "committed = case when true then",
        [
            "database/postgres/test_ambiguous_commits.py"
            "::test_a_commit_that_arrives_after_it_was_given_up_is_refused"
        ],
    ),
    Mutant(
        "on PostgreSQL the log is read only as far as it is settled",
        "database/postgres/reader.py",
        "if not now_adding:",
        "if True:",
        [
            "database/postgres/test_event_order.py::test_nothing_is_told_beyond_an_event_that_may_still_come"
        ],
    ),
    Mutant(
        "on PostgreSQL a move can only be planned one way",
        PG,
        "json_array_elements_text(:jobs::json) order by 1\n"
        ") as asked\nwhere j.id between asked.job and asked.job",
        "json_array_elements_text(:jobs::json) order by 1\n) as asked\nwhere j.id = asked.job",
        ["database/postgres/test_plans.py::test_no_index_is_read_from_end_to_end"],
    ),
    Mutant(
        "on PostgreSQL the event of a drained queue is counted",
        PG,
        "+ (select unfinished from others) = 0 then 1 else 0 end\n    returning",
        "+ (select unfinished from others) = 0 then 0 else 0 end\n    returning",
        [
            "database/postgres/test_prune.py::test_the_event_that_tells_that_a_queue_is_drained_is_counted"
        ],
    ),
    Mutant(
        "on PostgreSQL ids of events are never handed out again",
        "database/postgres/driver.py",
        '"skip_events", {"skipped": SKIPPED_EVENTS}',
        '"skip_events", {"skipped": 0}',
        [
            "database/postgres/test_event_order.py::test_event_ids_skip_ahead_when_a_process_connects"
        ],
    ),
    Mutant(
        "a transaction that the server undoes in its first message is run again",
        "database/postgres/driver.py",
        "                    raise self._meaning(error) from error\n        "
        "self._first_statements.extend",
        "                    raise store_error(error, str(self.location)) from error\n"
        "        self._first_statements.extend",
        [
            "database/postgres/test_collisions.py"
            "::test_a_deadlock_at_the_very_beginning_of_a_transaction_is_got_over"
        ],
    ),
    Mutant(
        "a silent process is kept while it has a worker",
        PG,
        "not exists (select 1 from bullite.bullite_workers as w where w.nonce = p.nonce)",
        "true",
        [
            "database/postgres/test_processes.py::test_a_silent_process_is_kept_while_it_has_a_worker"
        ],
    ),
    Mutant(
        "a silent process is kept while it has a named lock",
        PG,
        "not exists (select 1 from bullite.bullite_locks as l where l.nonce = p.nonce)",
        "true",
        [
            "database/postgres/test_processes.py::test_a_silent_process_is_kept_while_it_has_a_named_lock"
        ],
    ),
    Mutant(
        "a commit of a process that was forgotten is not taken for undone",
        "database/postgres/driver.py",
        "if was_known or at - self._began_at < CERTAIN:",
        "if True:",
        [
            "database/postgres/test_processes.py"
            "::test_what_became_of_an_old_commit_of_a_forgotten_process_is_not_known"
        ],
    ),
    Mutant(
        "a renewal does not wait for its engine",
        PG,
        "renews = 1 order by id for no key update skip locked",
        "renews = 1 order by id for no key update",
        [
            "database/postgres/test_leases.py"
            "::test_a_renewal_passes_over_a_row_that_its_engine_has_and_renews_the_others"
        ],
    ),
    Mutant(
        "on PostgreSQL a new listener looks for what it missed",
        "database/postgres/listener.py",
        "            self._add_notified(set(new.values()))",
        "            pass",
        [
            "database/postgres/test_listener.py::test_a_job_added_while_the_listener_is_gone_is_found"
        ],
    ),
    Mutant(
        "on PostgreSQL the listener renews a new lease at once",
        "database/postgres/driver.py",
        "self._listener.renew_now()",
        "pass",
        [
            "database/postgres/test_leases.py::test_the_lease_of_a_newcomer_is_renewed_beside_a_longer_one"
        ],
    ),
    Mutant(
        "on PostgreSQL the time is the server's",
        "database/postgres/server_clock.py",
        "self._ahead = server_now * 1_000_000 - time.monotonic_ns()",
        "pass",
        ["database/postgres/test_clock.py::test_a_job_is_made_at_the_servers_time"],
    ),
    Mutant(
        "a worker that is not on the register takes nothing",
        SQL,
        "from bullite_queues join bullite_workers on bullite_workers.id = :worker",
        "from bullite_queues left join bullite_workers on bullite_workers.id = :worker",
        ["test_claim.py::test_a_worker_that_others_gave_up_on_takes_nothing"],
    ),
    # --- deduplication ---
    Mutant(
        "a key that is asked for is locked, even when it is held",
        PG,
        "on conflict (queue, key) do update set job = excluded.job where false",
        "on conflict (queue, key) do nothing",
        [
            "database/postgres/test_keys_side_by_side.py::"
            "test_a_job_that_is_kept_while_its_holder_ends_is_made_by_that",
        ],
    ),
    Mutant(
        "who replaces a job waits for nobody who waits for its key",
        PG,
        "order by id for update skip locked\n\n-- name: jobs_with_dedup_key",
        "order by id for update\n\n-- name: jobs_with_dedup_key",
        [
            "database/postgres/test_keys_side_by_side.py::"
            "test_who_replaces_a_job_that_is_being_removed_lets_that_go_first",
        ],
    ),
    # --- families ---
    Mutant(
        "a job that waits is held while its links change",
        PG,
        "order by id for update\n\n-- name: write_progress",
        "order by id\n\n-- name: write_progress",
        [
            "database/postgres/test_collisions_of_families.py"
            "::test_the_last_two_children_end_at_one_moment_and_the_parent_is_let_run_once"
        ],
    ),
    Mutant(
        "what was tied to a running job is part of the swap that ends its run",
        SQL,
        "finished_at = :now, lease_until = null\nwhere bullite_jobs.traits = :traits\n\n"
        "-- move: fail",
        "finished_at = :now, lease_until = null\nwhere :traits is not null\n\n-- move: fail",
        ["test_dependencies.py::test_a_child_is_taken_before_anybody_knows_of_its_parent"],
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
    # --- limits ---
    Mutant(
        "a claim under a limit waits for its turn",
        PG,
        "select id from bullite.bullite_queues where id = :queue for no key update\n)",
        "select id from bullite.bullite_queues where id = :queue\n)",
        ["database/postgres/test_queue_limits_lock.py"],
    ),
    Mutant(
        "a removed job does not stay aside for a limit",
        SQL,
        "removed_at = :now, removed_from = state,\nlane = case when substr(lane, 1, 1) = char(31)\n"
        "    then substr(lane, 2 + instr(substr(lane, 2), char(31))) else lane end\n",
        "removed_at = :now, removed_from = state\n",
        ["test_rate_limits_by_key.py::test_one_that_is_removed_and_restored_waits_in_line"],
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
        ["test_cancel.py::test_a_cancelled_run_that_fails_is_cancelled"],
    ),
    Mutant(
        "a run that fails is not tried again when it was cancelled",
        SQL,
        """lease_until = null, seq = (asked.value ->> 1) * (1 - 2 * lifo)
where bullite_jobs.traits = :traits
""",
        """lease_until = null, seq = (asked.value ->> 1) * (1 - 2 * lifo)
""",
        ["test_cancel.py::test_a_cancelled_run_that_fails_is_cancelled"],
    ),
    Mutant(
        "a job that was cancelled and is retried is like any other",
        SQL,
        "due_at = null, traits = traits & ~{cancelled},\n",
        "due_at = null,\n",
        ["test_cancel.py"],
    ),
    Mutant(
        "why a job was cancelled outlives that it stalls too often",
        SQL,
        "deferred_failure = case when traits & {cancelled} <> 0 or deferred_failure is not null"
        " then deferred_failure\n    when",
        "deferred_failure = case when",
        ["test_cancel.py"],
    ),
    # --- finding ---
    Mutant(
        "pages lose nobody of those who were added at one time",
        SQL,
        "where queue + 0 = :queue and (created_at, id) < (:at, :before)",
        "where queue + 0 = :queue and created_at < :at and :before",
        ["client/test_finding.py::test_pages_go_through_everything_once"],
    ),
    # --- dead letters ---
    Mutant(
        "on PostgreSQL one process adds to the minutes of a queue at a time",
        PG,
        "lock_minute\nselect id from bullite.bullite_queues where id = :queue for no key",
        "lock_minute\nselect id from bullite.bullite_queues where id = :queue for key share --",
        ["database/postgres/test_lock_order.py"],
    ),
    Mutant(
        "on PostgreSQL processes move the numbers of events one after the other",
        PG,
        "select from bullite.bullite_meta where key = 'schema' for no key update",
        "select from bullite.bullite_meta where key = 'schema'",
        ["database/postgres/test_lock_order.py"],
    ),
    # --- functions of strangers ---
    Mutant(
        "options in the URL do not change where functions are looked up",
        "database/postgres/connections.py",
        '[*ours, of_user, f"-c search_path={path}"]',
        '[*ours, f"-c search_path={path}", of_user]',
        ["database/postgres/test_strangers.py"],
    ),
    Mutant(
        "behind a pooler a statement of its own looks up functions of the server only",
        "database/postgres/pipeline.py",
        "    if pooled:\n        alone.add_sql(PIN)\n",
        "",
        ["database/postgres/test_pooling.py"],
    ),
    Mutant(
        "behind a pooler wake-ups look up functions of the server only",
        "database/postgres/driver.py",
        "if self.location.pooled and (self._announced or self._alerted):",
        "if False:",
        ["database/postgres/test_pooling.py"],
    ),
    Mutant(
        "behind a pooler a look at the schema looks up functions of the server only",
        "database/postgres/schema.py",
        "        connection.execute(PIN.encode())\n",
        "",
        ["database/postgres/test_pooling.py", "database/postgres/test_strangers.py"],
    ),
    # --- values by name ---
    Mutant(
        "a value is changed by one at a time",
        PG,
        "select key from bullite.bullite_meta where key = 'schema' for no key update",
        "select key from bullite.bullite_meta where key = 'schema' for key share",
        ["database/postgres/test_lock_order.py"],
    ),
    # --- commands and their workers ---
    Mutant(
        "a dead letter is found in the queue that it went to",
        PG,
        "    update bullite.bullite_payloads set its_queue = :target\n",
        "    update bullite.bullite_payloads set its_queue = its_queue\n",
        ["test_dead_letter.py"],
    ),
    Mutant(
        "what was removed is not found by its name",
        PG,
        "        and made_at >= :since\n"
        "        and (select state from bullite.bullite_jobs where id = job) <> 'removed'\n",
        "        and made_at >= :since\n",
        ["client/test_finding.py"],
    ),
    # --- applications and tasks ---
    Mutant(
        "the doctor leaves out the names that workers take",
        SQL,
        ") where name not in (select value from json_each(:names)) group by",
        ") group by",
        ["app/test_versions.py::test_the_doctor_lists_names_that_no_worker_takes"],
    ),
)
