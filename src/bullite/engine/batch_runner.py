"""Run a batch: in few transactions, again after a conflict, and so that one failure stays alone."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from itertools import count

from ..database.driver import Conflict, InvalidData, NotTogether, OutOfOrder, TransactionAborted
from ..errors import RequestRefused, StoreBusy, StoreError
from .batching import group, split
from .dispatcher import Dispatcher
from .failures import Failures
from .lock_order import NO_FIRST_LOCKS
from .replies import PendingRequest, deliver
from .state import EngineState
from .transaction_runner import TransactionRunner

log = logging.getLogger("bullite.engine")

MAX_TRIES = 30
"""How often a transaction that the database aborts is run."""

MAX_CONFLICTS = 5
"""How often a request is run that loads its jobs first and yet meets a conflict."""

MAX_BACKOFF = 0.2
"""Seconds before it is run again, at most; the first pauses are shorter, and random."""


class BatchRunner:
    """Runs batches of one engine, on its thread. No error of a request leaves it."""

    def __init__(
        self,
        transactions: TransactionRunner,
        dispatcher: Dispatcher,
        failures: Failures,
        state: EngineState,
        has_other_writers: bool,
    ) -> None:
        self._transactions = transactions
        self._dispatcher = dispatcher
        self._failures = failures
        self._state = state
        self._has_other_writers = has_other_writers

    def run(self, batch: Sequence[PendingRequest]) -> None:
        """Run a batch, in as few transactions as possible, with claims in one of them."""
        parts = split([pending.request for pending in batch], self._has_other_writers)
        for indexes, is_apart in parts:
            self._run_together([batch[index] for index in indexes], claims_jobs=not is_apart)
        if not parts[-1].is_apart and not (batch and self._dispatcher.are_held_off()):
            return
        if self._dispatcher.wants_to_claim():
            self._run_together([])

    def run_single(self, pending: PendingRequest) -> None:
        """Run one request that failed with others; load its jobs before they are moved."""
        try:
            self._run_with_retries([pending], verify_first=True)
        except StoreError as error:
            self._failures.fail([pending], error)
        except InvalidData as error:
            refused = RequestRefused(f"the database refused the request: {error}")
            deliver([(pending, refused)])
        except Exception as error:
            log.exception("a request failed")
            deliver([(pending, error)])

    def _run_together(self, batch: Sequence[PendingRequest], claims_jobs: bool = True) -> None:
        """Run a transaction. One bad request must not fail its neighbours."""
        try:
            self._run_with_retries(batch, claims_jobs=claims_jobs)
        except NotTogether as error:
            log.debug("requests are run one group after the other: %s", error)
            for indexes in group([pending.request for pending in batch]):
                self._run_together([batch[index] for index in indexes], claims_jobs=False)
        except StoreError as error:
            self._failures.fail(batch, error)
        except Exception as error:
            log.debug("a batch is run again, one by one: %s", error)
            if not batch:
                self._failures.fail(batch, error)
            for pending in batch:
                self.run_single(pending)
            if batch and claims_jobs and self._dispatcher.wants_to_claim():
                self._run_together([])

    def _run_with_retries(
        self,
        batch: Sequence[PendingRequest],
        verify_first: bool = False,
        claims_jobs: bool = True,
    ) -> None:
        """Run a transaction, and again while it fails only because of what others do."""
        if self._state.error is not None:
            raise self._state.error
        locks = NO_FIRST_LOCKS
        for tries in count(1):
            try:
                self._transactions.run(batch, verify_first, claims_jobs, locks)
                return
            except NotTogether:
                raise
            except OutOfOrder as error:
                if tries >= MAX_TRIES:
                    raise StoreBusy(f"undone {tries} times in a row ({error})") from error
                locks = locks.and_missing(error)
                continue  # the next try waits for these locks
            except TransactionAborted as error:
                if tries >= MAX_TRIES:
                    raise StoreBusy(
                        f"undone {tries} times in a row ({error}); nothing was written"
                    ) from error
                log.debug("a transaction is run again: %s", error)
            except Conflict as error:
                if not verify_first:
                    raise
                if tries >= MAX_CONFLICTS:
                    raise InvalidData(str(error)) from error
            time.sleep(random.uniform(0, min(MAX_BACKOFF, 0.001 * 2**tries)))
