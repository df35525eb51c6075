-- What BullMQ's model needs beside single jobs: flows, dependencies.

-- What else belongs to a job beside its own rows, as bits: see traits.py. Compared when a run ends, so
-- that a worker cannot miss what was tied to its job while it ran.
alter table bullite.bullite_jobs add column traits integer not null default 0;

-- Who waits for whom: a parent for its children, a job for those it depends on. What came of the job that
-- is waited for is copied here when it ends, so it may go. The key is what the waiting job knows it by.
create table bullite.bullite_links (
    downstream bigint not null,
    upstream bigint not null,
    kind text collate "C" not null check (kind in ('child', 'dependency')),
    policy text collate "C" not null
        check (policy in ('wait', 'fail', 'continue', 'ignore', 'remove', 'run')),
    state text collate "C" not null
        check (state in ('pending', 'processed', 'ignored', 'failed', 'removed')),
    key text collate "C" not null,
    value text,
    primary key (downstream, upstream)
);

create index bullite_links_upstream on bullite.bullite_links (upstream);
-- A job may go on when it has none of these left.
create index bullite_links_pending on bullite.bullite_links (downstream) where state = 'pending';

-- A job that waits for others can expire, too.
drop index bullite.bullite_jobs_expiring;
create index bullite_jobs_expiring on bullite.bullite_jobs (queue, expires_at)
    where expires_at is not null
        and (state = 'waiting' or state = 'delayed' or state = 'waiting-children');

-- Who took a deduplication key last. Whether that job still holds it is not stored: with a window it does
-- until the window ends, without one as long as it lives.
create table bullite.bullite_deduplication (
    queue bigint not null,
    key text collate "C" not null,
    -- 0 only inside the transaction that takes the key.
    job bigint not null default 0,
    custom_id text collate "C",
    until bigint,
    -- The job that is to be made when this one has ended, as JSON.
    next text,
    primary key (key, queue)
);

create index bullite_deduplication_job on bullite.bullite_deduplication (job);
create index bullite_deduplication_until on bullite.bullite_deduplication (queue, until);

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

-- What a run of a job need not do again: its steps with what they gave, its sleeps, and the events it
-- waited for. The kind is one of those; number counts the sleeps and waits of one name, in the order in
-- which a run comes to them; place is the order in which all of them were begun.
create table bullite.bullite_steps (
    job bigint not null,
    kind text collate "C" not null,
    name text collate "C" not null,
    number bigint not null,
    place bigint not null,
    -- What a step gave or an event brought, as JSON; null where there is nothing.
    value text,
    -- When a sleep, or the patience of a wait, ends.
    due_at bigint,
    -- Which run of the job waits: it does while it has begun no other.
    run bigint,
    at bigint not null,
    ended_at bigint,
    primary key (job, kind, name, number)
);

-- Events that were sent to a job and that it has not asked for yet.
create table bullite.bullite_signals (
    job bigint not null,
    name text collate "C" not null,
    number bigint not null,
    payload text not null,
    at bigint not null,
    primary key (job, name, number)
);

-- Named locks that somebody holds. The token is one of the numbers that job ids are made of: it only
-- grows. The lease counts by the server's clock.
create table bullite.bullite_locks (
    name text collate "C" primary key,
    token bigint not null,
    nonce bigint not null,
    boot text not null,
    ttl bigint not null,
    lease_until bigint not null
) with (fillfactor = 50);

-- How many jobs of a queue may run, begin in a time, wait, and be added in a time.

-- Null is no limit. A window runs until rate_until, and so many jobs have begun in it; one that was
-- used up by hand counts 2^53.
alter table bullite.bullite_queues add column concurrency bigint;
alter table bullite.bullite_queues add column rate_max bigint;
alter table bullite.bullite_queues add column rate_duration bigint;
alter table bullite.bullite_queues add column rate_until bigint not null default 0;
alter table bullite.bullite_queues add column rate_used bigint not null default 0;
-- Whether anything is in bullite_limits: a claim has to look at the keys of its jobs.
alter table bullite.bullite_queues add column by_key integer not null default 0;
-- Quotas; and the window in which so many jobs were added.
alter table bullite.bullite_queues add column max_waiting bigint;
alter table bullite.bullite_queues add column max_payload_bytes bigint;
alter table bullite.bullite_queues add column max_rate_count bigint;
alter table bullite.bullite_queues add column max_rate_duration bigint;
alter table bullite.bullite_queues add column adds_until bigint not null default 0;
alter table bullite.bullite_queues add column adds_used bigint not null default 0;

-- The limits of keys, and their running windows. Key '' holds for every key that has no limit of its
-- own; a key without one has a row only while its window runs, or while jobs of it stand aside.
create table bullite.bullite_limits (
    queue bigint not null,
    key text collate "C" not null,
    max bigint,
    duration bigint,
    until bigint not null default 0,
    used bigint not null default 0,
    -- When those that stand aside, in the lanes chr(31) || key || chr(31) || lane, may come back.
    back_at bigint,
    primary key (queue, key)
) with (fillfactor = 50);

create index bullite_limits_aside on bullite.bullite_limits (queue, back_at)
    where back_at is not null;
create index bullite_limits_idle on bullite.bullite_limits (queue, until)
    where max is null and back_at is null;
