"""Engines and stores without threads: each request is executed on the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..client.runtime.blocking import BlockingFuture
from ..client.runtime.store import Store
from ..database.driver import Params, WorkerRow
from ..database.sqlite.driver import SQLiteDriver
from ..engine.engine import Engine
from ..engine.maintenance import Maintenance
from ..engine.read_thread import ReadThread
from ..engine.replies import PendingRequest, Reply, ReplyTarget, RequestMerger
from ..errors import StoreClosed
from ..operations.workers import RecoverStalled, RenewLeases

NEVER = 2**62


class NoChores(Maintenance):
    """Maintenance that is never due by itself: tests run it by a call."""

    def next_at(self) -> int:
        return NEVER


class InlineEngine(Engine):
    """An engine that takes a turn for each request, on the caller's thread."""

    def __init__(self, driver: SQLiteDriver) -> None:
        driver.open()
        super().__init__(driver, read_thread=InlineReading(driver))
        self._maintenance.schedule = NoChores(driver)
        self._one_at_a_time = threading.RLock()
        self._is_turning = False

    def submit_all(self, requests: Sequence[PendingRequest]) -> None:
        super().submit_all(requests)
        self._work()

    def submit_merged(self, merger: RequestMerger, fragment: Any, urgent: bool = True) -> None:
        super().submit_merged(merger, fragment)
        self._work()

    def when_room(self, reply: Reply, target: ReplyTarget) -> None:
        super().when_room(reply, target)
        with self._one_at_a_time:
            self.turn()

    def ask(self, request: Any) -> Any:
        """The answer to a request; raises what it is refused with."""
        answer: BlockingFuture[Any] = BlockingFuture()
        self.submit(request, answer)
        return answer.result()

    def _work(self) -> None:
        with self._one_at_a_time:
            if self._is_turning:
                return  # submitted by a reply: the turn that delivers it continues with this
            self._is_turning = True
            try:
                while not self.is_stopping and (self._inbox or self._dispatcher.wants_to_claim()):
                    self.turn()
            finally:
                self._is_turning = False

    def do_chores(self, may_recover: Callable[[WorkerRow], bool]) -> bool:
        """All that the scheduler service would do now; whether there was anything to do."""
        chores, did = Maintenance(self.driver), False
        for chore in chores.due(self.clock.lease_now()):
            if isinstance(chore, RenewLeases):
                continue  # a live process that is silent is taken for frozen, not for dead
            if isinstance(chore, RecoverStalled):
                if not may_recover(chore.worker):
                    continue
                chore.worker = self._dispatcher.apply_stall_limit(chore.worker)
            answer = self.ask(chore)
            did = did or bool(answer)
            while chores.again(chore, answer):
                answer = self.ask(chore)
        if self._maintenance.schedule.metrics_are_due(self.clock.lease_now()):
            self.submit_all(self._write_metrics())
        return did


class InlineReading(ReadThread):
    """Executes reads on the caller's thread."""

    def __init__(self, driver: SQLiteDriver) -> None:
        super().__init__(driver.reader)
        self._reader = driver.reader()

    def read(self, statement: str, params: Params, reply: Reply, target: ReplyTarget) -> None:
        answer: Any
        if self._closed:
            answer = StoreClosed("the store is closed")
        else:
            try:
                answer = self._reader.read(statement, params).rows
            except Exception as error:
                answer = error
        target.deliver([(reply, answer)])

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reader.close()


class InlineStore(Store):
    """A store with an engine of its own: to the others on the same file, another process."""

    def __init__(self, driver: SQLiteDriver) -> None:
        super().__init__(driver.path, clock=driver.clock)
        self.engine = InlineEngine(driver)

    def open(self) -> Engine:
        if self.engine.is_stopping:
            raise StoreClosed(f"{self.location} was closed, or the process that used it was killed")
        return self.engine

    @property
    def is_open(self) -> bool:
        return not self.engine.is_stopping

    def close(self) -> None:
        """Let go of the file without a word to the others: what a killed process does, too."""
        self.engine.read_thread.close()
        self.engine.close()
