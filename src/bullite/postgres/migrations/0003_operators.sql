-- What operators need: jobs found by name, tag and date, what a queue did minute by minute, what commands
-- said, and values that are kept by name.

-- "queue + 0", "queue - 0", "'' || state": these two hold every job that does not run and is not removed, and a statement
-- that names a queue and a state must not think that they could help it, too. Those that run are few, and in an index
-- of their own; left out here, every job is entered twice instead of three times.
create index bullite_jobs_created on bullite.bullite_jobs ((queue + 0), created_at, id)
    where '' || state <> 'active' and '' || state <> 'removed';
create index bullite_jobs_named on bullite.bullite_jobs ((queue - 0), name, created_at, id)
    where '' || state <> 'active' and '' || state <> 'removed';

create table bullite.bullite_tags (
    queue bigint not null,
    tag text collate "C" not null,
    created_at bigint not null,
    job bigint not null,
    primary key (queue, tag, created_at, job)
);

create index bullite_tags_job on bullite.bullite_tags (job);

-- What the runs of a queue came to in one minute, counted from the epoch; durations and waits are
-- sketches as JSON (see sketch.py).
create table bullite.bullite_minutes (
    queue bigint not null,
    minute bigint not null,
    completed bigint not null default 0,
    failed bigint not null default 0,
    durations text,
    waits text,
    primary key (queue, minute)
) with (fillfactor = 50);

-- One run of a command: how it ended, and the head and tail of what it said, in base64, with the
-- number of bytes left out between them.
create table bullite.bullite_runs (
    job bigint not null,
    run bigint not null,
    began_at bigint not null,
    ended_at bigint,
    how text,
    exit_code bigint,
    signal bigint,
    stdout_head text, stdout_tail text, stdout_dropped bigint not null default 0,
    stderr_head text, stderr_tail text, stderr_dropped bigint not null default 0,
    primary key (job, run)
);

-- What a command says while it runs, piece by piece, in base64; gone when the run has ended.
create table bullite.bullite_output (
    job bigint not null,
    run bigint not null,
    number bigint not null,
    stream text collate "C" not null,
    data text not null,
    primary key (job, run, number)
);

-- Values by kind and name, as JSON: configuration, templates, groups of workers.
create table bullite.bullite_kept (
    kind text collate "C" not null,
    name text collate "C" not null,
    value text not null,
    updated_at bigint not null,
    primary key (kind, name)
);

-- What a worker says of itself with each renewal, as JSON, and when that was.
alter table bullite.bullite_workers add column stats text;
alter table bullite.bullite_workers add column seen_at bigint not null default 0;

-- The job that is added when one fails for good, as JSON; and when failed jobs are tried again by
-- themselves, how often at most.
alter table bullite.bullite_queues add column on_failure text;
alter table bullite.bullite_queues add column retry_failed_after bigint;
alter table bullite.bullite_queues add column retry_failed_times bigint not null default 1;
alter table bullite.bullite_results add column revived bigint not null default 0;

-- Failed jobs that are to be tried again by themselves, at their due time.
create index bullite_jobs_tried_again on bullite.bullite_jobs (queue, due_at)
    where state = 'failed' and due_at is not null;

insert into bullite.bullite_tags (queue, tag, created_at, job)
select distinct queue, tag, created_at, id
from bullite.bullite_jobs join bullite.bullite_payloads on job = id,
    json_array_elements_text(opts::json -> 'tags') as tag
where opts is not null;

update bullite.bullite_jobs set traits = traits | 64
where id in (select job from bullite.bullite_tags);
