-- Job schedulers: what makes jobs again and again. Each has one pending job at a time, made under the
-- id repeat:<key>:<tick> in the transaction that takes the one before it.
create table bullite_schedulers (
    id integer primary key,
    queue integer not null,
    key text not null,
    -- When its ticks are, as JSON; and what becomes of those that are missed, once more, for those who
    -- look for schedulers that are late.
    recurrence text not null,
    missed text not null check (missed in ('skip', 'once', 'all')),
    -- What its jobs are made from.
    name text not null,
    data text not null,
    opts text not null,
    -- The tick that comes next, null when it has ended; the number of the job that was made for it, null
    -- while the scheduler is paused.
    next_at integer,
    job integer,
    -- How many ticks there were, the next one counted in; when the last was taken, and its job's id.
    iterations integer not null,
    last_at integer,
    last_job text,
    enabled integer not null default 1,
    created_at integer not null,
    updated_at integer not null
) strict;

create unique index bullite_schedulers_key on bullite_schedulers (queue, key);
create unique index bullite_schedulers_job on bullite_schedulers (job);
create index bullite_schedulers_due on bullite_schedulers (next_at) where enabled = 1;
