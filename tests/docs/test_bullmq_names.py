"""Every public name of BullMQ is here under its snake_case name, or it is said why not.

The lists follow the sections of BullMQ's interface. Each group says where its names are to be
found, such as `Queue.{}` or `Worker({}=)`; what is called otherwise here, or left out, says why in
one line.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest

import bullite
from bullite import Queue
from bullite.core import backoff, event_log
from bullite.core.states import MOVES


class Group(NamedTuple):
    """Names that are found in one place."""

    section: str
    place: str
    names: str
    renamed: dict[str, tuple[str, str]] = {}  # noqa: RUF012 - nobody writes to it
    """By BullMQ's name: where ours is, and why it is called so."""
    left_out: dict[str, str] = {}  # noqa: RUF012 - nobody writes to it
    """By BullMQ's name: why there is none."""


GROUPS = (
    # --- 1.1 classes -----------------------------------------------------------------------------
    Group(
        "1.1 classes",
        "{}",
        "Queue Worker Job FlowProducer QueueEvents QueueEventsProducer JobScheduler",
        renamed={
            "QueueGetters": ("client.queue.reads.QueueReads", "a base class, made by nobody"),
            "QueueBase": ("client.queue.base.QueueBase", "a base class, made by nobody"),
            "Backoffs": ("Worker(retry_strategies=)", "a worker is given its strategies"),
            "IQueueBackend": ("database.driver.Driver", "what a database has to do for us"),
            "RedisQueueBackend": ("Store", "one class, the URL says which database; no Redis"),
            "PostgresQueueBackend": ("Store", "one class, the URL says which database"),
            "createPostgresBackend": ("Store", "one class, the URL says which database"),
        },
        left_out={
            "LockManager": "locks are renewed by the engine, nobody has to hold it",
            "ChildPool": "Node's sandbox; blocking processors have threads here",
            "Child": "Node's sandbox; blocking processors have threads here",
            "ChildProcessor": "Node's sandbox; blocking processors have threads here",
            "setDefaultBackendFactory": "BULLITE_URL names the default database",
            "runMigrations": "opening a store migrates it, under a lock",
            "Telemetry": "not built: traces are a package of their own at BullMQ, too",
            "MetricsTime": "not built: there are no metrics yet that it could be the length of",
        },
    ),
    Group(
        "1.1 errors",
        "{}",
        "UnrecoverableError WaitingChildrenError DelayedError WaitingError RateLimitError",
        renamed={
            "ConnectionClosedError": ("errors.StoreClosed", "what is closed here is a store"),
        },
    ),
    Group(
        "1.1 statics of Job",
        "Job.{}",
        "",
        renamed={
            "create": ("Queue.add", "one way to make a job"),
            "createBulk": ("Queue.add_bulk", "one way to make jobs"),
            "fromId": ("Queue.get_job", "one way to find a job"),
            "addJobLog": ("Queue.add_job_log", "a verb of the queue, as it is at BullMQ, too"),
        },
        left_out={
            "fromJSON": "how a job is stored is the store's own matter",
            "optsFromJSON": "how options are stored is the store's own matter",
        },
    ),
    Group("1.1 publishing", "QueueEventsProducer.{}", "publishEvent"),
    Group(
        "1.1 publishing, arguments",
        "QueueEventsProducer.publish_event({}=)",
        "maxEvents",
        renamed={
            "eventName": ("QueueEventsProducer.publish_event(event=)", "not inside the payload"),
        },
    ),
    # --- 1.2 options of queues -------------------------------------------------------------------
    Group(
        "1.2",
        "Queue({}=)",
        "defaultJobOptions",
        renamed={
            "connection": ("Queue(store=)", "a store is a file or a server"),
            "streams.events.maxLen": ("Queue(max_events=)", "there are no streams"),
        },
        left_out={
            "prefix": "a file, or a schema of PostgreSQL, is the name space",
            "skipMetasUpdate": "opening a queue to look at it changes no setting",
            "settings.repeatStrategy": "a function cannot be stored, and any process makes a tick",
            "telemetry": "not built, as Telemetry",
            "skipVersionCheck": "a store checks what it needs of its database, which takes no time",
            "skipWaitingForReady": "a queue opens when it is first used",
            "blockingConnection": "nobody waits by holding a connection",
        },
    ),
    # --- 1.3 changing a queue --------------------------------------------------------------------
    Group(
        "1.3 verbs",
        "Queue.{}",
        "add addBulk upsertJobScheduler removeJobScheduler getJobScheduler getJobSchedulers "
        "getJobSchedulersCount pause resume isPaused remove drain clean obliterate retryJobs "
        "promoteJobs setGlobalConcurrency getGlobalConcurrency removeGlobalConcurrency isMaxed "
        "setGlobalRateLimit getGlobalRateLimit removeGlobalRateLimit rateLimit getRateLimitTtl "
        "removeRateLimitKey removeDeduplicationKey getDeduplicationJobId updateJobProgress "
        "addJobLog getJobLogs trimEvents close disconnect waitUntilReady getVersion getMeta",
        renamed={"getBackend": ("Queue.store", "it is there to be read")},
        left_out={
            "removeOrphanedJobs": "a job and its place in a list are one row; verify proves it",
            "removeDeprecatedPriorityKey": "a matter of Redis's past",
        },
    ),
    Group("1.3 add", "Queue.add({}=)", "name data"),
    Group("1.3 addBulk", 'BulkJob["{}"]', "name data opts"),
    Group("1.3 getJobSchedulers", "Queue.get_job_schedulers({}=)", "start end asc"),
    Group(
        "1.3 what a scheduler shows",
        "JobScheduler.{}",
        "name iterationCount limit startDate endDate tz pattern every offset template",
        renamed={
            "key": ("JobScheduler.id", "as the argument of upsert is called"),
            "next": ("JobScheduler.next_run_at", "a datetime, as last_run_at is"),
        },
    ),
    Group("1.3 remove", "Queue.remove({}=)", "jobId removeChildren"),
    Group("1.3 drain", "Queue.drain({}=)", "delayed"),
    Group(
        "1.3 clean",
        "Queue.clean({}=)",
        "grace limit",
        renamed={"type": ("Queue.clean(state=)", "one word for it everywhere")},
    ),
    Group("1.3 obliterate", "Queue.obliterate({}=)", "force count"),
    Group("1.3 retryJobs", "Queue.retry_jobs({}=)", "count state timestamp"),
    Group("1.3 promoteJobs", "Queue.promote_jobs({}=)", "count"),
    Group("1.3 setGlobalConcurrency", "Queue.set_global_concurrency({}=)", "concurrency"),
    Group("1.3 setGlobalRateLimit", "Queue.set_global_rate_limit({}=)", "max duration"),
    Group("1.3 getRateLimitTtl", "Queue.get_rate_limit_ttl({}=)", "maxJobs"),
    Group("1.3 updateJobProgress", "Queue.update_job_progress({}=)", "jobId progress"),
    Group(
        "1.3 addJobLog",
        "Queue.add_job_log({}=)",
        "jobId keepLogs",
        renamed={"row": ("Queue.add_job_log(message=)", "it is not a row but what it says")},
    ),
    Group("1.3 getJobLogs", "Queue.get_job_logs({}=)", "jobId start end asc"),
    Group(
        "1.3 trimEvents",
        "Queue.trim_events({}=)",
        "",
        renamed={"maxLen": ("Queue.trim_events(max_length=)", "spelled out")},
    ),
    Group(
        "1.3 getMeta",
        "get_meta {}",
        "concurrency max duration paused version",
        renamed={"maxLenEvents": ("get_meta max_events", "as the setting is called")},
    ),
    Group(
        "1.3 local events",
        "event of Queue {}",
        "waiting progress removed cleaned paused resumed error",
    ),
    # --- 1.4 looking into a queue ----------------------------------------------------------------
    Group(
        "1.4",
        "Queue.{}",
        "getJob getJobs getWaiting getActive getDelayed getPrioritized getWaitingChildren "
        "getCompleted getFailed getJobCounts getJobCountByTypes count getCompletedCount "
        "getFailedCount getDelayedCount getActiveCount getPrioritizedCount getWaitingCount "
        "getWaitingChildrenCount getCountsPerPriority getJobState getDependencies getWorkers "
        "getWorkersCount",
        left_out={
            "getRanges": "ids alone: get_jobs and iter_jobs answer jobs, which have them",
            "getMetrics": "not built: there are no metrics yet",
            "exportPrometheusMetrics": "not built: there are no metrics yet",
            "recordJobCountsMetric": "not built, as Telemetry",
        },
    ),
    Group(
        "1.4 getJobs",
        "Queue.get_jobs({}=)",
        "start end asc",
        renamed={"types": ("Queue.get_jobs(states=)", "one word for it everywhere")},
    ),
    Group("1.4 getDependencies", "Queue.get_dependencies({}=)", "parentId type start end"),
    # --- 1.5 to 1.8 options of jobs --------------------------------------------------------------
    Group(
        "1.5",
        "Queue.add({}=)",
        "jobId timestamp delay priority attempts backoff lifo removeOnComplete removeOnFail "
        "keepLogs stackTraceLimit sizeLimit parent failParentOnFailure continueParentOnFailure "
        "ignoreDependencyOnFailure removeDependencyOnFailure deduplication repeat",
        renamed={
            "repeatJobKey": ("Job.repeat_job_key", "set by the scheduler, not by who adds"),
            "prevMillis": ("JobScheduler.last_run_at", "kept by the scheduler, not by its job"),
        },
        left_out={"telemetry": "not built, as Telemetry"},
    ),
    Group("1.5 parent", 'ParentRef["{}"]', "id queue"),
    Group("1.6", 'Deduplication["{}"]', "id ttl extend replace keepLastIfActive"),
    Group("1.6 verb", "Job.{}", "removeDeduplicationKey"),
    Group("1.7", 'KeepJobs["{}"]', "age count limit"),
    Group("1.8 kinds of back-off", "back-off {}", "fixed exponential"),
    Group("1.8 back-off", 'BackoffRule["{}"]', "type delay jitter"),
    Group("1.8 back-off of one's own", "Worker({}=)", "backoffStrategy"),
    Group(
        "1.8 upsertJobScheduler",
        "Queue.upsert_job_scheduler({}=)",
        "id pattern every limit startDate endDate tz immediately offset template",
        renamed={"count": ("JobScheduler.iteration_count", "kept by the store, not given to it")},
    ),
    Group("1.8 template", 'JobTemplate["{}"]', "name data opts"),
    # --- 1.9 jobs --------------------------------------------------------------------------------
    Group(
        "1.9 attributes",
        "Job.{}",
        "id name data opts queueName progress returnvalue failedReason stacktrace delay priority "
        "timestamp processedOn finishedOn attemptsMade attemptsStarted stalledCounter "
        "deferredFailure parent parentKey deduplicationId repeatJobKey token processedBy",
        left_out={
            "queueQualifiedName": "there is no prefix: queue_name says it all",
            "prefix": "a file, or a schema of PostgreSQL, is the name space",
        },
    ),
    Group(
        "1.9 verbs",
        "Job.{}",
        "updateData updateProgress log clearLogs getState isCompleted isFailed isDelayed isWaiting "
        "isActive isWaitingChildren promote changeDelay changePriority remove retry "
        "moveToCompleted moveToFailed moveToDelayed moveToWait moveToWaitingChildren extendLock "
        "getChildrenValues getIgnoredChildrenFailures getDependencies getDependenciesCount "
        "removeChildDependency removeUnprocessedChildren waitUntilFinished removeDeduplicationKey",
        left_out={
            "toJSON": "how a job is stored is the store's own matter",
            "asJSON": "how a job is stored is the store's own matter",
        },
    ),
    Group("1.9 clearLogs", "Job.clear_logs({}=)", "keep"),
    Group("1.9 changePriority", "Job.change_priority({}=)", "priority lifo"),
    Group("1.9 remove", "Job.remove({}=)", "removeChildren"),
    Group(
        "1.9 retry",
        "Job.retry({}=)",
        "state",
        renamed={
            "resetAttemptsMade": ("Job.retry(reset_attempts=)", "both begin anew, or none"),
            "resetAttemptsStarted": ("Job.retry(reset_attempts=)", "both begin anew, or none"),
        },
    ),
    Group(
        "1.9 moveToCompleted",
        "Job.move_to_completed({}=)",
        "token",
        left_out={"fetchNext": "Worker.get_next_job asks for a job, when one is wanted"},
    ),
    Group(
        "1.9 moveToFailed",
        "Job.move_to_failed({}=)",
        "token",
        left_out={"fetchNext": "Worker.get_next_job asks for a job, when one is wanted"},
    ),
    Group("1.9 moveToDelayed", "Job.move_to_delayed({}=)", "token"),
    Group("1.9 moveToWait", "Job.move_to_wait({}=)", "token"),
    Group("1.9 moveToWaitingChildren", "Job.move_to_waiting_children({}=)", "token child"),
    Group("1.9 extendLock", "Job.extend_lock({}=)", "token"),
    Group(
        "1.9 getDependencies",
        "Job.get_dependencies({}=)",
        "processed unprocessed ignored failed",
    ),
    Group("1.9 pages of dependencies", 'client.job.dependencies.Page["{}"]', "cursor count"),
    Group(
        "1.9 getDependenciesCount",
        "Job.get_dependencies_count({}=)",
        "processed unprocessed ignored failed",
    ),
    Group(
        "1.9 waitUntilFinished",
        "Job.wait_until_finished({}=)",
        "",
        renamed={"ttl": ("Job.wait_until_finished(timeout=)", "as Python calls it")},
        left_out={"queueEvents": "the store tells when a job ends, no reader of events is needed"},
    ),
    # --- 1.10 workers ----------------------------------------------------------------------------
    Group(
        "1.10 options",
        "Worker({}=)",
        "name autorun concurrency limiter maximumRateLimitDelay maxStartedAttempts maxStalledCount "
        "stalledInterval lockDuration lockRenewTime skipStalledCheck skipLockRenewal drainDelay "
        "runRetryDelay removeOnComplete removeOnFail",
        renamed={
            "connection": ("Worker(store=)", "a store is a file or a server"),
            "settings.backoffStrategy": ("Worker(backoff_strategy=)", "no settings around it"),
        },
        left_out={
            "metrics": "not built: there are no metrics yet",
            "settings.repeatStrategy": "a function cannot be stored, and any process makes a tick",
            "useWorkerThreads": "Node's sandbox; blocking processors have threads here",
            "workerForkOptions": "Node's sandbox; blocking processors have threads here",
            "workerThreadsOptions": "Node's sandbox; blocking processors have threads here",
            "telemetry": "not built, as Telemetry",
        },
    ),
    Group("1.10 limiter", 'RateLimit["{}"]', "max duration"),
    Group(
        "1.10 verbs",
        "Worker.{}",
        "run pause resume isPaused isRunning close getNextJob rateLimit concurrency waitUntilReady "
        "cancelJob cancelAllJobs",
        renamed={
            "RateLimitError": ("RateLimitError", "an exception is raised, nothing has to make it"),
            "extendJobLocks": ("Job.extend_lock", "the locks of all jobs are renewed by itself"),
        },
        left_out={
            "startStalledCheckTimer": "it starts with the worker, or skip_stalled_check says no",
        },
    ),
    Group("1.10 pause", "Worker.pause({}=)", "doNotWaitActive"),
    Group("1.10 close", "Worker.close({}=)", "force"),
    Group("1.10 getNextJob", "Worker.get_next_job({}=)", "token block"),
    Group(
        "1.10 local events",
        "event of Worker {}",
        "active completed failed progress stalled drained paused resumed ready closing closed "
        "error lockRenewalFailed locksRenewed",
    ),
    # --- 1.11, 1.12 errors and locks -------------------------------------------------------------
    Group(
        "1.11 codes",
        "errors.{}",
        "",
        renamed={
            "-1": ("errors.JobNotFound", "a class, not a number"),
            "-2": ("errors.LostLock", "a class, not a number"),
            "-3": ("errors.IllegalMove", "a class, not a number"),
            "-4": ("errors.PendingChildren", "a class, not a number"),
            "-5": ("errors.ParentNotFound", "a class, not a number"),
            "-6": ("errors.LostLock", "whose lock it is by now makes no difference"),
            "-7": ("errors.ParentTaken", "a class, not a number"),
            "-8": ("errors.SchedulerOwnsJob", "a class, not a number"),
            "-9": ("errors.ChildFailed", "a class, not a number"),
            "-10": ("errors.SchedulerSlotsTaken", "a class, not a number"),
            "-11": ("errors.SchedulerSlotsTaken", "a class, not a number"),
        },
        left_out={"err.name": "errors are told by class, there is no sandbox between"},
    ),
    Group("1.12", "Job.{}", "token extendLock stalledCounter deferredFailure"),
    # --- 1.13 events -----------------------------------------------------------------------------
    EVENTS := Group(
        "1.13",
        "event {}",
        "added waiting active progress completed failed delayed stalled waiting-children removed "
        "duplicated deduplicated retries-exhausted cleaned paused resumed drained",
    ),
    Group("1.13 local", "event of QueueEvents {}", "error"),
    Group(
        "1.13 options",
        "QueueEvents({}=)",
        "autorun lastEventId",
        left_out={"blockingTimeout": "readers are woken, they do not block"},
    ),
    # --- 1.14 flows ------------------------------------------------------------------------------
    Group("1.14", "FlowProducer.{}", "add addBulk getFlow close disconnect"),
    Group("1.14 add", "FlowProducer.add({}=)", "queuesOptions"),
    Group("1.14 addBulk", "FlowProducer.add_bulk({}=)", "queuesOptions"),
    Group("1.14 answers", 'FlowJob["{}"]', "job children"),
    Group(
        "1.14 getFlow",
        "FlowProducer.get_flow({}=)",
        "queueName id depth maxChildren",
        left_out={"prefix": "a file, or a schema of PostgreSQL, is the name space"},
    ),
    Group(
        "1.14 nodes",
        'FlowNode["{}"]',
        "name queueName data opts children",
        left_out={"prefix": "a file, or a schema of PostgreSQL, is the name space"},
    ),
)

PAYLOADS = {
    "added": "jobId name",
    "waiting": "jobId",
    "active": "jobId prev",
    "progress": "jobId data",
    "completed": "jobId returnValue prev",
    "failed": "jobId failedReason prev",
    "delayed": "jobId delay",
    "stalled": "jobId",
    "waiting-children": "jobId",
    "removed": "jobId prev",
    "duplicated": "jobId",
    "deduplicated": "jobId deduplicationId deduplicatedJobId",
    "retries-exhausted": "jobId attemptsMade",
    "cleaned": "count",
    "paused": "",
    "resumed": "",
    "drained": "",
}
"""1.13: what each event tells. `returnvalue` is the one that has another name, `return_value`."""


# --- looking for a name --------------------------------------------------------------------------


def snake(name: str) -> str:
    """BullMQ's name as Python would spell it; classes and names of events stay as they are."""
    if name[:1].isupper() or "-" in name:
        return name
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def dashed(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"-\1", name).lower()


def found(place: str) -> bool:
    """Whether the source has what a place names."""
    if match := re.fullmatch(r"event of (\w+) (\S+)", place):
        return match[2] in set(emitted_by(getattr(bullite, match[1])))
    if match := re.fullmatch(r"event (\S+)", place):
        return match[1] in told_to_readers()
    if match := re.fullmatch(r"back-off (\w+)", place):
        return match[1] in backoff.TYPES
    if match := re.fullmatch(r"get_meta (\w+)", place):
        return match[1] in meta()
    if match := re.fullmatch(r'(\S+)\["(\w+)"\]', place):
        keys = get_type_hints(thing(match[1])) if thing(match[1]) is not None else {}
        return match[2] in keys
    if match := re.fullmatch(r"(\S+)\((\w+)=\)", place):
        callable = thing(match[1])
        return callable is not None and match[2] in parameters(callable)
    return thing(place) is not None


def thing(path: str) -> Any:
    """A class, a module or an attribute; None if there is none."""
    at: Any = bullite
    for step in path.split("."):
        if at is bullite and step not in bullite.__all__:
            at = module(step)
        elif inspect.ismodule(at) and not hasattr(at, step):
            at = module(f"{at.__name__.partition('.')[2]}.{step}")
        else:
            at = getattr(at, step, None) or of_an_instance(at, step)
        if at is None:
            return None
    return at


def module(name: str) -> Any:
    try:
        return import_module(f"bullite.{name}")
    except ImportError:
        return None


def of_an_instance(cls: Any, name: str) -> Any:
    """What objects of a class have that the class itself has not."""
    if cls is Queue:
        return getattr(Queue("nobody opens it", "nowhere.db"), name, None)
    return name if name in getattr(cls, "__dataclass_fields__", {}) else None


def parameters(callable: Any) -> set[str]:
    """The arguments by name; those of `**options: Unpack[...]` among them."""
    names = set()
    function = callable.__init__ if inspect.isclass(callable) else callable
    hints = get_type_hints(function, vars(inspect.getmodule(function)) | vars(bullite))
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            names.add(parameter.name)
        else:
            names |= get_type_hints(get_args(hints[parameter.name])[0]).keys()
    return names


def emitted_by(cls: type) -> Iterator[str]:
    """The names that a class, or what it works with, hands to its listeners."""
    modules = {base.__module__ for base in cls.__mro__ if base.__module__.startswith("bullite")}
    if cls is Queue:
        modules.add("bullite.client.job.job")  # a job that is removed tells its queue
    if cls is bullite.Worker:
        modules.add("bullite.worker.notifications")
    for place in map(import_module, modules):
        for call in ast.walk(ast.parse(inspect.getsource(place))):
            match call:
                case ast.Call(ast.Attribute(attr="emit" | "_emit"), [event, *_]):
                    for part in ast.walk(event):
                        if isinstance(part, ast.Constant):
                            yield str(part.value)
                        elif isinstance(part, ast.Name):
                            yield str(getattr(place, part.id, ""))


def told_to_readers() -> set[str]:
    """The events that rows of the log stand for."""
    of_moves = {event for move in MOVES for event in move.events}
    words = (value for name, value in vars(event_log).items() if name.isupper())
    return of_moves | {word.replace("_", "-") for word in words if isinstance(word, str)}


@cache
def meta() -> dict[str, Any]:
    async def read(location: str) -> dict[str, Any]:
        async with Queue("a", location) as queue:
            return await queue.get_meta()

    with TemporaryDirectory() as folder:
        return asyncio.run(read(f"{folder}/meta.db"))


# --- the tests -----------------------------------------------------------------------------------


def promised() -> Iterator[tuple[str, str]]:
    """Every name of BullMQ that is not left out, and where ours is."""
    for group in GROUPS:
        spell = dashed if group.place.startswith("event") else snake
        for name in group.names.split():
            yield f"{group.section}: {name}", group.place.format(spell(name))
        for name, (place, _) in group.renamed.items():
            yield f"{group.section}: {name}", place


@pytest.mark.parametrize("place", [pytest.param(place, id=name) for name, place in promised()])
def test_a_name_of_bullmq_is_here(place: str) -> None:
    assert found(place)


def test_what_is_called_otherwise_or_left_out_says_why_in_one_line() -> None:
    reasons = [
        (name, reason)
        for group in GROUPS
        for name, reason in [
            *((name, why) for name, (_, why) in group.renamed.items()),
            *group.left_out.items(),
        ]
    ]
    assert [name for name, reason in reasons if not 10 < len(reason) < 90 or "\n" in reason] == []


def test_what_is_left_out_is_not_here() -> None:
    """So that a line does not stay on the list when its name has come."""
    here = [
        f"{group.section}: {name}"
        for group in GROUPS
        for name in group.left_out
        if name.isidentifier() and found(group.place.format(snake(name)))
    ]
    assert here == []


def test_no_name_is_on_the_list_twice() -> None:
    for group in GROUPS:
        names = [*group.names.split(), *group.renamed, *group.left_out]
        assert len(names) == len(set(names)), group.section


@pytest.mark.parametrize(
    "place",
    [
        *("Nobody", "Queue.nothing", "errors.Nothing", "nowhere.Nothing", "JobScheduler.nothing"),
        *("Queue(nothing=)", "Queue.add(nothing=)", "Queue.nothing(name=)", 'JobOptions["no"]'),
        *("event nothing", "event of Worker nothing", "event of Queue closing", "get_meta nothing"),
        *("back-off nothing", "Job.create", 'Nobody["id"]'),
    ],
)
def test_a_name_that_is_not_here_would_be_noticed(place: str) -> None:
    assert not found(place)


SAMPLES: dict[str, Any] = {
    "add": ["7", "a"],
    "add_delayed": ["7", ["a", 5]],
    "claim": "7",
    event_log.PROGRESS: ["7", 50],
    "complete": ["7", "done"],
    "fail": ["7", ["no", 1, "failed"]],
    "stall": "7",
    "await": "7",
    "remove": ["7", "waiting"],
    event_log.DUPLICATED: "7",
    event_log.DEDUPLICATED: ["7", ["a key", "8"]],
    event_log.CLEANED: [None, 3],
    event_log.PAUSED: None,
    event_log.RESUMED: None,
    event_log.DRAINED: None,
}
"""By kind: an entry of the log."""


def test_events_tell_what_bullmqs_tell() -> None:
    told: dict[str, set[str]] = {}
    for kind, entry in SAMPLES.items():
        for event in event_log.unfold(1, 1, kind, [entry]):
            told.setdefault(event.name, set()).update(event.payload)
    missing = [
        (event, key)
        for event, keys in PAYLOADS.items()
        for key in map(snake, keys.split())
        if key not in told[event]
    ]
    assert missing == []
    assert set(PAYLOADS) == set(EVENTS.names.split())
