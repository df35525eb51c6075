"""Background jobs for Python with BullMQ's model, durable in one SQLite file with no server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import scheduler
    from .emitter import EventEmitter
    from .errors import (
        BulliteError,
        ControlError,
        DelayedError,
        IllegalMove,
        JobFailed,
        JobIdTaken,
        JobLocked,
        JobNotFound,
        JobTimedOut,
        LostLock,
        QueueFull,
        QueueHasActiveJobs,
        QueueOptionMismatch,
        RateLimitError,
        StoreError,
        UnrecoverableError,
        WaitingError,
    )
    from .events import QueueEvents, QueueEventsProducer
    from .getters import WorkerInfo
    from .job import Attempt, Job
    from .options import (
        Backoff,
        BackoffRule,
        Duration,
        JobOptions,
        KeepJobs,
        Moment,
        Priority,
        RateLimit,
    )
    from .processors import Processor
    from .queue import BulkJob, Queue
    from .scheduler import Scheduler
    from .settings import QueueSettings
    from .signals import Signal
    from .store import Store
    from .verifying import Verification, verify
    from .worker import Worker

#: Where each public name lives; it is imported when it is first asked for.
_HOMES = {
    "emitter": ("EventEmitter",),
    "errors": (
        "BulliteError",
        "ControlError",
        "DelayedError",
        "IllegalMove",
        "JobFailed",
        "JobIdTaken",
        "JobLocked",
        "JobNotFound",
        "JobTimedOut",
        "LostLock",
        "QueueFull",
        "QueueHasActiveJobs",
        "QueueOptionMismatch",
        "RateLimitError",
        "StoreError",
        "UnrecoverableError",
        "WaitingError",
    ),
    "events": ("QueueEvents", "QueueEventsProducer"),
    "getters": ("WorkerInfo",),
    "job": ("Attempt", "Job"),
    "options": (
        "Backoff",
        "BackoffRule",
        "Duration",
        "JobOptions",
        "KeepJobs",
        "Moment",
        "Priority",
        "RateLimit",
    ),
    "processors": ("Processor",),
    "queue": ("BulkJob", "Queue"),
    "scheduler": ("Scheduler",),
    "settings": ("QueueSettings",),
    "signals": ("Signal",),
    "store": ("Store",),
    "verifying": ("Verification", "verify"),
    "worker": ("Worker",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Attempt",
    "Backoff",
    "BackoffRule",
    "BulkJob",
    "BulliteError",
    "ControlError",
    "DelayedError",
    "Duration",
    "EventEmitter",
    "IllegalMove",
    "Job",
    "JobFailed",
    "JobIdTaken",
    "JobLocked",
    "JobNotFound",
    "JobOptions",
    "JobTimedOut",
    "KeepJobs",
    "LostLock",
    "Moment",
    "Priority",
    "Processor",
    "Queue",
    "QueueEvents",
    "QueueEventsProducer",
    "QueueFull",
    "QueueHasActiveJobs",
    "QueueOptionMismatch",
    "QueueSettings",
    "RateLimit",
    "RateLimitError",
    "Scheduler",
    "Signal",
    "Store",
    "StoreError",
    "UnrecoverableError",
    "Verification",
    "WaitingError",
    "Worker",
    "WorkerInfo",
    "scheduler",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "scheduler":
        return import_module(".scheduler", __name__)
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
