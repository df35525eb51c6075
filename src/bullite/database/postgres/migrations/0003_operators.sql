-- What operators need: jobs found by name, tag and date, what a queue did minute by minute, what commands
-- said, and values that are kept by name.

-- What jobs are found by, in a table that stays as it is while they run. Every state of a job is a new row to the server,
-- which enters it into all indexes of the table: those of the jobs have to be few.
alter table bullite.bullite_payloads
    add column its_queue bigint, add column its_name text collate "C", add column made_at bigint;

update bullite.bullite_payloads set its_queue = queue, its_name = name, made_at = created_at
from bullite.bullite_jobs where id = job;

-- "job + 0": a statement that names a job must not think that these could help it, too.
create index bullite_payloads_made on bullite.bullite_payloads (its_queue, made_at, (job + 0));
create index bullite_payloads_named on bullite.bullite_payloads (its_queue, its_name, made_at, (job + 0));

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
