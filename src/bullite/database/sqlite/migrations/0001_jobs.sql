-- The tables of the queue. All are called bullite_* and live happily in a file with other tables.
--
-- One row per job in bullite_jobs carries its state and everything that changes with it; it is
-- small, because every move rewrites it. What the job was given (bullite_payloads) and what came
-- of it (bullite_results) are written at most a few times and live apart. Each state has a partial
-- index of its own, so the cost of a move never depends on how many jobs sit in other states.
-- Times are integers: milliseconds since the epoch, except leases, which count from the boot.

create table bullite_meta (
    key text primary key,
    value text not null
) strict, without rowid;

-- The one counter behind job ids and places in line: bumped inside the writing transaction, so
-- first in, first out holds across processes and no number is handed out twice.
create table bullite_sequence (
    only_row integer primary key check (only_row = 1),
    last integer not null
) strict;

insert into bullite_sequence values (1, 0);

create table bullite_queues (
    id integer primary key,
    name text not null unique,
    priority_order text not null check (priority_order in ('low', 'high')),
    -- Once a worker takes jobs by name, new jobs go into the lane of their name.
    by_name integer not null default 0,
    created_at integer not null,
    -- Kept counts, changed in the transaction that moves the rows. "prioritized" is waiting with a
    -- priority, counted apart as BullMQ does.
    waiting integer not null default 0,
    prioritized integer not null default 0,
    delayed integer not null default 0,
    active integer not null default 0,
    waiting_children integer not null default 0,
    completed integer not null default 0,
    failed integer not null default 0,
    -- How many events were ever logged.
    events integer not null default 0
) strict;

create table bullite_jobs (
    id integer primary key,
    queue integer not null,
    name text not null,
    -- Chosen by the user, unique in its queue while the job exists.
    custom_id text,
    -- Spelled out: as "in (…)" the check alone cost a third of every update.
    state text not null check (
        state = 'active' or state = 'completed' or state = 'waiting' or state = 'delayed'
        or state = 'failed' or state = 'waiting-children' or state = 'removed'
    ),
    -- The place in line: lane, then rank (from the priority), then seq (first in, first out;
    -- negative for those put in front).
    lane text not null,
    rank integer not null,
    seq integer not null,
    priority integer not null,
    lifo integer not null,
    delay integer not null,
    due_at integer,
    attempts integer not null,
    attempts_made integer not null default 0,
    attempts_started integer not null default 0,
    stalled_count integer not null default 0,
    -- Set when the job must fail, without running, as soon as it is taken.
    deferred_failure text,
    -- Who holds the job: compared in every write of a worker, kept on the finished row.
    token integer,
    nonce integer,
    worker integer,
    lease_until integer,
    -- Held but not begun when it was claimed: its beginning is recorded together with its end.
    ahead integer not null default 0,
    created_at integer not null,
    updated_at integer not null,
    processed_at integer,
    finished_at integer,
    removed_at integer,
    removed_from text
) strict;

create table bullite_payloads (
    job integer primary key,
    data text not null,
    opts text
) strict;

create table bullite_results (
    job integer primary key,
    return_value text,
    failed_reason text,
    stack text,
    progress text
) strict;

-- The line of ready jobs: holds nothing else, so a claim reads only what it takes.
create index bullite_jobs_waiting on bullite_jobs (queue, lane, rank, seq) where state = 'waiting';
-- The next due job is the first entry.
create index bullite_jobs_delayed on bullite_jobs (queue, due_at, id) where state = 'delayed';
-- The jobs a dead worker held.
create index bullite_jobs_active on bullite_jobs (queue, worker, lease_until) where state = 'active';
create index bullite_jobs_completed on bullite_jobs (queue, finished_at) where state = 'completed';
create index bullite_jobs_failed on bullite_jobs (queue, finished_at) where state = 'failed';
create index bullite_jobs_removed on bullite_jobs (queue, removed_at) where state = 'removed';
create unique index bullite_jobs_custom_id on bullite_jobs (queue, custom_id)
    where custom_id is not null and state <> 'removed';

create table bullite_workers (
    id integer primary key autoincrement,
    queue integer not null,
    name text not null,
    -- JSON array of the job names it takes; null for all.
    names text,
    -- The process it lives in: its random number, for people its pid and host, its boot.
    nonce integer not null,
    pid integer not null,
    host text not null,
    boot text not null,
    -- Registered: its process renews the lease and, on one machine, holds a kernel lock.
    registered integer not null default 1,
    lock_duration integer not null,
    lease_until integer not null,
    max_stalled_count integer not null,
    -- Has free slots and found nothing: worth a wake-up at this address.
    hungry integer not null default 0,
    address text,
    started_at integer not null
) strict;

create index bullite_workers_nonce on bullite_workers (nonce);
create index bullite_workers_hungry on bullite_workers (queue) where hungry = 1;

-- One row per transaction and kind: jobs is a JSON array of jobs, or of [job, detail] where there
-- is one to tell. The kind is the name of a move, or of an event that is no move. total counts the queue's events up to this row.
create table bullite_events (
    -- Trimming always leaves the newest row, so an id is never handed out twice.
    id integer primary key,
    queue integer not null,
    kind text not null,
    jobs text not null,
    total integer not null,
    at integer not null
) strict;

create index bullite_events_queue on bullite_events (queue, total);
