"""The same classes for code without an event loop: what one awaits there, one calls here.

Imports no asyncio until a worker, or a reader of events, is made: those need a loop, and have one
in a thread of their own.
"""

from __future__ import annotations

from ..client.runtime.named_lock import NamedLock
from ..client.runtime.store import Store
from ..client.verify import verify
from .callbacks import BackoffStrategy, Processor
from .classes import (
    FlowProducer,
    Queue,
    QueueEvents,
    QueueEventsProducer,
    Scheduler,
    Worker,
)
from .job import Job
from .results import FlowJob, Found

__all__ = [
    "BackoffStrategy",
    "FlowJob",
    "FlowProducer",
    "Found",
    "Job",
    "NamedLock",
    "Processor",
    "Queue",
    "QueueEvents",
    "QueueEventsProducer",
    "Scheduler",
    "Store",
    "Worker",
    "verify",
]
