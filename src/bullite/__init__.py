"""Background jobs for Python with BullMQ's model, durable in one SQLite file with no server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import scheduler
    from .app.application import Bullite
    from .app.current_job import current_job
    from .app.job_logging import JobFields
    from .app.task import Task, TaskJob
    from .client.flow import FlowJob, FlowProducer
    from .client.job.abort_signal import Signal
    from .client.job.history import Attempt
    from .client.job.job import Job
    from .client.job.steps import Step
    from .client.queue.add import BulkJob
    from .client.queue.flow_builder import FlowNode
    from .client.queue.job_schedulers import JobScheduler
    from .client.queue.metrics import Durations, Metrics, Minute
    from .client.queue.queue import Queue
    from .client.queue.reads import Found
    from .client.queue.scheduler_spec import JobTemplate
    from .client.queue.settings import QueueSettings
    from .client.queue.workers import WorkerInfo
    from .client.queue_events import QueueEvents, QueueEventsProducer
    from .client.runtime.emitter import EventEmitter
    from .client.runtime.named_lock import NamedLock
    from .client.runtime.store import Store
    from .client.verify import Verification, verify
    from .core.checks import Duration, Moment
    from .core.dependency_options import ParentRef
    from .core.job_options import (
        Backoff,
        BackoffRule,
        Deduplication,
        JobOptions,
        KeepJobs,
        OnFailure,
        Priority,
        RateLimit,
        Repeat,
    )
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
    from .scheduler import Scheduler
    from .worker.processors import Processor
    from .worker.worker import Worker

#: Where each public name lives; it is imported when it is first asked for.
_HOMES = {
    "app.application": ("Bullite",),
    "app.current_job": ("current_job",),
    "client.runtime.emitter": ("EventEmitter",),
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
    "client.queue_events": ("QueueEvents", "QueueEventsProducer"),
    "client.flow": ("FlowJob", "FlowProducer"),
    "client.queue.reads": ("Found",),
    "client.queue.workers": ("WorkerInfo",),
    "client.job.history": ("Attempt",),
    "client.job.job": ("Job",),
    "client.runtime.named_lock": ("NamedLock",),
    "app.job_logging": ("JobFields",),
    "client.queue.metrics": ("Durations", "Metrics", "Minute"),
    "core.checks": ("Duration", "Moment"),
    "core.job_options": (
        "Backoff",
        "BackoffRule",
        "Deduplication",
        "JobOptions",
        "KeepJobs",
        "OnFailure",
        "Priority",
        "RateLimit",
        "Repeat",
    ),
    "client.queue.flow_builder": ("FlowNode",),
    "worker.processors": ("Processor",),
    "client.queue.queue": ("Queue",),
    "client.queue.add": ("BulkJob",),
    "scheduler": ("Scheduler",),
    "client.queue.job_schedulers": ("JobScheduler",),
    "client.queue.scheduler_spec": ("JobTemplate",),
    "client.queue.settings": ("QueueSettings",),
    "client.job.abort_signal": ("Signal",),
    "client.job.steps": ("Step",),
    "client.runtime.store": ("Store",),
    "app.task": ("Task", "TaskJob"),
    "core.dependency_options": ("ParentRef",),
    "client.verify": ("Verification", "verify"),
    "worker.worker": ("Worker",),
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
