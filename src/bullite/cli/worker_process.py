"""The program of a worker process: it runs jobs until its supervisor stops it."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..app.application import Bullite
from ..client.queue.queue import Queue
from ..client.runtime.store import Store
from ..commands.job_types import RESERVED, RETRIES
from ..commands.log_format import VisibleFormatter
from ..commands.processors import BuiltinProcessors
from ..core.codec import decode, encode
from ..core.states import COMPLETE
from ..errors import BulliteError, InvalidOption, InvalidOptionType
from ..operations.finish import FinishResult
from ..processes.child_protocol import CANNOT_WORK, WANTS_FRESH, tell_ready, watch_lifeline
from ..processes.private_environment import forbid_inspection, receive
from ..processes.process_tree import adopt_orphans
from ..worker.outcome_batch import OutcomeBatch
from ..worker.processors import WithFallback, check_processors
from ..worker.worker import Worker

log = logging.getLogger("bullite.worker")

SPEC = "BULLITE_WORKER"
"""The variable that holds the spec; the database is in BULLITE_URL."""

MEMORY_CHECK_EVERY = 1.0
"""Seconds between two checks of the memory in use."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a worker process runs, and when it is replaced."""

    queues: tuple[str, ...]
    """The queues to serve beside those of the applications."""
    concurrency: int | None = None
    """Jobs of a queue at a time; None for 1, and for the applications' own."""
    apps: tuple[str, ...] = ()
    """`module` or `module:object`: an application, processors of other jobs, or a module whose
    functions may be called."""
    group: str = "default"
    max_memory: int | None = None
    """Bytes; a process that uses more is replaced."""
    max_jobs: int | None = None
    notices: str | None = None
    """The queue of notifications; None if this worker sends none."""
    named: bool = False
    """Whether the user named the queues; if not, an application serves all of its own."""
    commands: tuple[str, ...] | None = None
    """The queues in which it runs commands and other built-in jobs; None for all."""

    def runs_commands_of(self, queue: str) -> bool:
        return self.commands is None or queue in self.commands

    def as_text(self) -> str:
        return encode(asdict(self), "the worker's spec")

    @classmethod
    def from_text(cls, text: str) -> Spec:
        given = decode(text)
        several = (
            ("queues", "apps") if given["commands"] is None else ("queues", "apps", "commands")
        )
        return cls(**{**given, **{name: tuple(given[name]) for name in several}})


class AppNotFound(BulliteError, ValueError):
    """The object that `--app` names cannot be used."""


class TaskNameReserved(AppNotFound):
    """A task or processor has the name of a built-in job."""


def load_app(path: str) -> tuple[str, Any]:
    """Import `module` or `module:object`. Return the name of the module, and the object or None."""
    module_name, _, name = path.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split(".") if name else ():
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise AppNotFound(f"--app {path}: {type(error).__name__}: {error}") from None
    return module_name, found if name else None


def processors_of(builtin: BuiltinProcessors | None, apps: Mapping[str, Any]) -> Any:
    """Return the processors of a queue: built-in ones by job name, and those of the user.

    If `builtin` is None, commands and other built-in jobs are not run.
    """
    theirs, fallback = check_apps(apps)
    by_name = {**theirs, **({} if builtin is None else builtin.processors())}
    if fallback is None:
        return by_name
    # A fallback takes jobs of all names, so no name can have a concurrency of its own.
    functions = {n: one[0] if isinstance(one, tuple) else one for n, one in by_name.items()}
    return WithFallback(functions, fallback)


def check_apps(apps: Mapping[str, Any]) -> tuple[dict[str, Any], Callable[..., Any] | None]:
    """Return the processors by job name of the user's objects, and the one for all other jobs.

    Raise TaskNameReserved for the name of a built-in job: a worker that runs commands would run
    such a job as a command.
    """
    theirs: dict[str, Any] = {}
    fallback: Callable[..., Any] | None = None
    for path, app in apps.items():
        if app is None:
            continue
        if isinstance(app, Bullite):
            for queue, functions in app.processors().items():
                _check_names(path, functions, f" in the queue {queue!r}")
            continue
        if callable(app) and fallback is not None:
            raise AppNotFound(f"--app {path}: another function takes all jobs already")
        if not callable(app) and not isinstance(app, Mapping):
            raise AppNotFound(
                f"--app {path} must be a Bullite application, a function, or a mapping of names to "
                "functions"
            )
        try:
            check_processors(app)
        except (InvalidOption, InvalidOptionType) as error:
            raise AppNotFound(f"--app {path}: {error}") from None
        if isinstance(app, Mapping):
            _check_names(path, app)
            theirs |= app
        else:
            fallback = app
    return theirs, fallback


def _check_names(path: str, names: Iterable[str], where: str = "") -> None:
    for name in names:
        if name in RESERVED:
            raise TaskNameReserved(
                f"--app {path}: the task {name!r}{where} has a reserved name: workers run jobs "
                f"called {', '.join(sorted(RESERVED))} as commands, calls and notices of queuectl; "
                "give it another name"
            )


def queues_with_commands(
    queues: tuple[str, ...], named: bool, apps: Mapping[str, Any], wanted: bool | None
) -> tuple[str, ...]:
    """Return the queues in which commands are run.

    `wanted` is --commands or --no-commands. If it is None, they are run in all queues; but if there
    is an application with processors, only in named queues that no application serves.
    """
    if wanted is not None:
        return queues if wanted else ()
    own = {name for app in applications(apps) for name in app.processors()}
    if _serve_every_queue(apps):
        return ()
    return tuple(name for name in queues if named and name not in own) if own else queues


def queues_to_serve(spec: Spec, apps: Mapping[str, Any]) -> list[str]:
    """Return the queues that need a worker beside those of the applications."""
    if _serve_every_queue(apps):
        return list(spec.queues)
    return [name for name in spec.queues if spec.runs_commands_of(name)]


def _serve_every_queue(apps: Mapping[str, Any]) -> bool:
    """Return whether there are processors outside of applications: they serve every queue."""
    theirs, fallback = check_apps(apps)
    return bool(theirs) or fallback is not None


def applications(apps: Mapping[str, Any]) -> list[Bullite]:
    """Return the objects that are applications: they start workers of their own."""
    return [app for app in apps.values() if isinstance(app, Bullite)]


def queues_of(app: Bullite, spec: Spec) -> list[str]:
    """Return the queues that an application serves in this process."""
    return [name for name in app.processors() if not spec.named or name in spec.queues]


class WorkerProcess:
    """The workers of one process, from its start to its end."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._store = Store()
        self._builtin = BuiltinProcessors(
            self._store, [path.partition(":")[0] for path in spec.apps]
        )
        self._workers: list[Worker] = []
        self._apps: list[Bullite] = []
        self._stops, self._done = 0, 0
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end)

        def end() -> None:
            loop.call_soon_threadsafe(self.end)

        watch_lifeline(end)
        apps = {path: load_app(path)[1] for path in self._spec.apps}
        self._apps = applications(apps)
        for app in self._apps:
            await app.start(queues=queues_of(app, self._spec), concurrency=self._spec.concurrency)
            for worker in app._lifecycle.workers:
                self._add(worker)
        for name in queues_to_serve(self._spec, apps):
            if not any("" in app.processors().get(name, ()) for app in self._apps):
                builtin = self._builtin if self._spec.runs_commands_of(name) else None
                self._add_worker(name, processors_of(builtin, apps), self._spec.concurrency or 1)
        if self._spec.notices is not None and self._spec.notices not in self._spec.queues:
            self._add_worker(self._spec.notices, self._builtin.processors(), 1)
        for worker in self._workers:
            await worker.wait_until_ready()
        tell_ready()
        watching = loop.create_task(self._watch_memory())
        await self._ending.wait()
        watching.cancel()
        await self._leave()
        return self._exit_code

    def _add_worker(self, queue: str, processors: Any, concurrency: int) -> None:
        worker = Worker(
            Queue(queue, self._store),
            processors,
            concurrency=concurrency,
            retry_strategies={RETRIES: self._builtin.retry_strategy},
        )
        self._add(worker)

    def _add(self, worker: Worker) -> None:
        worker._notifications.recorded_hooks.append(self._log_ends)
        worker.on("error", self._log_error)
        self._workers.append(worker)

    def _log_ends(self, batch: OutcomeBatch, result: FinishResult) -> None:
        """Log the ends of recorded runs; called on any thread."""
        completed, failed = ends_of(batch, result)
        if completed:
            log.info("job%s %s completed", "s" if len(completed) > 1 else "", ", ".join(completed))
        for job, reason in failed.items():
            log.info("job %s failed: %s", job, reason)
        if self._spec.max_jobs is not None:
            self._loop.call_soon_threadsafe(self._count, len(completed) + len(failed))

    def _log_error(self, error: BaseException) -> None:
        log.error("%s", error)

    def _count(self, ended: int) -> None:
        self._done += ended
        if self._spec.max_jobs is not None and self._done >= self._spec.max_jobs:
            self._end_for_replacement()

    def _end_for_replacement(self) -> None:
        if not self._stops:
            self._exit_code = WANTS_FRESH
            self._ending.set()

    async def _watch_memory(self) -> None:
        while self._spec.max_memory is not None:
            await asyncio.sleep(
                MEMORY_CHECK_EVERY
            )  # sleep first: even with too low a limit some jobs run
            if memory_used() > self._spec.max_memory:
                log.info("uses more than %d bytes of memory: is replaced", self._spec.max_memory)
                self._end_for_replacement()

    def end(self) -> None:
        """Stop: the first call lets running jobs finish, the second interrupts them."""
        self._stops += 1
        if self._stops == 1:
            self._exit_code = 0
            self._ending.set()
        elif self._stops == 2:
            self._builtin.hurry()
            self._closing = [asyncio.ensure_future(w.close(force=True)) for w in self._workers]

    async def _leave(self) -> None:
        await asyncio.gather(*(worker.pause(do_not_wait_active=True) for worker in self._workers))
        log.info("takes no more jobs; waiting for %d that run", self._running())
        await asyncio.gather(*(worker.close() for worker in self._workers))
        for app in self._apps:
            await app.stop(0)
        await asyncio.to_thread(self._store.close)

    def _running(self) -> int:
        return sum(len(worker.running_jobs()) for worker in self._workers)


def ends_of(batch: OutcomeBatch, result: FinishResult) -> tuple[list[str], dict[str, str]]:
    """Return the ids of jobs that completed, and the reasons of those that failed."""
    completed: list[str] = []
    failed: dict[str, str] = {}
    lost = set(result.lost)
    for outcome in batch.outcomes:
        if outcome.job in lost:
            continue
        if (error := result.overridden.get(outcome.job)) is not None:
            failed[str(outcome.public_id)] = str(error)
        elif outcome.move is COMPLETE:
            completed.append(str(outcome.public_id))
        elif outcome.reason is not None:
            failed[str(outcome.public_id)] = outcome.reason
    return completed, failed


def memory_used(pid: int | None = None) -> int:
    """Return the bytes of memory that a process uses; 0 if that is unknown."""
    try:
        pages = Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def main() -> None:
    """Run the process; the exit code decides what the supervisor does next."""
    forbid_inspection()
    receive()
    spec = Spec.from_text(os.environ[SPEC])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(asctime)s %(process)d %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    for quiet in ("bullite.store", "bullite.scheduler"):
        logging.getLogger(quiet).setLevel(logging.WARNING)
    adopt_orphans()
    try:
        code = asyncio.run(_work(spec))
    except AppNotFound as error:
        log.error("%s", error)
        code = CANNOT_WORK
    except BulliteError as error:
        log.error("cannot work: %s", error)
        code = 1
    sys.exit(code)


async def _work(spec: Spec) -> int:
    return await WorkerProcess(spec).run()


if __name__ == "__main__":
    main()
