-- What operators need: jobs found by name, tag and date, what a queue did minute by minute, what commands
-- said, and values that are kept by name.

-- "queue + 0", "queue - 0": these two hold every job, and a statement that names a queue and a state must not think
-- that they could help it, too.
create index bullite_jobs_created on bullite_jobs (queue + 0, created_at);
create index bullite_jobs_named on bullite_jobs (queue - 0, name, created_at);

create table bullite_tags (
    queue integer not null,
    tag text not null,
    created_at integer not null,
    job integer not null,
    primary key (queue, tag, created_at, job)
) strict, without rowid;

create index bullite_tags_job on bullite_tags (job);

-- What the runs of a queue came to in one minute, counted from the epoch; durations and waits are
-- sketches as JSON (see sketch.py).
create table bullite_minutes (
    queue integer not null,
    minute integer not null,
    completed integer not null default 0,
    failed integer not null default 0,
    durations text,
    waits text,
    primary key (queue, minute)
) strict, without rowid;

-- One run of a command: how it ended, and the head and tail of what it said, in base64, with the
-- number of bytes left out between them.
create table bullite_runs (
    job integer not null,
    run integer not null,
    began_at integer not null,
    ended_at integer,
    how text,
    exit_code integer,
    signal integer,
    stdout_head text, stdout_tail text, stdout_dropped integer not null default 0,
    stderr_head text, stderr_tail text, stderr_dropped integer not null default 0,
    primary key (job, run)
) strict;

-- What a command says while it runs, piece by piece, in base64; gone when the run has ended.
create table bullite_output (
    job integer not null,
    run integer not null,
    number integer not null,
    stream text not null,
    data text not null,
    primary key (job, run, number)
) strict, without rowid;

-- Values by kind and name, as JSON: configuration, templates, groups of workers.
create table bullite_kept (
    kind text not null,
    name text not null,
    value text not null,
    updated_at integer not null,
    primary key (kind, name)
) strict, without rowid;

-- What a worker says of itself with each renewal, as JSON, and when that was.
alter table bullite_workers add column stats text;
alter table bullite_workers add column seen_at integer not null default 0;

-- The job that is added when one fails for good, as JSON; and when failed jobs are tried again by
-- themselves, how often at most.
alter table bullite_queues add column on_failure text;
alter table bullite_queues add column retry_failed_after integer;
alter table bullite_queues add column retry_failed_times integer not null default 1;
alter table bullite_results add column revived integer not null default 0;

-- Failed jobs that are to be tried again by themselves, at their due time.
create index bullite_jobs_tried_again on bullite_jobs (queue, due_at)
    where state = 'failed' and due_at is not null;

insert into bullite_tags (queue, tag, created_at, job)
select distinct queue, tag.value, created_at, bullite_jobs.id
from bullite_jobs join bullite_payloads on job = bullite_jobs.id, json_each(opts, '$.tags') as tag
where opts is not null;

update bullite_jobs set traits = traits | 64 where id in (select job from bullite_tags);
