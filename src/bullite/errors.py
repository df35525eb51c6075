"""Every exception a user of Bullite can catch, each with one line of meaning."""

from __future__ import annotations


class BulliteError(Exception):
    """Base class of all errors that Bullite raises on purpose."""


# --- refused arguments ---------------------------------------------------------------------------


class InvalidOption(BulliteError, ValueError):
    """An option has a value it cannot have; the message names the option and the fix."""


class InvalidOptionType(BulliteError, TypeError):
    """An option has a value of the wrong type; the message names the option and the fix."""


class InvalidArguments(BulliteError, TypeError):
    """The arguments of a task do not fit its signature; nothing was enqueued."""


class TaskTaken(BulliteError, ValueError):
    """Another task, or processor, has this name in this queue already."""


class UnserializableData(BulliteError, ValueError):
    """Data, a result or a progress value cannot be stored as JSON without changing it."""


class PayloadTooLarge(BulliteError, ValueError):
    """A job's data exceeds its `size_limit` (default 1 MiB); or progress, a step's result or an
    event's payload exceeds 1 MiB."""


class SettingsNotTrusted(BulliteError):
    """A settings file that another user can write names the database; the message says which."""


class MissingDependency(BulliteError, ImportError):
    """A package that this use of Bullite needs is not installed; the message names it."""


class QueueOptionMismatch(BulliteError, ValueError):
    """The queue exists with another value of an option that is fixed when a queue is made."""


# --- jobs ----------------------------------------------------------------------------------------


class JobNotFound(BulliteError, LookupError):
    """There is no job with that id in the queue."""


class LostLock(BulliteError):
    """The job, or the named lock, is no longer held by the caller: nothing was changed."""


class IllegalMove(BulliteError):
    """The job is not in a state from which this move may be made."""


class JobLocked(IllegalMove):
    """The job is running: only the worker that claimed it may finish it."""


class JobIdTaken(BulliteError, ValueError):
    """Another job has the id; nothing was changed."""


class ParentNotFound(JobNotFound, ValueError):
    """The parent of the new job does not exist; nothing was added."""


class ParentTaken(IllegalMove, ValueError):
    """The job has another parent already, or the parent has finished; nothing was added."""


class NotAChild(IllegalMove, ValueError):
    """The job has no parent, or was detached from it; nothing was changed."""


class DependencyNotFound(JobNotFound, ValueError):
    """A job in `depends_on` does not exist; nothing was added."""


class DependencyCycle(BulliteError, ValueError):
    """The dependencies of the jobs form a cycle; nothing was added."""


class PendingChildren(IllegalMove):
    """The job cannot be completed: it has children that have not finished."""


class SchedulerNotFound(BulliteError, LookupError):
    """There is no job scheduler with that id in the queue."""


class SchedulerOwnsJob(IllegalMove):
    """The job is the pending one of a job scheduler: remove or pause the scheduler instead."""


class SchedulerSlotsTaken(BulliteError):
    """The ids of a job scheduler's next ticks are taken by other jobs; nothing was changed."""


class QueueHasActiveJobs(BulliteError):
    """The queue cannot be obliterated while it has running jobs, unless by force."""


class QueueFull(BulliteError):
    """The add exceeds a quota of the queue; nothing was added."""


class EventsAlreadyRunning(BulliteError, RuntimeError):
    """`run` was called on a QueueEvents that is running already."""


class JobTimedOut(BulliteError, TimeoutError):
    """A run took longer than the job's `timeout`."""


class JobCancelled(BulliteError):
    """The job was cancelled; the message is the reason."""


class JobFailed(BulliteError):
    """Raised by `job.result()`: the job failed; the message is its `failed_reason`."""


# --- raised by processors ------------------------------------------------------------------------


class ControlError(BulliteError):
    """Raised by a processor to end its run without a failure; uses no attempt."""


class UnrecoverableError(BulliteError):
    """Raised by a processor: fail the job immediately, even if attempts are left."""


class ChildFailed(UnrecoverableError):
    """A child that fails its parent has failed."""


class DelayedError(ControlError):
    """Raised by a processor after `job.move_to_delayed(...)`: the job runs again later."""


JobDelayedError = DelayedError
"""Another name of the same error."""


class WaitingChildrenError(ControlError):
    """Raised by a processor after `job.move_to_waiting_children()` returned True."""


JobWaitingChildrenError = WaitingChildrenError
"""Another name of the same error."""


class WaitingError(ControlError):
    """Raised by a processor: the job returns to the front of its queue."""


class RateLimitError(ControlError):
    """Raised by a processor: the job returns to the front of its queue until the limit allows."""


class JobSuspended(BaseException):
    """Ends a run whose job sleeps or waits for an event; uses no attempt. Do not catch it.

    It is a BaseException, so that `except Exception` in a processor does not catch it.
    """


class EventTimedOut(BulliteError, TimeoutError):
    """Raised by `job.wait_event`: the event was not sent in time."""


# --- named locks ---------------------------------------------------------------------------------


class LockNotAcquired(BulliteError, TimeoutError):
    """Another holder had the lock for as long as the caller waited."""


# --- the store -----------------------------------------------------------------------------------


class StoreError(BulliteError):
    """The database could not carry out a request."""


class StoreClosed(StoreError):
    """The store was closed before the request was made; nothing was written."""


class StoreBusy(StoreError):
    """Another connection held the write lock for too long; nothing was written."""


class RequestRefused(StoreError):
    """The database rejected the data of a request, and would again; nothing was written."""


class StoreFull(StoreError):
    """The disk is full; nothing was written."""


class StoreUnavailable(StoreError):
    """The database failed, or cannot be reached; the message says whether the request was stored,
    or that this is not known."""


class StoreUnwritable(StoreError):
    """The file, its folder or the database is missing, read-only or not writable by this user."""


class StoreReplaced(StoreError):
    """The file, its WAL or the tables were replaced or deleted while in use; reopen the store."""


class StoreUnsynced(StoreError):
    """The disk could not be synced; whether the request was stored is not known.

    The store is closed: a second fsync would report success without writing the data. Reopen it; no
    process writes before the data that was not synced has been written again.
    """


ENDING = (StoreReplaced, StoreUnsynced)
"""Errors after which a store writes nothing more and must be reopened."""


class NotABulliteDatabase(StoreError):
    """The file is not a SQLite database, or has `bullite_` tables of another program."""


class SchemaTooNew(StoreError):
    """A newer Bullite has migrated this database; upgrade this one."""


class NetworkFileSystem(StoreError):
    """The file is on a network file system, where SQLite's locks cannot be trusted."""


class SQLiteTooOld(StoreError):
    """The SQLite library of this Python is too old."""


class PostgresTooOld(StoreError):
    """The PostgreSQL server is too old."""


class WrongLoop(BulliteError, RuntimeError):
    """A call would block an event loop, or is made on another event loop than it belongs to."""


class ApplicationStarted(BulliteError, RuntimeError):
    """A task, schedule or hook was added to an application that is running."""


class NoCurrentJob(BulliteError, LookupError):
    """`current_job()` was called outside of a running job."""


class WrongProcess(StoreError):
    """A worker made before a fork was used after it; create a new one in this process."""
