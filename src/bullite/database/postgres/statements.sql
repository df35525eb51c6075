-- Every statement of the PostgreSQL store, under the names of the SQLite store.
--
-- "-- name: x" opens statement x. Its parameters are :names; "bullite." is replaced by the schema in use;
-- `{cancelled}` and the like are job flags: see job_flags.py. A statement may have flags:
--   (multi_row):    for many rows. Its parameters are the columns in their order, each an array. If it
--                   only inserts, many rows are sent with COPY instead.
--   (durable_read): reads the event log up to the last row before which no transaction is open;
--                   :settled is its id.
--   (whole):        reads a whole table, without a time limit, by the plan that the server prefers.
-- "-- move: x" has the columns that move x changes beside the state. The compare-and-swap around it is
-- written once, in the templates, from the table in states.py. :jobs is a JSON object of tokens by job;
-- with "takes" it is an object of [token, value] by job; for a move without tokens it is an array of jobs.
-- "-- page: x by a, b aged c" has the filter of list x, which is ordered by the columns a and b; column
-- c has the age of a job.
--
-- Transactions run concurrently, at isolation level read committed. A statement locks the rows that it
-- reads to change: in the order of ids if the transaction waits for them, or without the rows that other
-- transactions have locked (skip locked) if any rows will do.

-- The server plans a statement by its statistics of the tables, and they may be old: a table with a
-- million jobs may count as empty. So every statement is written in a way that leaves only the good
-- plan. Jobs are found by `= any (array(…))` or by `between x and x`, for which the server must search
-- their index; for `x = y` or `in (select …)` it could also scan the whole index. Together with these, a
-- state is compared by `state || ''`, so that the server cannot use the index of the jobs in that state.

-- template: move
update bullite.bullite_jobs as j set state = '{target}', updated_at = :now{changes}
from (
    select key::bigint as job, value::bigint as token from json_each_text(:jobs::json) order by 1
) as asked
where j.id between asked.job and asked.job and j.state || '' = '{source}'{guards}

-- template: move_with_value
update bullite.bullite_jobs as j set state = '{target}', updated_at = :now{changes}
from (
    select key::bigint as job, (value ->> 0)::bigint as token, (value ->> 1)::bigint as taken
    from json_each(:jobs::json) order by 1
) as asked
where j.id between asked.job and asked.job and j.state || '' = '{source}'{guards}

-- template: move_without_token
update bullite.bullite_jobs as j set state = '{target}', updated_at = :now{changes}
from (
    select value::bigint as job from json_array_elements_text(:jobs::json) order by 1
) as asked
where j.id between asked.job and asked.job and j.state || '' = '{source}'{guards}

-- template: token_guard
and j.token = asked.token and j.nonce = :nonce

-- template: same_token_guard
and j.token = :token and j.nonce = :nonce

-- template: token_with_value_guard
and j.token = asked.token and j.nonce = :nonce

-- template: delete
delete from bullite.bullite_jobs
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json))) and state || '' = '{source}'

-- template: job
select j.id, j.name, custom_id, priority, attempts, attempts_made, attempts_started, stalled_count,
    j.created_at, deferred_failure, opts, rank, seq, traits, data, state, lifo, delay, due_at, updated_at,
    processed_at, finished_at, return_value, failed_reason, progress, outcome,
    (select n.name from bullite.bullite_worker_names as n where n.worker = j.worker) as processed_by,
    w.lease_until as worker_lease, j.lease_until as lease, expires_at,
    (select q.name from bullite.bullite_queues as q where q.id = j.original_queue) as original_queue,
    coalesce((
        select json_agg(a.stack order by a.number)::text from bullite.bullite_attempts as a
        where a.job = j.id and a.stack is not null
    ), '[]') as stacks
from bullite.bullite_jobs as j
    join bullite.bullite_payloads as p on p.job between j.id and j.id
    left join bullite.bullite_results as r on r.job between j.id and j.id
    left join bullite.bullite_workers as w on w.id = j.worker

-- template: page
{job}
where j.id = any (array(
    select id from bullite.bullite_jobs where queue = :queue and {filter}
    order by {first} {direction}, {second} {direction} limit :most offset :skip
))
order by j.{first} {direction}, j.{second} {direction}

-- template: after
{job}
where j.id = any (array(
    select id from bullite.bullite_jobs
    where queue = :queue and {filter} and ({first}, {second}) > (:first, :second)
    order by {first}, {second} limit :most
))
order by j.{first}, j.{second}

-- template: before
{job}
where j.id = any (array(
    select id from bullite.bullite_jobs
    where queue = :queue and {filter} and ({first}, {second}) < (:first, :second)
    order by {first} desc, {second} desc limit :most
))
order by j.{first} desc, j.{second} desc

-- template: oldest
select id, custom_id, {first}, {second} from bullite.bullite_jobs
where queue = :queue and {filter} and ({first}, {second}) > (:first, :second)
    and {aged} <= :before and updated_at <= :since
order by {first}, {second} limit :most

-- template: take_oldest
select id, traits from bullite.bullite_jobs as j
where queue = :queue and {filter} and {aged} <= :before
    and (traits & {upstream} = 0 or not coalesce((
        select true from bullite.bullite_links as l
        where l.upstream = j.id and l.state || '' = 'pending' limit 1
    ), false))
order by {first}, {second} limit :most for update skip locked

-- move: promote takes seq
seq = asked.taken, due_at = null, delay = 0

-- move: reschedule takes delay
delay = asked.taken, due_at = :now + asked.taken

-- A job that is parked for its rate-limit key returns to its own lane: only a claim knows when a parked
-- job may run.
-- move: expire
finished_at = :now, due_at = null,
lane = case when left(lane, 1) = chr(31) then split_part(lane, chr(31), 3) else lane end

-- move: cancel
finished_at = :now, due_at = null,
lane = case when left(lane, 1) = chr(31) then split_part(lane, chr(31), 3) else lane end

-- move: claim
token = :token, nonce = :nonce, worker = :worker, lease_until = :lease_until,
ahead = :ahead, attempts_started = attempts_started + 1 - :ahead, processed_at = :now

-- move: complete
attempts_made = attempts_made + 1, attempts_started = attempts_started + ahead, ahead = 0,
finished_at = :now, lease_until = null
where j.traits = :traits

-- move: fail
attempts_made = attempts_made + 1, attempts_started = attempts_started + ahead, ahead = 0,
finished_at = :now, lease_until = null
where j.traits = :traits

-- move: back_off takes delay
attempts_made = attempts_made + 1, attempts_started = attempts_started + ahead, ahead = 0,
lease_until = null, delay = asked.taken, due_at = :now + asked.taken
where j.traits = :traits

-- move: retry takes seq
attempts_made = attempts_made + 1, attempts_started = attempts_started + ahead, ahead = 0,
lease_until = null, seq = asked.taken * (1 - 2 * lifo)
where j.traits = :traits

-- move: delay takes delay
attempts_started = attempts_started + ahead, ahead = 0,
lease_until = null, delay = asked.taken, due_at = :now + asked.taken

-- move: await
attempts_started = attempts_started + ahead, ahead = 0, lease_until = null

-- move: free takes seq
seq = asked.taken, due_at = null, delay = 0

-- move: free_delayed takes due_at
due_at = asked.taken

-- move: let_go takes seq
seq = asked.taken, due_at = null, delay = 0

-- move: let_go_delayed takes due_at
due_at = asked.taken

-- move: release
attempts_started = attempts_started + ahead, ahead = 0, lease_until = null

-- move: give_back
ahead = 0, lease_until = null

-- move: stall takes seq
stalled_count = stalled_count + 1, lease_until = null, seq = asked.taken,
deferred_failure = case when traits & {cancelled} <> 0 or deferred_failure is not null then deferred_failure
    when stalled_count + 1 > :max_stalled_count then :reason end

-- move: stall_delayed takes delay
stalled_count = stalled_count + 1, lease_until = null,
delay = asked.taken, due_at = :now + asked.taken

-- move: revive takes seq
finished_at = null, processed_at = null, deferred_failure = null, expires_at = null,
seq = asked.taken, due_at = null, traits = traits & ~{cancelled},
attempts_made = attempts_made * :kept, attempts_started = attempts_started * :kept

-- move: revive_delayed takes delay
finished_at = null, processed_at = null, deferred_failure = null, expires_at = null,
delay = asked.taken, due_at = :now + asked.taken, traits = traits & ~{cancelled},
attempts_made = attempts_made * :kept, attempts_started = attempts_started * :kept

-- move: remove
removed_at = :now, removed_from = state,
lane = case when left(lane, 1) = chr(31) then split_part(lane, chr(31), 3) else lane end

-- move: restore_waiting
removed_at = null, removed_from = null
where j.removed_from = 'waiting'

-- move: restore_delayed
removed_at = null, removed_from = null
where j.removed_from = 'delayed'

-- move: restore_blocked
removed_at = null, removed_from = null
where j.removed_from = 'waiting-children'

-- move: restore_completed
removed_at = null, removed_from = null
where j.removed_from = 'completed'

-- move: restore_failed
removed_at = null, removed_from = null
where j.removed_from = 'failed'

-- The first statement of every transaction. No other statement reads the time.
-- name: clock
select (extract(epoch from clock_timestamp()) * 1000)::bigint

-- The first statement of a transaction that need not be synced.
-- name: clock_unsynced
select (extract(epoch from clock_timestamp()) * 1000)::bigint,
    set_config('synchronous_commit', 'off', true)

-- name: take_numbers
select nextval('bullite.bullite_numbers') from generate_series(1, :count)

-- queues ------------------------------------------------------------------------------------------

-- name: queue_named
select id, priority_order, version, default_job_options from bullite.bullite_queues
where name = :name

-- name: insert_queue
insert into bullite.bullite_queues (name, priority_order, created_at)
values (:name, :priority_order, :now) returning id

-- Return the facts of a queue that a claim needs: by name, paused, when its next delayed job is due, when
-- the first job that has not started expires, the number of waiting jobs per worker, and its limits. There
-- is no row for a worker that is not registered: no process would recover a job that it claimed. Queue and
-- worker do not change until the claim is committed.
-- name: claim_info
select by_name, paused,
    (select due_at from bullite.bullite_jobs where queue = :queue and state = 'delayed'
        order by due_at limit 1), (
        select expires_at from bullite.bullite_jobs
        where queue = :queue and expires_at is not null
            and (state = 'waiting' or state = 'delayed' or state = 'waiting-children') and attempts_started = 0
        order by expires_at limit 1
    ), (
        select coalesce(sum(waiting + prioritized), 0)::bigint from bullite.bullite_counts
        where queue = :queue
    ) / greatest(1, (
        select count(*) from bullite.bullite_workers where queue = :queue and registered = 1
    )),
    q.concurrency, rate_max, rate_duration, rate_until, rate_used, by_key
from bullite.bullite_queues as q join bullite.bullite_workers as w on w.id between :worker and :worker
where q.id = :queue for key share of q, w

-- Return the facts of a queue that an add needs: by name, the version of its settings, by key, and whether
-- it has quotas.
-- name: add_info
select by_name, version, by_key, max_waiting is not null or max_payload_bytes is not null
    or max_rate_count is not null
from bullite.bullite_queues where id = :queue for key share

-- Wait for the transactions that have read the queue's settings or limits, and let later ones wait.
-- name: lock_queue
select id from bullite.bullite_queues where id = :queue for update

-- Lock the queues of a transaction that needed them too late and runs again, in the order of all locks.
-- name: lock_queues
select id from bullite.bullite_queues
where id = any (array(select value::bigint from json_array_elements_text(:queues::json)))
order by id for no key update

-- Lock such jobs, and the jobs that wait for them.
-- name: lock_jobs
select id from bullite.bullite_jobs where id = any (array(
    select value::bigint from json_array_elements_text(:jobs::json)
    union
    select downstream from bullite.bullite_links
    where upstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
        and state || '' = 'pending'
))
order by id for update

-- name: count_jobs
select count(*) from bullite.bullite_jobs
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: settings
select name, priority_order, paused, version, default_job_options, dead_letter, keep_completed_age,
    keep_completed_count, keep_failed_age, keep_failed_count, trash_age, max_events,
    max_waiting, max_payload_bytes, max_rate_count, max_rate_duration,
    concurrency, rate_max, rate_duration, on_failure, retry_failed_after, retry_failed_times
from bullite.bullite_queues where id = :queue

-- name: configure
update bullite.bullite_queues set
    version = version + 1, priority_order = :priority_order,
    default_job_options = :default_job_options, dead_letter = :dead_letter,
    keep_completed_age = :keep_completed_age, keep_completed_count = :keep_completed_count,
    keep_failed_age = :keep_failed_age, keep_failed_count = :keep_failed_count,
    trash_age = :trash_age, max_events = :max_events,
    max_waiting = :max_waiting, max_payload_bytes = :max_payload_bytes,
    max_rate_count = :max_rate_count, max_rate_duration = :max_rate_duration,
    on_failure = :on_failure, retry_failed_after = :retry_failed_after,
    retry_failed_times = :retry_failed_times
where id = :queue

-- name: reverse_priority_order
update bullite.bullite_jobs set rank = -rank where id = any (array(
    select id from bullite.bullite_jobs where queue = :queue and rank <> 0 order by id for update
))

-- name: set_paused
update bullite.bullite_queues set paused = :paused where id = :queue and paused <> :paused

-- name: count_prefetched
select count(*) from bullite.bullite_jobs where queue = :queue and state = 'active' and ahead = 1

-- name: queue_names
select id, name from bullite.bullite_queues

-- name: enable_name_lanes
update bullite.bullite_queues set by_name = 1 where id = :queue and by_name = 0

-- Add to the counts of this process. Most transactions need no more, so it does not read the counts of other
-- processes.
-- name: add_to_counts
insert into bullite.bullite_counts as c (
    queue, nonce, waiting, prioritized, delayed, active, waiting_children, completed, failed, events
)
select :queue, :nonce, :waiting, :prioritized, :delayed, :active, :waiting_children, :completed,
    :failed, :events
from bullite.bullite_queues where id = :queue
on conflict (queue, nonce) do update set
    waiting = c.waiting + excluded.waiting, prioritized = c.prioritized + excluded.prioritized,
    delayed = c.delayed + excluded.delayed, active = c.active + excluded.active,
    waiting_children = c.waiting_children + excluded.waiting_children,
    completed = c.completed + excluded.completed, failed = c.failed + excluded.failed,
    events = c.events + excluded.events

-- The same if the queue may be drained now: that follows from the committed counts and from this transaction.
-- A drained queue has one event more.
-- name: change_counts
with others as materialized (
    select coalesce(sum(waiting + prioritized + active), 0) as unfinished from bullite.bullite_counts
    where queue = :queue and nonce <> :nonce
), mine as (
    insert into bullite.bullite_counts as c (
        queue, nonce, waiting, prioritized, delayed, active, waiting_children, completed, failed, events
    )
    select :queue, :nonce, :waiting, :prioritized, :delayed, :active, :waiting_children, :completed,
        :failed, :events + case when :waiting + :prioritized + :active
            + (select unfinished from others) = 0 then 1 else 0 end
    from bullite.bullite_queues where id = :queue
    on conflict (queue, nonce) do update set
        waiting = c.waiting + excluded.waiting, prioritized = c.prioritized + excluded.prioritized,
        delayed = c.delayed + excluded.delayed, active = c.active + excluded.active,
        waiting_children = c.waiting_children + excluded.waiting_children,
        completed = c.completed + excluded.completed, failed = c.failed + excluded.failed,
        events = c.events + :events + case
            when c.waiting + c.prioritized + c.active + :waiting + :prioritized + :active
                + (select unfinished from others) = 0 then 1 else 0 end
    returning waiting + prioritized + active as unfinished
)
select null, unfinished + (select unfinished from others) = 0,
    (select concurrency is not null from bullite.bullite_queues where id = :queue) from mine

-- name: counts
select coalesce(sum(waiting), 0)::bigint, coalesce(sum(prioritized), 0)::bigint,
    coalesce(sum(delayed), 0)::bigint, coalesce(sum(active), 0)::bigint,
    coalesce(sum(waiting_children), 0)::bigint, coalesce(sum(completed), 0)::bigint,
    coalesce(sum(failed), 0)::bigint
from bullite.bullite_counts where queue = :queue

-- Add up the counts of processes that have not been seen since :silent_since.
-- name: fold_counts
with silent as (
    delete from bullite.bullite_counts where (queue, nonce) in (
        select c.queue, c.nonce from bullite.bullite_counts as c
        where c.nonce <> 0 and not exists (
            select 1 from bullite.bullite_processes as p
            where p.nonce = c.nonce and p.seen_at > :silent_since
        )
        order by c.queue, c.nonce limit :most for update skip locked
    )
    returning *
)
insert into bullite.bullite_counts as c (
    queue, nonce, waiting, prioritized, delayed, active, waiting_children, completed, failed, events
)
select queue, 0, sum(waiting), sum(prioritized), sum(delayed), sum(active), sum(waiting_children),
    sum(completed), sum(failed), sum(events)
from silent group by queue order by queue
on conflict (queue, nonce) do update set
    waiting = c.waiting + excluded.waiting, prioritized = c.prioritized + excluded.prioritized,
    delayed = c.delayed + excluded.delayed, active = c.active + excluded.active,
    waiting_children = c.waiting_children + excluded.waiting_children,
    completed = c.completed + excluded.completed, failed = c.failed + excluded.failed,
    events = c.events + excluded.events

-- The last statement of a transaction. It fails if the transaction was given up as lost.
-- name: mark
insert into bullite.bullite_processes as p (nonce, committed, seen_at) values (:nonce, :number, :now)
on conflict (nonce) do update set
    committed = case when p.committed < excluded.committed then excluded.committed
        else ('bullite undoes a transaction: it was given up; the last is ' || p.committed)::bigint end,
    seen_at = excluded.seen_at

-- Give up a transaction as lost: it can never commit. If it was committed already, there is no row.
-- Otherwise return whether its process had a row, and the time. A process has no row if it never committed
-- or was deleted by `forget_processes`.
-- name: give_up
insert into bullite.bullite_processes as p (nonce, committed, seen_at) values (:nonce, :number, :now)
on conflict (nonce) do update set committed = excluded.committed
where p.committed < excluded.committed
returning p.xmax::text <> '0', (extract(epoch from clock_timestamp()) * 1000)::bigint

-- name: processes
select nonce, seen_at from bullite.bullite_processes
where nonce = any (array(select value::bigint from json_array_elements_text(:nonces::json)))

-- name: leave
delete from bullite.bullite_processes where nonce = :nonce

-- Delete processes that sent no heartbeat for so long that none of them can still need the result of an
-- interrupted commit. A process that has workers or named locks is kept: a process without a row counts as
-- dead, even if its leases have not ended.
-- name: forget_processes
delete from bullite.bullite_processes where nonce = any (array(
    select nonce from bullite.bullite_processes as p
    where seen_at < :silent_since
        and not exists (select 1 from bullite.bullite_workers as w where w.nonce = p.nonce)
        and not exists (select 1 from bullite.bullite_locks as l where l.nonce = p.nonce)
    order by nonce limit :most for update skip locked
))

-- adding ------------------------------------------------------------------------------------------

-- name: insert_jobs (multi_row)
insert into bullite.bullite_jobs (
    id, seq, queue, lane, created_at, updated_at, due_at, expires_at, state,
    traits, name, custom_id, rank, priority, lifo, delay, attempts
) select * from unnest(
    :bigint[], :bigint[], :bigint[], :text[], :bigint[], :bigint[], :bigint[], :bigint[], :text[],
    :integer[], :text[], :text[], :bigint[], :bigint[], :integer[], :bigint[], :bigint[]
)

-- name: insert_payloads (multi_row)
insert into bullite.bullite_payloads (job, data, opts, its_queue, its_name, made_at)
select * from unnest(:bigint[], :text[], :text[], :bigint[], :text[], :bigint[])

-- name: taken_custom_ids
select custom_id, id from bullite.bullite_jobs
where queue = :queue and custom_id = any (array(select json_array_elements_text(:custom_ids::json)))
    and state <> 'removed' and custom_id is not null

-- claiming ----------------------------------------------------------------------------------------

-- name: due
select id, lifo, priority, custom_id from bullite.bullite_jobs
where queue = :queue and state = 'delayed' and due_at <= :now
order by due_at, id limit :most for update skip locked

-- name: due_queues
select id from bullite.bullite_queues as q where (
    select true from bullite.bullite_jobs
    where queue = q.id and state = 'delayed' and due_at <= :now limit 1
)

-- name: has_ready_or_due
select exists (select 1 from bullite.bullite_jobs where queue = :queue and state = 'waiting'),
    (select due_at from bullite.bullite_jobs where queue = :queue and state = 'delayed'
        order by due_at limit 1)

-- name: next_in_lane
select id, name, custom_id, priority, attempts, attempts_made, attempts_started + 1 as attempts_started, stalled_count,
    created_at, deferred_failure, opts, rank, seq, traits, data
from bullite.bullite_jobs as j join bullite.bullite_payloads on job between id and id
where queue = :queue and state = 'waiting' and lane = :lane
order by rank, seq limit :want for update of j skip locked

-- name: lane_heads
select rank, seq, id from bullite.bullite_jobs
where queue = :queue and state = 'waiting' and lane = :lane
order by rank, seq limit :want

-- name: claimable_jobs
select id, name, custom_id, priority, attempts, attempts_made, attempts_started + 1 as attempts_started, stalled_count,
    created_at, deferred_failure, opts, rank, seq, traits, data
from bullite.bullite_jobs as j join bullite.bullite_payloads on job between id and id
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json))) and state || '' = 'waiting'
order by rank, seq for update of j skip locked

-- name: failed_reasons
select job, failed_reason from bullite.bullite_results
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and failed_reason is not null

-- name: assign_lanes
update bullite.bullite_jobs set lane = name where id = any (array(
    select id from bullite.bullite_jobs
    where queue = :queue and state = 'waiting' and lane = ''
    order by rank, seq limit :most for update skip locked
))

-- Go from lane to lane along the index: one look-up per lane, whatever its number of jobs. No name has a
-- control character. So the next lane is not less than the last one followed by a space, and the lane of
-- parked jobs is before the first.
-- name: lanes
with recursive lanes (lane) as (
    select '' collate "C"
    union all
    select (
        select j.lane from bullite.bullite_jobs as j
        where queue = :queue and state = 'waiting' and j.lane >= lanes.lane || ' '
        order by j.lane limit 1
    ) from lanes where lanes.lane is not null
)
select lane from lanes where lane <> '' or lane = '' and exists (
    select 1 from bullite.bullite_jobs where queue = :queue and state = 'waiting' and lane = ''
)

-- settling ----------------------------------------------------------------------------------------

-- name: write_values (multi_row)
insert into bullite.bullite_results (job, return_value) select * from unnest(:bigint[], :text[])
on conflict (job) do update set return_value = excluded.return_value

-- name: write_failures (multi_row)
insert into bullite.bullite_results (job, failed_reason, outcome)
select * from unnest(:bigint[], :text[], :text[])
on conflict (job) do update set
    return_value = null, failed_reason = excluded.failed_reason, outcome = excluded.outcome

-- The claim of a job that failed without a run is not a start, and its failure is not an attempt.
-- name: forget_start
update bullite.bullite_jobs set
    attempts_made = attempts_made - 1, attempts_started = attempts_started - 1,
    processed_at = case when attempts_started > 1 then processed_at end
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: write_attempts
insert into bullite.bullite_attempts (
    job, number, started_at, ended_at, worker, outcome, error, stack
)
select j.id,
    1 + coalesce((select max(number) from bullite.bullite_attempts where job = j.id), 0),
    processed_at, coalesce(finished_at, :now),
    (select name from bullite.bullite_worker_names as n where n.worker = j.worker),
    asked.value ->> 1, asked.value ->> 2, asked.value ->> 3
from (
    select (value ->> 0)::bigint as job, value from json_array_elements(:attempts::json)
) as asked join bullite.bullite_jobs as j on j.id between asked.job and asked.job

-- name: forget_stacks
update bullite.bullite_attempts set stack = null
where job = :job and stack is not null and number not in (
    select number from bullite.bullite_attempts
    where job = :job and stack is not null order by number desc limit :keep
)

-- name: move_to_queue
with found_there as (
    update bullite.bullite_payloads set its_queue = :target
    where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
        and its_queue = :queue
)
update bullite.bullite_jobs set
    queue = :target, original_queue = :original_queue, rank = rank * :turn,
    lane = case when :by_name::bigint = 1 then name else '' end
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json))) and queue = :queue

-- name: load_jobs_for_update
select id, queue, state, priority, lifo, due_at, token, nonce, removed_from, custom_id,
    original_queue, ahead, traits, delay, deferred_failure
from bullite.bullite_jobs
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
order by id for update

-- name: write_progress
insert into bullite.bullite_results (job, progress)
select j.id, asked.value ->> 1
from (select key::bigint as job, value from json_each(:jobs::json)) as asked
    join bullite.bullite_jobs as j on j.id between asked.job and asked.job
where j.state || '' = 'active' and j.token = (asked.value ->> 0)::bigint and j.nonce = :nonce
on conflict (job) do update set progress = excluded.progress

-- name: set_progress
insert into bullite.bullite_results (job, progress) values (:job, :progress)
on conflict (job) do update set progress = excluded.progress

-- name: forget_results
update bullite.bullite_results set return_value = null, failed_reason = null, outcome = null
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: delete_payloads
delete from bullite.bullite_payloads
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: delete_results
delete from bullite.bullite_results
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: delete_attempts
delete from bullite.bullite_attempts
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: delete_logs
delete from bullite.bullite_logs
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- expiring ----------------------------------------------------------------------------------------

-- name: expired
select id, state, priority, custom_id, opts, traits
from bullite.bullite_jobs as j join bullite.bullite_payloads on job between id and id
where queue = :queue and expires_at <= :now and (state = 'waiting' or state = 'delayed' or state = 'waiting-children')
    and attempts_started = 0
order by expires_at limit :most for update of j skip locked

-- name: expired_queues
select id from bullite.bullite_queues as q where (
    select true from bullite.bullite_jobs where queue = q.id and expires_at <= :now
        and (state = 'waiting' or state = 'delayed' or state = 'waiting-children') and attempts_started = 0 limit 1
)

-- editing -----------------------------------------------------------------------------------------

-- name: mark_started
update bullite.bullite_jobs set attempts_started = attempts_started + 1, ahead = 0
where id = :job and state || '' = 'active' and ahead = 1

-- name: set_data
update bullite.bullite_payloads set data = :data where job = :job

-- name: set_priority
update bullite.bullite_jobs
set priority = :priority, rank = :rank, seq = :seq, updated_at = :now where id = :job

-- name: set_lease
update bullite.bullite_jobs set lease_until = :lease_until
where id = :job and state || '' = 'active' and token = :token and nonce = :nonce

-- name: last_logs
select asked.job,
    (select min(number) from bullite.bullite_logs as l where l.job = asked.job),
    (select max(number) from bullite.bullite_logs as l where l.job = asked.job)
from (select value::bigint as job from json_array_elements_text(:jobs::json)) as asked

-- name: insert_logs (multi_row)
insert into bullite.bullite_logs (job, number, at, level, message)
select * from unnest(:bigint[], :bigint[], :bigint[], :text[], :text[])

-- name: trim_logs
delete from bullite.bullite_logs where job = :job and number <= :last

-- workers -----------------------------------------------------------------------------------------

-- name: insert_worker
insert into bullite.bullite_workers (
    queue, name, names, nonce, pid, host, boot, lock_duration, lease_until, max_stalled_count,
    renews, number, concurrency, stalled_backoff, address, started_at
) values (
    :queue, :name, :names, :nonce, :pid, :host, :boot, :lock_duration, :lease_until,
    :max_stalled_count, :renews, :number, :concurrency, :stalled_backoff, :address, :now
) returning id

-- name: insert_worker_name
insert into bullite.bullite_worker_names (worker, name) values (:worker, :name)

-- name: delete_old_worker_names
delete from bullite.bullite_worker_names
where worker <= :oldest and worker not in (select id from bullite.bullite_workers)

-- name: set_concurrency
update bullite.bullite_workers set concurrency = :concurrency where id = :worker

-- name: set_worker_idle
update bullite.bullite_workers set hungry = :idle where id = :worker

-- A locked row is skipped: the engine that has locked it renews it, or the next run of this does. Return for
-- each worker the length of its lease, and whether the lease was renewed.
-- name: renew_workers
with free as materialized (
    select id from bullite.bullite_workers
    where nonce = :nonce and registered > 0 and renews = 1 order by id for no key update skip locked
), renewed as (
    update bullite.bullite_workers
    set lease_until = greatest(lease_until, :lease_now + lock_duration), seen_at = :now
    where id = any (array(select id from free)) returning id
)
select lock_duration, exists (select 1 from renewed as r where r.id = w.id)
from bullite.bullite_workers as w where nonce = :nonce and registered > 0 and renews = 1

-- name: workers_of_process
select id from bullite.bullite_workers where nonce = :nonce and registered > 0

-- name: deregister_worker
update bullite.bullite_workers set registered = :registered, hungry = 0 where id = :worker

-- name: delete_idle_worker
delete from bullite.bullite_workers as w
where id = :worker and lease_until < :expired_before
    and (
        select id from bullite.bullite_workers where id between :worker and :worker for update skip locked
    ) is not null
    and (renews = 1 or registered <> 1 or :dead::bigint = 1)
    and not exists (
        select 1 from bullite.bullite_jobs where queue = w.queue and state = 'active' and worker = w.id
    )

-- name: workers
select id, queue, nonce, boot, registered, lease_until, max_stalled_count, renews, stalled_backoff,
    names
from bullite.bullite_workers

-- name: workers_of_queue
select id, name, names, nonce, pid, host, number, concurrency, started_at,
    seen_at, boot, case when renews = 1 then lock_duration end,
    (select count(*) from bullite.bullite_jobs
        where queue = :queue and state = 'active' and worker = w.id)
from bullite.bullite_workers as w where queue = :queue and registered = 1 order by id

-- Notify the processes that listen for a queue if one of their workers is advertised as idle.
-- name: notify
select pg_notify(:channel, :name) where exists (
    select 1 from bullite.bullite_workers where queue = :queue and hungry = 1 and nonce <> :nonce
)

-- The query locks the worker's row. If another transaction has locked it, the worker is alive (it renews its
-- lease or claims), or another process recovers its jobs.
-- name: held_by_worker
with lost as materialized (
    select id from bullite.bullite_workers where id = :worker and lease_until < :expired_before
    for update skip locked
)
select id, token, priority, ahead, custom_id, traits,
    exists (select 1 from bullite.bullite_workers where id = :worker and registered = 2)
from bullite.bullite_jobs
where queue = :queue and state = 'active' and worker = :worker and lease_until < :expired_before
    and (
        exists (select 1 from lost)
        or not exists (select 1 from bullite.bullite_workers where id = :worker)
    )
order by seq desc limit :most for update skip locked

-- Recovered jobs have no owner: the process that ran them must not treat its tokens as valid.
-- name: forget_tokens
update bullite.bullite_jobs set token = null, nonce = null
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- Return those of these jobs that this process claimed last, and their claim tokens.
-- name: tokens_here
select id, token from bullite.bullite_jobs
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and nonce = :nonce

-- name: backoffs
select id, stalled_count, opts
from bullite.bullite_jobs join bullite.bullite_payloads on job between id and id
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json))) and opts is not null

-- events ------------------------------------------------------------------------------------------

-- name: insert_events (multi_row)
insert into bullite.bullite_events (queue, kind, jobs, size, at)
select * from unnest(:bigint[], :text[], :text[], :bigint[], :bigint[])

-- One process at a time does a housekeeping task of a queue. Other processes skip it.
-- name: try_housekeeping
select pg_try_advisory_xact_lock(hashtextextended('bullite.bullite_queues ' || :chore || :queue::bigint, 0))

-- Return the other session that holds that lock: every role that may connect can take it.
-- name: housekeeper
select a.pid, a.usename::text from pg_locks as l join pg_stat_activity as a on a.pid = l.pid
where locktype = 'advisory' and granted and objsubid = 1
    and database = (select oid from pg_database where datname = current_database())
    and ((classid::bigint << 32) | objid::bigint)
        = hashtextextended('bullite.bullite_queues ' || :chore || :queue::bigint, 0)

-- Wait for the lock of the sweep of a queue, to trim its event log on request: the sweep trims it, too.
-- name: lock_sweep
select pg_advisory_xact_lock(hashtextextended('bullite.bullite_queues sweep' || :queue::bigint, 0))

-- The number of events in the log follows from the counts: only the rows to be deleted are read.
-- name: trim_events
with oldest as (
    select id, sum(size) over (order by id) as up_to from (
        select id, size from bullite.bullite_events
        where (queue, id) > (:queue, 0) and queue = :queue order by queue, id limit :most
    ) as piece
), trimmed as (
    delete from bullite.bullite_events where id = any (array(
        select id from bullite.bullite_events where id = any (array(
            select id from oldest where up_to <= (
                select sum(events) from bullite.bullite_counts where queue = :queue
            ) - (
                select events_trimmed from bullite.bullite_queues where id = :queue
            ) - :keep and id < (
                select id from bullite.bullite_events where queue = :queue order by queue desc, id desc limit 1
            )
        )) order by id for update skip locked
    ))
    returning size
), counted as (
    update bullite.bullite_queues
    set events_trimmed = events_trimmed + (select sum(size) from trimmed)
    where id = :queue and exists (select 1 from trimmed)
)
select 1 from trimmed

-- Count the rows of the log and correct its count: processes of older versions do not count.
-- name: recount_log
insert into bullite.bullite_counts as c (queue, nonce, events)
select id, 0, difference from (
    select id, events_trimmed + coalesce((
        select sum(size) from bullite.bullite_events where queue = q.id
    ), 0) - coalesce((
        select sum(events) from bullite.bullite_counts where queue = q.id
    ), 0) as difference from bullite.bullite_queues as q where id = :queue
) as log where difference <> 0
on conflict (queue, nonce) do update set events = c.events + excluded.events

-- name: clear_newest_event
update bullite.bullite_events set jobs = '[]' where queue = :queue and :keep::bigint = 0
    and id = (select max(id) from bullite.bullite_events where queue = :queue)

-- Return up to where the log may be read: the newest row, and the transactions that may still add older
-- ones. Such a transaction holds a lock on the table from before it takes an id until it has committed.
-- name: end_of_settled
select coalesce(max(id), 0), coalesce((
    select string_agg(virtualtransaction, ' ') from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
        and relation = 'bullite.bullite_events'::regclass
        and database = (select oid from pg_database where datname = current_database())
), '') from bullite.bullite_events

-- name: skip_events
with alone as materialized (
    select from bullite.bullite_meta where key = 'schema' for no key update
)
select setval('bullite.bullite_events_id_seq', nextval('bullite.bullite_events_id_seq') + :skipped)
from alone

-- Return the number of events of one queue, or of each: in all and up to a row. This sums the log.
-- name: log_position (durable_read)
select id, name, (events_trimmed + coalesce((
    select sum(size) from bullite.bullite_events where queue = q.id and id <= :settled
), 0))::bigint, :settled::bigint, (
    select (q.events_trimmed + sum(size))::bigint from bullite.bullite_events
    where queue = q.id and id <= :after having count(*) > 0
) from bullite.bullite_queues as q where :queue::bigint is null or q.id = :queue

-- Return rows of the log, each with the number of events that its queue ever had up to it. A sum over the
-- log would cost more per page the longer the log is. So the reader passes the number of events up to the
-- row :counted, by queue, in :seen. Events that were trimmed since are always the oldest.
-- name: events_after (durable_read)
with page as (
    select id, queue, kind, jobs, size, at from bullite.bullite_events
    where id > :after and id <= :settled and (:queue::bigint is null or queue = :queue)
    order by id limit :most
), known as (
    select key::bigint as queue, value::bigint as events from json_each_text(:seen::json)
)
select page.id, page.queue, kind, jobs, (
        greatest(events_trimmed, known.events) + coalesce(
            sum(size) filter (where page.id > :counted) over (partition by page.queue order by page.id), 0
        )
    )::bigint, at
from page join bullite.bullite_queues as q on q.id = page.queue
    left join known on known.queue = page.queue
order by page.id

-- Return the outcomes of jobs that were deleted: of each its number and its queue. If a job has a custom
-- id, its number is further back in its entry. The jobs are looked up in an object: a join would compare
-- each job with each entry.
-- name: ends_in_log
with asked as materialized (
    select jsonb_object_agg(value ->> 0, value -> 1) as queues
    from json_array_elements(:jobs::json)
)
select number::bigint, kind, entry, id from (
    select id, queue, kind, entry.value::text as entry, coalesce(
        case when json_typeof(entry.value) <> 'array' then entry.value #>> '{}'
            when kind = 'complete' then entry.value ->> 3
            when kind = 'fail' then entry.value -> 1 ->> 3
            else entry.value -> 1 ->> 2
        end,
        entry.value ->> 0
    ) as number
    from bullite.bullite_events, json_array_elements(jobs::json) as entry
    where queue = any (array(select value::bigint from json_array_elements_text(:queues::json)))
        and kind in ('complete', 'fail', 'expire', 'cancel')
) as ends, asked
where (asked.queues ->> number)::bigint = queue

-- links -------------------------------------------------------------------------------------------

-- name: insert_links (multi_row)
insert into bullite.bullite_links (downstream, upstream, kind, policy, state, key, value)
select * from unnest(:bigint[], :bigint[], :text[], :text[], :text[], :text[], :text[])

-- Return the links of the jobs that wait for these jobs.
-- name: links_from
select upstream, downstream, kind, policy, key from bullite.bullite_links
where upstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and state || '' = 'pending'

-- The kind is compared because no index has it: otherwise the server might scan a whole index.
-- name: dependents_of
select downstream, kind from bullite.bullite_links
where upstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: with_children_elsewhere
select down.id
from (select value::bigint as job from json_array_elements_text(:jobs::json)) as asked
    join bullite.bullite_jobs as down on down.id between asked.job and asked.job
where (
    select true from bullite.bullite_links as l
        join bullite.bullite_jobs as up on up.id between l.upstream and l.upstream
    where l.downstream = down.id and l.kind = 'child' and l.state || '' = 'pending'
        and up.queue <> down.queue limit 1
)

-- Delete the pending links of a job of one kind and policy. A pair of jobs could not be found as quickly:
-- behind the first column of an index that is compared by no plain equality, the server reads to its end.
-- name: resolve_links
update bullite.bullite_links as l set state = asked.state, value = asked.value
from (
    select (value ->> 0)::bigint as upstream, value ->> 1 as sort, value ->> 2 as state,
        value ->> 3 as value
    from json_array_elements(:links::json) order by 1
) as asked
where l.upstream between asked.upstream and asked.upstream
    and l.kind || ' ' || l.policy between asked.sort and asked.sort and l.state || '' = 'pending'

-- name: delete_links
delete from bullite.bullite_links as l
using (
    select (value ->> 0)::bigint as upstream, value ->> 1 as sort
    from json_array_elements(:links::json)
) as asked
where l.upstream between asked.upstream and asked.upstream
    and l.kind || ' ' || l.policy between asked.sort and asked.sort and l.state || '' = 'pending'

-- Delete all links between these pairs of jobs, of which there are few: they have ended, or will be written
-- again.
-- name: unlink_jobs
delete from bullite.bullite_links as l
using (
    select (value ->> 0)::bigint as downstream, (value ->> 1)::bigint as upstream
    from json_array_elements(:links::json)
) as asked
where (l.downstream, l.upstream) >= (asked.downstream, asked.upstream)
    and (l.downstream, l.upstream) <= (asked.downstream, asked.upstream)

-- name: delete_links_up
delete from bullite.bullite_links where upstream = :job and kind = 'child'

-- name: delete_links_to
delete from bullite.bullite_links
where downstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- A removed job has a link by which it can be restored. If the job is deleted, this link is deleted, too.
-- name: delete_links_of_removed
delete from bullite.bullite_links
where upstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and state || '' = 'removed'

-- Return those of these jobs that still wait for another job.
-- name: with_pending_links
select asked.job from (
    select value::bigint as job from json_array_elements_text(:jobs::json)
) as asked where (
    select true from bullite.bullite_links
    where downstream = asked.job and state = 'pending' limit 1
)

-- Return the reasons why these jobs cannot complete: a failed child whose policy fails its parent; whether a
-- child is pending; whether a child failed whose policy ends the waiting for the remaining children.
-- name: completion_blockers
select asked.job,
    (select key from bullite.bullite_links where downstream = asked.job and kind = 'child'
        and state = 'failed' and policy = 'fail' limit 1),
    coalesce((select true from bullite.bullite_links
        where downstream = asked.job and kind = 'child' and state = 'pending' limit 1), false),
    coalesce((select true from bullite.bullite_links
        where downstream = asked.job and state = 'ignored' and policy = 'continue' limit 1), false)
from (select value::bigint as job from json_array_elements_text(:jobs::json)) as asked

-- Return the parents of these jobs that still exist.
-- name: parents_of
select l.upstream, l.downstream, l.key
from bullite.bullite_links as l
    join bullite.bullite_jobs as j on j.id between l.downstream and l.downstream
where l.upstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and l.kind = 'child' and l.state || '' <> 'removed' and j.state || '' <> 'removed'

-- Return children, their children and so on, each with its parent, the state of the link and its own.
-- name: descendants
with recursive tree (job, parent, link) as (
    select upstream, downstream, state from bullite.bullite_links
    where downstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
        and kind = 'child'
    union
    select l.upstream, l.downstream, l.state
    from tree join bullite.bullite_links as l on l.downstream between tree.job and tree.job
        and l.kind = 'child'
)
select tree.job, tree.parent, tree.link, j.state
from tree join bullite.bullite_jobs as j on j.id between tree.job and tree.job

-- Return the jobs that these jobs wait for, the jobs that those wait for, and so on.
-- name: transitive_dependencies
with recursive chain (downstream, upstream) as (
    select downstream, upstream from bullite.bullite_links
    where downstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
        and state || '' = 'pending'
    union
    select l.downstream, l.upstream from chain join bullite.bullite_links as l
        on l.downstream between chain.upstream and chain.upstream and l.state || '' = 'pending'
)
select downstream, upstream from chain

-- Children run again whose parents have not finished: the parents wait for them again.
-- name: reopen_links
update bullite.bullite_links as l set state = 'pending', value = null
where upstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and kind = 'child' and l.state || '' in ('processed', 'ignored', 'failed') and (
        select j.state in ('waiting', 'delayed', 'active', 'waiting-children')
        from bullite.bullite_jobs as j where j.id between l.downstream and l.downstream
    )

-- Links that the removal of jobs suspended, and that count again now that the jobs are restored.
-- name: restore_links
update bullite.bullite_links as l set state = 'pending'
where upstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and l.state || '' = 'removed' and (
        select j.state = 'waiting-children' or j.removed_from = 'waiting-children'
        from bullite.bullite_jobs as j where j.id between l.downstream and l.downstream
    )

-- Parents run again although children have failed.
-- name: ignore_failed_links
update bullite.bullite_links set policy = 'ignore'
where downstream = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and state || '' = 'failed'

-- name: add_flags
update bullite.bullite_jobs set traits = traits | :traits::integer
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: set_deferred_failures
update bullite.bullite_jobs as j set deferred_failure = coalesce(deferred_failure, asked.reason)
from (
    select key::bigint as job, value as reason from json_each_text(:reasons::json) order by 1
) as asked where j.id between asked.job and asked.job

-- name: job_options
select job, opts from bullite.bullite_payloads
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: set_opts
update bullite.bullite_payloads set opts = :opts where job = :job

-- name: links_page
select upstream, key, value from bullite.bullite_links
where (downstream, upstream) > (:job, :after) and downstream = :job
    and kind = :kind and state || '' = :state
order by downstream, upstream limit :most

-- name: pending_links
select key from bullite.bullite_links where downstream = :job and state = 'pending'
order by upstream + 0 limit :most

-- name: link_with_key
select upstream from bullite.bullite_links
where downstream = :job and state = 'pending' and key = :key

-- name: link_counts
select state, count(*) from bullite.bullite_links
where downstream = :job and kind = 'child' group by state

-- Children of a job, with the queues they are in now.
-- name: children_page
select l.upstream, q.name
from bullite.bullite_links as l
    join bullite.bullite_jobs as j on j.id between l.upstream and l.upstream
        and j.state || '' <> 'removed'
    join bullite.bullite_queues as q on q.id between j.queue and j.queue
where (l.downstream, l.upstream) > (:job, :after) and l.downstream = :job
    and l.kind = 'child' and l.state || '' = :state
order by l.downstream, l.upstream limit :most

-- Return jobs that wait for jobs which will not complete without an operator.
-- name: blocked_forever
select l.downstream, l.key, up.state, r.failed_reason
from bullite.bullite_jobs as down
    join bullite.bullite_links as l on l.downstream between down.id and down.id
        and l.state || '' = 'pending'
    left join bullite.bullite_jobs as up on up.id between l.upstream and l.upstream
    left join bullite.bullite_results as r on r.job between l.upstream and l.upstream
where down.queue = :queue and down.state = 'waiting-children'
    and (:job::bigint is null or down.id = :job)
    and (up.id is null or up.state || '' = 'failed' or up.state || '' = 'removed')
order by down.created_at, down.id, l.upstream limit :most

-- schedulers --------------------------------------------------------------------------------------

-- A transaction that changes a scheduler locks its queue first, so that no claim is under way in the queue.
-- A claim has a shared lock on the queue and changes the schedulers of the jobs that it claims.

-- name: scheduler_named
select id, queue, key, recurrence, name, data, opts, next_at, job, iterations, last_at, last_job, enabled,
    created_at, updated_at
from bullite.bullite_schedulers where queue = :queue and key = :key for update

-- name: schedulers_of_jobs
select id, queue, key, recurrence, name, data, opts, next_at, job, iterations, last_at, last_job, enabled,
    created_at, updated_at
from bullite.bullite_schedulers
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
order by job for update

-- name: upsert_scheduler
insert into bullite.bullite_schedulers (
    queue, key, recurrence, missed, name, data, opts, next_at, job, iterations, created_at, updated_at
) values (
    :queue, :key, :recurrence, :missed, :name, :data, :opts, :next_at, :job, :iterations, :now, :now
)
on conflict (queue, key) do update set
    recurrence = excluded.recurrence, missed = excluded.missed, name = excluded.name,
    data = excluded.data, opts = excluded.opts, next_at = excluded.next_at, job = excluded.job,
    iterations = excluded.iterations, enabled = 1, updated_at = excluded.updated_at

-- name: update_schedulers
update bullite.bullite_schedulers as s set
    next_at = (asked.value ->> 1)::bigint, job = (asked.value ->> 2)::bigint,
    iterations = (asked.value ->> 3)::bigint, last_at = (asked.value ->> 4)::bigint,
    last_job = asked.value ->> 5, enabled = (asked.value ->> 6)::integer, updated_at = :now
from (
    select (value ->> 0)::bigint as id, value from json_array_elements(:schedulers::json)
) as asked where s.id between asked.id and asked.id

-- name: delete_scheduler
delete from bullite.bullite_schedulers where queue = :queue and key = :key

-- name: delete_schedulers
delete from bullite.bullite_schedulers where queue = :queue

-- Return the enabled schedulers that have one of these jobs as their pending job.
-- name: owning_schedulers
select job, key from bullite.bullite_schedulers
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json))) and enabled + 0 = 1

-- name: existing_schedulers
select key from bullite.bullite_schedulers
where queue = :queue and key = any (array(select json_array_elements_text(:keys::json)))

-- Return schedulers that have no pending job although it is due, and those whose pending job may be late.
-- name: late_schedulers
select queue, key from bullite.bullite_schedulers as s
where enabled = 1 and next_at <= :now and (
    missed <> 'once' and next_at < :late
    or not coalesce((
        select state in ('waiting', 'delayed') from bullite.bullite_jobs
        where id between s.job and s.job
    ), false)
)
order by next_at limit :most

-- name: scheduler
select id, queue, key, recurrence, name, data, opts, next_at, job, iterations, last_at, last_job, enabled,
    created_at, updated_at
from bullite.bullite_schedulers where queue = :queue and key = :key

-- name: schedulers_up
select id, queue, key, recurrence, name, data, opts, next_at, job, iterations, last_at, last_job, enabled,
    created_at, updated_at
from bullite.bullite_schedulers where queue = :queue
order by enabled desc, next_at nulls first, id limit :most offset :skip

-- name: schedulers_down
select id, queue, key, recurrence, name, data, opts, next_at, job, iterations, last_at, last_job, enabled,
    created_at, updated_at
from bullite.bullite_schedulers where queue = :queue
order by enabled desc, next_at desc nulls last, id desc limit :most offset :skip

-- name: count_schedulers
select count(*) from bullite.bullite_schedulers where queue = :queue

-- deduplication -----------------------------------------------------------------------------------

-- Insert a missing key, and lock it: a conflict locks the row even if it is not updated.
-- name: lock_dedup_keys (multi_row)
insert into bullite.bullite_deduplication (queue, key) select * from unnest(:bigint[], :text[])
on conflict (queue, key) do update set job = excluded.job where false

-- A key is found by its own index; its queue is compared by `queue + 0`, for the reason given at the top.
-- name: key_holders
select d.key, d.job, d.custom_id, d.until, d.next, j.state
from bullite.bullite_deduplication as d
    left join bullite.bullite_jobs as j on j.id between d.job and d.job
where d.key = any (array(select json_array_elements_text(:keys::json))) and d.queue + 0 = :queue

-- name: update_dedup_keys (multi_row)
insert into bullite.bullite_deduplication (queue, key, job, custom_id, until, next)
select * from unnest(:bigint[], :text[], :bigint[], :text[], :bigint[], :text[])
on conflict (queue, key) do update set
    job = excluded.job, custom_id = excluded.custom_id, until = excluded.until, next = excluded.next

-- name: delete_keys
delete from bullite.bullite_deduplication
where key = any (array(select json_array_elements_text(:keys::json))) and queue + 0 = :queue
returning next

-- The keys are locked in the order in which adds lock them. A job that was kept meanwhile is seen.
-- name: free_keys
delete from bullite.bullite_deduplication
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and (until is null or :windows::bigint = 1)
    and key = any (array(
        select key from bullite.bullite_deduplication
        where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
        order by queue + 0, key for update
    ))
returning queue, until, next

-- Lock keys in the same order, for a transaction that will release the keys of several jobs one by one.
-- name: lock_keys
select key from bullite.bullite_deduplication
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
order by queue + 0, key for update

-- name: lock_delayed
select id from bullite.bullite_jobs
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and state || '' = 'delayed'
order by id for update skip locked

-- name: jobs_with_dedup_key
select id, queue, custom_id, state, created_at, opts
from bullite.bullite_jobs join bullite.bullite_payloads on job between id and id
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: prune_dedup_keys
delete from bullite.bullite_deduplication
where queue = :queue and until <= :now and key = any (array(
    select key from bullite.bullite_deduplication
    where queue = :queue and until <= :now order by until limit :most for update skip locked
))

-- name: forget_keys
delete from bullite.bullite_deduplication where queue = :queue

-- limits ------------------------------------------------------------------------------------------

-- Serialize the transactions that count under the limits of the queue. Earlier ones have ended and later
-- ones wait; transactions that only read limits or settings do not wait. Return the time after the row was
-- locked: waiting for the lock may have taken long.
-- name: lock_queue_limits
with turn as materialized (
    select id from bullite.bullite_queues where id = :queue for no key update
)
select (extract(epoch from clock_timestamp()) * 1000)::bigint from turn

-- The same, if no other transaction holds the lock.
-- name: lock_queue_limits_now
with turn as materialized (
    select id from bullite.bullite_queues where id = :queue for no key update skip locked
)
select (extract(epoch from clock_timestamp()) * 1000)::bigint from turn

-- name: count_active
select count(*) from bullite.bullite_jobs where queue = :queue and state = 'active'

-- name: limits
select concurrency, rate_max, rate_duration, rate_until, rate_used, by_key
from bullite.bullite_queues where id = :queue

-- Return the number of jobs before a job in its lane, at most :most.
-- name: count_ahead_in_lane
select count(*) from bullite.bullite_jobs as me
    cross join lateral (
        select 1 from bullite.bullite_jobs as j
        where j.queue = me.queue and j.lane = me.lane and j.state = 'waiting'
            and (j.rank, j.seq) < (me.rank, me.seq)
        order by j.rank, j.seq limit :most
    ) as before
where me.id between :job and :job

-- name: set_limits
update bullite.bullite_queues
set concurrency = :concurrency, rate_max = :rate_max, rate_duration = :rate_duration
where id = :queue

-- name: set_window
update bullite.bullite_queues set rate_until = :until, rate_used = :used where id = :queue

-- name: key_windows
select found.*
from (select '' as key union all select json_array_elements_text(:keys::json)) as asked,
    lateral (
        select l.key, max, duration, until, used, back_at from bullite.bullite_limits as l
        where l.queue = :queue and l.key = asked.key limit 1
    ) as found

-- name: keys_to_unpark
select key, max, duration, until, used, back_at from bullite.bullite_limits
where queue = :queue and back_at is not null and back_at <= :now order by back_at limit :most

-- name: next_unpark
select (
    select back_at from bullite.bullite_limits where queue = :queue and back_at is not null
    order by back_at limit 1
)

-- name: jobs_with_limit_key
select id, opts::json ->> 'limit_key'
from bullite.bullite_jobs as j join bullite.bullite_payloads on job between id and id
where queue = :queue and state = 'waiting' and lane = :lane
order by rank, seq limit :most for update of j skip locked

-- name: park_jobs
update bullite.bullite_jobs as j set lane = chr(31) || asked.limit_key || chr(31) || lane
from (
    select key::bigint as job, value as limit_key from json_each_text(:jobs::json) order by 1
) as asked
where j.id between asked.job and asked.job

-- name: parked_lanes
with recursive lanes (lane) as (
    (select lane from bullite.bullite_jobs
    where queue = :queue and state = 'waiting' and lane >= :first_lane and lane < :last_lane
    order by lane limit 1)
    union all
    select (
        select j.lane from bullite.bullite_jobs as j
        where queue = :queue and state = 'waiting' and j.lane > lanes.lane and j.lane < :last_lane
        order by j.lane limit 1
    ) from lanes where lanes.lane is not null
)
select lane from lanes where lane is not null

-- name: unpark_jobs
update bullite.bullite_jobs set lane = :home where id = any (array(
    select id from bullite.bullite_jobs
    where queue = :queue and state = 'waiting' and lane = :lane
    order by rank, seq limit :most for update skip locked
))

-- name: set_unpark_time
insert into bullite.bullite_limits (queue, key, back_at)
select :queue, key, value::bigint from json_each_text(:keys::json) order by 2
on conflict (queue, key) do update set back_at = excluded.back_at

-- name: count_keys
insert into bullite.bullite_limits as l (queue, key, until, used)
select :queue, key, (value ->> 0)::bigint, (value ->> 1)::bigint from json_each(:keys::json) order by 2
on conflict (queue, key) do update set until = excluded.until, used = excluded.used,
    back_at = case when l.back_at is not null then excluded.until end

-- name: key_limit
select max, duration from bullite.bullite_limits
where queue = :queue and key = :key and max is not null

-- name: set_key_limit
insert into bullite.bullite_limits (queue, key, max, duration) values (:queue, :key, :max, :duration)
on conflict (queue, key) do update set max = excluded.max, duration = excluded.duration

-- name: remove_key_limit
update bullite.bullite_limits set max = null, duration = null
where queue = :queue and key = :key and max is not null

-- name: unpark_all
update bullite.bullite_limits set back_at = :now where queue = :queue and back_at is not null

-- name: set_by_key
update bullite.bullite_queues
set by_key = (exists (select 1 from bullite.bullite_limits where queue = :queue))::integer
where id = :queue

-- name: delete_idle_limit_keys
delete from bullite.bullite_limits where queue = :queue and key = any (array(
    select key from bullite.bullite_limits
    where queue = :queue and max is null and back_at is null and until <= :now limit :most
)) and max is null and back_at is null and until <= :now

-- name: forget_limits
delete from bullite.bullite_limits where queue = :queue

-- Return the quotas of a queue and their use.
-- name: quotas
select name, max_waiting, max_payload_bytes, max_rate_count, max_rate_duration, adds_until, adds_used
from bullite.bullite_queues where id = :queue

-- name: count_adds
update bullite.bullite_queues set adds_until = :until, adds_used = :used where id = :queue

-- steps -------------------------------------------------------------------------------------------

-- name: steps
select kind, name, number, value, due_at, at, ended_at from bullite.bullite_steps
where job = :job order by place

-- name: insert_steps (multi_row)
insert into bullite.bullite_steps (job, kind, name, number, place, value, at, ended_at)
select * from unnest(
    :bigint[], :text[], :text[], :bigint[], :bigint[], :text[], :bigint[], :bigint[]
)
on conflict (job, kind, name, number) do nothing

-- name: set_steps_flag
update bullite.bullite_jobs set traits = traits | :trait::integer
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: find_suspension
select value, due_at, ended_at from bullite.bullite_steps
where job = :job and kind = :kind and name = :name and number = :number

-- A job that waits for an event is suspended already: the number of its run shows that it waits.
-- name: insert_suspension
insert into bullite.bullite_steps (job, kind, name, number, place, due_at, run, at)
select :job, :kind, :name, :number, :place, :due_at, attempts_started, :now
from bullite.bullite_jobs where id between :job and :job
on conflict (job, kind, name, number) do update set run = excluded.run

-- name: finish_suspension
insert into bullite.bullite_steps (job, kind, name, number, place, value, due_at, at, ended_at)
values (:job, :kind, :name, :number, :place, :value, :due_at, :now, :now)
on conflict (job, kind, name, number) do update set
    value = excluded.value, ended_at = excluded.ended_at

-- name: is_waiting_for_event
select 1 from bullite.bullite_steps as s
    join bullite.bullite_jobs as j on j.id between :job and :job
where s.job = :job and s.kind = 'event' and s.name = :name and s.ended_at is null
    and s.run = j.attempts_started

-- name: insert_signal
insert into bullite.bullite_signals (job, name, number, payload, at)
values (:job, :name, :number, :payload, :now)

-- name: next_signal
select number, payload from bullite.bullite_signals
where job = :job and name = :name order by number limit 1

-- name: delete_signal
delete from bullite.bullite_signals where job = :job and name = :name and number = :number

-- name: delete_steps
delete from bullite.bullite_steps
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: delete_signals
delete from bullite.bullite_signals
where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- cancelling --------------------------------------------------------------------------------------

-- Return the cancelled jobs that this process runs.
-- name: cancelled_running_jobs
select j.id, j.worker, token, deferred_failure
from bullite.bullite_jobs as j
where j.queue = any (array(select queue from bullite.bullite_workers where nonce = :nonce))
    and j.worker = any (array(select id from bullite.bullite_workers where nonce = :nonce))
    and state = 'active' and traits & {cancelled} <> 0

-- name: alert
select pg_notify(:channel, :name)

-- locks -------------------------------------------------------------------------------------------

-- Take a lock that has no holder or whose lease has expired, or take it from a holder known to be dead.
-- name: take_lock
insert into bullite.bullite_locks as l (name, token, nonce, boot, ttl, lease_until)
values (:name, :token, :nonce, :boot, :ttl, :lease_now + :ttl)
on conflict (name) do update set
    token = excluded.token, nonce = excluded.nonce, boot = excluded.boot, ttl = excluded.ttl,
    lease_until = excluded.lease_until
where l.lease_until < :lease_now or l.boot <> excluded.boot or l.token = :instead_of
returning token

-- name: renew_locks
update bullite.bullite_locks set lease_until = :lease_now + ttl
where name = any (array(select value ->> 0 from json_array_elements(:locks::json)))
    and token = any (array(select (value ->> 1)::bigint from json_array_elements(:locks::json)))
    and nonce = :nonce and lease_until >= :lease_now
returning token

-- name: extend_lock
update bullite.bullite_locks set ttl = :ttl, lease_until = :lease_now + :ttl
where name = :name and token = :token and nonce = :nonce and lease_until >= :lease_now
returning token

-- name: release_lock
delete from bullite.bullite_locks
where name = :name and token = :token and nonce = :nonce and lease_until >= :lease_now
returning token

-- A holder whose process has left counts as dead before its lease expires.
-- name: lock_holder
select token, nonce, boot, lease_until, not exists (
    select 1 from bullite.bullite_processes as p where p.nonce = l.nonce
)
from bullite.bullite_locks as l where name = :name

-- name: lock_holders
select nonce from bullite.bullite_locks

-- name: lapsed_locks
select count(*) from bullite.bullite_locks where lease_until < :lease_now or boot <> :boot

-- name: delete_lapsed_locks
delete from bullite.bullite_locks where name = any (array(
    select name from bullite.bullite_locks where lease_until < :lease_now or boot <> :boot
    for update skip locked
))

-- sweeping ----------------------------------------------------------------------------------------

-- name: queues_to_prune
select id from bullite.bullite_queues as q left join (
    select queue, sum(completed) as completed, sum(failed) as failed, sum(events) as events
    from bullite.bullite_counts group by queue
) as c on c.queue = q.id
where exists (
    select 1 from bullite.bullite_jobs where queue = q.id and state = 'completed'
        and finished_at < :now - keep_completed_age
) or exists (
    select 1 from bullite.bullite_jobs where queue = q.id and state = 'failed'
        and finished_at < :now - keep_failed_age
) or completed > keep_completed_count or failed > keep_failed_count
or exists (
    select 1 from bullite.bullite_jobs where queue = q.id and state = 'removed'
        and removed_at < :now - trash_age
) or events - events_trimmed > max_events or exists (
    select 1 from bullite.bullite_deduplication where queue = q.id and until <= :now
) or by_key = 1 and (
    exists (
        select 1 from bullite.bullite_limits where queue = q.id
            and max is null and back_at is null and until <= :now
    ) or not exists (select 1 from bullite.bullite_limits where queue = q.id)
)

-- name: trash_to_delete
select id, traits from bullite.bullite_jobs
where queue = :queue and state = 'removed' and removed_at < :before
order by removed_at limit :most for update skip locked

-- lists -------------------------------------------------------------------------------------------

-- page: waiting by seq, id aged created_at
state = 'waiting' and rank = 0 and lane = ''

-- page: prioritized by rank, seq aged created_at
state = 'waiting' and rank <> 0 and lane = ''

-- The same if jobs are in the lanes of their names, which must be sorted together.
-- page: waiting-by-name by seq, id aged created_at
state = 'waiting' and rank = 0

-- page: prioritized-by-name by rank, seq aged created_at
state = 'waiting' and rank <> 0

-- page: delayed by due_at, id aged created_at
state = 'delayed'

-- page: active by processed_at, id aged processed_at
state = 'active'

-- page: waiting-children by created_at, id aged created_at
state = 'waiting-children'

-- page: completed by finished_at, id aged finished_at
state = 'completed'

-- page: failed by finished_at, id aged finished_at
state = 'failed'

-- reading -----------------------------------------------------------------------------------------

-- name: job
{job}
where j.queue = :queue and state <> 'removed' and j.id = :job

-- name: jobs
{job}
where j.id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and j.queue = :queue and state <> 'removed'

-- name: job_with_custom_id
select id from bullite.bullite_jobs
where queue = :queue and custom_id = :custom_id and custom_id is not null and state <> 'removed'

-- name: removed_job
select id, removed_from, removed_at from bullite.bullite_jobs
where queue = :queue and state = 'removed' and (id = :number or custom_id = :custom_id)
order by removed_at desc, id desc limit 1

-- Return the number of pending jobs by name, without these names.
-- name: unserved_names
select name, count(*) from (
    select name from bullite.bullite_jobs where queue = :queue and state = 'waiting'
    union all
    select name from bullite.bullite_jobs where queue = :queue and state = 'delayed'
) as jobs
where not name = any (array(select json_array_elements_text(:names::json)))
group by name order by name limit :most

-- Return the number of jobs by name that are due soon and have this line in their log.
-- name: postponed_names
select name, count(*) from bullite.bullite_jobs as jobs
where queue = :queue and state = 'delayed' and due_at <= :until
    and (select 1 from bullite.bullite_logs where job = jobs.id and message = :message::text limit 1) is not null
group by name order by name limit :most

-- name: counts_per_priority
select priority, count(*) from bullite.bullite_jobs
where queue = :queue and state = 'waiting' group by priority order by min(rank)

-- name: attempts
select number, started_at, ended_at, worker, outcome, error, stack
from bullite.bullite_attempts where job = :job order by number

-- name: logs
select at, level, message from bullite.bullite_logs
where job = :job and number between :first and :last order by number

-- name: log_range
select min(number), max(number) from bullite.bullite_logs where job = :job

-- name: finished_jobs
select id, state, return_value, failed_reason
from bullite.bullite_jobs as j left join bullite.bullite_results as r on r.job between j.id and j.id
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and state in ('completed', 'failed')

-- name: existing_jobs
select id from bullite.bullite_jobs
where id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))
    and state <> 'removed'

-- finding -----------------------------------------------------------------------------------------

-- name: insert_tags (multi_row)
insert into bullite.bullite_tags (queue, tag, created_at, job)
select * from unnest(:bigint[], :text[], :bigint[], :bigint[])

-- name: delete_tags
delete from bullite.bullite_tags where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: move_tags
update bullite.bullite_tags set queue = :target where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- Jobs before a place, newest first. The index is on the payloads, which are not updated: an index on the jobs
-- would be written by every update. Removed jobs are skipped here: there may be very many, and a caller that read
-- each of them would be slow.
-- name: find_by_date
{job}
where j.id = any (array(
    select job from bullite.bullite_payloads
    where its_queue = :queue and (made_at, job + 0) < (:at, :before) and made_at >= :since
        and (select state from bullite.bullite_jobs where id = job) <> 'removed'
    order by made_at desc, job + 0 desc limit :most
))
order by j.created_at desc, j.id desc

-- name: find_by_name
{job}
where j.id = any (array(
    select job from bullite.bullite_payloads
    where its_queue = :queue and its_name = :name and (made_at, job + 0) < (:at, :before)
        and made_at >= :since
        and (select state from bullite.bullite_jobs where id = job) <> 'removed'
    order by made_at desc, job + 0 desc limit :most
))
order by j.created_at desc, j.id desc

-- name: find_by_tag
{job}
where j.id = any (array(
    select job from bullite.bullite_tags
    where queue = :queue and tag = :tag and (created_at, job) < (:at, :before)
        and created_at >= :since
    order by created_at desc, job desc limit :most
))
order by j.created_at desc, j.id desc

-- Return the queues that have a job with this number or this custom id.
-- name: queues_with_job
select q.name from bullite.bullite_jobs as j join bullite.bullite_queues as q on q.id = j.queue
where j.id = :number and state <> 'removed'

-- name: queues_with_custom_id
select q.name from bullite.bullite_queues as q where (
    select true from bullite.bullite_jobs
    where queue = q.id and custom_id = :custom_id and state <> 'removed' limit 1
) order by q.name

-- measuring ---------------------------------------------------------------------------------------

-- Lock the minutes of a queue until the transaction ends. This is not an advisory lock: every role that may
-- connect could hold one.
-- name: lock_minute
select id from bullite.bullite_queues where id = :queue for no key update

-- name: minute
select completed, failed, durations, waits from bullite.bullite_minutes
where queue = :queue and minute = :minute

-- name: write_minute
insert into bullite.bullite_minutes (queue, minute, completed, failed, durations, waits)
values (:queue, :minute, :completed, :failed, :durations, :waits)
on conflict (queue, minute) do update set
    completed = excluded.completed, failed = excluded.failed, durations = excluded.durations,
    waits = excluded.waits

-- name: minutes
select minute, completed, failed, durations, waits from bullite.bullite_minutes
where queue = :queue and minute >= :first and minute <= :last order by minute

-- name: forget_minutes
delete from bullite.bullite_minutes where queue = :queue and minute < :before

-- A locked row is skipped: the next write updates it, and waiting costs more than it gains.
-- name: write_stats
update bullite.bullite_workers set stats = :stats, seen_at = :now where id = any (array(
    select id from bullite.bullite_workers where id between :worker and :worker for no key update skip locked
))

-- name: all_workers
select w.id, q.name, w.name, names, nonce, pid, host, number, w.concurrency, started_at, seen_at, boot,
    case when renews = 1 then lock_duration end, stats,
    coalesce((
        select json_agg(coalesce(custom_id, j.id::text))::text from bullite.bullite_jobs as j
        where j.queue = w.queue and state = 'active' and worker = w.id and ahead = 0
    ), '[]')
from bullite.bullite_workers as w join bullite.bullite_queues as q on q.id = w.queue
where registered = 1 order by w.id

-- name: stats_priorities (whole)
select priority, count(*) from bullite.bullite_jobs
where queue = :queue and state <> 'removed' group by priority

-- Timeouts in ms: the option of a job, or the value in the data of a command, which is in seconds. The data
-- may contain an escape that the server cannot parse.
-- name: stats_timeouts (whole)
select count(timeout), coalesce(sum(least(timeout, 1e13)) filter (where timeout is not null), 0)::bigint
from (
    select coalesce(
        (opts::json ->> 'timeout')::numeric,
        case when json_typeof(command_data -> 'timeout') = 'number' then 1000 * (command_data ->> 'timeout')::numeric end
    ) as timeout
    from bullite.bullite_jobs join bullite.bullite_payloads on job = id, lateral (
        select case
            when name in ('shell', 'http-webhook', 'python-function') and position('"timeout"' in data) > 0
            then regexp_replace(data, '\\.', '_', 'g')::json
        end as command_data
    ) as command
    where queue = :queue and state <> 'removed'
) as jobs

-- A deferred failure that is not a cancellation ends a job that was claimed and did not run.
-- name: stats_slowest (whole)
select id, finished_at - processed_at from bullite.bullite_jobs
where queue = :queue and state in ('completed', 'failed') and processed_at is not null
    and (deferred_failure is null or traits & {cancelled} <> 0)
order by finished_at - processed_at desc, id limit :most

-- name: stats_durations (whole)
select finished_at - processed_at, count(*) from bullite.bullite_jobs
where queue = :queue and state in ('completed', 'failed') and processed_at is not null
    and (deferred_failure is null or traits & {cancelled} <> 0)
group by 1 order by 1

-- name: count_due
select count(*) from bullite.bullite_jobs where queue = :queue and state = 'delayed' and due_at <= :now

-- name: count_retrying
select count(*) from bullite.bullite_jobs
where queue = :queue and state = 'delayed' and attempts_made > 0

-- name: count_outcomes (whole)
select outcome, count(*) from bullite.bullite_jobs join bullite.bullite_results on job = id
where queue = :queue and state = 'failed' group by outcome

-- commands ----------------------------------------------------------------------------------------

-- name: end_runs (multi_row)
insert into bullite.bullite_runs (
    job, run, began_at, ended_at, how, exit_code, signal, stdout_head, stdout_tail, stdout_dropped,
    stderr_head, stderr_tail, stderr_dropped
)
select * from unnest(
    :bigint[], :bigint[], :bigint[], :bigint[], :text[], :bigint[], :bigint[], :text[], :text[],
    :bigint[], :text[], :text[], :bigint[]
)
on conflict (job, run) do update set
    ended_at = excluded.ended_at, how = excluded.how, exit_code = excluded.exit_code,
    signal = excluded.signal, stdout_head = excluded.stdout_head,
    stdout_tail = excluded.stdout_tail, stdout_dropped = excluded.stdout_dropped,
    stderr_head = excluded.stderr_head, stderr_tail = excluded.stderr_tail,
    stderr_dropped = excluded.stderr_dropped

-- name: insert_output (multi_row)
insert into bullite.bullite_output (job, run, number, stream, data)
select * from unnest(:bigint[], :bigint[], :bigint[], :text[], :text[])
on conflict (job, run, number) do nothing

-- name: trim_output
delete from bullite.bullite_output where job = :job and run = :run and number >= :first and number <= :last

-- name: clear_output
delete from bullite.bullite_output where job = :job and run <= :run

-- name: runs
select run, began_at, ended_at, how, exit_code, signal, stdout_head, stdout_tail, stdout_dropped,
    stderr_head, stderr_tail, stderr_dropped
from bullite.bullite_runs where job = :job order by run

-- name: output_after
select run, number, stream, data from bullite.bullite_output
where job = :job and (run, number) > (:run, :number) order by run, number limit :most

-- name: delete_runs
delete from bullite.bullite_runs where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: delete_output
delete from bullite.bullite_output where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- kept by name ------------------------------------------------------------------------------------

-- Only one value of the whole store is changed at a time: a new value has no row that could be locked.
-- name: lock_value
select key from bullite.bullite_meta where key = 'schema' for no key update

-- name: list_values
select name, value, updated_at from bullite.bullite_kept where kind = :kind order by name

-- name: get_value
select value from bullite.bullite_kept where kind = :kind and name = :name

-- name: put_value
insert into bullite.bullite_kept (kind, name, value, updated_at) values (:kind, :name, :value, :now)
on conflict (kind, name) do update set value = excluded.value, updated_at = excluded.updated_at

-- name: delete_value
delete from bullite.bullite_kept where kind = :kind and name = :name

-- dead letters ------------------------------------------------------------------------------------

-- Set the time of the automatic retry of failed jobs: of the given jobs, or of all jobs of a queue.
-- name: schedule_auto_retry
update bullite.bullite_jobs as j set due_at = case when exists (
        select 1 from bullite.bullite_results
        where job = j.id and revived < :times and outcome in ('error', 'timed-out', 'stalled')
    ) then finished_at + :after end
where queue = :queue and state || '' = 'failed' and id = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- name: reschedule_auto_retries
update bullite.bullite_jobs as j set due_at = case when exists (
        select 1 from bullite.bullite_results
        where job = j.id and revived < :times and outcome in ('error', 'timed-out', 'stalled')
    ) then finished_at + :after end
where id = any (array(
    select id from bullite.bullite_jobs
    where queue = :queue and state = 'failed' and original_queue is not distinct from :origin::bigint
    order by id for update
))

-- name: source_queues_of_failed
select distinct original_queue from bullite.bullite_jobs where queue = :queue and state = 'failed'

-- name: auto_retry_due
select id from bullite.bullite_jobs where queue = :queue and state = 'failed' and due_at <= :now
order by due_at limit :most for update skip locked

-- name: auto_retry_queues
select id from bullite.bullite_queues as q where (
    select true from bullite.bullite_jobs
    where queue = q.id and state = 'failed' and due_at <= :now limit 1
)

-- name: count_auto_retries
update bullite.bullite_results set revived = revived + 1 where job = any (array(select value::bigint from json_array_elements_text(:jobs::json)))

-- verifying ---------------------------------------------------------------------------------------
-- Each statement returns one line per violated invariant.

-- name: verify_counts (whole)
with counted as (
    select queue, case when state = 'waiting' and priority <> 0 then 'prioritized' else state end as state,
        count(*) as jobs
    from bullite.bullite_jobs where state <> 'removed' group by 1, 2
), kept as (
    select queue, kept.state, sum(kept.jobs) as jobs from bullite.bullite_counts as c, lateral (values
        ('waiting', c.waiting), ('prioritized', c.prioritized), ('delayed', c.delayed),
        ('active', c.active), ('waiting-children', c.waiting_children), ('completed', c.completed),
        ('failed', c.failed)
    ) as kept (state, jobs) group by 1, 2
)
select 'queue ' || name || ': ' || state || ' is kept as ' || coalesce(kept.jobs, 0)
    || ' but counts ' || coalesce(counted.jobs, 0)
from kept full join counted using (queue, state) join bullite.bullite_queues as q on q.id = queue
where coalesce(kept.jobs, 0) <> coalesce(counted.jobs, 0)
union all
select 'queue ' || name || ': the events of its log are kept as ' || kept || ' but count ' || counted
from bullite.bullite_queues as q, lateral (
    select coalesce(sum(events), 0) - events_trimmed from bullite.bullite_counts where queue = q.id
) as c (kept), lateral (
    select coalesce(sum(size), 0) from bullite.bullite_events where queue = q.id
) as e (counted)
where kept <> counted

-- name: verify_active (whole)
select 'job ' || j.id || ' is active without a worker' from bullite.bullite_jobs as j
where state = 'active'
    and not exists (select 1 from bullite.bullite_workers as w where w.id = j.worker)
union all
select 'job ' || id || ' is active without a lease' from bullite.bullite_jobs
where state = 'active' and lease_until is null

-- name: verify_tokens (whole)
select 'job ' || id || ' is active without a token' from bullite.bullite_jobs
where state = 'active' and (token is null or nonce is null)
union all
select 'job ' || j.id || ' is held with a token that is not its worker''s'
from bullite.bullite_jobs as j join bullite.bullite_workers as w on w.id = j.worker
where state = 'active' and j.nonce <> w.nonce

-- name: verify_payloads (whole)
select 'job ' || id || ' has no payload' from bullite.bullite_jobs as j
where not exists (select 1 from bullite.bullite_payloads where job = j.id)
union all
select 'payload of job ' || job || ', which does not exist' from bullite.bullite_payloads as p
where not exists (select 1 from bullite.bullite_jobs where id = p.job)
union all
select 'job ' || id || ' is not found by its queue, name and date'
from bullite.bullite_jobs join bullite.bullite_payloads on job = id
where (its_queue, its_name, made_at) is distinct from (queue, name, created_at)
union all
select 'result of job ' || job || ', which does not exist' from bullite.bullite_results as r
where not exists (select 1 from bullite.bullite_jobs where id = r.job)
union all
select 'attempt of job ' || job || ', which does not exist' from bullite.bullite_attempts as a
where not exists (select 1 from bullite.bullite_jobs where id = a.job)
union all
select 'log of job ' || job || ', which does not exist' from bullite.bullite_logs as l
where not exists (select 1 from bullite.bullite_jobs where id = l.job)

-- name: verify_belongings (whole)
select 'tag of job ' || job || ', which does not exist' from bullite.bullite_tags as t
where not exists (select 1 from bullite.bullite_jobs where id = t.job)
union all
select 'tag of job ' || job || ', which is in another queue' from bullite.bullite_tags as t
    join bullite.bullite_jobs on id = job
where t.queue <> bullite.bullite_jobs.queue
union all
select 'run of job ' || job || ', which does not exist' from bullite.bullite_runs as r
where not exists (select 1 from bullite.bullite_jobs where id = r.job)
union all
select 'output of job ' || job || ', which does not exist' from bullite.bullite_output as o
where not exists (select 1 from bullite.bullite_jobs where id = o.job)
union all
select 'job ' || id || ' has tags and does not know of it' from bullite.bullite_jobs as j
where traits & {tagged} = 0 and exists (select 1 from bullite.bullite_tags where job = j.id)
union all
select 'job ' || id || ' has run a command and does not know of it' from bullite.bullite_jobs as j
where traits & {command} = 0 and (
    exists (select 1 from bullite.bullite_runs where job = j.id)
    or exists (select 1 from bullite.bullite_output where job = j.id)
)

-- name: verify_times (whole)
select 'job ' || id || ' is delayed without a due time' from bullite.bullite_jobs
where state = 'delayed' and due_at is null
union all
select 'job ' || id || ' is ' || state || ' without a finish time' from bullite.bullite_jobs
where state in ('completed', 'failed') and finished_at is null
union all
select 'job ' || id || ' is removed without a trace of where from' from bullite.bullite_jobs
where state = 'removed' and (removed_at is null or removed_from is null)
union all
select 'job ' || id || ' is ' || state || ' and yet held ahead' from bullite.bullite_jobs
where state <> 'active' and ahead <> 0

-- name: verify_links (whole)
select 'job ' || id || ' waits for others and for none' from bullite.bullite_jobs as j
where state = 'waiting-children' and not exists (
    select 1 from bullite.bullite_links as l where l.downstream = j.id and l.state = 'pending'
)
union all
select 'job ' || downstream || ' waits for job ' || upstream || ', which is completed'
from bullite.bullite_links as l join bullite.bullite_jobs as j on j.id = l.upstream
where l.state = 'pending' and j.state = 'completed'
union all
select 'link of job ' || downstream || ', which does not exist' from bullite.bullite_links as l
where not exists (select 1 from bullite.bullite_jobs where id = l.downstream)
union all
select 'job ' || id || ' does not know that others wait for it' from bullite.bullite_jobs as j
where traits & {upstream} = 0 and exists (select 1 from bullite.bullite_links where upstream = j.id)
union all
select 'job ' || id || ' does not know that it waits for others' from bullite.bullite_jobs as j
where traits & {downstream} = 0 and exists (select 1 from bullite.bullite_links where downstream = j.id)

-- name: verify_queues (whole)
select 'job ' || id || ' belongs to queue ' || queue || ', which does not exist'
from bullite.bullite_jobs as j
where not exists (select 1 from bullite.bullite_queues where id = j.queue)

-- name: verify_custom_ids (whole)
select 'custom id ' || custom_id || ' stands for ' || count(*) || ' jobs of one queue'
from bullite.bullite_jobs where custom_id is not null and state <> 'removed'
group by queue, custom_id having count(*) > 1

-- name: verify_deduplication (whole)
select 'deduplication key ' || key || ' is taken by job ' || d.job || ', which has ended'
from bullite.bullite_deduplication as d
where until is null and not exists (
    select 1 from bullite.bullite_jobs where id = d.job and queue = d.queue
        and state in ('waiting', 'delayed', 'active', 'waiting-children')
)
union all
select 'deduplication key ' || key || ' is taken by job ' || d.job || ', which has none'
from bullite.bullite_deduplication as d join bullite.bullite_jobs as j on j.id = d.job
where traits & {deduplicated} = 0
union all
select 'deduplication key ' || key || ' keeps a job behind a window'
from bullite.bullite_deduplication where until is not null and next is not null
union all
select 'deduplication key ' || key || ' belongs to queue ' || queue || ', which does not exist'
from bullite.bullite_deduplication as d
where not exists (select 1 from bullite.bullite_queues where id = d.queue)

-- name: verify_schedulers (whole)
select 'scheduler ' || key || ' is enabled and waits for no job' from bullite.bullite_schedulers
where enabled = 1 and (next_at is null or job is null)
union all
select 'scheduler ' || key || ' is not enabled and waits for job ' || job from bullite.bullite_schedulers
where enabled = 0 and job is not null
union all
select 'scheduler ' || key || ' waits for job ' || job || ', which does not wait'
from bullite.bullite_schedulers as s
where not exists (
    select 1 from bullite.bullite_jobs as j
    where j.id = s.job and j.queue = s.queue and j.state in ('waiting', 'delayed') and j.traits & {scheduled} <> 0
) and job is not null
union all
select 'scheduler ' || key || ' belongs to queue ' || queue || ', which does not exist'
from bullite.bullite_schedulers as s
where not exists (select 1 from bullite.bullite_queues where id = s.queue)

-- name: verify_numbers (whole)
select 'job ' || max(id) || ' has a number that was not handed out yet' from bullite.bullite_jobs
having max(id) > (select last_value from bullite.bullite_numbers)

-- name: verify_steps (whole)
select 'step of job ' || job || ', which does not exist' from bullite.bullite_steps as s
where not exists (select 1 from bullite.bullite_jobs where id = s.job)
union all
select 'event for job ' || job || ', which does not exist' from bullite.bullite_signals as s
where not exists (select 1 from bullite.bullite_jobs where id = s.job)
union all
select 'job ' || id || ' has steps and does not know of it' from bullite.bullite_jobs as j
where traits & {stepped} = 0 and (
    exists (select 1 from bullite.bullite_steps where job = j.id)
    or exists (select 1 from bullite.bullite_signals where job = j.id)
)
union all
select 'job ' || j.id || ' waits for an event that was sent to it' from bullite.bullite_jobs as j
    join bullite.bullite_steps as s on s.job between j.id and j.id
where state = 'delayed' and s.ended_at is null and s.run = attempts_started and s.kind = 'event'
    and exists (
        select 1 from bullite.bullite_signals as e where e.job = j.id and e.name = s.name
    )

-- name: verify_limits (whole)
select 'job ' || id || ' is ' || state || ' and yet stands aside for its key'
from bullite.bullite_jobs where left(lane, 1) = chr(31) and state <> 'waiting'
union all
select 'job ' || id || ' stands aside for its key, and nothing tells when it may come back'
from bullite.bullite_jobs as j
where left(lane, 1) = chr(31) and state = 'waiting' and not exists (
    select 1 from bullite.bullite_limits as l
    where l.queue = j.queue and back_at is not null and key = split_part(lane, chr(31), 2)
)
union all
select 'queue ' || queue || ' has a limit for key ' || key || ' that its claims do not look at'
from bullite.bullite_limits
where queue not in (select id from bullite.bullite_queues where by_key = 1)

-- name: verify_file (whole)
select 'the index ' || indexrelid::regclass || ' is broken: REINDEX it'
from pg_index join pg_class on pg_class.oid = indrelid
where not indisvalid and relnamespace = (
    select relnamespace from pg_class where oid = 'bullite.bullite_jobs'::regclass
)
