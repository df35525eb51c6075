"""Background jobs for Python with BullMQ's model, durable in one SQLite file with no server."""

from __future__ import annotations

from .errors import (
    BulliteError,
    JobFailed,
    JobNotFound,
    LostLock,
    QueueOptionMismatch,
    StoreError,
    UnrecoverableError,
)
from .job import Job
from .queue import Queue
from .store import Store
from .verify import Verification, verify
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "BulliteError",
    "Job",
    "JobFailed",
    "JobNotFound",
    "LostLock",
    "Queue",
    "QueueOptionMismatch",
    "Store",
    "StoreError",
    "UnrecoverableError",
    "Verification",
    "Worker",
    "verify",
]
