"""`enqueue`, `run`, `add`: one job from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...commands.job_types import WEBHOOK
from ...core.checks import MAX_DATA_BYTES, check_size
from ...core.clock import SystemClock
from ...core.codec import encode
from ...core.job_options import check_options
from ...core.names import check_name
from .. import times
from ..completers import files, folders, job_ids_of_all_queues, template_names
from ..console import CommandError, InvalidInput, complete_queues, queue_option, verb
from ..job_format import as_json
from ..job_kinds import KINDS
from ..job_spec import (
    KIND_OPTIONS,
    TEMPLATES,
    JobSpec,
    check_id,
    check_queue,
    options_as_typed,
    options_on_command_line,
    spec_from_options,
)
from ..session import Session, check_only_one

if TYPE_CHECKING:
    from ...client.job.job import Job
    from ...client.queue.queue import Queue

F = TypeVar("F", bound=Callable[..., Any])


def examples(*lines: str) -> str:
    """Return the epilog of a verb's help: its examples."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def how_to_run(function: F) -> F:
    """Add the options of a command that `enqueue`, `run`, `schedule` and `template` share."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    queue_option(help="The queue; `default` unless given."),
    click.option("--priority", type=int, metavar="N", help="Higher numbers run first."),
    click.option("--timeout", metavar="SECONDS|5m", help="End it, and all it started, after that."),
    click.option("--run-at", metavar="+5m|DATE", help="Not before then."),
    click.option("--delay", metavar="SECONDS|5m", help="Not before that has passed."),
    click.option("--max-retries", type=int, metavar="N", help="Retries before it is dead."),
    click.option("--backoff", metavar="KIND:TIME", help="fixed:10s, linear:5s, exponential:2s."),
    click.option(
        "--after",
        metavar="JOB",
        multiple=True,
        help="Only when that job completed.",
        shell_complete=job_ids_of_all_queues,
    ),
    click.option("--id", metavar="ID", help="Its id; if that is taken, nothing is added."),
    click.option(
        "--cwd",
        metavar="DIR",
        help="The folder it runs in, relative to yours; the worker's unless given.",
        shell_complete=folders,
    ),
    click.option(
        "--env",
        metavar="K=V",
        multiple=True,
        help="A variable of its environment; stored as it is.",
    ),
    click.option(
        "--env-from", metavar="K", multiple=True, help="A variable whose value is the worker's."
    ),
    click.option("--clean-env", is_flag=True, help="Of the worker's variables only PATH."),
    click.option(
        "--stdin",
        metavar="FILE",
        help="What it reads, relative to your folder; nothing unless given.",
        shell_complete=files,
    ),
    click.option(
        "--template",
        metavar="NAME",
        help="Options kept under a name; those given here beat them.",
        shell_complete=template_names,
    ),
    click.option("--tag", metavar="TAG", multiple=True, help="To find it by."),
    click.option("--no-output", is_flag=True, help="Keep nothing of what it says."),
    click.option("--cpu", metavar="SECONDS", help="Processor time it may use."),
    click.option("--memory", metavar="500M", help="Memory it may use."),
    click.option(
        "--notify-on-failure", metavar="E-MAIL|URL|CMD", help="Who hears when it is dead."
    ),
)


def _waiting(function: F) -> F:
    """Add the options of verbs that can wait for the job they add."""
    raw = "With --wait: what it says byte for byte, control bytes too."
    wait = "Wait for it, and show what it says, or what it returns."
    function = click.option("--raw", is_flag=True, help=raw)(function)
    return click.option("--wait", is_flag=True, help=wait)(function)


@click.command(
    epilog=examples(
        'queuectl enqueue "echo hello"',
        'queuectl enqueue "make report" --cwd . --timeout 10m --max-retries 1 --tag nightly',
        'queuectl enqueue "./cleanup.sh" --run-at +2h --after 17',
        'queuectl enqueue "sort" --stdin names.txt --wait',
        "queuectl enqueue --template backup --priority 10",
        "queuectl enqueue --url https://example.com/hook --body '{\"done\": true}'",
        "queuectl enqueue --module tasks.process --args '[1, 2]'",
    )
)
@click.argument("command", required=False)
@click.option("--type", type=click.Choice(KINDS), help="What kind of job it is.")
@click.option("--url", metavar="URL", help="The URL of a web hook.")
@click.option("--method", metavar="METHOD", help="How it is called; POST unless given.")
@click.option("--header", metavar="NAME:VALUE", multiple=True, help="A header of the call.")
@click.option("--body", metavar="TEXT", help="The body of the call.")
@click.option("--module", metavar="MODULE.FUNCTION", help="A Python function.")
@click.option("--args", metavar="JSON", help="Its arguments, an array.")
@click.option("--kwargs", metavar="JSON", help="Its arguments by name, an object.")
@how_to_run
@_waiting
@verb
def enqueue(session: Session, wait: bool, raw: bool, **options: Any) -> None:
    """Add a command to a queue; workers run it through the shell.

    Prints the id of the job. With --type http-webhook a URL is called instead, with --type
    python-function a Python function.
    """
    for name in ("args", "kwargs"):
        if options[name] is not None:
            options[name] = from_json(f"--{name}", options[name])
    _add_and_print(session, options, wait, raw)


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "queuectl run -- convert -strip in.png out.png",
        "queuectl run --priority 5 --cwd photos -- ./resize 'my photo.jpg' 50%",
        "queuectl run --wait --timeout 1m -- rsync -a src/ backup:dst/",
    ),
)
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
@how_to_run
@_waiting
@verb
def run(session: Session, wait: bool, raw: bool, **options: Any) -> None:
    """Add a program and its arguments to a queue; no shell looks at them.

    What follows the program is its own: `queuectl run --priority 5 -- convert -strip in.png`.
    """
    _add_and_print(session, options, wait, raw)


def _add_and_print(session: Session, options: dict[str, Any], wait: bool, raw: bool) -> None:
    if raw and not wait:
        raise InvalidInput("--raw goes with --wait")
    job = add_job(session, make_job_spec(session, options))
    if wait:
        from .output import wait_and_show

        wait_and_show(session, job, raw)
        return
    if session.console.as_json:
        session.console.data(as_json(job))
    else:
        session.console.line(job.id)


def make_job_spec(session: Session, options: dict[str, Any]) -> JobSpec:
    """Return the job that options describe, with those of their template.

    Warn of what can only fail with this configuration.
    """
    name = options.pop("template", None)
    given = options_on_command_line(options)
    template = {} if name is None else load_template(session, name)
    if not any(one.get(option) for one in (given, template) for option in KIND_OPTIONS):
        raise InvalidInput('give a command, such as: queuectl enqueue "echo hello"')
    config, now = config_and_now(session)
    spec = spec_from_options(given, config, now, template)
    for warning in warnings_about(spec, config):
        session.console.note(warning)
    return spec


def load_template(session: Session, name: str) -> dict[str, Any]:
    """Return the options of a template. Raise CommandError if there is none of that name."""
    from ...client.key_values import get_value

    template: dict[str, Any] | None = None
    if session.exists():
        template = session.wait(get_value(session.store(), TEMPLATES, name))
    if template is None:
        raise CommandError(f"there is no template {name!r}; `queuectl template list` shows them")
    return template


def warnings_about(spec: JobSpec, config: Mapping[str, Any]) -> Iterable[str]:
    """Return a warning for each target that cannot be reached with this configuration."""
    targets = [spec.data["url"]] if spec.name == WEBHOOK else []
    if "on_failure" in spec.options:
        targets.append(spec.options["on_failure"]["data"]["notify"])
    return {warning for target in targets if (warning := _warning_about(target, config))}


def _warning_about(target: str, config: Mapping[str, Any]) -> str | None:
    from ...commands.notify import kind_of
    from ...commands.webhook import names_private_address

    kind = kind_of(target)
    if kind == "mail" and config["smtp_host"] is None:
        problem = "no mail is sent before a mail server is named"
        return f"warning: {problem}: queuectl config set smtp_host HOST"
    if kind == "url" and not config["allow_private_webhooks"] and names_private_address(target):
        problem = "private addresses are not called before they are allowed"
        return f"warning: {problem}: queuectl config set allow_private_webhooks true"
    return None


def config_and_now(session: Session) -> tuple[dict[str, Any], int]:
    """Return the configuration and the time now, without creating a database."""
    from ...commands.config import configuration, configuration_without_database

    if not session.exists():
        return configuration_without_database(), SystemClock().now()
    return session.wait(configuration(session.store())), session.now()


def add_job(session: Session, spec: JobSpec) -> Job:
    """Add a job to its queue and return it; print whether it was there already."""
    resolve_dependencies(session, spec)
    queue = session.queue(spec.queue, make=True)
    with added_to(queue) as added:
        job = session.wait(queue.add(spec.name, spec.data, **spec.options))
    outcome = "added to" if added else "nothing was added: the job is there already, in"
    session.console.note(f"{outcome} {spec.queue}")
    return job


@contextmanager
def added_to(*queues: Queue) -> Iterator[list[Job]]:
    """Yield a list that gets the jobs that the block adds; existing ones are not in it."""
    added: list[Job] = []
    listener = added.append
    for queue in queues:
        queue.on("added", listener)
    try:
        yield added
    finally:
        for queue in queues:
            queue.off("added", listener)


def resolve_dependencies(
    session: Session, spec: JobSpec, pending: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Make a job depend on those in `after`; if one of these fails, so does the job.

    `pending` are jobs that are added before it: the queues of each id.
    """
    if spec.after:
        found = [_dependency(session, job_id, spec.queue, pending or {}) for job_id in spec.after]
        dependencies = {"depends_on": found, "on_dependency_failure": "fail"}
        spec.options = {**spec.options, **dependencies}


def _dependency(
    session: Session, job_id: str, queue: str, pending: Mapping[str, Sequence[str]]
) -> tuple[str, str]:
    """Return the queue and id of a job; if several queues have the id, prefer `queue`."""
    from ...client.directory import queues_with

    stored = session.wait(queues_with(session.store(), job_id)) if session.exists() else []
    names = sorted({*stored, *pending.get(job_id, ())})
    if not names:
        raise CommandError(f"there is no job {job_id} that this one could come after")
    if queue in names:
        return queue, job_id
    first = "say --queue with that of the job that is to come first"
    check_only_one(f"job {job_id} is in", names, first)
    return names[0], job_id


def from_json(option: str, text: str) -> Any:
    """Return the value of an option that is written as JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{option} must be JSON: {error}") from None


@click.command(
    epilog=examples(
        """queuectl add mails welcome --data '{"to": "a@example.com"}'""",
        "queuectl add reports monthly --delay 5m --attempts 3 --id report-2030-01",
    )
)
@click.argument("queue", metavar="QUEUE", shell_complete=complete_queues)
@click.argument("name", metavar="NAME")
@click.option(
    "--data", metavar="JSON", default="null", help="What the job is given; null unless given."
)
@click.option("--priority", type=int, metavar="N", help="Higher first, unless the queue says else.")
@click.option("--delay", metavar="SECONDS|5m", help="Not before that has passed.")
@click.option("--attempts", type=int, metavar="N", help="How often it is tried; once unless given.")
@click.option("--id", "job_id", metavar="ID", help="Its id; if that is taken, nothing is added.")
@click.option("--tag", metavar="TAG", multiple=True, help="To find it by.")
@verb
def add(
    session: Session,
    queue: str,
    name: str,
    data: str,
    priority: int | None,
    delay: str | None,
    attempts: int | None,
    job_id: str | None,
    tag: tuple[str, ...],
) -> None:
    """Add a job NAME for the Python workers of QUEUE."""
    given = {
        "priority": priority,
        "delay": None if delay is None else times.duration("--delay", delay),
        "attempts": attempts,
        "job_id": job_id,
        "tags": list(tag) or None,
    }
    options: Any = {key: value for key, value in given.items() if value is not None}
    value = from_json("--data", data)
    with options_as_typed():
        check_name("the job's name", name)
        if job_id is not None:
            check_id(job_id)
        check_options(options)
        check_size(name, encode(value, "--data"), MAX_DATA_BYTES)
    check_queue(queue)
    job = session.wait(session.queue(queue, make=True).add(name, value, **options))
    session.console.done(job.id, as_json(job))
