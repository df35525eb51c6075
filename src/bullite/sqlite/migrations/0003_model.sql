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
