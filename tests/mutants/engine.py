"""Guards of `engine`: the engine."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # --- what is on the disk ---
    Mutant(
        "what was asked for is on the disk before it is answered",
        "engine/transaction_runner.py",
        "            self._driver.sync()\n",
        "            pass\n",
        ["database/sqlite/test_wal_sync.py"],
    ),
    Mutant(
        "an engine that read what cannot be synced ends",
        "engine/read_thread.py",
        "                if isinstance(error, ENDING):\n",
        "                if False:\n",
        ["database/sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "a failed sync of a checkpoint ends the engine",
        "engine/failures.py",
        "        if isinstance(error, ENDING):\n            log.error",
        "        if False:\n            log.error",
        ["database/sqlite/test_failed_syncs.py"],
    ),
    Mutant(
        "a result is on the disk before it is told",
        "engine/result_waiters.py",
        "                self._driver.sync()",
        "                pass",
        ["database/sqlite/test_wal_sync.py"],
    ),
    Mutant(
        "a producer hears of its job before it begins",
        "engine/transaction_runner.py",
        " and not any(r.reply_before_claims for r in requests)",
        "",
        ["database/sqlite/test_wal_sync.py"],
    ),
    # --- fetching ahead ---
    Mutant(
        "what was fetched behind a job that takes long is given back",
        "engine/engine.py",
        "        self._dispatcher.return_stuck_prefetched()\n",
        "",
        ["test_prefetch.py"],
    ),
    # --- lost locks ---
    Mutant(
        "requests run alone are run with care",
        "engine/batch_runner.py",
        "self._run_with_retries([pending], verify_first=True)",
        "self._run_with_retries([pending])",
        ["test_batches.py::test_a_lost_verdict_does_not_harm_the_others_of_its_batch"],
    ),
    Mutant(
        "every claim has a token of its own",
        "engine/dispatcher.py",
        "self._last_token += 1\n                [claimed]",
        "self._last_token = 1\n                [claimed]",
        [
            "test_claim.py::test_over_a_thousand_claims_no_token_comes_twice_and_no_stale_one"
            "_is_accepted"
        ],
    ),
    # --- who is dead ---
    Mutant(
        "the dead are recovered in the order they came",
        "engine/maintenance.py",
        "sorted((WorkerRow(*row) for row in rows), key=lambda worker: worker.id)",
        "[WorkerRow(*row) for row in rows]",
        [
            "test_workers.py::test_the_dead_are_recovered_in_the_order_they_came_however_the_database_keeps_them"
        ],
    ),
    Mutant(
        "the lease of a living worker does not count",
        "engine/maintenance.py",
        " and not self.driver.is_alive_despite_lease(worker)",
        "",
        [
            "database/sqlite/test_recovering_on_one_machine.py"
            "::test_an_expired_lease_is_no_stall_while_its_worker_is_registered_and_alive"
        ],
    ),
    # --- editing ---
    Mutant(
        "lines of one batch are written together",
        "engine/batching.py",
        ">= place + request.keeps_order for",
        ">= place for",
        ["test_batches.py::test_requests_that_keep_their_order_share_a_group_even_for_one_job"],
    ),
    # --- the gates of a queue ---
    Mutant(
        "what was fetched ahead of a pause is given back",
        "engine/dispatcher.py",
        "if claimed.paused or (",
        "if False or (",
        [
            "test_queue_settings.py::test_prefetched_jobs_are_returned_when_a_claim_finds_a_pause_of_another_process"
        ],
    ),
    # --- leases that nobody renews, workers by hand ---
    Mutant(
        "the limit of stalls is the successor's",
        "engine/dispatcher.py",
        "min(limits, default=lost.max_stalled_count)",
        "lost.max_stalled_count",
        ["test_workers.py::test_the_limit_is_that_of_the_worker_which_takes_its_place"],
    ),
    Mutant(
        "a worker by hand gets one job for each time it is asked",
        "engine/subscription.py",
        "self.concurrency -= jobs",
        "pass",
        ["test_manual_workers.py::test_it_is_given_one_job_for_each_time_it_is_asked"],
    ),
    Mutant(
        "a manual claim gets nothing while the subscription is paused",
        "engine/subscriptions.py",
        "if subscription.paused",
        "if False and subscription.paused",
        [
            "test_manual_workers.py::test_manual_claim_returns_nothing_until_the_subscription_is_resumed"
        ],
    ),
    Mutant(
        "who stops waiting twice owes nothing",
        "engine/subscriptions.py",
        "max(0, subscription.concurrency + more)",
        "subscription.concurrency + more",
        ["test_manual_workers.py::test_to_stop_waiting_twice_does_no_harm"],
    ),
    # --- those who wait and those who follow ---
    Mutant(
        "a lost verdict ends nobody's wait",
        "engine/result_waiters.py",
        "if outcome.job not in result.lost and ",
        "if ",
        ["test_result_waiters.py::test_a_verdict_that_was_lost_ends_nobodys_wait"],
    ),
    Mutant(
        "the event log is read once for all jobs that are gone",
        "engine/result_waiters.py",
        "        if not self._deleted or self._looked_up:\n",
        "        if not self._deleted:\n",
        ["test_result_waiters.py::test_the_event_log_is_not_read_again_before_it_has_been_read"],
    ),
    Mutant(
        "a follower hears only of its queue",
        "engine/followers.py",
        "if entry.queue == queue and (",
        "if (",
        ["test_local_events.py::test_a_follower_hears_only_of_its_queue"],
    ),
    Mutant(
        "a follower hears only what it wants",
        "engine/followers.py",
        " and (kinds is None or entry.kind in kinds)",
        "",
        ["test_local_events.py::test_a_follower_may_want_some_kinds_only"],
    ),
    Mutant(
        "a caretaker has the chores done",
        "engine/maintenance_runner.py",
        "return bool(self._dispatcher) or self._users > 0",
        "return bool(self._dispatcher)",
        ["test_local_events.py::test_a_caretaker_has_the_chores_done_without_a_worker"],
    ),
    # --- batches ---
    Mutant(
        "one durable request makes its batch durable",
        "engine/transaction_runner.py",
        "self._begin(any(",
        "self._begin(all(",
        ["test_claim.py::test_one_durable_request_makes_its_whole_batch_durable"],
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
        ["test_add.py::test_a_custom_id_freed_earlier_in_the_same_batch_can_be_taken"],
    ),
    Mutant(
        "a full disk is not tried again",
        "engine/batch_runner.py",
        "        except StoreError as error:\n            self._failures.fail(batch, error)\n      "
        "  except Exception",
        "        except Exception",
        ["test_batches.py::test_when_the_disk_is_full_the_whole_batch_fails_once"],
    ),
    # --- PostgreSQL ---
    Mutant(
        "housekeeping shares no transaction with claims",
        "engine/maintenance_runner.py",
        "self._transactions.run([task.pending], claims_jobs=False)",
        "self._transactions.run([task.pending])",
        ["test_maintenance.py"],
    ),
    Mutant(
        "who has locked jobs does not wait for a queue",
        "engine/lock_order.py",
        "if not self._holds or queue in locked:",
        "if True:",
        ["database/postgres/test_lock_order.py"],
    ),
    Mutant(
        "who has locked jobs does not wait for others",
        "engine/lock_order.py",
        "if not self._holds:\n            result",
        "if True:\n            result",
        ["database/postgres/test_lock_order.py"],
    ),
    Mutant(
        "deduplication keys are locked in one order",
        "engine/lock_order.py",
        "return self._group_of_keys not in (None, self._group)",
        "return False",
        ["database/postgres/test_lock_order.py"],
    ),
    Mutant(
        "the lease of a worker that comes later is renewed as often as it asks for",
        "engine/maintenance.py",
        "self._renew_at = min(self._renew_at, lease_now + ms)",
        "pass",
        ["test_workers.py::test_the_lease_of_a_newcomer_is_renewed_as_often_as_it_asks_for"],
    ),
    # --- cancelling ---
    Mutant(
        "who waits for a job hears at once that it is cancelled",
        "engine/result_waiters.py",
        "_MOVES = AwaitChildren | Cancel | ",
        "_MOVES = AwaitChildren | ",
        ["test_cancel.py"],
    ),
    # --- measuring ---
    Mutant(
        "an idle process writes nothing",
        "engine/metrics.py",
        " if self._written.get(worker) != text}",
        "}",
        ["test_metrics.py::test_nothing_is_written_while_nothing_happens"],
    ),
    Mutant(
        "a worker that leaves leaves its readings",
        "engine/subscriptions.py",
        "        last = self._write_metrics()",
        "        last = list[PendingRequest]()",
        ["test_metrics.py::test_a_worker_that_leaves_leaves_its_readings"],
    ),
    Mutant(
        "what was measured is written when the store is closed",
        "engine/engine.py",
        "call(lambda pending: self._write_metrics(), log_failure)",
        "call(lambda pending: None, log_failure)",
        ["client/test_metrics.py::test_what_was_measured_is_written_when_the_store_is_closed"],
    ),
    # --- commands and their workers ---
    Mutant(
        "the commands of a dead worker are ended before its jobs run again",
        "engine/maintenance.py",
        "        busy = self._commands.end(others, lost)\n",
        "        busy: set[int] = set()\n",
        [
            "crash/test_commands.py::test_the_commands_of_a_killed_worker_are_dead_before_their_job_runs_again"
        ],
    ),
    Mutant(
        "jobs wait until commands that may run have been looked for",
        "engine/orphaned_commands.py",
        "            return gone\n",
        "            return set()\n",
        ["crash/test_commands.py::test_commands_are_looked_for_beside_the_engine"],
    ),
    Mutant(
        "a look that began before a process was lost says nothing of it",
        "engine/orphaned_commands.py",
        " | (gone - look.lost)",
        "",
        [
            "crash/test_commands.py"
            "::test_who_is_lost_while_commands_are_looked_for_is_looked_for_again"
        ],
    ),
    Mutant(
        "a worker process that begins ends what dead ones left running",
        "engine/orphaned_commands.py",
        "(self._has_looked or not known)",
        "True",
        [
            "crash/test_commands.py::test_what_a_process_left_that_is_gone_is_ended_while_its_lease_lasts"
        ],
    ),
    Mutant(
        "what a command left behind when it ended lives on",
        "engine/orphaned_commands.py",
        "            if self._is_claimed(marker)\n",
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
        "a worker that wanted nothing when nothing was left looks again when it does",
        "engine/dispatcher.py",
        "subscription.needs_poll = not subscription.advertised_idle",
        "subscription.needs_poll = not claimed.exhausted",
        ["test_prefetch.py"],
    ),
    Mutant(
        "nobody holds more ahead than its share",
        "engine/subscription.py",
        "min(self.prefetched, self.fair_share)",
        "self.prefetched",
        ["test_prefetch.py"],
    ),
)
