"""A read-only queue: one connection, no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.job_record import JobRecord, split_job_row

if TYPE_CHECKING:
    from ..database.driver import Reader


class ReadOnlyQueue(NamedTuple):
    """A queue read through one connection: `search.find` finds jobs in it."""

    name: str
    pk: int
    """The primary key of the queue in its database."""
    reader: Reader

    async def read_rows(self, statement: str, params: Mapping[str, Any]) -> Sequence[Any]:
        """Return the rows of a statement."""
        return self.reader.read(statement, params).rows

    def as_job(self, row: Sequence[Any]) -> JobRecord:
        """Return the record of a job from its row."""
        return JobRecord(self, *split_job_row(row))
