"""Guards of `worker`: workers."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # --- who is dead ---
    Mutant(
        "what was fetched ahead and taken away is not begun",
        "worker/pool.py",
        "for job in runner.remove(pks):",
        "for job in runner.remove(()):",
        ["worker/test_jobs_taken_away.py::test_a_prefetched_job_that_is_lost_does_not_start"],
    ),
    Mutant(
        "a job that its own run has moved was not taken away",
        "worker/pool.py",
        " for job in self._claimed() if job._run.moving is None\n",
        " for job in self._claimed()\n",
        ["worker/test_jobs_taken_away.py::test_a_job_that_its_own_run_has_moved_is_not_reported"],
    ),
    # --- PostgreSQL ---
    Mutant(
        "what was handed over to begin is not given back behind a slow job",
        "worker/prefetch.py",
        "while self._jobs[-1]._run.prefetched:",
        "while True:",
        [
            "worker/test_fetching_quick_jobs_ahead.py"
            "::test_a_job_claimed_for_a_free_slot_is_not_returned_behind_a_slow_job"
        ],
    ),
    # --- cancelling ---
    Mutant(
        "a consumer outlives the job that is cancelled",
        "worker/loop_runner.py",
        "        return task.uncancel() == 0\n",
        "        return False\n",
        ["worker/test_cancelling.py"],
    ),
    Mutant(
        "a run that returned although it was cancelled leaves its consumer as it was",
        "worker/loop_runner.py",
        "                if self._cancelled:\n",
        "                if False:\n",
        ["worker/test_cancelling.py"],
    ),
    Mutant(
        "a run with a timeout that returns although it was cancelled has completed",
        "worker/loop_runner.py",
        "            if in_time and job in self._cancelled and not run.cancelled():",
        "            if False:",
        ["worker/test_cancelling.py"],
    ),
    Mutant(
        "a run that is cancelled while it moves its job ends",
        "worker/loop_runner.py",
        "                if _consumer_is_cancelled():\n                    raise\n",
        "                raise\n",
        ["worker/test_cancelling.py"],
    ),
    Mutant(
        "a job is told once that it is cancelled",
        "worker/loop_runner.py",
        "        if consumer is not None and job not in self._cancelled:",
        "        if consumer is not None:",
        ["unit/test_cancelled_runs.py"],
    ),
    Mutant(
        "no thread sleeps while jobs are taken out of its line",
        "worker/thread_runner.py",
        "        with self._counting:  # a thread that found the buffer empty would sleep, "
        "unwoken\n",
        "        if True:\n",
        ["unit/test_cancelled_runs.py"],
    ),
    # --- commands and their workers ---
    Mutant(
        "a processor that raises GeneratorExit does not end its consumer",
        "worker/loop_runner.py",
        "GeneratorExit) and not _is_current(this_consumer):",
        "GeneratorExit):",
        [
            "worker/test_failing_jobs.py::test_a_job_that_fails_in_an_unusual_way_costs_the_worker_nothing"
        ],
    ),
    Mutant(
        "a consumer whose loop is gone is thrown away",
        "worker/loop_runner.py",
        "GeneratorExit) and not _is_current(this_consumer):",
        "GeneratorExit) and False:",
        ["unit/test_consumers.py"],
    ),
    Mutant(
        "what is in no hurry is settled when its worker would be unloaded",
        "worker/thread_runner.py",
        "if prefetched > 0 and (",
        "if len(self._buffer) > 0 and (",
        ["unit/test_threads.py"],
    ),
)
