"""The log format of worker processes."""

from __future__ import annotations

import logging
import re

from ..core.escaping import on_one_line, visible


class VisibleFormatter(logging.Formatter):
    """Formats records so that data cannot forge a record: one line each, tracebacks indented."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [on_one_line(self.formatMessage(record))]
        if record.exc_info:
            # Not `exc_text`: another formatter may have cached its own text there.
            lines += _indented(self._traceback(record))
        if record.stack_info:
            lines += _indented(self.formatStack(record.stack_info))
        return "\n".join(lines)

    def _traceback(self, record: logging.LogRecord) -> str:
        assert record.exc_info
        try:
            return self.formatException(record.exc_info)
        except Exception:  # such as RecursionError for nested exception groups
            return f"{record.exc_info[0]}: its traceback cannot be written"


def _indented(text: str) -> list[str]:
    return [f"    {visible(line)}" for line in re.split("[\n\r]", text)]
