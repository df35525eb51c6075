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
    from ..client.job.history import Attempt
    from ..client.job.steps import Step, T
    from ..core.checks import Duration, Moment
    from ..core.dependency_options import ParentRef
    from ..core.job_options import KeepJobs, Priority


class Job(Blocking[AsyncJob]):
    """One job of a queue.

    Attributes show what was true when the job was last read; `queue.get_job(job.id)` reads again.
    Methods block until they are carried out. Those that change a running job are fenced: once the
    job is lost to another worker they raise LostLock and change nothing.
    """

    __slots__ = ()

    def get_attempts(self) -> list[Attempt]:
        """Return the history of the job's runs, oldest first, with the present one."""
        return run_blocking(self._blocking.get_attempts())

    def get_state(self) -> str:
        """Return the state of the job now; `unknown` if it does not exist."""
        return run_blocking(self._blocking.get_state())

    def is_waiting(self) -> bool:
        """Read the job's state. Return True if it waits without a priority."""
        return run_blocking(self._blocking.is_waiting())

    def is_prioritized(self) -> bool:
        """Read the job's state. Return True if it waits with a priority."""
        return run_blocking(self._blocking.is_prioritized())

    def is_delayed(self) -> bool:
        """Read the job's state. Return True if it is delayed."""
        return run_blocking(self._blocking.is_delayed())

    def is_active(self) -> bool:
        """Read the job's state. Return True if it is active."""
        return run_blocking(self._blocking.is_active())

    def is_waiting_children(self) -> bool:
        """Read the job's state. Return True if it waits for other jobs."""
        return run_blocking(self._blocking.is_waiting_children())

    def is_completed(self) -> bool:
        """Read the job's state. Return True if it is completed."""
        return run_blocking(self._blocking.is_completed())

    def is_failed(self) -> bool:
        """Read the job's state. Return True if it is failed."""
        return run_blocking(self._blocking.is_failed())

    def update_progress(self, progress: Any) -> None:
        """Store the progress of the job: any JSON value of at most 1 MiB.

        Raise LostLock if this run no longer holds the job, JobNotFound if the job is gone.
        """
        self._blocking.update_progress(progress).result()

    def update_data(self, data: Any) -> None:
        """Replace the job's data; the next attempt gets the new data."""
        self._blocking.update_data(data).result()

    def log(self, message: str, level: str = "info") -> int:
        """Append a line to the job's log. Return the number of lines that the log has now."""
        return self._blocking.log(message, level).result()

    def clear_logs(self, keep: int = 0) -> None:
        """Delete the job's log, except the newest `keep` lines."""
        self._blocking.clear_logs(keep).result()

    def get_logs(self, start: int = 0, end: int = -1, asc: bool = True) -> dict[str, Any]:
        """Return lines of the job's log and their number: {"logs": [...], "count": n}."""
        return run_blocking(self._blocking.get_logs(start, end, asc))

    def promote(self) -> None:
        """Move a delayed job to waiting, so that it runs now."""
        self._blocking.promote().result()

    def retry(
        self, state: str = "failed", *, delay: Duration = 0, reset_attempts: bool = False
    ) -> None:
        """Let a failed job, or with `state="completed"` a completed one, run again.

        It keeps the attempts it made, so it gets one run, unless `reset_attempts`.
        """
        self._blocking.retry(state, delay=delay, reset_attempts=reset_attempts).result()

    def remove(self, remove_children: bool = True) -> None:
        """Remove the job and all its descendants; `queue.restore` brings them back within
        `trash_age`.

        Raise JobLocked, and remove nothing, if one of them is active.
        """
        self._blocking.remove(remove_children).result()

    def change_delay(self, delay: Duration) -> None:
        """Let a delayed job be due `delay` from now."""
        self._blocking.change_delay(delay).result()

    def change_priority(self, priority: int | Priority | None = None, lifo: bool = False) -> None:
        """Change the job's priority. A waiting job goes behind those of the same priority, with
        `lifo` in front of them.
        """
        self._blocking.change_priority(priority, lifo).result()

    def remove_deduplication_key(self) -> bool:
        """Free the job's deduplication key. Return True if the job held it."""
        return self._blocking.remove_deduplication_key().result()

    def result(self, timeout: Duration | None = None) -> Any:
        """Wait until the job is finished. Return its return value.

        Raise JobFailed with its reason if it failed, TimeoutError after `timeout`, JobNotFound if
        the job is gone and the event log no longer has its end.
        """
        return run_blocking(self._blocking.result(timeout))

    wait_until_finished = result

    @property
    def token(self) -> str | None:
        """The claim token of this run as text; None outside a run."""
        return self._async.token

    @property
    def signal(self) -> Signal:
        """The abort signal of this run."""
        return self._async.signal

    @property
    def lock_expires_at(self) -> datetime | None:
        """When the lease of its worker ends, unless renewed; None if the job is not active."""
        return self._async.lock_expires_at

    def move_to_completed(
        self,
        value: Any = None,
        token: str | None = None,
        remove_on_complete: bool | int | KeepJobs | None = None,
    ) -> None:
        """End this run: the job is completed, with `value` as its return value.

        Raise LostLock if this run does not hold the job, IllegalMove if the job is not active.
        """
        self._blocking.move_to_completed(value, token, remove_on_complete).result()

    def move_to_failed(
        self,
        error: BaseException | str,
        token: str | None = None,
        retry: bool = True,
        remove_on_fail: bool | int | KeepJobs | None = None,
    ) -> None:
        """End this run: the attempt failed. The job is retried if attempts are left and `retry`.

        Raise LostLock if this run does not hold the job, IllegalMove if the job is not active.
        """
        self._blocking.move_to_failed(error, token, retry, remove_on_fail).result()

    def move_to_delayed(self, until: Moment, token: str | None = None) -> None:
        """End this run: the job runs again at `until`. In a processor, raise DelayedError next.

        Uses no attempt. Raise LostLock if this run does not hold the job, IllegalMove if the job
        is not active.
        """
        self._blocking.move_to_delayed(until, token).result()

    def move_to_waiting(self, token: str | None = None) -> int:
        """End this run: the job goes to the front of the queue. In a processor, raise WaitingError
        next. Return for how many ms a rate limit of the queue lets no job start.

        Uses no attempt. Raise LostLock if this run does not hold the job, IllegalMove if the job
        is not active.
        """
        return self._blocking.move_to_waiting(token).result()

    move_to_wait = move_to_waiting

    def extend_lock(self, duration: Duration, token: str | None = None) -> None:
        """Extend the lease: the job stays locked by its worker for `duration` from now, without
        a renewal.

        Raise LostLock if this run does not hold the job, IllegalMove if the job is not active.
        """
        self._blocking.extend_lock(duration, token).result()

    @property
    def parent(self) -> ParentRef | None:
        """Parent of the job as {"id", "queue"}; None if it has none."""
        return self._async.parent

    @property
    def parent_id(self) -> str | None:
        """Id of the parent; None if the job has none."""
        return self._async.parent_id

    @property
    def parent_key(self) -> str | None:
        """The parent as `queue:id`; None if the job has none."""
        return self._async.parent_key

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Ids of the jobs given as `depends_on`."""
        return self._async.depends_on

    def remove_child_dependency(self) -> bool:
        """Detach the job from its parent, which no longer waits for it. Return True.

        Raise NotAChild if the job has no parent, or was detached before; JobNotFound if the job is
        gone.
        """
        return self._blocking.remove_child_dependency().result()

    def move_to_waiting_children(self, token: str | None = None, *, child: Any = None) -> bool:
        """End this run if the job has unfinished children; it runs again after they have finished.

        Return True if the job waits: in a processor, raise WaitingChildrenError next. Return False
        if there is nothing to wait for. With `child`, only that child counts. Uses no attempt.
        Raise ChildFailed if a child failed whose failure fails its parent.
        """
        return self._blocking.move_to_waiting_children(token, child=child).result()

    def get_children_values(self) -> dict[str, Any]:
        """Return the return values of the completed children, by key `queue:id`."""
        return run_blocking(self._blocking.get_children_values())

    def get_dependency_values(self) -> dict[str, Any]:
        """Return the return values of the completed dependencies, by key `queue:id`."""
        return run_blocking(self._blocking.get_dependency_values())

    def get_ignored_children_failures(self) -> dict[str, str]:
        """Return the reasons of failed children that were ignored, by key `queue:id`."""
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
        """Return the children by kind: `processed` with return values and `ignored` with reasons,
        both by key; `unprocessed` and `failed` as lists of keys.

        Give True for each kind to read, or a page such as `{"cursor": 0, "count": 20}`; without
        any, all four are read. A page is returned with `next_<kind>_cursor`, 0 at the end.
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
        """Return the number of children of each kind, or of the kinds given as True."""
        return run_blocking(
            self._blocking.get_dependencies_count(
                processed=processed, unprocessed=unprocessed, ignored=ignored, failed=failed
            )
        )

    def remove_unprocessed_children(self) -> int:
        """Remove the descendants that have not started. Return their number."""
        return self._blocking.remove_unprocessed_children().result()

    @overload
    def step(
        self, name: str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T: ...

    @overload
    def step(self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...

    def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` and store its result; a later run gets the stored result instead.

        The result must be JSON. It is synced to disk before it is returned, as parsed from its
        JSON. A step that raises is not stored. Within a run, the same name is the same step.
        """
        return self._blocking.step(name, function, *args, **kwargs).result()

    def sleep(self, duration: Duration, *, name: str | None = None) -> None:
        """Suspend the job: this run ends, and the next one, after `duration`, continues from here.

        Sleeps are identified by their order in the run, or among those of one `name`; each
        suspends the job once. Meanwhile the job is delayed. Uses no attempt.
        """
        self._blocking.sleep(duration, name=name).result()

    def wait_event(self, name: str, timeout: Duration | None = None) -> Any:
        """Suspend the job until the event is sent to it. Return the payload of the event.

        An event that was sent before is used immediately; one wait uses one event. Meanwhile the
        job is delayed. Uses no attempt. Raise EventTimedOut if none is sent within `timeout`.
        """
        return self._blocking.wait_event(name, timeout).result()

    def send_event(self, name: str, payload: Any = None) -> bool:
        """Send the job an event. Return True if the job was waiting for it.

        Otherwise the event is stored for the next `wait_event` of that name. Raise IllegalMove if
        the job is finished.
        """
        return self._blocking.send_event(name, payload).result()

    def get_steps(self) -> list[Step]:
        """Return the recorded steps, sleeps and waits, in the order in which they started."""
        return self._blocking.get_steps().result()

    def __repr__(self) -> str:
        return repr(self._async)

    @property
    def pk(self) -> int:
        """The primary key of the job, unique in the database."""
        return self._async.pk

    @property
    def id(self) -> str:
        """The id of the job in its queue: the option `job_id`, else its primary key as text."""
        return self._async.id

    @property
    def custom_id(self) -> str | None:
        """The option `job_id`; None without one."""
        return self._async.custom_id

    @property
    def name(self) -> str:
        """The name of the job, by which workers choose a processor."""
        return self._async.name

    @property
    def queue_name(self) -> str:
        """The name of the queue in which the job is."""
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
        """The priority; 0 without one."""
        return self._async.priority

    @property
    def attempts(self) -> int:
        """The maximum number of attempts."""
        return self._async.attempts

    @property
    def delay(self) -> int:
        """Ms that the job has to wait, or had to before its last run; 0 once it was due."""
        return self._async.delay

    @property
    def lifo(self) -> bool:
        """True if the job was added in front of the waiting jobs of its priority."""
        return self._async.lifo

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the job, by which `queue.find` finds it."""
        return self._async.tags

    @property
    def timeout(self) -> int | None:
        """The time limit of one run, in ms; None without one."""
        return self._async.timeout

    @property
    def limit_key(self) -> str | None:
        """The key whose rate limit counts the job; None without one."""
        return self._async.limit_key

    @property
    def opts(self) -> dict[str, Any]:
        """The options with which the job was added; durations in ms."""
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
        """The outcome of a finished job: `completed`, `error`, `timed-out`, `expired`, `stalled` or
        `cancelled`; None until it is finished.
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
        """Number of runs that were lost with their worker, or whose lease expired."""
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
        """The return value of a completed job; None until then."""
        return self._async.return_value

    returnvalue = return_value

    @property
    def failed_reason(self) -> str | None:
        """The error of the last failed attempt; None if none failed."""
        return self._async.failed_reason

    @property
    def stacktrace(self) -> list[str]:
        """The stacks of the failed attempts, oldest first."""
        return self._async.stacktrace

    @property
    def stack(self) -> str | None:
        """The stack of the last failed attempt; None if none failed."""
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
        """When the job was added, or its option `timestamp`."""
        return self._async.created_at

    @property
    def timestamp(self) -> int:
        """The same as `created_at`, in ms since the epoch."""
        return self._async.timestamp

    @property
    def updated_at(self) -> datetime:
        """When the job was last changed."""
        return self._async.updated_at

    @property
    def process_at(self) -> datetime | None:
        """When a delayed job is due; None if the job is not delayed."""
        return self._async.process_at

    @property
    def expires_at(self) -> datetime | None:
        """When the job fails unless it has started; None without `expires`."""
        return self._async.expires_at

    @property
    def processed_at(self) -> datetime | None:
        """When the job was last claimed; None if it never was."""
        return self._async.processed_at

    @property
    def processed_on(self) -> int | None:
        """The same as `processed_at`, in ms since the epoch."""
        return self._async.processed_on

    @property
    def finished_at(self) -> datetime | None:
        """When the job finished; None until then."""
        return self._async.finished_at

    @property
    def finished_on(self) -> int | None:
        """The same as `finished_at`, in ms since the epoch."""
        return self._async.finished_on
