"""Every exception a user of Bullite can catch, each with one line of meaning."""

from __future__ import annotations


class BulliteError(Exception):
    """Anything Bullite raises on purpose."""


# --- refused arguments ---------------------------------------------------------------------------


class InvalidOption(BulliteError, ValueError):
    """An option has a value it cannot have; the message names the option and the fix."""


class InvalidOptionType(BulliteError, TypeError):
    """An option has a value of the wrong type; the message names the option and the fix."""


class InvalidArguments(BulliteError, TypeError):
    """What a task was given does not fit its signature; nothing was enqueued."""


class TaskTaken(BulliteError, ValueError):
    """Another task, or processor, has this name in this queue already."""


class UnserializableData(BulliteError, ValueError):
    """Data, a result or a progress value cannot be stored as JSON without changing it."""


class PayloadTooLarge(BulliteError, ValueError):
    """A job's data takes more bytes than its `size_limit`, 1 MiB unless it says otherwise; or
    progress, a step's result or an event's payload more than 1 MiB."""


class SettingsNotTrusted(BulliteError):
    """A settings file that another user can write names the database; the message says which."""


class MissingDependency(BulliteError, ImportError):
    """A package that this use of Bullite needs is not installed; the message says how to."""


class QueueOptionMismatch(BulliteError, ValueError):
    """The queue exists with another value of an option that is fixed when a queue is made."""


# --- jobs ----------------------------------------------------------------------------------------


class JobNotFound(BulliteError, LookupError):
    """No such job in this queue."""


class LostLock(BulliteError):
    """The job, or the named lock, is no longer held by the caller: nothing was changed."""


class IllegalMove(BulliteError):
    """The job is not in a state from which this move may be made."""


class JobLocked(IllegalMove):
    """The job is running: only the worker that holds it may end it."""


class JobIdTaken(BulliteError, ValueError):
    """Another job has taken the id meanwhile; nothing was changed."""


class ParentNotFound(JobNotFound, ValueError):
    """The job that was named as parent does not exist; nothing was added."""


class ParentTaken(IllegalMove, ValueError):
    """The job has another parent already, or the parent has ended; nothing was added."""


class NotAChild(IllegalMove, ValueError):
    """The job has no parent, or its parent has let go of it; nothing was changed."""


class DependencyNotFound(JobNotFound, ValueError):
    """A job that another was to depend on does not exist; nothing was added."""


class DependencyCycle(BulliteError, ValueError):
    """Jobs would wait for each other in a circle; nothing was added."""


class PendingChildren(IllegalMove):
    """The job cannot be completed: it has children that have not ended."""


class SchedulerNotFound(BulliteError, LookupError):
    """No such job scheduler in this queue."""


class SchedulerOwnsJob(IllegalMove):
    """The job is the pending one of a job scheduler: remove or pause the scheduler instead."""


class SchedulerSlotsTaken(BulliteError):
    """The ids of a job scheduler's next ticks are taken by other jobs; nothing was changed."""


class QueueHasActiveJobs(BulliteError):
    """The queue cannot be obliterated while jobs of it run, unless by force."""


class QueueFull(BulliteError):
    """A quota of the queue lets no more in; nothing was added."""


class EventsAlreadyRunning(BulliteError, RuntimeError):
    """`run` was called on queue events that are being read already."""


class JobTimedOut(BulliteError, TimeoutError):
    """A run took longer than the job's `timeout`."""


class JobCancelled(BulliteError):
    """The reason of a run that ends because its job was cancelled; the message says why."""


class JobFailed(BulliteError):
    """Raised by `job.result()`: the job failed for good; the message is its `failed_reason`."""


# --- raised by processors ------------------------------------------------------------------------


class ControlError(BulliteError):
    """Raised by a processor to say what is to become of its job; no failure, costs no attempt."""


class UnrecoverableError(BulliteError):
    """Raised by a processor: fail the job at once, whatever attempts are left."""


class ChildFailed(UnrecoverableError):
    """A child that was to fail its parent with it has failed."""


class DelayedError(ControlError):
    """Raised by a processor after `job.move_to_delayed(...)`: the job runs again later."""


JobDelayedError = DelayedError
"""The same, as the document on steps calls it."""


class WaitingChildrenError(ControlError):
    """Raised by a processor after `job.move_to_waiting_children()` told that it has to wait."""


JobWaitingChildrenError = WaitingChildrenError
"""The same, as the document on steps calls it."""


class WaitingError(ControlError):
    """Raised by a processor: the job goes back to the front of its line."""


class RateLimitError(ControlError):
    """Raised by a processor: the job goes back to the front of its line until the limit allows."""


class JobSuspended(BaseException):
    """Ends a run whose job sleeps or waits for an event; no failure, costs no attempt. Let it pass.

    It is no Exception, so that a processor's own `except Exception` does not stop it.
    """


class EventTimedOut(BulliteError, TimeoutError):
    """Raised by `job.wait_event`: the event did not come in time."""


# --- named locks ---------------------------------------------------------------------------------


class LockNotAcquired(BulliteError, TimeoutError):
    """Somebody else held the lock for as long as the caller would wait."""


# --- the store -----------------------------------------------------------------------------------


class StoreError(BulliteError):
    """The database could not do what was asked."""


class StoreClosed(StoreError):
    """The store was closed before the request was made; nothing was written."""


class StoreBusy(StoreError):
    """Another connection held the write lock for too long; nothing was written."""


class RequestRefused(StoreError):
    """The database refused the data of a request, and will again; nothing was written."""


class StoreFull(StoreError):
    """There is no room left on the disk; nothing was written."""


class StoreUnavailable(StoreError):
    """The database failed, or cannot be reached; the message says whether the request was stored,
    or that this is not known."""


class StoreUnwritable(StoreError):
    """The file, its folder or the database is missing, read-only or not ours to write."""


class StoreReplaced(StoreError):
    """The file, its log or the tables were replaced or deleted under us; reopen the store."""


class StoreUnsynced(StoreError):
    """The disk failed to keep what was written; whether the request was stored is not known.

    The store is closed: asked again, the system would call the same data safe. Reopen it; no
    process writes before what could not be synced has been written again.
    """


ENDING = (StoreReplaced, StoreUnsynced)
"""After these, nothing more is written: the store must be opened again."""


class NotABulliteDatabase(StoreError):
    """The file is not a SQLite database, or `bullite_` tables are there that are not ours."""


class SchemaTooNew(StoreError):
    """A newer Bullite has migrated this database; upgrade this one."""


class NetworkFileSystem(StoreError):
    """The file is on a network file system, where SQLite's locks cannot be trusted."""


class SQLiteTooOld(StoreError):
    """The SQLite library of this Python is older than the oldest that works."""


class PostgresTooOld(StoreError):
    """The PostgreSQL server is older than the oldest that works."""


class WrongLoop(BulliteError, RuntimeError):
    """Something would block an event loop, or is used on another than it runs on."""


class ApplicationStarted(BulliteError, RuntimeError):
    """A task, schedule or hook came when its application was running already."""


class NoCurrentJob(BulliteError, LookupError):
    """The job that runs here was asked for, and none does."""


class WrongProcess(StoreError):
    """A worker made before a fork was used after it; make a new one in this process."""
