"""Dead letters: jobs that failed for good move to the queue that their own names for them."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.codec import as_json
from ..core.decide_outcome import RunOutcome
from ..core.event_log import DEAD_LETTERED
from .auto_retry import schedule_auto_retry
from .open_queue import find_or_make
from .queue_settings import Settings, read_settings, retries_of_dead_letters
from .transaction import Event, Operation, Transaction
from .transitions import move_to_queue


def move_to_dead_letter(
    tx: Transaction, queue: int, settings: Settings, verdicts: Sequence[RunOutcome]
) -> Operation[set[int]]:
    """Move the failed jobs of these verdicts to their dead-letter queue, if there is one.

    The jobs stay what they are, failed, with id and history. One whose custom id is taken there
    stays where it is. Answers those that moved.
    """
    if settings.dead_letter is None or settings.dead_letter == settings.name or not verdicts:
        return set()
    target = yield from find_or_make(tx, settings.dead_letter)
    wanted = [verdict.custom_id for verdict in verdicts if verdict.custom_id]
    params = {"queue": target, "custom_ids": as_json(wanted)}
    taken = {row[0] for row in (yield "taken_custom_ids", params).rows} if wanted else set()
    moving = [verdict for verdict in verdicts if verdict.custom_id not in taken]
    if not moving:
        return set()
    jobs = [verdict.job for verdict in moving]
    yield from move_to_queue(queue, target, jobs, original_queue=queue)
    tx.count(queue, "failed", -len(jobs))
    tx.count(target, "failed", len(jobs))
    route = [settings.name, settings.dead_letter]
    events: list[Event] = [(verdict.public_id, route) for verdict in moving]
    tx.log(queue, DEAD_LETTERED, events)
    tx.log(target, DEAD_LETTERED, list(events))
    there = yield from read_settings(target)
    yield from schedule_auto_retry(target, retries_of_dead_letters(settings, there), jobs)
    return set(jobs)
