"""Queue of requests for the engine: all threads put requests in, the engine's thread takes them.

Only jobs are counted under a lock, so that producers can be made to wait. A thread may put a
request in while the engine closes the inbox. Each of the two drains the inbox afterwards: the
thread if it finds it closed, the engine after it has closed it. So every request is drained once.
"""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ..operations.add import AddJobs
from .replies import PendingRequest, Reply, ReplyTarget, RequestMerger

T = TypeVar("T")

BATCH_ROWS = 2_000
"""Jobs in a batch: a transaction locks out all other writers."""

INBOX_ROWS = 20_000
"""Jobs in the inbox above which producers wait."""


class Inbox:
    """Pending requests, and the socket that wakes the engine for them."""

    def __init__(self) -> None:
        self._requests: deque[PendingRequest] = deque()
        self._fragments: deque[tuple[RequestMerger, Any]] = deque()
        self._fragments_are_urgent = False
        self._rows_in = self._rows_out = 0
        self._counting = threading.Lock()
        self._waiting_for_room: deque[tuple[Reply, ReplyTarget]] = deque()
        self._asleep = False
        self.is_closed = False
        self._wakeups, self._waker = socket.socketpair()
        self._wakeups.setblocking(False)
        self._waker.setblocking(False)

    # --- from any thread ---

    def put(self, requests: Sequence[PendingRequest]) -> None:
        """Put requests in. Requests put in together are taken together."""
        for pending in requests:
            if jobs := _jobs_in(pending.request):
                with self._counting:
                    self._rows_in += jobs
        self._requests.extend(requests)
        self.wake()

    def put_fragment(self, merger: RequestMerger, part: Any, urgent: bool = True) -> None:
        """Put in a part of a request, which `merger` makes; it comes after all that was put in.

        Unless it is urgent, it waits until there is something else to do.
        """
        self._fragments.append((merger, part))
        if urgent:
            self._fragments_are_urgent = True
            self.wake()

    def has_room(self) -> bool:
        return self._rows_in - self._rows_out < INBOX_ROWS

    def when_room(self, reply: Reply, target: ReplyTarget) -> None:
        self._waiting_for_room.append((reply, target))
        self.wake()

    def wake(self) -> None:
        # The engine sets `_asleep` before its last check, so a request that is put in is either
        # seen by that check or wakes the engine.
        if self._asleep:
            self._asleep = False
            try:
                self._waker.send(b"!")
            except OSError:
                pass  # full: it wakes already; closed: no engine is there

    # --- from the engine's thread ---

    def __bool__(self) -> bool:
        return bool(self._requests or self._fragments)

    def has_urgent(self) -> bool:
        """Return True if it has requests or fragments that must not wait."""
        return bool(self._requests) or self._fragments_are_urgent

    def take(self, only_urgent: bool = False) -> list[PendingRequest]:
        """Take a batch out. If `only_urgent`, take nothing unless something must not wait."""
        if only_urgent and not self.has_urgent():
            return []
        self._fragments_are_urgent = False
        # Counted first: a thread puts its requests in before its fragments.
        parts = len(self._fragments)
        requests: list[PendingRequest] = []
        rows = 0
        while self._requests and rows < BATCH_ROWS:
            pending = self._requests.popleft()
            jobs = _jobs_in(pending.request)
            self._rows_out += jobs
            rows += jobs or 1
            requests.append(pending)
        return requests if self._requests else requests + self._merged(parts)

    def _merged(self, number: int) -> list[PendingRequest]:
        """Return the requests that the first fragments make."""
        fragments: dict[RequestMerger, list[Any]] = {}
        for _ in range(number):
            merger, part = self._fragments.popleft()
            fragments.setdefault(merger, []).append(part)
        return _requests(fragments)

    def drain(self) -> list[PendingRequest]:
        """Take out all that is left after the close. Any thread may; each request is taken once."""
        requests = list(_popped(self._requests))
        fragments: dict[RequestMerger, list[Any]] = {}
        for merger, part in _popped(self._fragments):
            fragments.setdefault(merger, []).append(part)
        return requests + _requests(fragments)

    def sleep(self, notification_fds: Sequence[int], timeout: float | None) -> bool:
        """Wait until something is put in or a notification comes. Return True for the latter."""
        self._asleep = True
        if self.has_urgent() or self._waiting_for_room:
            self._asleep = False
            return False
        ready = _first_ready([self._wakeups.fileno(), *notification_fds], timeout)
        self._asleep = False
        if self._wakeups.fileno() in ready:
            self._wakeups.recv(4096)
            return len(ready) > 1
        return bool(ready)

    def waiters_to_release(self) -> list[tuple[PendingRequest, None]]:
        """Return the producers that may go on now."""
        is_full = self._rows_in - self._rows_out > INBOX_ROWS // 2
        if not self._waiting_for_room or (is_full and not self.is_closed):
            return []
        waiting = _popped(self._waiting_for_room)
        return [(PendingRequest(None, reply, target), None) for reply, target in waiting]

    def close(self) -> None:
        """Have all that is still put in taken out by `drain` only."""
        self.is_closed = True

    def release(self) -> None:
        """Close the sockets; the engine sleeps no more."""
        self._wakeups.close()
        self._waker.close()


def _popped(waiting: deque[T]) -> Iterator[T]:
    """Take out all elements, but for those that another thread takes meanwhile."""
    while waiting:
        try:
            yield waiting.popleft()
        except IndexError:
            return


def _requests(fragments: dict[RequestMerger, list[Any]]) -> list[PendingRequest]:
    return [pending for merger, parts in fragments.items() for pending in merger.merge(parts)]


def _first_ready(descriptors: Sequence[int], timeout: float | None) -> list[int]:
    """Return the descriptors that can be read, once there is one; none after the timeout.

    Registered again each time: sockets come and go, and a new one may get the number of an old one.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [ready for ready, _ in poll.poll(None if timeout is None else timeout * 1000)]


def _jobs_in(request: Any) -> int:
    return len(request.jobs) if type(request) is AddJobs else 0
