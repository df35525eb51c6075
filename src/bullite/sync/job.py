"""A job, as users without an event loop hold it.

Made by `python -m tools.make_sync` from the asynchronous classes: change those, and run it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from ..client.job.job import Job as AsyncJob
from ..client.runtime.blocking import run_blocking
from .base import Blocking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime
    from typing import Any

    from ..client.job.abort_signal import Signal
    from ..client.job.dependencies import Page
    from ..client.job.job import Attempt
    from ..client.job.steps import Step, T
    from ..core.checks import Duration, Moment
    from ..core.dependency_options import ParentRef
    from ..core.job_options import KeepJobs, Priority


class Job(Blocking[AsyncJob]):
    """One job of a queue.

    Attributes tell what was true when the job was last read; `queue.get_job(job.id)` reads again.
    Methods block until what they ask for is done. Those that change a running job are fenced: once
    the job is lost to another worker they raise LostLock and change nothing.
    """

    __slots__ = ()

    @property
    def lock_expires_at(self) -> datetime | None:
        """Until when it is its worker's, if that is not heard of again."""
        return self._async.lock_expires_at

    def get_attempts(self) -> list[Attempt]:
        """The history of its runs, oldest first, the present one included."""
        return run_blocking(self._blocking.get_attempts())

    def get_state(self) -> str:
        """Where the job is now; `unknown` if it does not exist."""
        return run_blocking(self._blocking.get_state())

    def is_waiting(self) -> bool:
        return run_blocking(self._blocking.is_waiting())

    def is_prioritized(self) -> bool:
        return run_blocking(self._blocking.is_prioritized())

    def is_delayed(self) -> bool:
        return run_blocking(self._blocking.is_delayed())

    def is_active(self) -> bool:
        return run_blocking(self._blocking.is_active())

    def is_waiting_children(self) -> bool:
        return run_blocking(self._blocking.is_waiting_children())

    def is_completed(self) -> bool:
        return run_blocking(self._blocking.is_completed())

    def is_failed(self) -> bool:
        return run_blocking(self._blocking.is_failed())

    def update_progress(self, progress: Any) -> None:
        """Say how far this run is: any JSON value of at most 1 MiB, stored as given."""
        self._blocking.update_progress(progress).result()

    def update_data(self, data: Any) -> None:
        """Replace the job's data; a later attempt sees the new."""
        self._blocking.update_data(data).result()

    def log(self, message: str, level: str = "info") -> int:
        """Append a line to the job's log; how many lines it has now."""
        return self._blocking.log(message, level).result()

    def clear_logs(self, keep: int = 0) -> None:
        """Delete the job's log, but for the newest `keep` lines."""
        self._blocking.clear_logs(keep).result()

    def get_logs(self, start: int = 0, end: int = -1, asc: bool = True) -> dict[str, Any]:
        """Lines of the job's log, and how many there are: {"logs": [...], "count": n}."""
        return run_blocking(self._blocking.get_logs(start, end, asc))

    def promote(self) -> None:
        """Let a delayed job wait in line now."""
        self._blocking.promote().result()

    def retry(
        self, state: str = "failed", *, delay: Duration = 0, reset_attempts: bool = False
    ) -> None:
        """Let a failed job, or with `state="completed"` a completed one, run once more.

        It keeps the attempts it made, so it gets one run, unless `reset_attempts`.
        """
        self._blocking.retry(state, delay=delay, reset_attempts=reset_attempts).result()

    def remove(self, remove_children: bool = True) -> None:
        """Take the job out, and all its descendants; `queue.restore` brings them back for a while.

        Not while it, or one of them, runs: then JobLocked, and nothing is taken out.
        """
        self._blocking.remove(remove_children).result()

    def change_delay(self, delay: Duration) -> None:
        """Let a delayed job be due `delay` from now."""
        self._blocking.change_delay(delay).result()

    def change_priority(self, priority: int | Priority | None = None, lifo: bool = False) -> None:
        """Give the job another priority; one that waits goes to the end of its new line, or with
        `lifo` to the front.
        """
        self._blocking.change_priority(priority, lifo).result()

    def remove_deduplication_key(self) -> bool:
        """Free the job's deduplication key, if it holds it; whether it did."""
        return self._blocking.remove_deduplication_key().result()

    @property
    def token(self) -> str | None:
        """What proves that this run holds the job; None outside one."""
        return self._async.token

    @property
    def signal(self) -> Signal:
        """Tells this run that it should stop; made when first asked for."""
        return self._async.signal

    def move_to_completed(
        self,
        value: Any = None,
        token: str | None = None,
        remove_on_complete: bool | int | KeepJobs | None = None,
    ) -> None:
        """End this run: the job is completed with `value`."""
        self._blocking.move_to_completed(value, token, remove_on_complete).result()

    def move_to_failed(
        self,
        error: BaseException | str,
        token: str | None = None,
        retry: bool = True,
        remove_on_fail: bool | int | KeepJobs | None = None,
    ) -> None:
        """End this run: it failed. Attempts that are left are used, unless `retry=False`."""
        self._blocking.move_to_failed(error, token, retry, remove_on_fail).result()

    def move_to_delayed(self, until: Moment, token: str | None = None) -> None:
        """End this run: the job runs again at `until`. In a processor, raise DelayedError next.

        Costs no attempt.
        """
        self._blocking.move_to_delayed(until, token).result()

    def move_to_waiting(self, token: str | None = None) -> int:
        """End this run: the job goes back to the front. In a processor, raise WaitingError next.

        Costs no attempt. Ms for which a rate limit of the queue lets nothing begin.
        """
        return self._blocking.move_to_waiting(token).result()

    move_to_wait = move_to_waiting

    def extend_lock(self, duration: Duration, token: str | None = None) -> None:
        """Keep the job for `duration` from now, even if nothing is heard of its worker."""
        self._blocking.extend_lock(duration, token).result()

    def result(self, timeout: Duration | None = None) -> Any:
        """Wait until the job is finished; its return value, or JobFailed with its reason.

        Raises TimeoutError after `timeout`, JobNotFound if the job is gone and the event log no
        longer tells how it ended.
        """
        return run_blocking(self._blocking.result(timeout))

    wait_until_finished = result

    def __repr__(self) -> str:
        return repr(self._async)

    @property
    def pk(self) -> int:
        """The primary key of the job, unique in the database."""
        return self._async.pk

    @property
    def id(self) -> str:
        """The custom id, or the primary key as text."""
        return self._async.id

    @property
    def custom_id(self) -> str | None:
        """The option `job_id`; None without one."""
        return self._async.custom_id

    @property
    def name(self) -> str:
        return self._async.name

    @property
    def queue_name(self) -> str:
        return self._async.queue_name

    @property
    def original_queue(self) -> str | None:
        """The queue in which the job failed, if it is in a dead-letter queue; else None."""
        return self._async.original_queue

    @property
    def data(self) -> Any:
        """The data of the job; parsed at first use."""
        return self._async.data

    @property
    def priority(self) -> int:
        return self._async.priority

    @property
    def attempts(self) -> int:
        """The largest number of runs."""
        return self._async.attempts

    @property
    def delay(self) -> int:
        """Ms that the job has to wait, or had to before its last run; 0 once it was due."""
        return self._async.delay

    @property
    def lifo(self) -> bool:
        return self._async.lifo

    @property
    def tags(self) -> tuple[str, ...]:
        return self._async.tags

    @property
    def timeout(self) -> int | None:
        """Ms that one run may take."""
        return self._async.timeout

    @property
    def limit_key(self) -> str | None:
        """The key whose rate limit counts the job."""
        return self._async.limit_key

    @property
    def opts(self) -> dict[str, Any]:
        """The options the job was added with; durations in ms."""
        return self._async.opts

    @property
    def repeat_job_key(self) -> str | None:
        """The id of the job scheduler that made the job; None without one."""
        return self._async.repeat_job_key

    @property
    def deduplication_id(self) -> str | None:
        """The deduplication key of the job, even if it no longer holds it."""
        return self._async.deduplication_id

    @property
    def state(self) -> str:
        """The state as last read; `prioritized` is waiting with a priority."""
        return self._async.state

    @property
    def outcome(self) -> str | None:
        """How a finished job ended: `completed`, `error`, `timed-out`, `expired`, `stalled`,
        `cancelled`; None until then.
        """
        return self._async.outcome

    @property
    def attempts_made(self) -> int:
        """Number of runs that completed or failed."""
        return self._async.attempts_made

    @property
    def attempts_started(self) -> int:
        """Number of runs that were started."""
        return self._async.attempts_started

    @property
    def stalled_count(self) -> int:
        """Number of runs that were lost with their worker."""
        return self._async.stalled_count

    stalled_counter = stalled_count

    @property
    def deferred_failure(self) -> str | None:
        """The reason for which the job fails at its next claim instead of running; else None."""
        return self._async.deferred_failure

    @property
    def progress(self) -> Any:
        """The last reported value; at first 0; 100 if the job completed and reported numbers."""
        return self._async.progress

    @property
    def return_value(self) -> Any:
        return self._async.return_value

    returnvalue = return_value

    @property
    def failed_reason(self) -> str | None:
        """The error of the last failed attempt."""
        return self._async.failed_reason

    @property
    def stacktrace(self) -> list[str]:
        """The stacks of the failed attempts, oldest first."""
        return self._async.stacktrace

    @property
    def stack(self) -> str | None:
        """The stack of the last failed attempt."""
        return self._async.stack

    @property
    def processed_by(self) -> str | None:
        """The name of the worker that ran the job last."""
        return self._async.processed_by

    @property
    def locked_by(self) -> str | None:
        """The name of the worker that runs the job; None if none does."""
        return self._async.locked_by

    @property
    def created_at(self) -> datetime:
        return self._async.created_at

    @property
    def timestamp(self) -> int:
        """When the job was created, in ms since the epoch."""
        return self._async.timestamp

    @property
    def updated_at(self) -> datetime:
        return self._async.updated_at

    @property
    def process_at(self) -> datetime | None:
        """When a delayed job is due."""
        return self._async.process_at

    @property
    def expires_at(self) -> datetime | None:
        """When the job fails unless it has started; None without `expires`."""
        return self._async.expires_at

    @property
    def processed_at(self) -> datetime | None:
        """When the job was last claimed."""
        return self._async.processed_at

    @property
    def processed_on(self) -> int | None:
        """The same, in ms since the epoch."""
        return self._async.processed_on

    @property
    def finished_at(self) -> datetime | None:
        return self._async.finished_at

    @property
    def finished_on(self) -> int | None:
        """The same, in ms since the epoch."""
        return self._async.finished_on

    @property
    def parent(self) -> ParentRef | None:
        """The job that waits for this one, by id and queue."""
        return self._async.parent

    @property
    def parent_id(self) -> str | None:
        return self._async.parent_id

    @property
    def parent_key(self) -> str | None:
        """Its parent as one text, as keys of children are."""
        return self._async.parent_key

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The ids of the jobs that this one waits for, or waited for, beside its children."""
        return self._async.depends_on

    def remove_child_dependency(self) -> bool:
        """Belong to nobody from now on: its parent waits for it no more. Return True.

        Raise NotAChild if it has no parent, or its parent has let go of it; JobNotFound if the job
        is gone.
        """
        return self._blocking.remove_child_dependency().result()

    def move_to_waiting_children(self, token: str | None = None, *, child: Any = None) -> bool:
        """End this run if the job has children that have not ended: it runs again when they have.

        True if it has to wait: in a processor, raise WaitingChildrenError next. False if there is
        nothing to wait for. With `child`, only that one counts. Raises ChildFailed if a child
        failed that was to fail its parent with it. Costs no attempt.
        """
        return self._blocking.move_to_waiting_children(token, child=child).result()

    def get_children_values(self) -> dict[str, Any]:
        """What the children that completed returned, by their keys, `queue:id`."""
        return run_blocking(self._blocking.get_children_values())

    def get_dependency_values(self) -> dict[str, Any]:
        """The same of the jobs it depends on."""
        return run_blocking(self._blocking.get_dependency_values())

    def get_ignored_children_failures(self) -> dict[str, str]:
        """Why children failed that did not keep it from running, by their keys."""
        return run_blocking(self._blocking.get_ignored_children_failures())

    get_failed_children_values = get_ignored_children_failures

    def get_dependencies(
        self,
        *,
        processed: Page | bool | None = None,
        unprocessed: Page | bool | None = None,
        ignored: Page | bool | None = None,
        failed: Page | bool | None = None,
    ) -> dict[str, Any]:
        """Its children by what became of them: `processed` with their values and `ignored` with
        their failures by key, `unprocessed` and `failed` as lists of keys.

        All four, or those asked for: True, or a page `{"cursor": 0, "count": 20}`. The answer to
        a page has `next_<kind>_cursor`, 0 at the end.
        """
        return run_blocking(
            self._blocking.get_dependencies(
                processed=processed, unprocessed=unprocessed, ignored=ignored, failed=failed
            )
        )

    def get_dependencies_count(
        self,
        *,
        processed: bool | None = None,
        unprocessed: bool | None = None,
        ignored: bool | None = None,
        failed: bool | None = None,
    ) -> dict[str, int]:
        """How many of its children there are of each kind: of all four, or of those asked for."""
        return run_blocking(
            self._blocking.get_dependencies_count(
                processed=processed, unprocessed=unprocessed, ignored=ignored, failed=failed
            )
        )

    def remove_unprocessed_children(self) -> int:
        """Take out those of its descendants that nobody has begun; how many."""
        return self._blocking.remove_unprocessed_children().result()

    @overload
    def step(
        self, name: str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T: ...

    @overload
    def step(self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...

    def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` once in the life of the job: a later run gets what it gave then.

        What it gives must be JSON, and comes back as that; it is on the disk before it does. A step
        that raises is not remembered. The same name in one run is the same step.
        """
        return self._blocking.step(name, function, *args, **kwargs).result()

    def sleep(self, duration: Duration, *, name: str | None = None) -> None:
        """End this run; the next one, `duration` from now, goes on from here. Costs no attempt.

        A run knows its sleeps by their order, or by their order among those of one `name`: each is
        slept through once. Meanwhile the job is delayed.
        """
        self._blocking.sleep(duration, name=name).result()

    def wait_event(self, name: str, timeout: Duration | None = None) -> Any:
        """End this run until somebody sends the job this event; what the event brought.

        An event that was sent before is taken at once, each by one wait. EventTimedOut if none
        comes within `timeout`. Meanwhile the job is delayed; it costs no attempt.
        """
        return self._blocking.wait_event(name, timeout).result()

    def send_event(self, name: str, payload: Any = None) -> bool:
        """Send the job an event; whether it was waiting for it. If not, it is kept until it does.

        IllegalMove if the job is finished.
        """
        return self._blocking.send_event(name, payload).result()

    def get_steps(self) -> list[Step]:
        """What its runs have done and need not do again, in the order in which it was begun."""
        return self._blocking.get_steps().result()
