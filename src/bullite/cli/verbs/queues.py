"""`queues list|show|set`: queues and their settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from ...client.queue.queue import Queue
from ...client.queue.settings import check_settings
from ...core.checks import MAX_COUNT, check_int, check_rate
from ...core.names import check_name
from .. import times
from ..console import InvalidInput, complete_queues, one_line, verb
from ..counts import counts_of
from ..job_format import statuses_worth_a_column
from ..job_spec import notify_job
from ..option_values import bytes_of
from ..session import Session

_LIMITS = ("concurrency", "rate")

NONE = "none"
"""The value that removes a setting."""

name_argument = click.argument("name", shell_complete=complete_queues)


@click.group()
def queues() -> None:
    """List queues and change what holds for them."""


# --- list, show ----------------------------------------------------------------------------------


@queues.command("list")
@verb
def list_(session: Session) -> None:
    """List the queues with how many jobs they have."""
    found = session.queues(None)
    rows_json = [_as_json(session, queue) for queue in found]
    if session.console.as_json:
        session.console.data(rows_json)
        return
    counts = [counts_of(session, queue) for queue in found]
    words = statuses_worth_a_column(counts, session.console.on_terminal)
    rows = [
        [
            one["name"],
            "paused" if one["paused"] else "running",
            one["settings"]["priority_order"],
            *(str(numbers[word]) for word in words),
        ]
        for one, numbers in zip(rows_json, counts, strict=True)
    ]
    session.console.table(("NAME", "STATUS", "ORDER", *(word.upper() for word in words)), rows)
    if not rows_json:
        session.console.note("no queues yet")


@queues.command()
@name_argument
@verb
def show(session: Session, name: str) -> None:
    """Show a queue: its jobs by state, and its settings."""
    queue = session.queue(name)
    facts = _as_json(session, queue)
    if session.console.as_json:
        session.console.data(facts)
    else:
        _print_queue(session, facts, counts_of(session, queue))


def _print_queue(session: Session, facts: dict[str, Any], counts: dict[str, int]) -> None:
    lines = {"name": facts["name"], "paused": "yes" if facts["paused"] else "no"}
    lines |= {status: str(number) for status, number in counts.items()}
    lines |= {"schedules": str(facts["schedules"])}
    for setting, value in facts["settings"].items():
        lines[setting.removesuffix("_ms")] = _for_people(setting, value)
    for name, text in lines.items():
        session.console.line(f"{name.replace('_', '-')}: {one_line(text, 1_000)}")


def _for_people(setting: str, value: Any) -> str:
    if value is None:
        return NONE
    if setting.endswith("_ms"):
        return times.lasted(value)
    if setting == "rate":
        return f"{value['max']}/{times.lasted(value['duration_ms'])}"
    return str(value)


def _as_json(session: Session, queue: Queue) -> dict[str, Any]:
    meta = session.wait(queue.get_meta())
    return {
        "name": queue.name,
        "paused": meta["paused"],
        "counts": session.wait(queue.get_job_counts()),
        "schedules": session.wait(queue.get_job_schedulers_count()),
        "settings": _settings(meta),
    }


def _settings(meta: dict[str, Any]) -> dict[str, Any]:
    rate = {"max": meta["max"], "duration_ms": meta["duration"]}
    return {
        "priority_order": meta["priority_order"],
        "concurrency": meta["concurrency"],
        "rate": None if meta["max"] is None else rate,
        "dead_letter": meta["dead_letter"],
        "keep_completed_ms": meta["keep_completed_age"],
        "keep_failed_ms": meta["keep_failed_age"],
        "trash_age_ms": meta["trash_age"],
        "max_waiting": meta["max_waiting"],
        "max_payload": meta["max_payload_bytes"],
        "retry_dead_after_ms": meta["retry_failed_after"],
        "retry_dead_times": meta["retry_failed_times"],
        "on_dead": _notified(meta["on_failure"]),
    }


def _notified(on_failure: dict[str, Any] | None) -> str | None:
    """Return the target that is notified of dead jobs, or the name of another on-failure job."""
    if on_failure is None:
        return None
    target = on_failure.get("data", {}).get("notify")
    return target if isinstance(target, str) else f"{on_failure['name']} in {on_failure['queue']}"


# --- set -----------------------------------------------------------------------------------------


@queues.command("set")
@name_argument
@click.option(
    "--priority-order", type=click.Choice(["high", "low"]), help="Which priorities run first."
)
@click.option("--concurrency", metavar="N|none", help="Jobs that run at a time, over all workers.")
@click.option("--rate", metavar="MAX/TIME|none", help="Jobs that begin in a time, such as 100/1m.")
@click.option("--dead-letter", metavar="QUEUE|none", help="Where dead jobs go.")
@click.option(
    "--keep-completed",
    metavar="7d|none",
    help="How long completed jobs are kept; none keeps for ever.",
)
@click.option(
    "--keep-failed",
    metavar="7d|none",
    help="How long dead, cancelled and expired jobs are kept; none keeps for ever.",
)
@click.option("--trash-age", metavar="24h", help="How long removed jobs can be restored.")
@click.option("--max-waiting", metavar="N|none", help="Jobs that may wait; more are refused.")
@click.option("--max-payload", metavar="BYTES|none", help="Bytes that a job's data may have.")
@click.option("--retry-dead-after", metavar="6h|none", help="Try dead jobs again after that.")
@click.option(
    "--retry-dead-times", type=click.IntRange(1), metavar="N", help="Then at most so often."
)
@click.option("--on-dead", metavar="E-MAIL|URL|CMD|none", help="Who hears of dead jobs.")
@verb
def set_(session: Session, name: str, **options: Any) -> None:
    """Change what holds for a queue, for all who use it; it is made if there is none."""
    given = {option: value for option, value in options.items() if value is not None}
    if not given:
        raise InvalidInput("say what to set; `queuectl queues set --help` shows the options")
    check_name("the queue's name", name)
    limits = {key: _READ[key](given.pop(key)) for key in _LIMITS if key in given}
    settings: dict[str, Any] = {_NAMES[key]: _READ[key](text) for key, text in given.items()}
    check_settings(settings, name)
    queue = session.queue(name, make=True)
    if settings:
        session.wait(queue.configure(**settings))
    _limit(session, queue, limits)
    session.console.done(f"changed {name}", _as_json(session, queue))


def _limit(session: Session, queue: Queue, limits: dict[str, Any]) -> None:
    match limits:
        case {"concurrency": None}:
            session.wait(queue.remove_global_concurrency())
        case {"concurrency": maximum}:
            session.wait(queue.set_global_concurrency(maximum))
    match limits:
        case {"rate": None}:
            session.wait(queue.remove_global_rate_limit())
        case {"rate": (most, duration)}:
            session.wait(queue.set_global_rate_limit(most, duration))


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text.strip().lower() == NONE else read(text)


def _time(option: str) -> Callable[[str], int]:
    return lambda text: times.duration(option, text)


def _number(option: str, least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d+", text):
            raise InvalidInput(f"{option} must be a whole number or none, not {text!r}")
        return check_int(option, int(text), least, MAX_COUNT)

    return read


def _rate(text: str) -> tuple[int, int]:
    """Parse 100/1m or 100/m."""
    found = re.fullmatch(r"(\d+)/(\d*\S+)", text.strip())
    if found is None:
        raise InvalidInput(f"--rate must be such as 100/1m or none, not {text!r}")
    span = found[2] if found[2][0].isdigit() else f"1{found[2]}"
    most, duration = check_rate(
        "--rate", {"max": int(found[1]), "duration": times.duration("--rate", span)}
    )
    return most, duration


_READ: dict[str, Callable[[str], Any]] = {
    "priority_order": str,
    "concurrency": _or_none(_number("--concurrency", 1)),
    "rate": _or_none(_rate),
    "dead_letter": _or_none(str),
    "keep_completed": _or_none(_time("--keep-completed")),
    "keep_failed": _or_none(_time("--keep-failed")),
    "trash_age": _time("--trash-age"),
    "max_waiting": _or_none(_number("--max-waiting", 0)),
    "max_payload": _or_none(lambda text: bytes_of("--max-payload", text)),
    "retry_dead_after": _or_none(_time("--retry-dead-after")),
    "retry_dead_times": lambda number: number,
    "on_dead": _or_none(notify_job),
}
"""The parser of each option."""

_NAMES = {
    **{name: name for name in _READ},
    "max_payload": "max_payload_bytes",
    "retry_dead_after": "retry_failed_after",
    "retry_dead_times": "retry_failed_times",
    "on_dead": "on_failure",
}
"""The settings of the library."""
