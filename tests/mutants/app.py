"""Guards of `app`: applications and tasks."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
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
        "app/registry.py",
        "        if processors.everything is not None or name in processors.by_name:",
        "        if processors.everything is not None:",
        ["app/test_tasks.py::test_two_tasks_of_one_name_are_refused"],
    ),
    Mutant(
        "options of one enqueueing beat those that say the same in another way",
        "app/task.py",
        "        return merge_options(self._task._job_options, self._given)",
        "        return {**self._task._job_options, **self._given}",
        ["app/test_tasks.py::test_options_that_say_the_same_in_another_way_beat_those_of_the_task"],
    ),
    Mutant(
        "a job of newer code is parked",
        "app/task.py",
        "        return _version_of(job) > self._version",
        "        return False",
        ["app/test_versions.py::test_a_job_of_a_newer_version_is_parked_and_not_failed"],
    ),
    Mutant(
        "upcasters change a copy of what a job holds",
        "app/task.py",
        "copy.deepcopy(data)",
        "data",
        [
            "app/test_versions.py::test_upcaster_that_changes_its_data_does_not_change_the_data_of_the_job"
        ],
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
        "app/schedule.py",
        "task.name if self._number == 1 else",
        "task.name if True else",
        ["app/test_schedules.py::test_a_task_may_have_several_schedules"],
    ),
    Mutant(
        "a schedule of somebody else is left alone",
        "app/registry.py",
        "is_own = stored.name in names and is_schedule_id(stored.id, stored.name)",
        "is_own = stored.name in names",
        ["app/test_schedules.py::test_a_schedule_that_was_made_by_hand_is_left_alone"],
    ),
    Mutant(
        "no store is closed under a worker",
        "app/lifecycle.py",
        "            while not stopping.done():\n",
        "            while False:\n",
        [
            "app/test_lifecycle.py::test_a_stop_that_is_cancelled_gives_back_what_runs_before_it_ends"
        ],
    ),
    Mutant(
        "jobs that belong together are in one database",
        "app/queues.py",
        "            if self._files:\n",
        "            if False:\n",
        ["app/test_lifecycle.py::test_jobs_of_two_files_cannot_belong_together"],
    ),
    Mutant(
        "one start at a time",
        "app/lifecycle.py",
        "            if self.is_running:\n                return\n            self._workers",
        "            self._workers",
        ["app/test_lifecycle.py::test_starting_twice_starts_once"],
    ),
    Mutant(
        "a forked child stops no workers of its parent",
        "app/lifecycle.py",
        "        workers = self._workers if self.is_running else []",
        "        workers = self._workers",
        ["app/test_lifecycle.py::test_a_forked_child_starts_its_own"],
    ),
    Mutant(
        "a store that was given is left open",
        "app/queues.py",
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
        "what is logged for a job that has ended troubles nobody",
        "app/job_logging.py",
        ".ignore_result()",
        "",
        ["app/test_logs.py::test_what_is_logged_after_the_job_has_ended_troubles_nobody"],
    ),
)
