-- What the whole interface of queues, jobs and workers needs beside the core.

-- A paused queue hands out nothing. The rest is what `configure` stores for everybody; a producer
-- that resolved a job's options under an older version is told to do it again.
alter table bullite_queues add column paused integer not null default 0;
alter table bullite_queues add column version integer not null default 1;
alter table bullite_queues add column default_job_options text;
alter table bullite_queues add column dead_letter text;
-- Ms, or how many; null keeps for ever.
alter table bullite_queues add column keep_completed_age integer default 604800000;
alter table bullite_queues add column keep_completed_count integer;
alter table bullite_queues add column keep_failed_age integer;
alter table bullite_queues add column keep_failed_count integer;
alter table bullite_queues add column trash_age integer not null default 86400000;
alter table bullite_queues add column max_events integer not null default 10000;

-- Workers leave the register, their names stay: a job's row tells by number who ran it.
create table bullite_worker_names (
    worker integer primary key,
    name text not null
) strict;

insert into bullite_worker_names select id, name from bullite_workers;

-- The time by which a job must have begun, and the queue it failed in, if it was moved to another.
alter table bullite_jobs add column expires_at integer;
alter table bullite_jobs add column original_queue integer;

create index bullite_jobs_expiring on bullite_jobs (queue, expires_at)
    where expires_at is not null and (state = 'waiting' or state = 'delayed');

create index bullite_jobs_waiting_children on bullite_jobs (queue, created_at)
    where state = 'waiting-children';

-- How runs ended, except the success that a job's own row tells of.
create table bullite_attempts (
    job integer not null,
    number integer not null,
    started_at integer,
    ended_at integer not null,
    worker text,
    outcome text not null,
    error text,
    stack text,
    primary key (job, number)
) strict, without rowid;

insert into bullite_attempts (job, number, started_at, ended_at, outcome, error, stack)
select job, 1, processed_at, coalesce(finished_at, updated_at), 'error', failed_reason, stack
from bullite_results join bullite_jobs on bullite_jobs.id = job where stack is not null;

-- The column stays, empty, for processes of the older Bullite that are still at work.
update bullite_results set stack = null where stack is not null;
-- How a failed job failed; null is an ordinary error.
alter table bullite_results add column outcome text;

-- Numbered without gaps: the oldest are deleted first, so the first and the last tell how many.
create table bullite_logs (
    job integer not null,
    number integer not null,
    at integer not null,
    level text not null,
    message text not null,
    primary key (job, number)
) strict, without rowid;

-- Whether its process renews its lease, which worker of its process it is, and how many jobs it runs.
alter table bullite_workers add column renews integer not null default 1;
alter table bullite_workers add column number integer not null default 0;
alter table bullite_workers add column concurrency integer not null default 1;
-- Whether its jobs go through their back-off when it is lost.
alter table bullite_workers add column stalled_backoff integer not null default 0;

-- Events were told in other words before: only the newest row stays, empty, so that no id is handed
-- out twice.
delete from bullite_events where id < (select max(id) from bullite_events);
update bullite_events set jobs = '[]';
