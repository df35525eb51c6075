"""Time that passes only when a test says so."""

from __future__ import annotations

from datetime import UTC, datetime

from ..core.checks import Duration, Moment, check_duration, check_moment

START = datetime(2029, 1, 1, tzinfo=UTC)
"""When every test begins, unless it says otherwise: a Monday, midnight in UTC."""

_UPTIME = 3_600_000
"""Ms that the virtual machine has been up by then."""


class VirtualClock:
    """A clock for `Store(path, clock=...)` that stands still until it is moved.

    Moving it runs nothing: that is what `Playground.advance` is for. A processor may move it, to
    take its time.
    """

    boot = "virtual"

    def __init__(self, start: Moment = START) -> None:
        self._start = self._now = check_moment("start", start)

    def __repr__(self) -> str:
        return f"<VirtualClock {self.time:%Y-%m-%d %H:%M:%S.%f}>"

    @property
    def time(self) -> datetime:
        """What it shows."""
        return datetime.fromtimestamp(self._now / 1000, UTC)

    def now(self) -> int:
        return self._now

    def lease_now(self) -> int:
        return _UPTIME + self._now - self._start

    def advance(self, duration: Duration) -> None:
        """Let so much time pass: "2h", a timedelta, or ms."""
        self._now += check_duration("duration", duration)

    def move_to(self, moment: int) -> None:
        """Let time pass up to a moment, in ms since the epoch; it never goes back."""
        self._now = max(self._now, moment)
