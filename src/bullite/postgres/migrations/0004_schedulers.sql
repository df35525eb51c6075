-- Job schedulers: what makes jobs again and again. Each has one pending job at a time, made under the
-- id repeat:<key>:<tick> in the transaction that takes the one before it.
create table bullite.bullite_schedulers (
    id bigint generated always as identity primary key,
    queue bigint not null,
    key text collate "C" not null,
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
    next_at bigint,
    job bigint,
    -- How many ticks there were, the next one counted in; when the last was taken, and its job's id.
    iterations bigint not null,
    last_at bigint,
    last_job text,
    enabled integer not null default 1,
    created_at bigint not null,
    updated_at bigint not null
) with (fillfactor = 70);

create unique index bullite_schedulers_key on bullite.bullite_schedulers (queue, key);
create unique index bullite_schedulers_job on bullite.bullite_schedulers (job);
create index bullite_schedulers_due on bullite.bullite_schedulers (next_at) where enabled = 1;
