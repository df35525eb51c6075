"""Background jobs for Python with BullMQ's model, durable in one SQLite file with no server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import scheduler
    from .app import Bullite
    from .current import current_job
    from .emitter import EventEmitter
    from .errors import (
        BulliteError,
        ChildFailed,
        ControlError,
        DelayedError,
        DependencyCycle,
        DependencyNotFound,
        EventTimedOut,
        IllegalMove,
        InvalidArguments,
        JobCancelled,
        JobDelayedError,
        JobFailed,
        JobIdTaken,
        JobLocked,
        JobNotFound,
        JobSuspended,
        JobTimedOut,
        JobWaitingChildrenError,
        LockNotAcquired,
        LostLock,
        NotAChild,
        ParentNotFound,
        ParentTaken,
        PendingChildren,
        QueueFull,
        QueueHasActiveJobs,
        QueueOptionMismatch,
        RateLimitError,
        SchedulerNotFound,
        SchedulerOwnsJob,
        SchedulerSlotsTaken,
        StoreError,
        TaskTaken,
        UnrecoverableError,
        WaitingChildrenError,
        WaitingError,
    )
    from .events import QueueEvents, QueueEventsProducer
    from .flow import FlowJob, FlowProducer
    from .getters import Found, WorkerInfo
    from .job import Attempt, Job
    from .locks import NamedLock
    from .logs import JobFields
    from .metrics import Durations, Metrics, Minute
    from .options import (
        Backoff,
        BackoffRule,
        Deduplication,
        Duration,
        JobOptions,
        KeepJobs,
        Moment,
        OnFailure,
        Priority,
        RateLimit,
        Repeat,
    )
    from .planting import FlowNode
    from .processors import Processor
    from .queue import BulkJob, Queue
    from .scheduler import Scheduler
    from .schedules import JobScheduler, JobTemplate
    from .settings import QueueSettings
    from .signals import Signal
    from .steps import Step
    from .store import Store
    from .tasks import Task, TaskJob
    from .ties import ParentRef
    from .verifying import Verification, verify
    from .worker import Worker

#: Where each public name lives; it is imported when it is first asked for.
_HOMES = {
    "app": ("Bullite",),
    "current": ("current_job",),
    "emitter": ("EventEmitter",),
    "errors": (
        "BulliteError",
        "ChildFailed",
        "ControlError",
        "DelayedError",
        "EventTimedOut",
        "DependencyCycle",
        "DependencyNotFound",
        "IllegalMove",
        "InvalidArguments",
        "JobCancelled",
        "JobDelayedError",
        "JobFailed",
        "JobIdTaken",
        "JobLocked",
        "JobNotFound",
        "JobSuspended",
        "JobTimedOut",
        "LockNotAcquired",
        "JobWaitingChildrenError",
        "LostLock",
        "NotAChild",
        "ParentNotFound",
        "ParentTaken",
        "PendingChildren",
        "QueueFull",
        "QueueHasActiveJobs",
        "QueueOptionMismatch",
        "RateLimitError",
        "SchedulerNotFound",
        "SchedulerOwnsJob",
        "SchedulerSlotsTaken",
        "StoreError",
        "TaskTaken",
        "UnrecoverableError",
        "WaitingChildrenError",
        "WaitingError",
    ),
    "events": ("QueueEvents", "QueueEventsProducer"),
    "flow": ("FlowJob", "FlowProducer"),
    "getters": ("Found", "WorkerInfo"),
    "job": ("Attempt", "Job"),
    "locks": ("NamedLock",),
    "logs": ("JobFields",),
    "metrics": ("Durations", "Metrics", "Minute"),
    "options": (
        "Backoff",
        "BackoffRule",
        "Deduplication",
        "Duration",
        "JobOptions",
        "KeepJobs",
        "Moment",
        "OnFailure",
        "Priority",
        "RateLimit",
        "Repeat",
    ),
    "planting": ("FlowNode",),
    "processors": ("Processor",),
    "queue": ("BulkJob", "Queue"),
    "scheduler": ("Scheduler",),
    "schedules": ("JobScheduler", "JobTemplate"),
    "settings": ("QueueSettings",),
    "signals": ("Signal",),
    "steps": ("Step",),
    "store": ("Store",),
    "tasks": ("Task", "TaskJob"),
    "ties": ("ParentRef",),
    "verifying": ("Verification", "verify"),
    "worker": ("Worker",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Attempt",
    "Backoff",
    "BackoffRule",
    "BulkJob",
    "Bullite",
    "BulliteError",
    "ChildFailed",
    "ControlError",
    "Deduplication",
    "DelayedError",
    "DependencyCycle",
    "DependencyNotFound",
    "Duration",
    "Durations",
    "EventEmitter",
    "EventTimedOut",
    "FlowJob",
    "FlowNode",
    "FlowProducer",
    "Found",
    "IllegalMove",
    "InvalidArguments",
    "Job",
    "JobCancelled",
    "JobDelayedError",
    "JobFailed",
    "JobFields",
    "JobIdTaken",
    "JobLocked",
    "JobNotFound",
    "JobOptions",
    "JobScheduler",
    "JobSuspended",
    "JobTemplate",
    "JobTimedOut",
    "JobWaitingChildrenError",
    "KeepJobs",
    "LockNotAcquired",
    "LostLock",
    "Metrics",
    "Minute",
    "Moment",
    "NamedLock",
    "NotAChild",
    "OnFailure",
    "ParentNotFound",
    "ParentRef",
    "ParentTaken",
    "PendingChildren",
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
    "Repeat",
    "Scheduler",
    "SchedulerNotFound",
    "SchedulerOwnsJob",
    "SchedulerSlotsTaken",
    "Signal",
    "Step",
    "Store",
    "StoreError",
    "Task",
    "TaskJob",
    "TaskTaken",
    "UnrecoverableError",
    "Verification",
    "WaitingChildrenError",
    "WaitingError",
    "Worker",
    "WorkerInfo",
    "current_job",
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
