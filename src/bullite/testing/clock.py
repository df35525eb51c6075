"""A virtual clock: time passes only when a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime

from ..core.checks import Duration, Moment, check_duration, check_moment

START = datetime(2029, 1, 1, tzinfo=UTC)
"""The default start time of a test: a Monday, midnight in UTC."""

_UPTIME = 3_600_000
"""The uptime of the virtual machine at the start, in ms."""


class VirtualClock:
    """A clock for `Store(path, clock=...)` that stands still until it is moved.

    Moving it runs nothing; `Playground.advance` moves it and runs jobs. A processor may move it to
    simulate a long run.
    """

    boot = "virtual"

    def __init__(self, start: Moment = START) -> None:
        self._start = self._now = check_moment("start", start)

    def __repr__(self) -> str:
        return f"<VirtualClock {self.time:%Y-%m-%d %H:%M:%S.%f}>"

    @property
    def time(self) -> datetime:
        """The virtual time."""
        return datetime.fromtimestamp(self._now / 1000, UTC)

    def now(self) -> int:
        return self._now

    def lease_now(self) -> int:
        return _UPTIME + self._now - self._start

    def advance(self, duration: Duration) -> None:
        """Move the clock by a duration: "2h", a timedelta, or ms."""
        self._now += check_duration("duration", duration)

    def move_to(self, moment: int) -> None:
        """Move the clock to a time, in ms since the epoch; never backwards."""
        self._now = max(self._now, moment)
