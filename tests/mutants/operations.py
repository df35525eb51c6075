"""Guards of `operations`: what one transaction does."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # --- steps and locks ---
    Mutant(
        "only the holder of a job records its steps",
        "operations/steps.py",
        "replies.append(_lost_or_missing(tx, r.job, row, r.token))",
        "replies.append(_lost_or_missing(tx, r.job, row, None))",
        ["test_steps.py"],
    ),
    Mutant(
        "an event is taken once",
        "operations/steps.py",
        '    yield "delete_signal", {**this, "number": number}\n',
        "",
        ["test_steps.py"],
    ),
    # --- fetching ahead ---
    Mutant(
        "a job fetched ahead is not blamed for the death of its worker",
        "operations/workers.py",
        "started = [one for one in held if not one.prefetched]",
        "started = list(held)",
        ["test_prefetch.py"],
    ),
    Mutant(
        "the beginning of a job fetched ahead is told with its end",
        "operations/finish.py",
        "if any(map(_PREFETCHED, outcomes)):",
        "if False:",
        ["test_prefetch.py"],
    ),
    Mutant(
        "a removed job is restored to where it came from (in the request)",
        "operations/move.py",
        "return row.removed_from == move.target",
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
    # --- lost locks ---
    Mutant(
        "the second try looks before it moves",
        "operations/finish.py",
        "            tx.verify_first\n            or any(",
        "            any(",
        ["test_finish.py::test_only_the_lost_jobs_of_a_request_are_refused"],
    ),
    Mutant(
        "a careful look compares the nonce",
        "operations/finish.py",
        "(row.token, row.nonce) != (outcome.token, tx.nonce)",
        "row.token != outcome.token",
        ["test_moves.py::test_a_verdict_of_another_process_with_the_same_number_is_refused"],
    ),
    Mutant(
        "a repeated outcome is recognised only in its target state",
        "operations/finish.py",
        "elif not (outcome.again and _already_applied(outcome, row)):",
        "elif not outcome.again:",
        [
            "test_finish.py::test_a_different_verdict_for_a_finished_job_is_a_lost_lock_however"
            "_often_it_is_sent"
        ],
    ),
    Mutant(
        "an outcome that was not sent before is not taken for a repetition",
        "operations/finish.py",
        "elif not (outcome.again and _already_applied(outcome, row)):",
        "elif not _already_applied(outcome, row):",
        ["test_finish.py::test_a_second_completion_is_a_lost_lock"],
    ),
    Mutant(
        "two outcomes for one job are looked at twice",
        "operations/finish.py",
        "if len(asked) != len(outcomes):",
        "if False:",
        [
            "test_finish.py::test_a_stale_and_a_fresh_verdict_for_one_job_in_one_request_are"
            "_told_apart"
        ],
    ),
    # --- who is dead ---
    Mutant(
        "what ran in a worker that was told to stop has not stalled",
        "operations/workers.py",
        "if any(one.leaving for one in started):",
        "if False:",
        ["test_workers.py::test_jobs_of_a_leaving_worker_whose_process_ended_have_not_stalled"],
    ),
    Mutant(
        "a recovered job is nobody's",
        "operations/workers.py",
        'if held:\n        yield "forget_tokens"',
        'if False:\n        yield "forget_tokens"',
        ["test_workers.py::test_a_worker_is_told_which_of_its_jobs_were_taken_away"],
    ),
    # --- stalls ---
    Mutant(
        "a stalled job goes to the front",
        "operations/workers.py",
        "job: [one.token, -number]",
        "job: [one.token, number]",
        ["test_claim.py::test_a_stalled_job_goes_to_the_front_of_the_line"],
    ),
    # --- the line ---
    Mutant(
        "new jobs do not overtake old ones that have no lane yet",
        "operations/claim.py",
        "return request.names if sorted_now.changed < MAX_SORTED else ()",
        "return request.names",
        ["test_claim.py::test_a_new_job_does_not_overtake_an_old_one_that_has_no_lane_yet"],
    ),
    Mutant(
        "a line that is not sorted to its end is not empty",
        "operations/claim.py",
        "exhausted = found.everywhere and ",
        "exhausted = ",
        [
            "test_claim.py::test_a_worker_with_names_finds_its_job_behind_many_old_ones_of"
            "_other_names"
        ],
    ),
    Mutant(
        "all lanes form one line",
        "operations/claim.py",
        "islice(merge(*heads), want)",
        "islice((row for lane in heads for row in lane), demand)",
        ["test_claim.py::test_a_worker_with_names_takes_them_in_the_order_of_the_whole_line"],
    ),
    # --- ids ---
    Mutant(
        "custom ids are unique within a request",
        "operations/add.py",
        "taken[job.custom_id] = id",
        "pass",
        ["test_add.py::test_a_custom_id_twice_in_one_request_stands_for_one_job"],
    ),
    Mutant(
        "custom ids are unique within a batch",
        "operations/add.py",
        "tx, request, ids, new, taken, keys, duplicates",
        "tx, request, ids, new, {}, keys, duplicates",
        ["test_add.py::test_a_custom_id_in_two_requests_of_one_batch_stands_for_one_job"],
    ),
    # --- the books ---
    Mutant(
        "what is settled is no longer active",
        "operations/finish.py",
        "tx.count_runs_ended(queue, len(outcomes))",
        "pass",
        ["test_counts_and_events.py::test_every_job_is_counted_in_one_state"],
    ),
    Mutant(
        "what is claimed is active",
        "operations/claim.py",
        'tx.count(request.queue, "active", len(rows))',
        "pass",
        ["test_counts_and_events.py::test_a_waiting_job_with_a_priority_is_counted_apart"],
    ),
    Mutant(
        "what is swept is no longer completed",
        "operations/retention.py",
        "tx.count(queue, state.value, -len(jobs))",
        "pass",
        ["test_prune.py::test_completed_jobs_are_deleted_when_they_are_older_than_the_limit"],
    ),
    Mutant(
        "jobs with a priority are counted apart",
        "operations/transaction.py",
        '"prioritized" if priority else "waiting"',
        '"waiting"',
        [
            "test_counts_and_events.py::test_a_delayed_job_with_a_priority_is_counted_as_delayed_until_it_is_due"
        ],
    ),
    Mutant(
        "a row of the event log counts its events",
        "operations/transaction.py",
        "size = before = before + size",
        "size = before = before + 1",
        [
            "test_counts_and_events.py::test_a_row_of_the_event_log_knows_how_many_events_there_were_up_to_it"
        ],
    ),
    Mutant(
        "a deleted job takes its payload along",
        "operations/transitions.py",
        'for statement in ("delete_payloads", ',
        "for statement in (",
        ["test_prune.py::test_a_deleted_job_takes_its_payload_and_its_result_along"],
    ),
    # --- editing ---
    Mutant(
        "a change needs the number of the token",
        "operations/update.py",
        "(row.token, row.nonce) != (token, tx.nonce)",
        "row.nonce != tx.nonce",
        ["test_update.py::test_a_change_needs_the_number_of_the_token"],
    ),
    Mutant(
        "a change needs the nonce of the token",
        "operations/update.py",
        "(row.token, row.nonce) != (token, tx.nonce)",
        "row.token != token",
        ["test_update.py::test_a_change_needs_the_nonce_of_the_token"],
    ),
    Mutant(
        "a change with a token needs an active job",
        "operations/update.py",
        "if row.state != State.ACTIVE or (",
        "if (",
        ["test_update.py::test_a_change_with_a_token_needs_a_job_that_runs"],
    ),
    Mutant(
        "a removed job cannot be changed",
        "operations/update.py",
        "if row is None or row.state == State.REMOVED:",
        "if row is None:",
        ["test_update.py::test_a_job_that_is_gone_cannot_be_changed_by_anybody"],
    ),
    Mutant(
        "a finished job gets no priority",
        "operations/update.py",
        " and row.state not in _UNFINISHED:",
        " and False:",
        ["test_update.py::test_a_finished_job_has_no_use_for_a_priority"],
    ),
    Mutant(
        "the counts follow a priority",
        "operations/update.py",
        "tx.count_waiting(row.queue, [row.priority], -1)",
        "pass",
        ["test_update.py::test_the_counts_follow_a_priority"],
    ),
    Mutant(
        "a log keeps to its limit",
        "operations/update.py",
        "first = max(first, last - request.keep + 1)",
        "pass",
        ["test_update.py::test_only_the_newest_lines_are_kept_when_that_is_wanted"],
    ),
    Mutant(
        "what a job fetched ahead says begins it",
        "operations/update.py",
        "    if row.prefetched",
        "    if False and row.prefetched",
        ["test_prefetch.py::test_a_job_that_says_something_has_begun_and_that_is_told_first"],
    ),
    # --- the gates of a queue ---
    Mutant(
        "an expired job is not handed out",
        "operations/claim.py",
        "info.next_expiry is not None and info.next_expiry <= tx.now",
        "False",
        ["test_expire.py::test_an_expired_job_is_never_handed_out"],
    ),
    Mutant(
        "an expired job is counted out",
        "operations/cancel_and_expire.py",
        "count_out(tx, queue, source, priorities)",
        "pass",
        ["test_expire.py::test_a_job_that_nobody_began_in_time_fails"],
    ),
    Mutant(
        "behind as many as one go can fail nothing is handed out",
        "operations/claim.py",
        "info.paused or expired >= MAX_EXPIRED",
        "info.paused",
        ["test_expire.py"],
    ),
    Mutant(
        "only the run itself begins a job fetched ahead",
        "operations/update.py",
        "row.prefetched and token is not None",
        "row.prefetched",
        ["test_prefetch.py"],
    ),
    Mutant(
        "of two jobs that shared an id one comes back",
        "operations/move.py",
        "taken.add(id)",
        "pass",
        ["test_move_one.py"],
    ),
    Mutant(
        "a job past its stalls does not go through its back-off",
        "operations/workers.py",
        "if stalled_count < worker.max_stalled_count:",
        "if True:",
        ["test_workers.py"],
    ),
    Mutant(
        "a job has some time to begin",
        "operations/add.py",
        "now + extras.expires",
        "now",
        ["test_expire.py::test_a_job_that_nobody_began_in_time_fails"],
    ),
    Mutant(
        "an old version of the settings is refused",
        "operations/add.py",
        "if batch.add_info[request.queue].version != request.version:",
        "if False:",
        ["test_queue_settings.py::test_jobs_resolved_under_older_settings_are_not_added"],
    ),
    Mutant(
        "only a change makes a new version",
        "operations/queues.py",
        "if new != old:",
        "if True:",
        ["test_queue_settings.py::test_only_a_change_makes_a_new_version"],
    ),
    Mutant(
        "a new order turns the ranks",
        "operations/queues.py",
        "if new.priority_order != old.priority_order:",
        "if False:",
        ["test_queue_settings.py::test_a_new_order_of_priorities_turns_the_line_around"],
    ),
    # --- ids that are taken, moves of one job ---
    Mutant(
        "a job whose id is taken is not restored",
        "operations/move.py",
        "taken |= {(queue, custom_id) for custom_id, _ in found.rows}",
        "pass",
        ["test_move_one.py::test_an_id_that_is_taken_is_the_reason"],
    ),
    Mutant(
        "a job of a list that was let run is not moved a second time",
        "operations/move.py",
        "MAX_TIME if is_taken_out else request.since",
        "MAX_TIME",
        ["test_move_lists.py"],
    ),
    Mutant(
        "jobs that a drain lets run are removed as well",
        "operations/move.py",
        "_unstarted(tx, request.queue) > ready - left",
        "False",
        ["client/test_costs.py::test_drain_removes_jobs_that_it_lets_run"],
    ),
    Mutant(
        "a dead letter whose id was taken meanwhile stays",
        "operations/move.py",
        "target = row.original_queue",
        "target = None",
        ["test_dead_letter.py::test_a_job_whose_id_was_taken_meanwhile_stays_with_the_dead"],
    ),
    Mutant(
        "a caller's one state is the only one",
        "operations/move.py",
        "row is not None and request.source in (None, row.state)",
        "row is not None",
        ["test_move_one.py::test_a_caller_may_allow_only_one_of_the_states_a_move_starts_from"],
    ),
    # --- dead letters ---
    Mutant(
        "a job whose id is taken among the dead stays",
        "operations/after_failure.py",
        " if outcome.custom_id not in taken]",
        "]",
        ["test_dead_letter.py::test_a_job_whose_id_is_taken_there_stays"],
    ),
    Mutant(
        "a queue is not its own dead letter",
        "operations/after_failure.py",
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
        "v.retention) for v in outcomes if v.job not in dead_lettered]",
        "v.retention) for v in outcomes]",
        ["test_dead_letter.py::test_a_job_that_moves_is_spared_by_its_own_retention"],
    ),
    Mutant(
        "the dead are counted",
        "operations/after_failure.py",
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
        "rows = yield from _prepare_to_run_again(tx, source, rows)",
        "pass",
        ["test_dead_letter.py::test_a_revived_job_goes_back_to_the_queue_it_came_from"],
    ),
    # --- retention ---
    Mutant(
        "one end deletes no more than its limit",
        "operations/retention.py",
        "min(there - keep.count, limit)",
        "there - keep.count",
        ["test_retention.py::test_one_end_deletes_no_more_than_its_limit_the_oldest_first"],
    ),
    Mutant(
        "each end has a limit of its own",
        "operations/retention.py",
        "keep.limit * jobs",
        "keep.limit",
        ["test_retention.py::test_ends_that_share_a_batch_share_their_limits"],
    ),
    Mutant(
        "those who end now count",
        "operations/retention.py",
        " + tx.counted(queue, state.value)",
        "",
        ["test_retention.py::test_only_so_many_stay_the_newest"],
    ),
    Mutant(
        "those young enough stay",
        "operations/retention.py",
        "tx.now - keep.age",
        "tx.now",
        ["test_retention.py::test_those_that_ended_too_long_ago_go"],
    ),
    Mutant(
        "a job of exactly the limit survives a sweep",
        "operations/retention.py",
        "age + 1",
        "age",
        ["test_prune.py::test_a_completed_job_of_exactly_the_limit_is_kept"],
    ),
    # --- history ---
    Mutant(
        "a job that failed without a run has made no attempt",
        "operations/finish.py",
        "        unrun = [v.job for v in outcomes if v.unrun]\n",
        "        unrun = []\n",
        ["worker/test_unrun_jobs.py::test_a_job_whose_relative_failed_has_no_start_and_no_attempt"],
    ),
    Mutant(
        "a failed run is remembered",
        "operations/finish.py",
        "        yield from _write_history(tx, [v for v in outcomes if not v.unrun])\n",
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
        "a deleted job takes its history along",
        "operations/transitions.py",
        ', "delete_attempts"',
        "",
        ["test_update.py::test_a_deleted_job_takes_its_log_and_its_history_along"],
    ),
    Mutant(
        "a retried job stays behind those that were due before",
        "operations/finish.py",
        "yield from promote_due(tx, queue)",
        "pass",
        ["test_finish.py::test_a_retried_job_goes_behind_those_whose_time_came_while_it_ran"],
    ),
    # --- those who wait and those who follow ---
    Mutant(
        "a run that ends may drain its queue",
        "operations/transaction.py",
        "self._drains.add(queue)",
        "pass",
        [
            "test_counts_and_events.py::test_a_queue_is_drained_when_its_last_run_ends_and_nothing_waits"
        ],
    ),
    # --- batches ---
    Mutant(
        "added jobs are synced before anyone is told",
        "operations/request.py",
        "    durable: ClassVar[bool] = True\n",
        "    durable: ClassVar[bool] = False\n",
        ["test_claim.py::test_a_batch_that_adds_or_settles_is_durable"],
    ),
    # --- PostgreSQL ---
    Mutant(
        "one process sweeps a queue at a time",
        "operations/queues.py",
        "return bool(is_taken)",
        "return True",
        [
            "database/postgres/test_prune.py"
            "::test_one_process_sweeps_a_queue_at_a_time_and_others_do_not_wait"
        ],
    ),
    Mutant(
        "one process does a chore for a queue at a time",
        "operations/scheduler_ticks.py",
        'if not (yield from may_keep_house(request.queue, "catch up")):',
        "if False:",
        ["database/postgres/test_prune.py"],
    ),
    # --- deduplication ---
    Mutant(
        "what was kept behind a job is made when it ends",
        "operations/finish.py",
        "if flags & DEDUPLICATED and move in (COMPLETE, FAIL):",
        "if flags & DEDUPLICATED and move is COMPLETE:",
        ["test_deduplicate.py::test_a_final_failure_is_an_end_too"],
    ),
    Mutant(
        "a job that comes back takes no key that another holds",
        "operations/deduplicate.py",
        "if present is None or not present.holds_at(now):",
        "if True:",
        [
            "test_deduplicate.py::test_a_restored_job_whose_key_was_taken_meanwhile_lives_without",
        ],
    ),
    # --- families ---
    Mutant(
        "a parent waits until its last child has ended",
        "operations/dependencies.py",
        "    return [row for row in rows if row.job not in still]\n",
        "    return [row for row in rows if still is not None]\n",
        ["test_dependencies.py::test_the_last_child_lets_its_parent_run"],
    ),
    Mutant(
        "a running parent is held while its children are looked at",
        "operations/dependencies.py",
        "    rows = yield from load_for_update(jobs)  # from now on no other "
        "transaction can add a child\n",
        "    rows: dict[int, LockedJob] = {}\n",
        [
            "database/postgres/test_collisions_of_families.py"
            "::test_a_child_that_comes_in_time_keeps_its_parent_from_completing"
        ],
    ),
    Mutant(
        "no circle is closed through jobs that exist",
        "operations/flow_graph.py",
        "            graph[downstream].add(upstream)\n",
        "            pass\n",
        ["test_dependencies.py::test_a_circle_through_jobs_that_exist_is_found"],
    ),
    Mutant(
        "those who close two halves of a circle wait for each other",
        "operations/flow_graph.py",
        "        met = {job for row in found.rows for job in row} - held\n",
        "        met: set[int] = set()\n",
        [
            "database/postgres/test_collisions_of_families.py"
            "::test_two_halves_of_a_circle_that_have_no_job_in_common_are_not_both_added"
        ],
    ),
    Mutant(
        "a run that returns while its children are pending fails",
        "operations/finish.py",
        "if move is COMPLETE and flags & DOWNSTREAM:",
        "if False:",
        ["test_dependencies.py::test_a_run_that_did_not_wait_for_its_children_fails"],
    ),
    Mutant(
        "a parent goes with its last child when its queue is emptied",
        "operations/move.py",
        "queues = {row.queue for row in moved} if request.with_parents else frozenset[int]()",
        "queues = frozenset[int]()",
        ["test_dependencies.py::test_a_parent_goes_with_its_last_child_when_a_queue_is_emptied"],
    ),
    Mutant(
        "what others depend on is not deleted when it expires",
        "operations/cancel_and_expire.py",
        "for job, flags, keep in ended if job not in needed]",
        "for job, flags, keep in ended]",
        ["test_dependencies.py::test_what_others_depend_on_is_not_removed_when_it_expires"],
    ),
    Mutant(
        "a child that comes back is waited for again",
        "operations/move.py",
        '            yield "restore_links", {"jobs": as_json(awaited)}\n',
        "",
        ["test_dependencies.py::test_a_child_that_comes_back_is_waited_for_again"],
    ),
    # --- job schedulers ---
    Mutant(
        "a scheduler is not changed while a claim is under way",
        "operations/schedulers.py",
        'queue = request.queue\n    yield "lock_queue", {"queue": queue}',
        "queue = request.queue",
        [
            "database/postgres/test_scheduler_locks.py"
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
        "if row.job not in owned",
        "if row",
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
        "_ticks_of(before) == _ticks_of(recurrence) and is_started",
        "_ticks_of(before) == 0",
        ["test_schedulers.py::test_an_upsert_with_the_same_interval_keeps_the_next_time"],
    ),
    # --- limits ---
    Mutant(
        "under a limit, what may begin is looked at again when its turn has come",
        "operations/claim.py",
        "    return info, (yield from available_slots(tx, queue, info.limits, limiter, slots))",
        "    return info, allowed",
        ["database/postgres/test_queue_limits_lock.py"],
    ),
    Mutant(
        "a slot under a limit that becomes free wakes somebody",
        "operations/transaction.py",
        "if shares_slots and freed > 0:",
        "if False:",
        ["test_rate_limits.py"],
    ),
    Mutant(
        "a window of a limit begins anew when it has ended",
        "operations/rate_limits.py",
        "if until <= tx.now:",
        "if not until:",
        ["test_rate_limits.py"],
    ),
    Mutant(
        "nothing is fetched ahead under a limit",
        "operations/claim.py",
        "slots = allowed = min(request.demand, request.start_now)",
        "slots = allowed = request.demand",
        ["test_rate_limits.py::test_nothing_is_fetched_ahead_under_a_limit"],
    ),
    Mutant(
        "jobs that stand aside for a limit come before later ones of their key",
        "operations/rate_limits_by_key.py",
        "            yield from _unpark(tx, queue, windows[key])\n        if not behind and",
        "            pass\n        if not behind and",
        ["test_rate_limits_by_key.py"],
    ),
    Mutant(
        "jobs that a limit refused do not take their ids",
        "operations/add.py",
        "taken, keys = taken.copy(), keys.copy()",
        "pass",
        ["test_quotas.py::test_a_custom_id_of_jobs_that_were_refused_is_free"],
    ),
    # --- features that meet ---
    Mutant(
        "beside a repeat, a limit refuses others",
        "operations/schedulers.py",
        "        raise refusal",
        "        pass",
        [
            "client/test_model_together.py::test_a_repeat_among_others_lets_the_others_not_over_the_quota"
        ],
    ),
    Mutant(
        "a limit does not count what a key leaves out of a flow",
        "operations/add_flow.py",
        " and id not in left_out]",
        "]",
        ["client/test_model_together.py::test_a_flow_that_is_deduplicated_is_not_refused"],
    ),
    Mutant(
        "a limit counts nothing of a flow that another limit refuses",
        "operations/add_flow.py",
        "            raise FlowRejected(refusal)\n    for queue, check in checks.items():\n",
        "            raise FlowRejected(refusal)\n",
        [
            "client/test_model_together.py::test_a_flow_over_the_quota_of_one_queue_is_stored_nowhere"
        ],
    ),
    # --- cancelling ---
    Mutant(
        "an outcome minds that its job was cancelled",
        "operations/finish.py",
        "    if any(outcome.flags & CANCELLED_FLAG for outcome in held.values()):",
        "    if False:",
        ["test_cancel.py::test_a_cancelled_run_that_fails_is_cancelled"],
    ),
    Mutant(
        "a cancelled job whose children do not let it complete is cancelled",
        "operations/finish.py",
        "    if any(outcome.flags & CANCELLED_FLAG for outcome in refused):",
        "    if False:",
        ["test_cancel.py"],
    ),
    Mutant(
        "a cancelled job that would have been tried again goes if it is not to be kept",
        "operations/finish.py",
        "            retention=keeps.get(job, outcome.retention),\n",
        "",
        ["test_cancel.py::test_so_is_one_that_was_cancelled_while_it_ran"],
    ),
    Mutant(
        "an outcome on a cancelled job that is sent again is recognised",
        "operations/finish.py",
        "        return row.state == State.FAILED\n",
        "        return row.state == outcome.move.target\n",
        ["test_cancel.py"],
    ),
    Mutant(
        "a cancelled job that its worker gives up ends",
        "operations/finish.py",
        "    if move in (RELEASE, RETURN_UNSTARTED, DELAY):\n",
        "    if False:\n",
        ["test_cancel.py::test_a_cancelled_job_that_its_worker_gives_up_ends_at_once"],
    ),
    Mutant(
        "a cancelled job is no dead letter, and nobody is told of it",
        "operations/finish.py",
        "            deserving = [v for v in outcomes if v.outcome != CANCELLED]",
        "            deserving = list(outcomes)",
        ["test_cancel.py"],
    ),
    Mutant(
        "a cancelled job whose worker dies is not run again",
        "operations/workers.py",
        "        yield from end_cancelled(tx, cancelled)\n",
        "        pass\n",
        ["test_cancel.py::test_a_cancelled_job_whose_worker_dies_is_cancelled"],
    ),
    Mutant(
        "a cancelled job does not wait for its children",
        "operations/children.py",
        "    if row.flags & CANCELLED:\n",
        "    if False:\n",
        ["test_cancel.py"],
    ),
    # --- finding ---
    Mutant(
        "tags go along with a dead letter",
        "operations/transitions.py",
        '    yield "move_tags", {"jobs": as_json(jobs), "target": target}\n',
        "",
        ["client/test_finding.py::test_a_dead_letter_is_found_by_its_tag_where_it_is"],
    ),
    Mutant(
        "tags go with their job",
        "operations/transitions.py",
        '    (TAGGED, "delete_tags"),\n',
        "",
        ["client/test_finding.py::test_what_is_deleted_leaves_no_tags"],
    ),
    Mutant(
        "the jobs of schedulers have what belongs to their options",
        "operations/scheduler_ticks.py",
        "SCHEDULED | flags_of(options)",
        "SCHEDULED",
        ["client/test_finding.py::test_the_jobs_of_a_scheduler_have_its_tags"],
    ),
    # --- measuring ---
    Mutant(
        "minutes of several processes add up",
        "operations/metrics.py",
        "        before.merge(tally)\n        tally = before\n",
        "        pass\n",
        ["test_metrics.py::test_the_minutes_of_several_processes_add_up"],
    ),
    Mutant(
        "only who waited from the start tells how long",
        "operations/claim.py",
        " and abs(row[SEQ]) == row[ID]",
        "",
        ["test_metrics.py::test_who_did_not_wait_all_the_time_is_not_counted"],
    ),
    # --- dead letters ---
    Mutant(
        "the failure of a notice is told to nobody",
        "operations/after_failure.py",
        " if not outcome.flags & ON_FAILURE_JOB]",
        "]",
        ["test_failure_hooks.py::test_the_failure_of_a_notice_is_told_to_nobody"],
    ),
    Mutant(
        "what was cancelled is neither told nor a dead letter",
        "operations/finish.py",
        "[v for v in outcomes if v.outcome != CANCELLED]",
        "outcomes",
        ["test_failure_hooks.py::test_what_was_cancelled_is_not_told"],
    ),
    Mutant(
        "failed jobs are tried again so often and no more",
        "operations/after_failure.py",
        '            yield "count_auto_retries", {"jobs": as_json(moved)}\n',
        "",
        ["test_auto_retry.py::test_it_is_tried_again_so_often_and_no_more"],
    ),
    Mutant(
        "a dead letter whose id is taken is not tried in a loop",
        "operations/after_failure.py",
        "            if left:",
        "            if False:",
        ["test_auto_retry.py::test_one_whose_id_is_taken_there_stays_and_is_not_tried_in_a_loop"],
    ),
    Mutant(
        "what failed before is tried again, too",
        "operations/queues.py",
        "            if _auto_retry(new) != _auto_retry(old):",
        "            if False:",
        ["test_auto_retry.py::test_what_failed_before_it_was_settled_is_tried_again_too"],
    ),
    Mutant(
        "the queue in which a dead letter failed has the first say on its retries",
        "operations/queues.py",
        "    return there if own.retry_failed_after is None else own",
        "    return there",
        ["test_auto_retry.py::test_the_queue_it_came_from_has_the_first_say"],
    ),
    # --- values by name ---
    Mutant(
        "what a change raises is its caller's alone",
        "operations/key_values.py",
        "            replies.append(error)\n            continue\n",
        "            raise\n",
        [
            "client/test_catalogue.py::test_what_a_change_raises_reaches_who_asked_and_changes_nothing"
        ],
    ),
    # --- commands and their workers ---
    Mutant(
        "what a command says counts only while its job is held",
        "operations/command_output.py",
        " and (row.token, row.nonce) == (r.token, tx.nonce)",
        "",
        ["commands/test_jobs.py::test_what_a_command_says_after_its_job_was_lost_is_not_taken"],
    ),
    Mutant(
        "the pieces of what a command said go with its end",
        "operations/command_output.py",
        '            yield "clear_output", {"job": r.job, "run": r.run}\n',
        "            pass\n",
        [
            "commands/test_jobs.py::test_output_is_read_while_the_command_runs_and_its_pieces_go_with_its_end"
        ],
    ),
)
