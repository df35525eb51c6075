"""Claimed jobs that have not started: their order, and how many of them a runner may hold."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container, Sequence

from ..client.job.job import Job
from ..core.job_record import queue_position
from ..engine.metrics import RunTimings

PREFETCH_SECONDS, PREFETCH_MAX = 0.002, 400
"""A runner prefetches jobs for so many seconds of work, at most so many jobs."""

PREFETCH_MIN_SECONDS, PREFETCH_MIN = 0.08, 16
"""The same, if that is more jobs: a transaction for a few jobs takes as long as for one."""

PREFETCH_MAX_JOB_SECONDS = 0.020
"""A runner whose jobs take longer than this prefetches none."""


class PrefetchBuffer:
    """Claimed jobs that have not started, in the order of the queue.

    A job that is claimed later but stands before the others, because of its priority, starts first.
    Any thread may clear it; only one thread at a time may put and pop.
    """

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, jobs: Sequence[Job]) -> None:
        """Add jobs, each at its place in the order."""
        with self._lock:
            if self._jobs and jobs and queue_position(jobs[0]) < queue_position(self._jobs[-1]):
                jobs = sorted([*self._jobs, *jobs], key=queue_position)
                self._jobs.clear()
            self._jobs.extend(jobs)

    def pop(self) -> Job | None:
        """Remove the first job and return it. Return None if there is none."""
        try:
            return self._jobs.popleft()
        except IndexError:
            return None

    def jobs(self) -> list[Job]:
        """Return the jobs in order."""
        with self._lock:
            return list(self._jobs)

    def remove(self, pks: Container[int]) -> list[Job]:
        """Remove the jobs with these pks and return them."""
        with self._lock:
            jobs = self._pop_all()
            self._jobs.extend(job for job in jobs if job.pk not in pks)
        return [job for job in jobs if job.pk in pks]

    def remove_prefetched(self) -> list[Job]:
        """Remove the jobs at the end that were prefetched and return them."""
        jobs: list[Job] = []
        with self._lock:
            try:
                while self._jobs[-1]._run.prefetched:
                    jobs.append(self._jobs.pop())
            except IndexError:  # another thread has just started the last one
                pass
        return jobs[::-1]

    def clear(self) -> list[Job]:
        """Remove all jobs and return them."""
        with self._lock:
            return self._pop_all()

    def _pop_all(self) -> list[Job]:
        # Pop one by one: another thread may pop at the same time, and each job goes to one of both.
        jobs = []
        while (job := self.pop()) is not None:
            jobs.append(job)
        return jobs


class PrefetchSizer:
    """Measures runs, and derives from their duration how many jobs to prefetch.

    A slow run counts fully, a quick one by a quarter: a job prefetched behind a slow one waits
    although another worker could run it, a job not prefetched costs only throughput.
    """

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.timings = RunTimings()
        self._usual_seconds = 2 * PREFETCH_MAX_JOB_SECONDS
        self.prefetched = 0
        """The last result of `prefetch`."""

    def finished(self, seconds: float) -> None:
        """Note the duration of a run."""
        self.timings.took(seconds)
        if seconds > self._usual_seconds:
            self._usual_seconds = seconds
        else:
            self._usual_seconds += 0.25 * (seconds - self._usual_seconds)

    def stuck(self) -> None:
        """Prefetch none until runs are quick again: prefetched jobs had to be returned."""
        self._usual_seconds = max(self._usual_seconds, 2 * PREFETCH_MAX_JOB_SECONDS)

    def prefetch(self) -> int:
        """Return how many jobs to hold beyond those that run."""
        self.prefetched = 0
        if self._usual_seconds <= PREFETCH_MAX_JOB_SECONDS:
            per_second = self.concurrency / max(self._usual_seconds, 1e-6)
            many = min(PREFETCH_MAX, PREFETCH_SECONDS * per_second)
            self.prefetched = int(max(many, min(PREFETCH_MIN, PREFETCH_MIN_SECONDS * per_second)))
        return self.prefetched
