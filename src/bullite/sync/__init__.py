"""The same classes for code without an event loop: what one awaits there, one calls here.

Imports no asyncio until a worker, or a reader of events, is made: those need a loop, and have one
in a thread of their own.
"""

from __future__ import annotations

from ..locks import NamedLock
from ..store import Store
from ..verifying import verify
from .answers import FlowJob, Found
from .classes import (
    FlowProducer,
    Queue,
    QueueEvents,
    QueueEventsProducer,
    Scheduler,
    Worker,
)
from .handing import BackoffStrategy, Processor
from .job import Job

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
