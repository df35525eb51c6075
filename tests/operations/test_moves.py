"""Every move from every state: made if and only if the table of moves allows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.states import (
    ADD,
    ADD_DELAYED,
    BACK_OFF,
    CLAIM,
    DELAY,
    DELETE,
    DELETE_ACTIVE,
    DEPENDENCIES_DONE,
    DEPENDENCIES_DONE_DELAYED,
    EXPIRE,
    MOVES,
    PROMOTE,
    RELEASE_FROM_DEPENDENCIES,
    RELEASE_FROM_DEPENDENCIES_DELAYED,
    REMOVE,
    RESCHEDULE,
    RESTORE,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    RETRY_NOW,
    STALL,
    STALL_DELAYED,
    WAIT_FOR_CHILDREN,
    Move,
    State,
    diagram,
)
from bullite.database.driver import Conflict
from bullite.operations.cancel_and_expire import Expire
from bullite.operations.flow_graph import FlowRef
from bullite.operations.transitions import delete_jobs, transition
from bullite.operations.workers import RecoverStalled
from tests.support.harness import Process, Store, Worker, new_job, node

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"

OF_A_JOB = [move for move in MOVES if move.sources]
HELD = [move for move in OF_A_JOB if move.held]
OF_LINKS = (
    WAIT_FOR_CHILDREN,
    DEPENDENCIES_DONE,
    DEPENDENCIES_DONE_DELAYED,
    RELEASE_FROM_DEPENDENCIES,
    RELEASE_FROM_DEPENDENCIES_DELAYED,
)
"""Made because of other jobs: test_linking.py asks for them in earnest."""
IN_EARNEST = [move for move in OF_A_JOB if move not in OF_LINKS]
TAKES_A_VALUE = (
    *(PROMOTE, RESCHEDULE, BACK_OFF, RETRY_NOW, DELAY, STALL, STALL_DELAYED),
    *(
        RETRY_FINISHED,
        RETRY_FINISHED_DELAYED,
        DEPENDENCIES_DONE,
        DEPENDENCIES_DONE_DELAYED,
        RELEASE_FROM_DEPENDENCIES,
        RELEASE_FROM_DEPENDENCIES_DELAYED,
    ),
)


class Scene(NamedTuple):
    """A store with one job in it, brought to where a test wants it."""

    store: Store
    worker: Worker
    job: int
    token: int
    """The one the job is, or was last, held with."""


# --- the places a job can be in ------------------------------------------------------------------


def waiting(store: Store, worker: Worker, priority: int) -> int:
    return store.add(priority=priority)


def delayed(store: Store, worker: Worker, priority: int) -> int:
    return store.add(priority=priority, delay=60_000)


def active(store: Store, worker: Worker, priority: int) -> int:
    store.add(priority=priority)
    return worker.claim_one().id


def completed(store: Store, worker: Worker, priority: int) -> int:
    store.add(priority=priority)
    held = worker.claim_one()
    worker.complete(held, value="1")
    return held.id


def failed(store: Store, worker: Worker, priority: int) -> int:
    store.add(priority=priority)
    held = worker.claim_one()
    worker.fail(held)
    return held.id


def expired(store: Store, worker: Worker, priority: int) -> int:
    job = store.add(priority=priority, expires=5)
    store.clock.advance(5)
    store.ask(Expire(store.queue))
    return job


def given_back(store: Store, worker: Worker, priority: int) -> int:
    store.add(priority=priority)
    held = worker.claim_one()
    worker.give_back(held)
    return held.id


def released(store: Store, worker: Worker, priority: int) -> int:
    store.add(priority=priority)
    held = worker.claim_one()
    worker.release(held)
    return held.id


def put_off(store: Store, worker: Worker, priority: int) -> int:
    store.add(priority=priority)
    held = worker.claim_one()
    worker.delay(held, delay=60_000)
    return held.id


def backed_off(store: Store, worker: Worker, priority: int) -> int:
    store.add(priority=priority)
    held = worker.claim_one()
    worker.back_off(held, delay=60_000)
    return held.id


def blocked(store: Store, worker: Worker, priority: int) -> int:
    elsewhere = store.home.open_queue("elsewhere")
    other = store.home.add(queue=elsewhere)
    waits = node(new_job(priority=priority), depends_on=(FlowRef("elsewhere", str(other)),))
    return store.grow(waits)[0]


Arrange = Callable[[Store, Worker, int], int]


def removed_from(place: Arrange) -> Arrange:
    def arrange(store: Store, worker: Worker, priority: int) -> int:
        job = place(store, worker, priority)
        store.move(REMOVE, job)
        return job

    return arrange


def deleted(store: Store, worker: Worker, priority: int) -> int:
    job = completed(store, worker, priority)
    store.move(DELETE, job)
    return job


PLACES: dict[str, tuple[Arrange, State | None, State | None]] = {
    # how to get there, the state, and for removed jobs the state they came from
    "waiting": (waiting, State.WAITING, None),
    "given back": (given_back, State.WAITING, None),
    "released": (released, State.WAITING, None),
    "delayed": (delayed, State.DELAYED, None),
    "backed off": (backed_off, State.DELAYED, None),
    "put off": (put_off, State.DELAYED, None),
    "active": (active, State.ACTIVE, None),
    "blocked": (blocked, State.WAITING_CHILDREN, None),
    "completed": (completed, State.COMPLETED, None),
    "failed": (failed, State.FAILED, None),
    "expired": (expired, State.FAILED, None),
    "removed from waiting": (removed_from(waiting), State.REMOVED, State.WAITING),
    "removed from delayed": (removed_from(delayed), State.REMOVED, State.DELAYED),
    "removed from blocked": (removed_from(blocked), State.REMOVED, State.WAITING_CHILDREN),
    "removed from completed": (removed_from(completed), State.REMOVED, State.COMPLETED),
    "removed from failed": (removed_from(failed), State.REMOVED, State.FAILED),
    "deleted": (deleted, None, None),
}


def arrange(store: Store, place: str, priority: int = 0) -> Scene:
    worker = store.worker()
    job = PLACES[place][0](store, worker, priority)
    row = store.row(job)
    token = row.token if row is not None and row.token is not None else 1
    store.clock.advance(7)
    return Scene(store, worker, job, token)


def clear(scene: Scene) -> None:
    """Make room for the next."""
    store, worker, job, _ = scene
    store.move(DELETE_ACTIVE, job)
    store.move(DELETE, job)
    worker.leave()


def allows(move: Move, place: str) -> bool:
    """What the table says, and that a removed job goes back only to where it was taken from."""
    _, state, came_from = PLACES[place]
    if move in RESTORE.values():
        return state is State.REMOVED and move.target is came_from
    return state in move.sources


def attempt(scene: Scene, move: Move) -> bool:
    """Ask for a move the way it is asked for in earnest; whether it was made."""
    store, worker, job, token = scene
    if move is CLAIM:
        return [held.id for held in worker.claim(10)] == [job]
    if move is STALL:
        return bool(store.ask(RecoverStalled(worker.as_seen(), dead=True)).jobs == 1)
    if move is STALL_DELAYED:
        opts = '{"backoff":{"type":"fixed","delay":500}}'
        store.database.write(f"update bullite_payloads set opts = '{opts}' where job = {job}")
        lost = worker.as_seen()._replace(stalled_backoff=1)
        return bool(store.ask(RecoverStalled(lost, dead=True)).jobs == 1)
    if move is EXPIRE:
        late = "expires_at = 1, attempts_started = 0"
        store.database.write(f"update bullite_jobs set {late} where id = {job}")
        return bool(store.ask(Expire(store.queue)) == 1)
    if move.held:
        return store.home.settle(RunOutcome(job, token, move, delay=500)) == []
    return store.move(move, job, delay=500) == [job]


# --- asked for in earnest ------------------------------------------------------------------------


@pytest.mark.parametrize("move", IN_EARNEST, ids=str)
def test_a_move_is_made_if_and_only_if_the_table_allows_it(store: Store, move: Move) -> None:
    for place in PLACES:
        scene = arrange(store, place)
        is_refused = not allows(move, place)
        # Asking for these two changes the scene itself.
        before = store.everything() if is_refused and move not in (EXPIRE, STALL_DELAYED) else None
        assert attempt(scene, move) is not is_refused, f"{move} of a job that is {place}"
        if not is_refused:
            assert store.state(scene.job) == move.target
            told = [event.kind for event in store.events() if event.job == scene.job]
            assert (told[-1] == move.name) is bool(move.events)
        elif before is not None:
            assert store.everything() == before, f"{move} of a job that is {place} changed it"
        clear(scene)


def test_every_move_sets_updated_at(store: Store) -> None:
    for move in [move for move in IN_EARNEST if move.target]:
        place = next(place for place in PLACES if allows(move, place))
        scene = arrange(store, place)
        assert store.row(scene.job).updated_at < store.clock.now(), str(move)
        attempt(scene, move)
        assert store.row(scene.job).updated_at == store.clock.now(), str(move)
        clear(scene)


@pytest.mark.parametrize("priority", [0, 5])
def test_the_counts_follow_a_move(store: Store, priority: int) -> None:
    for move in IN_EARNEST:
        for place in [place for place in PLACES if allows(move, place)]:
            scene = arrange(store, place, priority)
            attempt(scene, move)
            counted = _counted_as(move.target, priority)
            assert store.counts() == counted, f"{move} of a job that was {place}"
            clear(scene)
            assert store.counts() == {}, f"after {move} of a job that was {place}"


def _counted_as(state: State | None, priority: int) -> dict[str, int]:
    if state in (None, State.REMOVED):
        return {}
    return {"prioritized" if state is State.WAITING and priority else str(state): 1}


@pytest.mark.parametrize(("move", "delay"), [(ADD, 0), (ADD_DELAYED, 10)], ids=str)
def test_a_new_job_starts_where_the_table_says(store: Store, move: Move, delay: int) -> None:
    job = store.add(delay=delay)
    assert store.state(job) == move.target
    assert store.history(job) == [move.name]
    assert store.counts() == {move.target: 1}
    assert store.row(job).created_at == store.row(job).updated_at == store.clock.now()


# --- the swaps themselves ------------------------------------------------------------------------


def swap(process: Process, move: Move, source: State, job: int, token: int) -> bool:
    """Try a bare compare-and-swap, as an operation that saw the job in `source` would."""
    return swap_together(process, move, source, {job: token})


def swap_together(process: Process, move: Move, source: State, tokens: dict[int, int]) -> bool:
    extras = {
        "token": 99,
        "worker": 1,
        "ahead": 0,
        "lease_until": 1,
        "max_stalled_count": 1,
        "reason": "it stalled",
        "name": "a worker",
        "kept": 1,
        "traits": 0,
    }
    try:
        with process.transaction() as open:
            if move.target is None:
                open.run(delete_jobs(open.tx, source, dict.fromkeys(tokens, 0), move))
            else:
                asked: Any = tokens if move.held else list(tokens)
                if move in TAKES_A_VALUE:
                    asked = {job: [token, 1] for job, token in tokens.items()}
                open.run(transition(open.tx, move, source, asked, **extras))
            # A move may be on its way until something is asked.
            process.driver.execute("queue_names", {})
            raise Undone
    except Undone:
        return True
    except Conflict:
        return False


class Undone(Exception):
    """The swap was made; it is not kept, as nothing counted it."""


def test_a_swap_moves_only_jobs_that_are_in_its_source_state(store: Store) -> None:
    for place in PLACES:
        scene = arrange(store, place)
        for move in OF_A_JOB:
            for source in move.sources:
                made = swap(store.home, move, source, scene.job, scene.token)
                expected = allows(move, place) and PLACES[place][1] is source
                assert made is expected, f"{move} from {source} of a job that is {place}"
        clear(scene)


def test_a_held_move_needs_the_number_of_the_token(store: Store) -> None:
    scene = arrange(store, "active")
    for move in HELD:
        assert not swap(store.home, move, State.ACTIVE, scene.job, scene.token + 1), str(move)
        assert not swap(store.home, move, State.ACTIVE, scene.job, scene.token - 1), str(move)
        assert swap(store.home, move, State.ACTIVE, scene.job, scene.token), str(move)


def test_a_held_move_needs_the_nonce_of_the_token(store: Store) -> None:
    scene = arrange(store, "active")
    other = store.process()
    for move in HELD:
        assert not swap(other, move, State.ACTIVE, scene.job, scene.token), str(move)
        assert swap(store.home, move, State.ACTIVE, scene.job, scene.token), str(move)


def test_a_held_move_of_jobs_of_several_claims_needs_the_token_of_each(store: Store) -> None:
    one, two = arrange(store, "active"), arrange(store, "active")
    right = {one.job: one.token, two.job: two.token}
    exchanged = {one.job: two.token, two.job: one.token}
    assert right != exchanged
    other = store.process()
    for move in HELD:
        assert not swap_together(store.home, move, State.ACTIVE, exchanged), str(move)
        assert not swap_together(other, move, State.ACTIVE, right), str(move)
        assert swap_together(store.home, move, State.ACTIVE, right), str(move)


def test_a_verdict_of_another_process_with_the_same_number_is_refused(store: Store) -> None:
    scene = arrange(store, "active")
    other = store.process()
    before = store.everything()
    for move in [move for move in HELD if move not in (STALL, STALL_DELAYED)]:
        lost = other.settle(RunOutcome(scene.job, scene.token, move))
        assert lost == [scene.job], str(move)
        assert store.everything() == before, str(move)


# --- the copies of the table ---------------------------------------------------------------------


def test_the_schema_allows_exactly_the_states_of_the_table(store: Store) -> None:
    assert store.database.checked_states() == {state.value for state in State}


def test_the_diagram_in_the_documentation_is_the_table() -> None:
    [drawn] = re.findall(r"```mermaid\n(.*?)\n```", ARCHITECTURE.read_text(), re.DOTALL)
    assert drawn == diagram()
