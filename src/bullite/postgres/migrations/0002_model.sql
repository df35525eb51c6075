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
