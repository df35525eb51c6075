"""Every exception a user of Bullite can catch, each with one line of meaning."""

from __future__ import annotations


class BulliteError(Exception):
    """Anything Bullite raises on purpose."""


# --- refused arguments ---------------------------------------------------------------------------


class InvalidOption(BulliteError, ValueError):
    """An option has a value it cannot have; the message names the option and the fix."""


class InvalidOptionType(BulliteError, TypeError):
    """An option has a value of the wrong type; the message names the option and the fix."""


class UnserializableData(BulliteError, ValueError):
    """Data, a result or a progress value cannot be stored as JSON without changing it."""


class PayloadTooLarge(BulliteError, ValueError):
    """A job's data takes more bytes than its `size_limit`, 1 MiB unless it says otherwise."""


class MissingDependency(BulliteError, ImportError):
    """A package that this use of Bullite needs is not installed; the message says how to."""


class QueueOptionMismatch(BulliteError, ValueError):
    """The queue exists with another value of an option that is fixed when a queue is made."""


# --- jobs ----------------------------------------------------------------------------------------


class JobNotFound(BulliteError, LookupError):
    """No such job in this queue."""


class LostLock(BulliteError):
    """The job is no longer held by the caller: its write was refused and changed nothing."""


class IllegalMove(BulliteError):
    """The job is not in a state from which this move may be made."""


class JobLocked(IllegalMove):
    """The job is running: only the worker that holds it may end it."""


class JobIdTaken(BulliteError, ValueError):
    """Another job has taken the id meanwhile; nothing was changed."""


class QueueHasActiveJobs(BulliteError):
    """The queue cannot be obliterated while jobs of it run, unless by force."""


class QueueFull(BulliteError):
    """A quota of the queue lets no more in; nothing was added."""


class EventsAlreadyRunning(BulliteError, RuntimeError):
    """`run` was called on queue events that are being read already."""


class JobTimedOut(BulliteError, TimeoutError):
    """A run took longer than the job's `timeout`."""


class JobFailed(BulliteError):
    """Raised by `job.result()`: the job failed for good; the message is its `failed_reason`."""


# --- raised by processors ------------------------------------------------------------------------


class ControlError(BulliteError):
    """Raised by a processor to say what is to become of its job; no failure, costs no attempt."""


class UnrecoverableError(BulliteError):
    """Raised by a processor: fail the job at once, whatever attempts are left."""


class DelayedError(ControlError):
    """Raised by a processor after `job.move_to_delayed(...)`: the job runs again later."""


class WaitingError(ControlError):
    """Raised by a processor: the job goes back to the front of its line."""


class RateLimitError(ControlError):
    """Raised by a processor: the job goes back to the front of its line until the limit allows."""


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


class WrongProcess(StoreError):
    """A worker made before a fork was used after it; make a new one in this process."""
