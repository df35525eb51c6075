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
