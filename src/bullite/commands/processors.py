"""Processors of the built-in jobs: commands, webhooks, functions and notifications."""

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
from .notify import Failure, mail_server, send_notification
from .output import OutputChunker, Redactor, StoredStream
from .python_function import FunctionNotAllowed, FunctionNotFound, resolve
from .runner import SIGNALLED, TIMED_OUT, Command, CommandResult, CommandRunner, NotStarted, Stopped
from .webhook import WebhookFailed, WebRequest, WebResponse, deliver

log = logging.getLogger("bullite.shell")

HURRIED_GRACE = 0.5
CONFIG_CACHED = 1.0
"""Seconds for which the configuration of commands is cached."""

WRITE_EVERY = 0.25
"""Seconds between two writes of live output."""


class CommandFailed(Exception):
    """A command exited with another code than 0, was killed, or could not be started this time."""


class BuiltinProcessors:
    """Processors of the built-in jobs of one worker process; each job runs in a thread."""

    def __init__(self, store: Store, modules: Collection[str] = ()) -> None:
        self._store = store
        self._modules = tuple(modules)
        # Functions of these modules may start processes of their own.
        self._runner = CommandRunner(alone=not self._modules)
        self._cached_config: dict[str, Any] = {}
        self._config_until = 0.0

    def hurry(self) -> None:
        """Shorten the time between SIGTERM and SIGKILL: this process is about to be killed."""
        self._runner.longest_grace = HURRIED_GRACE

    def processors(self) -> dict[str, Callable[..., Any]]:
        """Return the processors by job name."""
        return {
            COMMAND: self.run_command,
            WEBHOOK: self.call_webhook,
            FUNCTION: self.call_function,
            NOTICE: self.notify,
        }

    def retry_strategy(self, attempts_made: int, error: BaseException) -> Awaitable[int] | int:
        """Return the ms until the next attempt, by the current configuration."""
        delay = self._retry_delay(attempts_made)
        return run_blocking(delay) if running_loop() is None else delay

    async def _retry_delay(self, attempts_made: int) -> int:
        return retry_delay(await configuration(self._store), attempts_made)

    # --- commands ---

    def run_command(self, job: Job) -> dict[str, Any]:
        """Run a command; its output is stored beside the job."""
        data = _checked(job.data)
        config = self._recent_config()
        redactor = _redactor(config["redact_output"])
        max_kept = 0 if data.get("no_output") else config["max_output_size"]
        command = command_of(data, max_kept, config["kill_grace"])
        live = (
            _LiveOutput(self._store, job, OutputChunker(max_kept // 2, redactor))
            if max_kept
            else None
        )
        started_at = self._store.open().clock.now()
        try:
            result = self._runner.run(command, live, self._env_marker_of(job), job.signal)
        except Stopped as stopped:
            self._store_run(job, started_at, stopped.result, redactor, live)
            raise WaitingError("the command was stopped with its worker") from None
        except NotStarted as error:
            kind = UnrecoverableError if error.is_final else CommandFailed
            raise kind(f"Command could not be started: {error}") from None
        self._store_run(job, started_at, result, redactor, live)
        failure = error_of(result, command.timeout)
        if failure is not None:
            raise failure
        return {"exit_code": 0}

    def _recent_config(self) -> dict[str, Any]:
        """Return the configuration, cached: short commands must not each wait for a read."""
        now = time.monotonic()
        if now >= self._config_until:
            self._cached_config = self._config()
            self._config_until = now + CONFIG_CACHED
        return self._cached_config

    def _store_run(
        self,
        job: Job,
        started_at: int,
        result: CommandResult,
        redactor: Redactor,
        live: _LiveOutput | None,
    ) -> None:
        end = CommandExit(
            job.pk,
            job._run.token_number,
            job.attempts_started,
            started_at,
            result.how,
            result.exit_code,
            result.signal,
            StoredStream.of(result.stdout, redactor).encoded(),
            StoredStream.of(result.stderr, redactor).encoded(),
            live is not None and live.has_written,
        )
        job._end_command(end)

    # --- web hooks and functions ---

    def call_webhook(self, job: Job) -> dict[str, Any]:
        """Call a URL; a response with another status than 2xx is a failure."""
        config = self._config()
        response = _deliver(
            WebRequest.of(
                job.data,
                secret=_secret(config),
                allow_private=config["allow_private_webhooks"],
                # The same for each attempt. Not the job's own id: an earlier job may have had it.
                id=(job.queue_name, str(job.pk)),
            )
        )
        return {
            "status": response.status,
            "body": response.body.decode("utf-8", "replace")[:10_000],
        }

    def call_function(self, job: Job) -> Any:
        """Call a function of the modules that this worker was started with."""
        try:
            function = resolve(job.data["module"], self._modules)
        except (FunctionNotAllowed, FunctionNotFound) as error:
            raise UnrecoverableError(str(error)) from None
        result = function(*job.data.get("args", ()), **job.data.get("kwargs", {}))
        return asyncio.run(_await(result)) if inspect.isawaitable(result) else result

    def notify(self, job: Job) -> None:
        """Send the notification that a job has failed."""
        config = self._config()
        send_notification(
            job.data["notify"],
            run_blocking(failure_of(self._store, job.data["failed"])),
            mail=mail_server(config),
            secret=_secret(config),
            allow_private=config["allow_private_webhooks"],
            run=lambda command: self._runner.run(command, env_marker=self._env_marker_of(job)),
        )

    def _env_marker_of(self, job: Job) -> str:
        return env_marker_for(self._store.open().driver.nonce, job.pk, job._run.token_number)

    def _config(self) -> dict[str, Any]:
        return run_blocking(configuration(self._store))


class _LiveOutput:
    """Writes the output of a command while it runs, if it runs longer than WRITE_EVERY."""

    def __init__(self, store: Store, job: Job, chunker: OutputChunker) -> None:
        self._store, self._job, self._chunker = store, job, chunker
        self.due: float | None = time.monotonic() + WRITE_EVERY
        self.has_written = False
        self._is_writing = False

    def on_output(self, stream: str, data: bytes) -> None:
        self._chunker.add(stream, data)

    def on_due(self) -> None:
        """Write the new output, unless the last write is still in progress."""
        self.due = time.monotonic() + WRITE_EVERY
        if self._is_writing:
            return
        job = self._job
        chunks, drop = self._chunker.take()
        if chunks:
            self.has_written = self._is_writing = True
            request = WriteOutput(job.pk, job._run.token_number, job.attempts_started, chunks, drop)
            self._store.open().submit(request, self._written)

    def _written(self, reply: Any) -> None:
        self._is_writing = False
        if isinstance(reply, BaseException):
            log.warning("output of job %s could not be shown: %s", self._job.id, reply)


def _checked(data: Any) -> Mapping[str, Any]:
    """Return the data of a command job. Raise UnrecoverableError if it names no command."""
    if isinstance(data, Mapping):
        line, argv = data.get("command"), data.get("argv", ())
        if (isinstance(line, str) and line) or (isinstance(argv, list) and argv):
            return data
    raise UnrecoverableError("Command could not be started: the job's data names none")


def _redactor(patterns: Sequence[str]) -> Redactor:
    """Return a redactor. The patterns are checked again: older versions stored them unchecked."""
    try:
        return Redactor(usable_patterns(patterns))
    except ValueError as error:
        raise InvalidOption(f"redact_output must be {error}") from None


def command_of(data: Mapping[str, Any], max_kept: int, grace: float) -> Command:
    """Return the command that a job's data describes."""
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
        max_kept=max_kept,
        cpu_seconds=data.get("cpu"),
        memory_bytes=data.get("memory"),
    )


def error_of(result: CommandResult, timeout: float | None) -> Exception | None:
    """Return the error of a job whose command ended so; None if it succeeded."""
    if result.how == TIMED_OUT:
        seconds = f"{timeout:g}" if timeout is not None else "?"
        return JobTimedOut(f"Command timed out after {seconds} seconds")
    if result.how == SIGNALLED:
        assert result.signal is not None
        return CommandFailed(f"Command was killed by {_signal_name(result.signal)}")
    if result.exit_code:
        return CommandFailed(f"Command exited with code {result.exit_code}")
    return None


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _deliver(request: WebRequest) -> WebResponse:
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
    """Return the facts about a failed job, also if the job was removed meanwhile."""
    queue = Queue(failed["queue"], store)
    job = await queue.get_job(failed["job_id"])
    runs = [] if job is None else await runs_of(store, job)
    last = runs[-1] if runs else None
    output = b"" if last is None else last.stdout.whole() + last.stderr.whole()
    return Failure(
        job_id=failed["job_id"],
        queue=failed["queue"],
        command="" if job is None else describe(job.name, job.data),
        reason=failed["failed_reason"] or "",
        attempts=failed["attempts_made"],
        exit_code=None if last is None else last.exit_code,
        failed_at=moment_of(failed["failed_at"]),
        output_tail=output.decode("utf-8", "replace")[-2_000:],
    )


async def _await(result: Any) -> Any:
    return await result
