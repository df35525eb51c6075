"""All that is known of one job, as facts for programs and as sections for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..client.job.dependencies import dependency_states
from ..client.job.history import Attempt
from ..client.job.job import Job
from ..client.queue.queue import Queue
from ..core.job_record import stored_options
from .console import one_line
from .job_format import as_json
from .masking import masked
from .session import Session
from .times import iso, took

WIDTH = 200
"""Maximum length of values that are shown on one line."""


def everything_of(session: Session, queue: Queue, job: Job) -> dict[str, Any]:
    """Return everything about a job: its JSON form, attempts, dependencies, logs and options."""
    return {
        **as_json(job),
        "history": [attempt_facts(one) for one in session.wait(job.get_attempts())],
        "depends_on": [
            {"queue": ref.queue, "id": ref.id, "state": state}
            for ref, state in session.wait(dependency_states(job)).items()
        ],
        "children": session.wait(job.get_dependencies_count()),
        "parent": job.parent,
        "logs": session.wait(queue.get_job_logs(job.id, 0, 0))["count"],
        "options": masked(dict(stored_options(job))),
    }


def attempt_facts(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt in its JSON form."""
    started, ended = attempt.started_at, attempt.ended_at
    ms = None if started is None or ended is None else (ended - started).total_seconds() * 1000
    return {
        "number": attempt.number,
        "started_at": iso(started),
        "ended_at": iso(ended),
        "duration_ms": None if ms is None else round(ms),
        "worker": attempt.worker,
        "outcome": attempt.outcome,
        "error": attempt.error,
        "stack": attempt.stack,
    }


# --- text ---


def sections(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield everything about a job as lines of text."""
    yield f"--- Job {facts['id']} ---"
    yield from _lines(_summary(facts))
    yield from _section("Data", _pretty(facts["data"]).splitlines())
    if facts["return_value"] is not None:
        yield from _section("Result", _pretty(facts["return_value"]).splitlines())
    if facts["failed_reason"] is not None:
        yield from _section("Error", facts["failed_reason"].splitlines())
    if facts["history"]:
        yield from _section("History", [_attempt_line(one) for one in facts["history"]])
    if facts["depends_on"]:
        links = [f"{one['queue']}:{one['id']} {one['state']}" for one in facts["depends_on"]]
        yield from _section("Depends On", links)
    if any(facts["children"].values()):
        yield from _section("Children", [f"{key}: {n}" for key, n in facts["children"].items()])


def _summary(facts: Mapping[str, Any]) -> dict[str, Any]:
    parent, timeout, lasted = facts["parent"], facts["timeout"], facts["duration_ms"]
    detail = "" if facts["state"] == facts["status"] else f" ({facts['state']})"
    outcome = facts["outcome"]
    return {
        "Command": one_line(facts["command"], WIDTH),
        "Name": facts["name"],
        "Queue": facts["queue"],
        "State": f"{facts['status']}{detail}",
        "Outcome": outcome if outcome != facts["status"] else None,
        "Priority": facts["priority"],
        "Attempts": f"{facts['attempts_made']}/{facts['attempts']}",
        "Timeout": f"{timeout}s" if timeout else None,
        "Run at": facts["run_at"],
        "Started": facts["started_at"],
        "Finished": facts["finished_at"],
        "Duration": None if lasted is None else took(lasted),
        "Created": facts["created_at"],
        "Worker": facts["worker"],
        "Progress": _pretty(facts["progress"]) if facts["progress"] else None,
        "Tags": ", ".join(facts["tags"]) or None,
        "Parent": f"{parent['queue']}:{parent['id']}" if parent else None,
        "From queue": facts["original_queue"],
        "Log lines": facts["logs"],
    }


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    for name, value in facts.items():
        if value is not None:
            yield f"{name}: {value}"


def _section(heading: str, lines: list[str]) -> Iterator[str]:
    yield ""
    yield f"--- {heading} ---"
    yield from lines


def _attempt_line(one: Mapping[str, Any]) -> str:
    after = f" after {took(one['duration_ms'])}" if one["duration_ms"] is not None else ""
    by = f" by {one['worker']}" if one["worker"] else ""
    error = f": {one_line(one['error'], WIDTH)}" if one["error"] else ""
    when = one["started_at"] or one["ended_at"] or "-"
    return f"{one['number']}. {when}{by}: {one['outcome'] or 'running'}{after}{error}"


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
