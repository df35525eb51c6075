-- What BullMQ's model needs beside single jobs: flows, dependencies.

-- What else belongs to a job beside its own rows, as bits: see traits.py. Compared when a run ends, so
-- that a worker cannot miss what was tied to its job while it ran.
alter table bullite_jobs add column traits integer not null default 0;

-- Who waits for whom: a parent for its children, a job for those it depends on. What came of the job that
-- is waited for is copied here when it ends, so it may go. The key is what the waiting job knows it by.
create table bullite_links (
    downstream integer not null,
    upstream integer not null,
    kind text not null check (kind in ('child', 'dependency')),
    policy text not null check (policy in ('wait', 'fail', 'continue', 'ignore', 'remove', 'run')),
    state text not null check (state in ('pending', 'processed', 'ignored', 'failed', 'removed')),
    key text not null,
    value text,
    primary key (downstream, upstream)
) strict, without rowid;

create index bullite_links_upstream on bullite_links (upstream);
-- A job may go on when it has none of these left.
create index bullite_links_pending on bullite_links (downstream) where state = 'pending';

-- A job that waits for others can expire, too.
drop index bullite_jobs_expiring;
create index bullite_jobs_expiring on bullite_jobs (queue, expires_at)
    where expires_at is not null
        and (state = 'waiting' or state = 'delayed' or state = 'waiting-children');

-- Who took a deduplication key last. Whether that job still holds it is not stored: with a window it does
-- until the window ends, without one as long as it lives.
create table bullite_deduplication (
    queue integer not null,
    key text not null,
    -- 0 only inside the transaction that takes the key.
    job integer not null default 0,
    custom_id text,
    until integer,
    -- The job that is to be made when this one has ended, as JSON.
    next text,
    primary key (key, queue)
) strict;

create index bullite_deduplication_job on bullite_deduplication (job);
create index bullite_deduplication_until on bullite_deduplication (queue, until);

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

-- What a run of a job need not do again: its steps with what they gave, its sleeps, and the events it
-- waited for. The kind is one of those; number counts the sleeps and waits of one name, in the order in
-- which a run comes to them; place is the order in which all of them were begun.
create table bullite_steps (
    job integer not null,
    kind text not null,
    name text not null,
    number integer not null,
    place integer not null,
    -- What a step gave or an event brought, as JSON; null where there is nothing.
    value text,
    -- When a sleep, or the patience of a wait, ends.
    due_at integer,
    -- Which run of the job waits: it does while it has begun no other.
    run integer,
    at integer not null,
    ended_at integer,
    primary key (job, kind, name, number)
) strict, without rowid;

-- Events that were sent to a job and that it has not asked for yet.
create table bullite_signals (
    job integer not null,
    name text not null,
    number integer not null,
    payload text not null,
    at integer not null,
    primary key (job, name, number)
) strict, without rowid;

-- Named locks that somebody holds. The token is one of the numbers that job ids are made of: it only
-- grows. The lease counts by the clock of one boot, as a worker's does.
create table bullite_locks (
    name text primary key,
    token integer not null,
    nonce integer not null,
    boot text not null,
    ttl integer not null,
    lease_until integer not null
) strict, without rowid;

-- How many jobs of a queue may run, begin in a time, wait, and be added in a time.

-- Null is no limit. A window runs until rate_until, and so many jobs have begun in it; one that was
-- used up by hand counts 2^53.
alter table bullite_queues add column concurrency integer;
alter table bullite_queues add column rate_max integer;
alter table bullite_queues add column rate_duration integer;
alter table bullite_queues add column rate_until integer not null default 0;
alter table bullite_queues add column rate_used integer not null default 0;
-- Whether anything is in bullite_limits: a claim has to look at the keys of its jobs.
alter table bullite_queues add column by_key integer not null default 0;
-- Quotas; and the window in which so many jobs were added.
alter table bullite_queues add column max_waiting integer;
alter table bullite_queues add column max_payload_bytes integer;
alter table bullite_queues add column max_rate_count integer;
alter table bullite_queues add column max_rate_duration integer;
alter table bullite_queues add column adds_until integer not null default 0;
alter table bullite_queues add column adds_used integer not null default 0;

-- The limits of keys, and their running windows. Key '' holds for every key that has no limit of its
-- own; a key without one has a row only while its window runs, or while jobs of it stand aside.
create table bullite_limits (
    queue integer not null,
    key text not null,
    max integer,
    duration integer,
    until integer not null default 0,
    used integer not null default 0,
    -- When those that stand aside, in the lanes char(31) || key || char(31) || lane, may come back.
    back_at integer,
    primary key (queue, key)
) strict, without rowid;

create index bullite_limits_aside on bullite_limits (queue, back_at) where back_at is not null;
create index bullite_limits_idle on bullite_limits (queue, until) where max is null and back_at is null;
