"""`--json` and `--format json`, which every verb has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import pytest

from bullite import Queue
from bullite.cli import program
from bullite.cli.job_format import STATUSES
from bullite.client.runtime.blocking import run_blocking
from bullite.core.states import SHOWN_STATES
from tests.cli.program import run, run_well
from tests.cli.running_worker import working

Path = tuple[str, ...]


def commands(command: click.Command, path: Path = ()) -> Iterator[tuple[Path, click.Command]]:
    """All verbs, and those that they have in turn."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None, name
        yield from commands(found, (*path, name))


COMMANDS = dict(commands(program.queuectl))

NEED_WORKERS: set[Path] = {
    *((("worker", name)) for name in ("start", "stop", "restart")),
    ("scheduler",),
}

EXAMPLES: dict[Path, str] = {
    ("enqueue",): "x",
    ("run",): "-- ls -l",
    ("add",): "mails welcome",
    ("enqueue-batch",): "-",
    ("worker", "status"): "",
    ("status",): "",
    ("list",): "",
    ("show",): "WAITING",
    ("output",): "DEAD",
    ("logs",): "WAITING",
    ("stats",): "",
    ("metrics",): "",
    ("why",): "WAITING",
    ("wait",): "DEAD",
    ("events",): "",
    ("doctor",): "",
    ("verify",): "",
    ("cancel",): "WAITING",
    ("retry",): "DEAD",
    ("promote",): "DELAYED",
    ("pause",): "default",
    ("resume",): "default",
    ("remove",): "WAITING --yes",
    ("restore",): "REMOVED",
    ("cleanup",): "--older-than 0 --yes",
    ("drain",): "default --yes",
    ("dlq", "list"): "",
    ("dlq", "show"): "DEAD",
    ("dlq", "retry"): "DEAD",
    ("dlq", "purge"): "--yes",
    ("schedule", "add"): "echo --every 1h --name nightly",
    ("schedule", "list"): "",
    ("schedule", "pause"): "SCHEDULE",
    ("schedule", "resume"): "SCHEDULE",
    ("schedule", "run"): "SCHEDULE",
    ("schedule", "remove"): "SCHEDULE --yes",
    ("template", "create"): "new --command x --force",
    ("template", "list"): "",
    ("template", "show"): "TEMPLATE",
    ("template", "remove"): "TEMPLATE --yes",
    ("config", "get"): "max_retries",
    ("config", "set"): "max_retries 5",
    ("config", "unset"): "max_retries",
    ("config", "list"): "",
    ("queues", "list"): "",
    ("queues", "show"): "default",
    ("queues", "set"): "default --max-waiting 100",
    ("completion",): "bash",
}
"""A command line for each that needs no running worker; words in capitals are made first."""

CODES: dict[Path, int] = {("wait",): 3, ("doctor",): 1}
"""Where something failed, or needs somebody to look after it."""


def waiting(location: str) -> str:
    return run_well("enqueue", "x", "--priority", 3, db=location).out.strip()


def delayed(location: str) -> str:
    return run_well("enqueue", "x", "--delay", "1h", db=location).out.strip()


def dead(location: str) -> str:
    job_id = run_well("enqueue", "echo hi; false", "--max-retries", 0, db=location).out.strip()
    with working(location):
        assert run("wait", job_id, db=location).code == 3
    return job_id


def removed(location: str) -> str:
    job_id = waiting(location)
    queue = Queue("default", location)
    assert run_blocking(queue.remove(job_id))
    queue.store.close()
    return job_id


def schedule(location: str) -> str:
    run_well(*["schedule", "add", "echo", "--every", "1h", "--name", "hourly"], db=location)
    return "hourly"


def template(location: str) -> str:
    run_well("template", "create", "t", "--command", "x", "--force", db=location)
    return "t"


MAKERS = {
    "WAITING": waiting,
    "DELAYED": delayed,
    "DEAD": dead,
    "REMOVED": removed,
    "SCHEDULE": schedule,
    "TEMPLATE": template,
}


def documents(text: str) -> list[Any]:
    """What was answered: one document, or one a line."""
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def every_job(value: Any) -> Iterator[dict[str, Any]]:
    """The jobs that an answer tells of."""
    if isinstance(value, list):
        for one in value:
            yield from every_job(one)
    elif isinstance(value, dict):
        if "status" in value and "command" in value and "failed_reason" in value:
            yield value
        for one in value.values():
            yield from every_job(one)


def test_every_verb_has_its_example() -> None:
    assert COMMANDS.keys() == EXAMPLES.keys() | NEED_WORKERS


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_verb_takes_json_and_format(path: Path) -> None:
    options = {text for param in COMMANDS[path].params for text in param.opts}
    assert options >= {"--json", "--format", "--db"}


@pytest.mark.parametrize("path", EXAMPLES, ids=" ".join)
def test_in_json_standard_output_holds_nothing_else(path: Path, location: str) -> None:
    waiting(location)
    words = EXAMPLES[path].split()
    asked = [["--json"], ["--format", "json"]]
    for how in asked:
        made = [MAKERS[word](location) if word in MAKERS else word for word in words]
        said = run(*path, *how, *made, db=location, stdin="x\n")
        assert said.code == CODES.get(path, 0), said
        told = documents(said.out) if said.out else []
        assert told or path == ("logs",), "only a job that logged nothing has nothing to tell"
        assert not said.err, "talk is for people"
        for job in every_job(told):
            assert job["state"] in SHOWN_STATES
            assert job["status"] in STATUSES


@pytest.mark.parametrize(
    ("make", "state", "status"),
    [
        (waiting, "prioritized", "pending"),
        (delayed, "delayed", "pending"),
        (dead, "failed", "dead"),
    ],
)
def test_state_is_the_librarys_word_and_status_the_programs(
    location: str, make: Any, state: str, status: str
) -> None:
    job_id = make(location)
    told = run_well("show", job_id, "--json", db=location).json
    assert (told["state"], told["status"]) == (state, status)
    [listed] = run_well("list", "--json", db=location).json["jobs"]
    assert (listed["state"], listed["status"]) == (state, status)


def test_a_job_that_waits_for_a_retry_is_delayed_and_failed(location: str) -> None:
    job_id = run_well("enqueue", "false", "--backoff", "1h", db=location).out.strip()
    with working(location):
        while run_well("show", job_id, "--json", db=location).json["state"] != "delayed":
            pass
    told = run_well("show", job_id, "--json", db=location).json
    assert (told["state"], told["status"]) == ("delayed", "failed")


def test_text_may_be_asked_for_by_name(location: str) -> None:
    assert run_well("enqueue", "x", "--format", "text", db=location).out.strip().isdecimal()


def test_an_unknown_format_is_refused(location: str) -> None:
    said = run("status", "--format", "xml", db=location)
    assert said.code == 2
    assert "xml" in said.err


def test_an_error_is_no_json(location: str) -> None:
    waiting(location)
    said = run("show", "nope", "--json", db=location)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("queuectl: there is no job nope")
