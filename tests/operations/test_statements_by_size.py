"""Statements by the number of jobs: one request takes as many for two jobs as for hundreds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from bullite.core.states import REMOVE, RESTORE_WAITING, RETRY_FINISHED
from bullite.database.driver import Params, Result
from tests.support.harness import Recorder, Store, new_job

FEW, MANY = 2, 40
"""Two sizes of the same data; the statements for both must be the same."""


class Executed:
    """The statements that a driver was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: Counter[str] = Counter()
        execute = Recorder.execute

        def counted(driver: Recorder, statement: str, params: Params) -> Result:
            self.names[statement] += 1
            return execute(driver, statement, params)

        monkeypatch.setattr(Recorder, "execute", counted)

    def by(self, call: Callable[[], Any]) -> dict[str, int]:
        """How often a call asks for which statement."""
        self.names.clear()
        call()
        return dict(self.names)


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> Executed:
    return Executed(monkeypatch)


def with_ids(prefix: str, number: int) -> list[Any]:
    return [new_job(custom_id=f"{prefix} {n}") for n in range(number)]


def test_restore_looks_up_the_custom_ids_of_all_jobs_together(
    store: Store, executed: Executed
) -> None:
    costs = []
    for number in (FEW, MANY):
        jobs = store.add_all(*with_ids(f"of {number}", number))
        assert store.move(REMOVE, *jobs) == jobs
        costs.append(executed.by(lambda jobs=jobs: store.move(RESTORE_WAITING, *jobs)))
        assert set(store.states(*jobs)) == {"waiting"}
    assert costs[0] == costs[1]


def test_retry_of_dead_letters_looks_up_the_custom_ids_of_all_jobs_together(
    store: Store, executed: Executed
) -> None:
    store.home.configure(dead_letter="dead")
    costs = []
    for number in (FEW, MANY):
        jobs = store.add_all(*with_ids(f"of {number}", number))
        worker = store.worker()
        worker.fail(*worker.claim(number))
        costs.append(executed.by(lambda jobs=jobs: store.move(RETRY_FINISHED, *jobs)))
        assert set(store.states(*jobs)) == {"waiting"}
        store.move(REMOVE, *jobs)
    assert costs[0] == costs[1]
