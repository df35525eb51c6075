"""Check the arguments of `add` under the settings of a queue, and make jobs to insert of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.checks import check_size
from ...core.codec import encode
from ...core.dependency_options import DependencyOptions
from ...core.job_flags import DEDUPLICATED
from ...core.job_options import (
    PLAIN,
    CheckedOptions,
    JobOptions,
    LowerFirst,
    Priority,
    check_options,
    merge_options,
)
from ...core.names import check_name
from ...errors import InvalidOption
from ...operations.add import NO_RARE_FIELDS, NewJob, RareFields
from ...operations.queues import OpenedQueue
from .settings import check_defaults, read_defaults


class JobFactory:
    """Makes jobs to insert into one queue.

    An option that a job does not have is taken from `own_defaults`, else from the defaults that are
    stored for the queue, else it is the library's.
    """

    def __init__(
        self, queue: str, priority_order: str | None, own_defaults: JobOptions | None
    ) -> None:
        check_defaults(own_defaults)
        self._queue = queue
        self._order = priority_order or "low"
        self._own_defaults = dict(own_defaults or {})
        self._is_loaded = False
        self._checked_name = queue
        """The last name that was checked: many jobs in a row may share one."""
        self.same_database: Callable[[str], bool] | None = None
        """Returns True if the queue of a name is in the same database; None if all are."""
        self._use_defaults(self._own_defaults)

    def load(self, opened: OpenedQueue) -> None:
        """Use the stored settings of the queue."""
        self._order = opened.priority_order
        self._is_loaded = True
        self._use_defaults(
            merge_options(read_defaults(opened.default_job_options), self._own_defaults)
        )

    def _use_defaults(self, defaults: Mapping[str, Any]) -> None:
        self.defaults = defaults
        self.plain = check_options(defaults)
        """The options of a job that gives none."""

    def check(self, options: Mapping[str, Any]) -> CheckedOptions:
        """Check the options of a job, the defaults included."""
        if not options:
            return self.plain
        checked = check_options(merge_options(self.defaults, options) if self.defaults else options)
        if self.same_database is not None:
            self.forbid_other_databases(options, checked.dependencies)
        return checked

    def new_job(
        self, name: str, data: Any, options: CheckedOptions, like: NewJob | None = None
    ) -> NewJob:
        """Make a job to insert; `like` is another job with the same options.

        Until the settings are loaded, the job may still change by them: its size is not checked.
        """
        if name is not self._checked_name:
            self._checked_name = check_name("the job's name", name)
        text = encode(data, "the data of job ", name)
        if len(text) * 4 > options.size_limit and self._is_loaded:
            check_size(name, text, options.size_limit)
        if options is PLAIN:
            # Made without its constructor, which would be a good part of adding such a job.
            return tuple.__new__(NewJob, (name, None, 0, 0, 0, 0, 1, text, None, None))
        if like is not None:
            return tuple.__new__(
                NewJob,
                (name, like.custom_id, like.rank, like.priority, like.lifo, like.delay,
                 like.attempts, text, like.opts, like.rare_fields),
            )  # fmt: skip
        priority = self._number_of(options.priority)
        return NewJob(
            name,
            options.job_id,
            priority if self._order == "low" else -priority,
            priority,
            int(options.lifo),
            options.delay,
            options.attempts,
            text,
            options.stored,
            _rare_fields_of(options),
        )

    def _number_of(self, priority: int | Priority | LowerFirst) -> int:
        """Return a priority as a number of this queue's order."""
        return priority if isinstance(priority, int) else priority.number(self._order)

    def forbid_other_databases(
        self, options: Mapping[str, Any], links: DependencyOptions | None
    ) -> None:
        """Raise InvalidOption if checked options name a queue in another database."""
        if options.get("on_failure") is not None:
            self.forbid_other_database("on_failure", options["on_failure"]["queue"])
        if links is not None:
            if links.parent is not None:
                self.forbid_other_database("parent", links.parent.queue)
            for other in links.depends_on:
                self.forbid_other_database("depends_on", other.queue)

    def forbid_other_database(self, option: str, name: str | None) -> None:
        """Raise InvalidOption if an option names a queue in another database."""
        if name is not None and self.same_database is not None and not self.same_database(name):
            raise InvalidOption(
                f"{option}: queue {name!r} is in another file than {self._queue!r}, and jobs that "
                "belong together must be in one database: leave one of them out of files="
            )


def _rare_fields_of(options: CheckedOptions) -> RareFields | None:
    """Return the fields that few jobs have; None if this one has none."""
    fields = RareFields(
        options.timestamp,
        options.run_at,
        options.expires,
        flags=options.flags | (DEDUPLICATED if options.deduplication else 0),
        deduplication=options.deduplication,
    )
    return None if fields == NO_RARE_FIELDS else fields
