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


class ManualMaintenance(Maintenance):
    """Maintenance that is never due: `run_maintenance` runs it."""

    def next_at(self) -> int:
        return NEVER


class InlineEngine(Engine):
    """An engine that takes a turn for each request, on the caller's thread."""

    def __init__(self, driver: SQLiteDriver) -> None:
        driver.open()
        super().__init__(driver, read_thread=InlineReads(driver))
        self._maintenance.schedule = ManualMaintenance(driver)
        self._turn_lock = threading.RLock()
        self._is_turning = False

    def submit_all(self, requests: Sequence[PendingRequest]) -> None:
        super().submit_all(requests)
        self._work()

    def submit_merged(self, merger: RequestMerger, fragment: Any, urgent: bool = True) -> None:
        super().submit_merged(merger, fragment)
        self._work()

    def when_room(self, reply: Reply, target: ReplyTarget) -> None:
        super().when_room(reply, target)
        with self._turn_lock:
            self.turn()

    def execute(self, request: Any) -> Any:
        """Execute a request and return its result, or raise its error."""
        future: BlockingFuture[Any] = BlockingFuture()
        self.submit(request, future)
        return future.result()

    def _work(self) -> None:
        with self._turn_lock:
            if self._is_turning:
                return  # submitted by a reply: the turn that delivers it continues with this
            self._is_turning = True
            try:
                while not self.is_stopping and (self._inbox or self._dispatcher.wants_to_claim()):
                    self.turn()
            finally:
                self._is_turning = False

    def run_maintenance(self, may_recover: Callable[[WorkerRow], bool]) -> bool:
        """Run all maintenance that is due. Return True if anything was done.

        `may_recover` returns whether the jobs of a lost worker are recovered now.
        """
        maintenance, did = Maintenance(self.driver), False
        for request in maintenance.due(self.clock.lease_now()):
            if isinstance(request, RenewLeases):
                continue  # without renewal a live process counts as frozen, not as dead
            if isinstance(request, RecoverStalled):
                if not may_recover(request.worker):
                    continue
                request.worker = self._dispatcher.apply_stall_limit(request.worker)
            result = self.execute(request)
            did = did or bool(result)
            while maintenance.again(request, result):
                result = self.execute(request)
        if self._maintenance.schedule.metrics_are_due(self.clock.lease_now()):
            self.submit_all(self._write_metrics())
        return did


class InlineReads(ReadThread):
    """Executes reads on the caller's thread."""

    def __init__(self, driver: SQLiteDriver) -> None:
        super().__init__(driver.reader)
        self._reader = driver.reader()

    def read(self, statement: str, params: Params, reply: Reply, target: ReplyTarget) -> None:
        result: Any
        if self._closed:
            result = StoreClosed("the store is closed")
        else:
            try:
                result = self._reader.read(statement, params).rows
            except Exception as error:
                result = error
        target.deliver([(reply, result)])

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reader.close()


class InlineStore(Store):
    """A store with an engine of its own, as another process on the same file would have."""

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
        """Close the file without deregistering workers, as the end of a killed process does."""
        self.engine.read_thread.close()
        self.engine.close()
