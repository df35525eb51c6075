"""A read-only queue: one connection, no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.job_record import JobRecord, split_job_row

if TYPE_CHECKING:
    from ..database.driver import Reader


class ReadOnlyQueue(NamedTuple):
    """A queue as a mere reader has it; jobs can be found in it."""

    name: str
    key: int
    """The number of the queue in its database."""
    reader: Reader

    async def read_rows(self, statement: str, params: Mapping[str, Any]) -> Sequence[Any]:
        """The rows that a statement finds."""
        return self.reader.read(statement, params).rows

    def as_job(self, row: Sequence[Any]) -> JobRecord:
        """What is stored of a job, from the row that tells of it."""
        return JobRecord(self, *split_job_row(row))
