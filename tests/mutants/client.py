"""Guards of `client`: what producers and operators hold."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # --- finding ---
    Mutant(
        "pages go on from places in front of the line",
        "client/queue/search.py",
        "(?::-?[0-9]{1,19}){2}",
        "(?::[0-9]{1,19}){2}",
        ["client/test_finding.py::test_pages_go_through_everything_once"],
    ),
    Mutant(
        "what is removed is not found",
        "client/queue/search.py",
        "job.state != State.REMOVED",
        "True",
        ["client/test_finding.py::test_a_removed_job_is_not_found_until_it_is_restored"],
    ),
    Mutant(
        "the jobs of a queue that is not paused are not all paused",
        "client/queue/reads.py",
        "        lists = None if state is None else tuple(await self._lists(meant))\n",
        "        lists = tuple(await self._lists(meant)) or None\n",
        ["client/test_finding.py::test_the_jobs_of_a_queue_that_is_not_paused_are_not_paused"],
    ),
    # --- dead letters ---
    Mutant(
        "a worker that is not heard of serves nobody",
        "client/directory.py",
        "engine.clock.now() - last_seen > max(WORKER_LOST_AFTER, lease)",
        "False",
        ["client/test_why.py::test_a_worker_that_is_not_heard_of_serves_nobody"],
    ),
    Mutant(
        "that a worker was killed is known at once where the kernel tells",
        "client/directory.py",
        "    if engine.driver.is_dead(nonce, boot):",
        "    if False:",
        ["cli/test_why.py::test_that_workers_were_killed_is_known_at_once"],
    ),
    # --- commands and their workers ---
    Mutant(
        "a verdict knows that its run was a command",
        "client/job/running_job.py",
        "        self._add_flags(COMMAND)\n",
        "",
        ["commands/test_jobs.py::test_what_a_command_came_to_is_recorded_at_the_first_try"],
    ),
    # --- applications and tasks ---
    Mutant(
        "what is wrong with a job is told before its queue is made",
        "client/queue/base.py",
        "            if first is not None:\n",
        "            if False:\n",
        [
            "client/test_adding_through_queue.py::test_a_refused_job_makes_neither_queue_nor_database"
        ],
    ),
)
