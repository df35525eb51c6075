"""How a worker process writes its log."""

from __future__ import annotations

import logging
import re

from ..core.escaping import on_one_line, visible


class VisibleFormatter(logging.Formatter):
    """Log records as lines that no data can forge: a message is one line, and the lines of its
    traceback are indented."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [on_one_line(self.formatMessage(record))]
        if record.exc_info:
            # Not `exc_text`: other formatters keep there what they made of it.
            lines += _indented(self._traceback(record))
        if record.stack_info:
            lines += _indented(self.formatStack(record.stack_info))
        return "\n".join(lines)

    def _traceback(self, record: logging.LogRecord) -> str:
        assert record.exc_info
        try:
            return self.formatException(record.exc_info)
        except Exception:  # such as RecursionError, for groups in groups
            return f"{record.exc_info[0]}: its traceback cannot be written"


def _indented(text: str) -> list[str]:
    return [f"    {visible(line)}" for line in re.split("[\n\r]", text)]
