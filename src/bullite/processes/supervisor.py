"""The supervisor: starts, watches, restarts and stops the worker processes of one group.

It runs no jobs and opens no database.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import BulliteError, InvalidOption
from . import systemd
from .child import (
    DRAIN,
    DRAINING,
    KILL,
    READY_WITHIN,
    RUNNING,
    STARTING,
    STOP,
    ChildNotStarted,
    ChildSlot,
    exit_reason,
    kill,
)
from .child_protocol import CANNOT_WORK, WANTS_FRESH
from .group_lock import GroupLock, GroupTaken, entry_of_this_process
from .group_registration import GroupHeartbeat, GroupRegistry
from .signals import DRAIN_SIGNAL, STOP_SIGNAL, Signals

log = logging.getLogger("bullite.supervisor")

GRACE = 5.0
"""Seconds between the signal to interrupt jobs and the kill of a child."""

LEAVING = 1.0
"""Seconds to wait for the end of a killed child."""

_LEVELS = {DRAIN_SIGNAL: DRAIN, STOP_SIGNAL: STOP}
_STEPS = {DRAIN: "draining", STOP: "stopping", KILL: "killing"}

_WARNINGS = frozenset({"unstarted", "restarting", "hopeless", "unregistered", "lost"})
"""Events that are logged as warnings."""

_DOUBLINGS = 60
"""Maximum exponent of the restart delay."""


class Supervisor:
    """Keeps `count` children running until a signal stops it; `argv` gives the command of each.

    `env` is the whole environment of the children; if it is None they get that of this process. The
    variables in `private` are passed beside it: other processes of this user cannot read them (see
    `private_environment`).
    """

    def __init__(
        self,
        argv: Callable[[int], Sequence[str]],
        count: int,
        *,
        lock: GroupLock,
        registry: GroupRegistry | None,
        group: str,
        env: Mapping[str, str] | None = None,
        private: Mapping[str, str] | None = None,
        stop_timeout: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        restart_base: float = 0.5,
        restart_longest: float = 30.0,
        settled_after: float = 10.0,
        on_event: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        if count < 1:
            raise InvalidOption(f"count must be at least 1, not {count}")
        self._argv, self._env, self._private = argv, env, dict(private or {})
        self._group = group
        self._lock = lock
        self._clock = clock
        self._heartbeat: GroupHeartbeat | None = None
        if registry is not None:
            self._heartbeat = GroupHeartbeat(registry, clock, self._report_error)
        self._stop_seconds = {DRAIN: stop_timeout, STOP: GRACE, KILL: LEAVING}
        self._restart_base, self._restart_longest = restart_base, restart_longest
        self._settled_after = settled_after
        self._on_event = on_event

        self._slots = [ChildSlot(number) for number in range(count)]
        self._state = STARTING
        self._stop_level = 0
        self._exit_code = 0
        self._to_replace: deque[ChildSlot] = deque()
        self._reload_requested = self._is_replacing = False
        self._replace_due: float | None = None
        """When a child that did not report readiness counts as ready."""
        self._has_changed = True
        self._status = ""

    def run(self) -> int:
        """Run the group until it has ended. Call it on the main thread, which receives signals.

        Return 0 if all children left, 1 if some were killed or another supervisor took the group
        over, 78 if no child can work.
        """
        with contextlib.ExitStack() as stack:
            self._signals = stack.enter_context(Signals())
            self._take_group(stack)
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self._selector.register(self._signals, selectors.EVENT_READ)
            self._lifeline, writer = os.pipe()  # no other process has the writing end
            stack.callback(os.close, writer)
            stack.callback(os.close, self._lifeline)
            self._began = self._clock()
            self._had_terminal = _has_terminal()
            self._pulse = systemd.watchdog_interval()
            self._pulse_due = None if self._pulse is None else self._began
            stack.callback(self._kill_all)
            for slot in self._slots:
                self._spawn(slot)
            self._watch()
        return self._exit_code

    def _take_group(self, stack: contextlib.ExitStack) -> None:
        if not self._lock.take():
            raise GroupTaken(self._group, self._lock.holder() or {})
        stack.callback(self._lock.release)
        self._started_at = time.time_ns() // 1_000_000
        if self._heartbeat is not None:
            self._heartbeat.take(self._group, self._entry())
            stack.callback(self._heartbeat.leave)

    def _watch(self) -> None:
        while not self._is_over():
            self._report_status()
            for key, _ in self._selector.select(self._seconds_to_wait()):
                if key.data is None:
                    self._on_signals(self._signals.received())
                else:
                    self._read_ready(key.data)
            self._reap()
            self._stop_overdue()
            self._spawn_due()
            self._mark_running()
            self._continue_reload()

    def _is_over(self) -> bool:
        living = (slot for slot in self._slots if slot.process is not None)
        return bool(self._stop_level) and all(slot.is_unkillable for slot in living)

    def _seconds_to_wait(self) -> float | None:
        moments = [self._pulse_due, self._replace_due]
        if self._heartbeat is not None:
            moments.append(self._heartbeat.due)  # None during an update, whose end wakes us
        if self._state == STARTING:
            moments.append(self._began + READY_WITHIN)
        for slot in self._slots:
            moments.append(slot.due if slot.process is None else slot.deadline)
        known = [moment for moment in moments if moment is not None]
        return max(0.0, min(known) - self._clock()) if known else None

    def _on_signals(self, names: Sequence[str]) -> None:
        for name in names:
            if name == "SIGHUP" and self._terminal_is_gone():
                name = "SIGTERM"  # the operator closed the terminal that started us
            if name == "SIGHUP":
                self._request_reload()
            elif name in ("SIGTERM", "SIGINT"):
                self._stop_all(min(self._stop_level + 1, KILL))
            elif self._stop_level < _LEVELS.get(name, 0):
                self._stop_all(_LEVELS[name])

    def _terminal_is_gone(self) -> bool:
        return self._had_terminal and not _has_terminal()

    # --- start of children ------------------------------------------------------------------------

    def _spawn(self, slot: ChildSlot) -> None:
        environment = os.environ if self._env is None else self._env
        argv = self._argv(slot.number)
        ready_fd = slot.spawn(argv, environment, self._private, self._lifeline, self._clock())
        self._selector.register(ready_fd, selectors.EVENT_READ, slot)
        self._emit("spawned", slot=slot.number, pid=slot.pid)

    def _read_ready(self, slot: ChildSlot) -> None:
        assert slot.ready_fd is not None
        with contextlib.suppress(BlockingIOError):
            if not os.read(slot.ready_fd, 64):
                self._close_ready_fd(slot)
            elif not slot.is_ready:
                slot.is_ready = True
                self._emit("ready", slot=slot.number, pid=slot.pid)

    def _close_ready_fd(self, slot: ChildSlot) -> None:
        if slot.ready_fd is not None:
            self._selector.unregister(slot.ready_fd)
            os.close(slot.ready_fd)
            slot.ready_fd = None

    def _spawn_due(self) -> None:
        for slot in self._slots:
            if slot.process is not None or slot.due is None or self._clock() < slot.due:
                continue
            try:
                self._spawn(slot)
            except ChildNotStarted as error:
                # Retried: the program may be being replaced, or there were too many processes.
                self._emit("unstarted", slot=slot.number, reason=str(error.__cause__))
                self._restart_later(slot)

    def _mark_running(self) -> None:
        now = self._clock()
        if self._state != STARTING:
            return
        if now >= self._began + READY_WITHIN or all(slot.is_up(now) for slot in self._slots):
            self._state = RUNNING
            systemd.notify(systemd.READY)
            self._emit("running")

    # --- end of children --------------------------------------------------------------------------

    def _reap(self) -> None:
        for slot in self._slots:
            if slot.process is not None and slot.process.poll() is not None:
                self._child_ended(slot)
        if os.getpid() == 1:
            self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Reap the orphans that the kernel made our children, because this is process 1."""
        ours = {slot.pid for slot in self._slots}
        with contextlib.suppress(ChildProcessError):  # there are none at all
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in ours:
                    return  # its signal wakes us again
                os.waitpid(ended.si_pid, os.WNOHANG)

    def _child_ended(self, slot: ChildSlot) -> None:
        was_stopped = slot.stop_level > 0
        self._close_ready_fd(slot)
        process = slot.clear()
        code = process.returncode
        self._emit("ended", slot=slot.number, pid=process.pid, code=code, reason=exit_reason(code))
        if self._stop_level:
            return
        if was_stopped or code == WANTS_FRESH:
            slot.early_exits, slot.due = 0, self._clock()
        elif code == CANNOT_WORK:
            self._emit("hopeless", slot=slot.number)
            self._exit_code = CANNOT_WORK
            self._stop_all(DRAIN)
        else:
            if self._clock() - slot.spawned > self._settled_after:
                slot.early_exits = 0
            self._restart_later(slot)

    def _restart_later(self, slot: ChildSlot) -> None:
        delay = 0.0
        if slot.early_exits:
            doubled = self._restart_base * 2.0 ** min(slot.early_exits - 1, _DOUBLINGS)
            delay = min(doubled, self._restart_longest)
        slot.early_exits += 1
        slot.due = self._clock() + delay
        self._emit("restarting", slot=slot.number, delay=delay)

    def _stop_all(self, level: int) -> None:
        """Stop all children, up to this level."""
        if not self._stop_level:
            self._state = DRAINING
            self._reload_requested = self._is_replacing = False
            systemd.notify(systemd.STOPPING)
        self._stop_level = level
        self._emit(_STEPS[level])
        for slot in self._slots:
            slot.due = None
            self._stop_child(slot, level)

    def _stop_child(self, slot: ChildSlot, level: int) -> None:
        if slot.process is None:
            return
        if slot.signal_stop(level):
            self._exit_code = self._exit_code or 1
        if self._stop_level:  # during a reload a child has no deadline
            slot.deadline = self._clock() + self._stop_seconds[slot.stop_level]
        self._has_changed = True

    def _stop_overdue(self) -> None:
        for slot in self._slots:
            if slot.deadline is None or self._clock() < slot.deadline:
                continue
            if slot.stop_level == KILL:  # the kernel cannot end it either
                slot.deadline = None
                slot.is_unkillable = True
            else:
                self._stop_all(self._stop_level + 1)

    def _kill_all(self) -> None:
        """Stop the worker processes that are left after an error of the supervisor."""
        left = [slot for slot in self._slots if slot.process is not None and not slot.is_unkillable]
        for slot in left:
            assert slot.process is not None
            slot.process.send_signal(signal.SIGTERM)
        ends = time.monotonic() + GRACE
        for slot in left:
            assert slot.process is not None
            try:
                slot.process.wait(max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                kill(slot.process)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    slot.process.wait(LEAVING)
        for slot in self._slots:
            self._close_ready_fd(slot)

    # --- reload -----------------------------------------------------------------------------------

    def _request_reload(self) -> None:
        """Replace every child, one after the other; start those that wait for a restart now."""
        if self._stop_level:
            return
        for slot in self._slots:
            if slot.process is None:
                slot.early_exits, slot.due = 0, self._clock()
        self._to_replace = deque(slot for slot in self._slots if slot.process is not None)
        self._reload_requested = True

    def _continue_reload(self) -> None:
        """Replace the next child if all others are up: a broken program stops the reload."""
        self._replace_due = None
        if self._state != RUNNING or not (self._reload_requested or self._is_replacing):
            return
        self._reload_requested = False
        if not self._is_replacing:
            self._is_replacing = True
            systemd.notify(systemd.reloading())
            self._emit("reloading")
        now = self._clock()
        missing = [slot for slot in self._slots if not slot.is_up(now)]
        if missing:
            ready_times = [slot.counts_as_ready_at for slot in missing if slot.state == STARTING]
            self._replace_due = min(ready_times, default=None)
        elif self._to_replace:
            self._stop_child(self._to_replace.popleft(), DRAIN)
        else:
            self._is_replacing = False
            systemd.notify(systemd.READY)
            self._emit("reloaded")

    # --- events and status ------------------------------------------------------------------------

    def _emit(self, event: str, **details: Any) -> None:
        self._has_changed = True
        level = logging.WARNING if event in _WARNINGS else logging.INFO
        log.log(level, "%s: %s %s", self._group, event, details or "")
        if self._on_event is not None:
            try:
                self._on_event(event, details)
            except Exception:
                log.exception("a listener for %r failed", event)

    def _report_error(self, error: BulliteError) -> None:
        self._emit("unregistered", reason=str(error))

    def _report_status(self) -> None:
        """Update the registration and systemd."""
        now = self._clock()
        if self._heartbeat is not None:
            self._update_registration(self._heartbeat, now)
        running = sum(slot.state == RUNNING for slot in self._slots)
        status = f"{self._state}, {running} of {len(self._slots)} workers ready"
        if status != self._status:
            self._status = status
            systemd.notify(systemd.status(status))
        if self._pulse is not None and self._pulse_due is not None and now >= self._pulse_due:
            self._pulse_due = now + self._pulse
            systemd.notify(systemd.ALIVE)

    def _update_registration(self, heartbeat: GroupHeartbeat, now: float) -> None:
        if (holder := heartbeat.holder()) is not None:
            self._heartbeat = None  # the row is the other supervisor's
            self._emit("lost", pid=holder.get("pid"), host=holder.get("host"))
            self._exit_code = self._exit_code or 1
            if not self._stop_level:
                self._stop_all(DRAIN)
        elif heartbeat.due is not None and (self._has_changed or now >= heartbeat.due):
            self._has_changed = False
            heartbeat.update(self._entry(), self._signals.wake)

    def _entry(self) -> dict[str, Any]:
        return {
            **entry_of_this_process(self._group),
            "started_at": self._started_at,
            "count": len(self._slots),
            "state": self._state,
            "children": [slot.entry() for slot in self._slots],
        }


def _has_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False
