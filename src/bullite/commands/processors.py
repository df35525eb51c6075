"""The processors of jobs that are commands, web hooks, functions and notices."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from ..client.job.job import Job
from ..client.queue.queue import Queue
from ..client.runtime.blocking import run_blocking, running_loop
from ..client.runtime.store import Store
from ..core.clock import moment_of
from ..errors import InvalidOption, JobTimedOut, UnrecoverableError, WaitingError
from ..operations.command_output import CommandExit, WriteOutput
from ..processes.orphaned_commands import env_marker_for
from .config import configuration, retry_delay, usable_patterns
from .history import runs_of
from .job_types import COMMAND, FUNCTION, NOTICE, WEBHOOK, describe
from .notify import Failure, mail_server, notify
from .output import OutputChunker, Redactor, StoredStream
from .python_function import FunctionNotAllowed, FunctionNotFound, resolve
from .runner import SIGNALLED, TIMED_OUT, Command, CommandResult, CommandRunner, NotStarted, Stopped
from .webhook import WebAnswer, WebhookFailed, WebRequest, deliver

log = logging.getLogger("bullite.shell")

HURRIED_GRACE = 0.5
CONFIG_HOLDS = 1.0
"""Seconds for which the configuration of commands is believed to be as it was."""

WRITE_EVERY = 0.25
"""Seconds between two writings of what a command says."""


class CommandFailed(Exception):
    """A command ended otherwise than with the code 0, or could not be started now."""


class BuiltinProcessors:
    """Everything that a process needs to run such jobs, each in a thread."""

    def __init__(self, store: Store, modules: Collection[str] = ()) -> None:
        self._store = store
        self._modules = tuple(modules)
        # Functions of these modules may start processes of their own.
        self._shell = CommandRunner(alone=not self._modules)
        self._config_read: dict[str, Any] = {}
        self._config_until = 0.0

    def hurry(self) -> None:
        """This process is about to be killed: commands that are ended get little time for it."""
        self._shell.longest_grace = HURRIED_GRACE

    def processors(self) -> dict[str, Callable[..., Any]]:
        return {
            COMMAND: self.run_command,
            WEBHOOK: self.call_webhook,
            FUNCTION: self.call_function,
            NOTICE: self.give_notice,
        }

    def retry_strategy(self, attempts_made: int, error: BaseException) -> Awaitable[int] | int:
        """Ms to the next attempt, as the configuration has it now."""
        delay = self._retry_delay(attempts_made)
        return run_blocking(delay) if running_loop() is None else delay

    async def _retry_delay(self, attempts_made: int) -> int:
        return retry_delay(await configuration(self._store), attempts_made)

    # --- commands ---

    def run_command(self, job: Job) -> dict[str, Any]:
        """Run a command; what it says is kept beside the job."""
        data = _checked(job.data)
        config = self._recent_config()
        redactor = _redactor(config["redact_output"])
        most_kept = 0 if data.get("no_output") else config["max_output_size"]
        command = command_of(data, most_kept, config["kill_grace"])
        live = (
            _LiveOutput(self._store, job, OutputChunker(most_kept // 2, redactor))
            if most_kept
            else None
        )
        began = self._store.open().clock.now()
        try:
            ended = self._shell.run(command, live, self._env_marker_of(job), job.signal)
        except Stopped as stopped:
            self._keep(job, began, stopped.ended, redactor, live)
            raise WaitingError("the command was stopped with its worker") from None
        except NotStarted as error:
            kind = UnrecoverableError if error.is_final else CommandFailed
            raise kind(f"Command could not be started: {error}") from None
        self._keep(job, began, ended, redactor, live)
        problem = problem_of(ended, command.timeout)
        if problem is not None:
            raise problem
        return {"exit_code": 0}

    def _recent_config(self) -> dict[str, Any]:
        """The configuration of a moment ago: short commands should not wait for it each."""
        now = time.monotonic()
        if now >= self._config_until:
            self._config_read = self._config()
            self._config_until = now + CONFIG_HOLDS
        return self._config_read

    def _keep(
        self,
        job: Job,
        began: int,
        ended: CommandResult,
        redactor: Redactor,
        live: _LiveOutput | None,
    ) -> None:
        end = CommandExit(
            job.pk,
            job._run.token_number,
            job.attempts_started,
            began,
            ended.how,
            ended.exit_code,
            ended.signal,
            StoredStream.of(ended.stdout, redactor).encoded(),
            StoredStream.of(ended.stderr, redactor).encoded(),
            live is not None and live.has_written,
        )
        job._end_command(end)

    # --- web hooks and functions ---

    def call_webhook(self, job: Job) -> dict[str, Any]:
        """Call a URL; anything but an answer with 2xx is a failure."""
        config = self._config()
        answer = _deliver(
            WebRequest.of(
                job.data,
                secret=_secret(config),
                allow_private=config["allow_private_webhooks"],
                # The same for each attempt. An id of the user's may have been another job's before.
                id=(job.queue_name, str(job.pk)),
            )
        )
        return {"status": answer.status, "body": answer.body.decode("utf-8", "replace")[:10_000]}

    def call_function(self, job: Job) -> Any:
        """Call a function out of the modules that this worker was started with."""
        try:
            function = resolve(job.data["module"], self._modules)
        except (FunctionNotAllowed, FunctionNotFound) as error:
            raise UnrecoverableError(str(error)) from None
        result = function(*job.data.get("args", ()), **job.data.get("kwargs", {}))
        return asyncio.run(_await(result)) if inspect.isawaitable(result) else result

    def give_notice(self, job: Job) -> None:
        """Tell somebody that a job has failed."""
        config = self._config()
        notify(  # noqa: S604  (its `shell` is what runs a command, not a switch)
            job.data["notify"],
            run_blocking(failure_of(self._store, job.data["failed"])),
            mail=mail_server(config),
            secret=_secret(config),
            allow_private=config["allow_private_webhooks"],
            shell=lambda command: self._shell.run(command, cookie=self._env_marker_of(job)),
        )

    def _env_marker_of(self, job: Job) -> str:
        return env_marker_for(self._store.open().driver.nonce, job.pk, job._run.token_number)

    def _config(self) -> dict[str, Any]:
        return run_blocking(configuration(self._store))


class _LiveOutput:
    """Writes what a command says while it says it, if it takes long enough to be watched."""

    def __init__(self, store: Store, job: Job, pieces: OutputChunker) -> None:
        self._store, self._job, self._pieces = store, job, pieces
        self.due: float | None = time.monotonic() + WRITE_EVERY
        self.has_written = False
        self._is_writing = False

    def heard(self, stream: str, data: bytes) -> None:
        self._pieces.received(stream, data)

    def call(self) -> None:
        """Hand over what was said; not before what was handed over is written."""
        self.due = time.monotonic() + WRITE_EVERY
        if self._is_writing:
            return
        job = self._job
        pieces, drop = self._pieces.take()
        if pieces:
            self.has_written = self._is_writing = True
            request = WriteOutput(job.pk, job._run.token_number, job.attempts_started, pieces, drop)
            self._store.open().submit(request, self._written)

    def _written(self, answer: Any) -> None:
        self._is_writing = False
        if isinstance(answer, BaseException):
            log.warning("output of job %s could not be shown: %s", self._job.id, answer)


def _checked(data: Any) -> Mapping[str, Any]:
    """The data of a job that somebody may have added by other ways than ours."""
    if isinstance(data, Mapping):
        line, argv = data.get("command"), data.get("argv", ())
        if (isinstance(line, str) and line) or (isinstance(argv, list) and argv):
            return data
    raise UnrecoverableError("Command could not be started: the job's data names none")


def _redactor(patterns: Sequence[str]) -> Redactor:
    """Another program, or an older version of this one, may have stored patterns unmeasured."""
    try:
        return Redactor(usable_patterns(patterns))
    except ValueError as error:
        raise InvalidOption(f"redact_output must be {error}") from None


def command_of(data: Mapping[str, Any], most_kept: int, grace: float) -> Command:
    """The command that a job's data tells of."""
    return Command(
        line=data.get("command"),
        argv=data.get("argv", ()),
        cwd=data.get("cwd"),
        env=data.get("env", {}),
        env_from=data.get("env_from", ()),
        clean_env=bool(data.get("clean_env")),
        stdin=data.get("stdin"),
        timeout=data.get("timeout"),
        grace=grace,
        most_kept=most_kept,
        cpu_seconds=data.get("cpu"),
        memory_bytes=data.get("memory"),
    )


def problem_of(ended: CommandResult, timeout: float | None) -> Exception | None:
    """What is wrong with how a command ended."""
    if ended.how == TIMED_OUT:
        shown = f"{timeout:g}" if timeout is not None else "?"
        return JobTimedOut(f"Command timed out after {shown} seconds")
    if ended.how == SIGNALLED:
        assert ended.signal is not None
        return CommandFailed(f"Command was killed by {_signal_name(ended.signal)}")
    if ended.exit_code:
        return CommandFailed(f"Command exited with code {ended.exit_code}")
    return None


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _deliver(request: WebRequest) -> WebAnswer:
    try:
        return deliver(request)
    except WebhookFailed as error:
        if error.is_final:
            raise UnrecoverableError(str(error)) from error
        raise


def _secret(config: Mapping[str, Any]) -> bytes | None:
    secret = config["webhook_secret"]
    return None if secret is None else secret.encode()


async def failure_of(store: Store, failed: Mapping[str, Any]) -> Failure:
    """What is to be told of a job that failed; the job itself may be gone by now."""
    queue = Queue(failed["queue"], store)
    job = await queue.get_job(failed["job_id"])
    runs = [] if job is None else await runs_of(store, job)
    last = runs[-1] if runs else None
    said = b"" if last is None else last.stdout.whole() + last.stderr.whole()
    return Failure(
        job_id=failed["job_id"],
        queue=failed["queue"],
        command="" if job is None else describe(job.name, job.data),
        reason=failed["failed_reason"] or "",
        attempts=failed["attempts_made"],
        exit_code=None if last is None else last.exit_code,
        failed_at=moment_of(failed["failed_at"]),
        output_tail=said.decode("utf-8", "replace")[-2_000:],
    )


async def _await(result: Any) -> Any:
    return await result
