-- The whole schema, as the SQLite store has it after its second migration, and what writers that
-- work side by side need beside that.
--
-- "bullite." stands for whatever schema is used. Times are integers: milliseconds since the epoch, by
-- the server's clock. Texts are compared by bytes: order and speed do not depend on a locale.

create table bullite.bullite_meta (
    key text primary key,
    value text not null
);

-- The numbers behind job ids and places in line. Not transactional: numbers of a transaction that is
-- undone are not handed out again.
create sequence bullite.bullite_numbers as bigint;

-- One row for each process that writes: which of its transactions was committed last. When the answer
-- to a commit is lost, this tells what it was.
create table bullite.bullite_processes (
    nonce bigint primary key,
    committed bigint not null,
    seen_at bigint not null
) with (fillfactor = 50);

create table bullite.bullite_queues (
    id bigint generated always as identity primary key,
    name text collate "C" not null unique,
    priority_order text not null check (priority_order in ('low', 'high')),
    -- Once a worker takes jobs by name, new jobs go into the lane of their name.
    by_name integer not null default 0,
    created_at bigint not null,
    -- A paused queue hands out nothing. The rest is what `configure` stores for everybody; a producer
    -- that resolved a job's options under an older version is told to do it again.
    paused integer not null default 0,
    version bigint not null default 1,
    default_job_options text,
    dead_letter text,
    -- Ms, or how many; null keeps for ever.
    keep_completed_age bigint default 604800000,
    keep_completed_count bigint,
    keep_failed_age bigint,
    keep_failed_count bigint,
    trash_age bigint not null default 86400000,
    max_events bigint not null default 10000,
    -- How many events were ever taken off the log.
    events_trimmed bigint not null default 0
);

-- Kept counts: the changes that each process made, added up in a row of its own, so that no two ever
-- wait for each other. The truth is the sum. Rows of processes that are silent are folded together
-- under number 0.
create table bullite.bullite_counts (
    queue bigint not null,
    nonce bigint not null,
    waiting bigint not null default 0,
    prioritized bigint not null default 0,
    delayed bigint not null default 0,
    active bigint not null default 0,
    waiting_children bigint not null default 0,
    completed bigint not null default 0,
    failed bigint not null default 0,
    primary key (queue, nonce)
) with (fillfactor = 50);

create table bullite.bullite_jobs (
    id bigint primary key,
    queue bigint not null,
    name text collate "C" not null,
    -- Chosen by the user, unique in its queue while the job exists.
    custom_id text collate "C",
    state text collate "C" not null check (
        state = 'active' or state = 'completed' or state = 'waiting' or state = 'delayed'
        or state = 'failed' or state = 'waiting-children' or state = 'removed'
    ),
    -- The place in line: lane, then rank (from the priority), then seq (first in, first out;
    -- negative for those put in front).
    lane text collate "C" not null,
    rank bigint not null,
    seq bigint not null,
    priority bigint not null,
    lifo integer not null,
    delay bigint not null,
    due_at bigint,
    expires_at bigint,
    attempts bigint not null,
    attempts_made bigint not null default 0,
    attempts_started bigint not null default 0,
    stalled_count bigint not null default 0,
    -- Set when the job must fail, without running, as soon as it is taken.
    deferred_failure text,
    -- Who holds the job: compared in every write of a worker, kept on the finished row.
    token bigint,
    nonce bigint,
    worker bigint,
    lease_until bigint,
    -- Held but not begun when it was claimed: its beginning is recorded together with its end.
    ahead integer not null default 0,
    created_at bigint not null,
    updated_at bigint not null,
    processed_at bigint,
    finished_at bigint,
    removed_at bigint,
    removed_from text,
    -- The queue it failed in, if it was moved to another.
    original_queue bigint
) with (
    -- Rows change state a few times and then rest: vacuum early, the line is read from its front.
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

create table bullite.bullite_payloads (
    job bigint primary key,
    data text not null,
    opts text
);

create table bullite.bullite_results (
    job bigint primary key,
    return_value text,
    failed_reason text,
    -- How a failed job failed; null is an ordinary error.
    outcome text,
    progress text
);

-- The line of ready jobs: holds nothing else, so a claim reads only what it takes.
create index bullite_jobs_waiting on bullite.bullite_jobs (queue, lane, rank, seq)
    where state = 'waiting';
create index bullite_jobs_delayed on bullite.bullite_jobs (queue, due_at, id)
    where state = 'delayed';
create index bullite_jobs_active on bullite.bullite_jobs (queue, worker, lease_until)
    where state = 'active';
create index bullite_jobs_completed on bullite.bullite_jobs (queue, finished_at, id)
    where state = 'completed';
create index bullite_jobs_failed on bullite.bullite_jobs (queue, finished_at, id)
    where state = 'failed';
create index bullite_jobs_removed on bullite.bullite_jobs (queue, removed_at)
    where state = 'removed';
create index bullite_jobs_waiting_children on bullite.bullite_jobs (queue, created_at, id)
    where state = 'waiting-children';
create index bullite_jobs_expiring on bullite.bullite_jobs (queue, expires_at)
    where expires_at is not null and (state = 'waiting' or state = 'delayed');
create unique index bullite_jobs_custom_id on bullite.bullite_jobs (queue, custom_id)
    where custom_id is not null and state <> 'removed';

-- How runs ended, except the success that a job's own row tells of.
create table bullite.bullite_attempts (
    job bigint not null,
    number bigint not null,
    started_at bigint,
    ended_at bigint not null,
    worker text,
    outcome text not null,
    error text,
    stack text,
    primary key (job, number)
);

-- Numbered without gaps: the oldest are deleted first, so the first and the last tell how many.
create table bullite.bullite_logs (
    job bigint not null,
    number bigint not null,
    at bigint not null,
    level text not null,
    message text not null,
    primary key (job, number)
);

create table bullite.bullite_workers (
    id bigint generated always as identity primary key,
    queue bigint not null,
    name text not null,
    -- JSON array of the job names it takes; null for all.
    names text,
    -- The process it lives in, for people its pid and host.
    nonce bigint not null,
    pid bigint not null,
    host text not null,
    boot text not null,
    registered integer not null default 1,
    lock_duration bigint not null,
    lease_until bigint not null,
    max_stalled_count bigint not null,
    -- Whether its process renews its lease, which worker of its process it is, and how many jobs it
    -- runs; whether its jobs go through their back-off when it is lost.
    renews integer not null default 1,
    number bigint not null default 0,
    concurrency bigint not null default 1,
    stalled_backoff integer not null default 0,
    -- Has free slots and found nothing: worth a wake-up.
    hungry integer not null default 0,
    address text,
    started_at bigint not null
) with (fillfactor = 50);

create index bullite_workers_nonce on bullite.bullite_workers (nonce);
create index bullite_workers_queue on bullite.bullite_workers (queue);

-- Workers leave the register, their names stay: a job's row tells by number who ran it.
create table bullite.bullite_worker_names (
    worker bigint primary key,
    name text not null
);

-- One row per transaction and kind: jobs is a JSON array of jobs, or of [job, detail] where there is
-- one to tell. The kind is the name of a move, or of an event that is no move. size says how many
-- events the row tells.
create table bullite.bullite_events (
    id bigint generated always as identity primary key,
    queue bigint not null,
    kind text not null,
    jobs text not null,
    size bigint not null,
    at bigint not null
);

create index bullite_events_queue on bullite.bullite_events (queue, id) include (size);
