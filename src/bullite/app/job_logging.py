"""Log records and jobs: which job a record belongs to, and a job's own log from its records."""

from __future__ import annotations

import logging

from .current_job import job_logged_by, running_job

LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warn"))


class JobFields(logging.Filter):
    """Adds `job_id`, `job_name` and `job_queue` to every record; None outside of jobs.

    Put it on a handler: `handler.addFilter(JobFields())`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        job = running_job()
        record.job_id = None if job is None else job.id
        record.job_name = None if job is None else job.name
        record.job_queue = None if job is None else job.queue_name
        return True


class JobLog(logging.Handler):
    """Also writes records to the log of the job that runs, if it is of this application."""

    def emit(self, record: logging.LogRecord) -> None:
        job = job_logged_by(self)
        # Records of the library about this write would be written again, without end.
        if job is None or record.name.partition(".")[0] == "bullite":
            return
        try:
            # Errors are ignored: the job may have finished or been lost.
            job.log(self.format(record), level=_level(record.levelno)).ignore_result()
        except Exception:
            self.handleError(record)


def _level(number: int) -> str:
    for least, name in LEVELS:
        if number >= least:
            return name
    return "info"
