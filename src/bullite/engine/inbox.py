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
"""A batch is closed once it holds so many jobs: a transaction is one lock for everybody."""

INBOX_ROWS = 20_000
"""Above so many jobs in the inbox, producers are made to wait."""


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
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)

    # --- from any thread ---

    def put(self, asks: Sequence[PendingRequest]) -> None:
        """Put requests in; those put in together are taken together."""
        for ask in asks:
            if jobs := _jobs_in(ask.request):
                with self._counting:
                    self._rows_in += jobs
        self._requests.extend(asks)
        self.wake()

    def put_fragment(self, joiner: RequestMerger, part: Any, hurry: bool = True) -> None:
        """Put in what becomes a request together with its like, behind all that was put in.

        If there is no hurry, it waits until there is something else to do.
        """
        self._fragments.append((joiner, part))
        if hurry:
            self._fragments_are_urgent = True
            self.wake()

    def has_room(self) -> bool:
        return self._rows_in - self._rows_out < INBOX_ROWS

    def when_room(self, reply: Reply, mailbox: ReplyTarget) -> None:
        self._waiting_for_room.append((reply, mailbox))
        self.wake()

    def wake(self) -> None:
        # The engine says that it is asleep before its last look, so whatever is put in is either
        # seen by that look or rings.
        if self._asleep:
            self._asleep = False
            try:
                self._rope.send(b"!")
            except OSError:
                pass  # full: it rings already; closed: nobody is there

    # --- from the engine's thread ---

    def __bool__(self) -> bool:
        return bool(self._requests or self._fragments)

    def has_urgent(self) -> bool:
        """Whether there is something in it that must not wait."""
        return bool(self._requests) or self._fragments_are_urgent

    def take(self, patiently: bool = False) -> list[PendingRequest]:
        """What waits, up to a batch; `patiently` only what must not wait, and what goes with it."""
        if patiently and not self.has_urgent():
            return []
        self._fragments_are_urgent = False
        # Counted first: who put a part in may have put a request in before.
        parts = len(self._fragments)
        asks: list[PendingRequest] = []
        rows = 0
        while self._requests and rows < BATCH_ROWS:
            ask = self._requests.popleft()
            jobs = _jobs_in(ask.request)
            self._rows_out += jobs
            rows += jobs or 1
            asks.append(ask)
        return asks if self._requests else asks + self._joined(parts)

    def _joined(self, number: int) -> list[PendingRequest]:
        """The requests that the first so many parts make."""
        alike: dict[RequestMerger, list[Any]] = {}
        for _ in range(number):
            joiner, part = self._fragments.popleft()
            alike.setdefault(joiner, []).append(part)
        return _requests(alike)

    def drain(self) -> list[PendingRequest]:
        """Once it is closed, take everything that is left; any thread, each request once."""
        asks = list(_popped(self._requests))
        alike: dict[RequestMerger, list[Any]] = {}
        for joiner, part in _popped(self._fragments):
            alike.setdefault(joiner, []).append(part)
        return asks + _requests(alike)

    def sleep(self, ears: Sequence[int], timeout: float | None) -> bool:
        """Wait until something is put in or an ear hears; whether an ear did."""
        self._asleep = True
        if self.has_urgent() or self._waiting_for_room:
            self._asleep = False
            return False
        ready = _first_ready([self._bell.fileno(), *ears], timeout)
        self._asleep = False
        if self._bell.fileno() in ready:
            self._bell.recv(4096)
            return len(ready) > 1
        return bool(ready)

    def waiters_to_release(self) -> list[tuple[PendingRequest, None]]:
        """Who may go on producing now."""
        is_full = self._rows_in - self._rows_out > INBOX_ROWS // 2
        if not self._waiting_for_room or (is_full and not self.is_closed):
            return []
        waiting = _popped(self._waiting_for_room)
        return [(PendingRequest(None, reply, mailbox), None) for reply, mailbox in waiting]

    def close(self) -> None:
        """From now on nothing is taken out but by `drain`."""
        self.is_closed = True

    def release(self) -> None:
        """Close the sockets; the engine sleeps no more."""
        self._bell.close()
        self._rope.close()


def _popped(waiting: deque[T]) -> Iterator[T]:
    """Take out what is there; what another thread takes meanwhile is left out."""
    while waiting:
        try:
            yield waiting.popleft()
        except IndexError:
            return


def _requests(alike: dict[RequestMerger, list[Any]]) -> list[PendingRequest]:
    return [ask for joiner, parts in alike.items() for ask in joiner.merge(parts)]


def _first_ready(descriptors: Sequence[int], timeout: float | None) -> list[int]:
    """Those of the descriptors that something is to be read from, once there is one, or none.

    Asked anew each time: ears come and go, and a new one may have the number of an old one.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [ready for ready, _ in poll.poll(None if timeout is None else timeout * 1000)]


def _jobs_in(request: Any) -> int:
    return len(request.jobs) if type(request) is AddJobs else 0
