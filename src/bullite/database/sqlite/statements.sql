-- Every statement of the SQLite store.
--
-- "-- name: x" opens statement x; its parameters are :names. `{cancelled}` and the like are job flags:
-- see job_flags.py. A statement may have flags:
--   (json_rows):    all rows come as one row, a JSON array of arrays, which the driver parses. Each row
--                   is a step of the statement, and Python releases its interpreter lock at each step.
--   (payload_last): the last column is a payload; the driver reads all rows as JSON while payloads are
--                   short.
--   (multi_row):    an insert of one row, which the driver repeats. It takes the first columns of each
--                   row, one for each placeholder. The PostgreSQL store may have more columns.
--   (durable_read): a reader returns the rows only when they are on the disk.
-- "-- move: x" has the columns that move x changes beside the state. The compare-and-swap around it is
-- written once, in the templates, from the table in states.py. :jobs is a JSON object of tokens by job;
-- with "takes" it is an object of [token, value] by job; for a move without tokens it is an array of jobs.
-- For jobs that were claimed together, :token is their token and :jobs an array: a join with their tokens
-- would take a third of the time of the swap.
-- "-- page: x by a, b aged c" has the filter of list x, which is ordered by the columns a and b; column
-- c has the age of a job. Each becomes statements for pages in both directions, for the jobs after and
-- before a place, for the oldest jobs, and, for finished jobs, for the oldest that may be deleted.

-- template: move
update bullite_jobs set state = '{target}', updated_at = :now{changes}
from json_each(:jobs) as asked
where bullite_jobs.id = cast(asked.key as integer) and bullite_jobs.state = '{source}'{guards}

-- template: move_with_value
update bullite_jobs set state = '{target}', updated_at = :now{changes}
from json_each(:jobs) as asked
where bullite_jobs.id = cast(asked.key as integer) and bullite_jobs.state = '{source}'{guards}

-- template: move_without_token
update bullite_jobs set state = '{target}', updated_at = :now{changes}
where id in (select value from json_each(:jobs)) and bullite_jobs.state = '{source}'{guards}

-- template: token_guard
and bullite_jobs.token = asked.value and bullite_jobs.nonce = :nonce

-- template: same_token_guard
and bullite_jobs.token = :token and bullite_jobs.nonce = :nonce

-- template: token_with_value_guard
and bullite_jobs.token = asked.value ->> 0 and bullite_jobs.nonce = :nonce

-- template: delete
delete from bullite_jobs
where id in (select value from json_each(:jobs)) and state = '{source}'

-- template: job
select bullite_jobs.id, bullite_jobs.name, custom_id, priority, attempts, attempts_made,
    attempts_started, stalled_count, bullite_jobs.created_at, deferred_failure, opts, rank, seq, traits, data,
    state, lifo, delay, due_at, updated_at, processed_at, finished_at, return_value, failed_reason,
    progress, outcome,
    (select name from bullite_worker_names where worker = bullite_jobs.worker) as processed_by,
    bullite_workers.lease_until as worker_lease, bullite_jobs.lease_until as lease, expires_at,
    (select name from bullite_queues where id = bullite_jobs.original_queue) as original_queue, (
        select json_group_array(stack) from (
            select stack from bullite_attempts
            where job = bullite_jobs.id and stack is not null order by number
        )
    ) as stacks
from bullite_jobs
    join bullite_payloads on bullite_payloads.job = bullite_jobs.id
    left join bullite_results on bullite_results.job = bullite_jobs.id
    left join bullite_workers on bullite_workers.id = bullite_jobs.worker

-- template: page
{job}
where bullite_jobs.id in (
    select id from bullite_jobs where queue = :queue and {filter}
    order by {first} {direction}, {second} {direction} limit :most offset :skip
)
order by bullite_jobs.{first} {direction}, bullite_jobs.{second} {direction}

-- template: after
{job}
where bullite_jobs.id in (
    select id from bullite_jobs
    where queue = :queue and {filter} and ({first}, {second}) > (:first, :second)
    order by {first}, {second} limit :most
)
order by bullite_jobs.{first}, bullite_jobs.{second}

-- template: before
{job}
where bullite_jobs.id in (
    select id from bullite_jobs
    where queue = :queue and {filter} and ({first}, {second}) < (:first, :second)
    order by {first} desc, {second} desc limit :most
)
order by bullite_jobs.{first} desc, bullite_jobs.{second} desc

-- template: oldest
select id, custom_id, {first}, {second} from bullite_jobs
where queue = :queue and {filter} and ({first}, {second}) > (:first, :second)
    and {aged} <= :before and updated_at <= :since
order by {first}, {second} limit :most

-- template: take_oldest
select id, traits from bullite_jobs where queue = :queue and {filter} and {aged} <= :before
    and (traits & {upstream} = 0 or not exists (
        select 1 from bullite_links where upstream = bullite_jobs.id and state = 'pending'
    ))
order by {first}, {second} limit :most

-- move: promote takes seq
seq = asked.value ->> 1, due_at = null, delay = 0

-- move: reschedule takes delay
delay = asked.value ->> 1, due_at = :now + (asked.value ->> 1)

-- A job that is parked for its rate-limit key returns to its own lane: only a claim knows when a parked
-- job may run.
-- move: expire
finished_at = :now, due_at = null,
lane = case when substr(lane, 1, 1) = char(31)
    then substr(lane, 2 + instr(substr(lane, 2), char(31))) else lane end

-- move: cancel
finished_at = :now, due_at = null,
lane = case when substr(lane, 1, 1) = char(31)
    then substr(lane, 2 + instr(substr(lane, 2), char(31))) else lane end

-- move: claim
token = :token, nonce = :nonce, worker = :worker, lease_until = :lease_until,
ahead = :ahead, attempts_started = attempts_started + 1 - :ahead, processed_at = :now

-- move: complete
attempts_made = attempts_made + 1, attempts_started = attempts_started + ahead, ahead = 0,
finished_at = :now, lease_until = null
where bullite_jobs.traits = :traits

-- move: fail
attempts_made = attempts_made + 1, attempts_started = attempts_started + ahead, ahead = 0,
finished_at = :now, lease_until = null
where bullite_jobs.traits = :traits

-- move: back_off takes delay
attempts_made = attempts_made + 1, attempts_started = attempts_started + ahead, ahead = 0,
lease_until = null, delay = asked.value ->> 1, due_at = :now + (asked.value ->> 1)
where bullite_jobs.traits = :traits

-- move: retry takes seq
attempts_made = attempts_made + 1, attempts_started = attempts_started + ahead, ahead = 0,
lease_until = null, seq = (asked.value ->> 1) * (1 - 2 * lifo)
where bullite_jobs.traits = :traits

-- move: delay takes delay
attempts_started = attempts_started + ahead, ahead = 0,
lease_until = null, delay = asked.value ->> 1, due_at = :now + (asked.value ->> 1)

-- move: await
attempts_started = attempts_started + ahead, ahead = 0, lease_until = null

-- move: free takes seq
seq = asked.value ->> 1, due_at = null, delay = 0

-- move: free_delayed takes due_at
due_at = asked.value ->> 1

-- move: let_go takes seq
seq = asked.value ->> 1, due_at = null, delay = 0

-- move: let_go_delayed takes due_at
due_at = asked.value ->> 1

-- move: release
attempts_started = attempts_started + ahead, ahead = 0, lease_until = null

-- move: give_back
ahead = 0, lease_until = null

-- move: stall takes seq
stalled_count = stalled_count + 1, lease_until = null, seq = asked.value ->> 1,
deferred_failure = case when traits & {cancelled} <> 0 or deferred_failure is not null then deferred_failure
    when stalled_count + 1 > :max_stalled_count then :reason end

-- move: stall_delayed takes delay
stalled_count = stalled_count + 1, lease_until = null,
delay = asked.value ->> 1, due_at = :now + (asked.value ->> 1)

-- move: revive takes seq
finished_at = null, processed_at = null, deferred_failure = null, expires_at = null, seq = asked.value ->> 1,
due_at = null, traits = traits & ~{cancelled},
attempts_made = attempts_made * :kept, attempts_started = attempts_started * :kept

-- move: revive_delayed takes delay
finished_at = null, processed_at = null, deferred_failure = null, expires_at = null,
delay = asked.value ->> 1, due_at = :now + (asked.value ->> 1), traits = traits & ~{cancelled},
attempts_made = attempts_made * :kept, attempts_started = attempts_started * :kept

-- move: remove
removed_at = :now, removed_from = state,
lane = case when substr(lane, 1, 1) = char(31)
    then substr(lane, 2 + instr(substr(lane, 2), char(31))) else lane end

-- move: restore_waiting
removed_at = null, removed_from = null
where bullite_jobs.removed_from = 'waiting'

-- move: restore_delayed
removed_at = null, removed_from = null
where bullite_jobs.removed_from = 'delayed'

-- move: restore_blocked
removed_at = null, removed_from = null
where bullite_jobs.removed_from = 'waiting-children'

-- move: restore_completed
removed_at = null, removed_from = null
where bullite_jobs.removed_from = 'completed'

-- move: restore_failed
removed_at = null, removed_from = null
where bullite_jobs.removed_from = 'failed'

-- name: take_numbers
update bullite_sequence set last = last + :count returning last - :count + 1, last

-- queues ------------------------------------------------------------------------------------------

-- name: queue_named
select id, priority_order, version, default_job_options from bullite_queues where name = :name

-- name: insert_queue
insert into bullite_queues (name, priority_order, created_at) values (:name, :priority_order, :now)
returning id

-- Return the facts of a queue that a claim needs: by name, paused, when its next delayed job is due, when
-- the first job that has not started expires, the number of waiting jobs per worker, and its limits. There
-- is no row for a worker that is not registered: no process would recover a job that it claimed.
-- name: claim_info
select by_name, paused,
    (select min(due_at) from bullite_jobs where queue = :queue and state = 'delayed'), (
        select min(expires_at) from bullite_jobs
        where queue = :queue and expires_at is not null
            and (state = 'waiting' or state = 'delayed' or state = 'waiting-children') and attempts_started = 0
    ),
    (waiting + prioritized) / max(1, (
        select count(*) from bullite_workers as w where w.queue = :queue and w.registered = 1
    )),
    bullite_queues.concurrency, rate_max, rate_duration, rate_until, rate_used, by_key
from bullite_queues join bullite_workers on bullite_workers.id = :worker
where bullite_queues.id = :queue

-- Return the facts of a queue that an add needs: by name, the version of its settings, by key, and whether
-- it has quotas.
-- name: add_info
select by_name, version, by_key, max_waiting is not null or max_payload_bytes is not null
    or max_rate_count is not null
from bullite_queues where id = :queue

-- Wait for the transactions that have read the queue's settings, and let later ones wait: the write lock of
-- SQLite already does so.
-- name: lock_queue
select id from bullite_queues where id = :queue

-- name: settings
select name, priority_order, paused, version, default_job_options, dead_letter, keep_completed_age,
    keep_completed_count, keep_failed_age, keep_failed_count, trash_age, max_events,
    max_waiting, max_payload_bytes, max_rate_count, max_rate_duration,
    concurrency, rate_max, rate_duration, on_failure, retry_failed_after, retry_failed_times
from bullite_queues where id = :queue

-- name: configure
update bullite_queues set
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
update bullite_jobs set rank = -rank where queue = :queue and rank <> 0

-- name: set_paused
update bullite_queues set paused = :paused where id = :queue and paused <> :paused

-- name: count_prefetched
select count(*) from bullite_jobs where queue = :queue and state = 'active' and ahead = 1

-- name: queue_names
select id, name from bullite_queues

-- name: enable_name_lanes
update bullite_queues set by_name = 1 where id = :queue and by_name = 0

-- name: change_counts
update bullite_queues set
    waiting = waiting + :waiting, prioritized = prioritized + :prioritized,
    delayed = delayed + :delayed, active = active + :active,
    waiting_children = waiting_children + :waiting_children,
    completed = completed + :completed, failed = failed + :failed,
    events = events + :events + (
        :drains and waiting + prioritized + active + :waiting + :prioritized + :active = 0
    )
where id = :queue
returning events, waiting + prioritized + active = 0, concurrency is not null

-- name: counts
select waiting, prioritized, delayed, active, waiting_children, completed, failed
from bullite_queues where id = :queue

-- adding ------------------------------------------------------------------------------------------

-- name: insert_jobs (multi_row)
insert into bullite_jobs (
    id, seq, queue, lane, created_at, updated_at, due_at, expires_at, state,
    traits, name, custom_id, rank, priority, lifo, delay, attempts
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_payloads (multi_row)
insert into bullite_payloads (job, data, opts) values (?, ?, ?)

-- name: taken_custom_ids (json_rows)
select json_group_array(json_array(custom_id, id)) from bullite_jobs
where queue = :queue and custom_id in (select value from json_each(:custom_ids))
    and state <> 'removed'

-- claiming ----------------------------------------------------------------------------------------

-- name: due (json_rows)
select json_group_array(json_array(id, lifo, priority, custom_id)) from (
    select id, lifo, priority, custom_id from bullite_jobs
    where queue = :queue and state = 'delayed' and due_at <= :now
    order by due_at, id limit :most
)

-- name: due_queues (json_rows)
select json_group_array(json_array(id)) from bullite_queues where exists (
    select 1 from bullite_jobs
    where queue = bullite_queues.id and state = 'delayed' and due_at <= :now
)

-- name: has_ready_or_due
select exists (select 1 from bullite_jobs where queue = :queue and state = 'waiting'),
    (select min(due_at) from bullite_jobs where queue = :queue and state = 'delayed')

-- name: next_in_lane (payload_last)
select id, name, custom_id, priority, attempts, attempts_made, attempts_started + 1 as attempts_started, stalled_count,
    created_at, deferred_failure, opts, rank, seq, traits, data
from bullite_jobs join bullite_payloads on job = id
where queue = :queue and state = 'waiting' and lane = :lane
order by rank, seq limit :want

-- name: lane_heads (json_rows)
select json_group_array(json_array(rank, seq, id)) from (
    select rank, seq, id from bullite_jobs
    where queue = :queue and state = 'waiting' and lane = :lane
    order by rank, seq limit :want
)

-- name: claimable_jobs (payload_last)
select bullite_jobs.id, name, custom_id, priority, attempts, attempts_made, attempts_started + 1 as attempts_started, stalled_count,
    created_at, deferred_failure, opts, rank, seq, traits, data
from json_each(:jobs) as asked
    join bullite_jobs on bullite_jobs.id = asked.value
    join bullite_payloads on job = bullite_jobs.id
order by rank, seq

-- name: failed_reasons (json_rows)
select json_group_array(json_array(job, failed_reason)) from bullite_results
where job in (select value from json_each(:jobs)) and failed_reason is not null

-- name: assign_lanes
update bullite_jobs set lane = name where id in (
    select id from bullite_jobs
    where queue = :queue and state = 'waiting' and lane = ''
    order by rank, seq limit :most
)

-- Go from lane to lane along the index: one look-up per lane, whatever its number of jobs. No name has a
-- control character. So the next lane is not less than the last one followed by a space, and the lane of
-- parked jobs is before the first.
-- name: lanes (json_rows)
with recursive lanes (lane) as (
    select ''
    union all
    select (
        select min(lane) from bullite_jobs
        where queue = :queue and state = 'waiting' and lane >= lanes.lane || ' '
    ) from lanes where lanes.lane is not null
)
select json_group_array(json_array(lane)) from lanes where lane <> '' or lane = '' and exists (
    select 1 from bullite_jobs where queue = :queue and state = 'waiting' and lane = ''
)

-- settling ----------------------------------------------------------------------------------------

-- name: write_values (multi_row)
insert into bullite_results (job, return_value) values (?, ?)
on conflict (job) do update set return_value = excluded.return_value

-- name: write_failures (multi_row)
insert into bullite_results (job, failed_reason, outcome) values (?, ?, ?)
on conflict (job) do update set
    return_value = null, failed_reason = excluded.failed_reason, outcome = excluded.outcome

-- The claim of a job that failed without a run is not a start, and its failure is not an attempt.
-- name: forget_start
update bullite_jobs set
    attempts_made = attempts_made - 1, attempts_started = attempts_started - 1,
    processed_at = case when attempts_started > 1 then processed_at end
where id in (select value from json_each(:jobs))

-- name: write_attempts
insert into bullite_attempts (job, number, started_at, ended_at, worker, outcome, error, stack)
select bullite_jobs.id,
    1 + coalesce((select max(number) from bullite_attempts where job = bullite_jobs.id), 0),
    processed_at, coalesce(finished_at, :now),
    (select name from bullite_worker_names where worker = bullite_jobs.worker),
    asked.value ->> 1, asked.value ->> 2, asked.value ->> 3
from json_each(:attempts) as asked join bullite_jobs on bullite_jobs.id = asked.value ->> 0

-- name: forget_stacks
update bullite_attempts set stack = null
where job = :job and stack is not null and number not in (
    select number from bullite_attempts
    where job = :job and stack is not null order by number desc limit :keep
)

-- name: move_to_queue
update bullite_jobs set
    queue = :target, original_queue = :original_queue, rank = rank * :turn,
    lane = case when :by_name then name else '' end
where id in (select value from json_each(:jobs)) and queue = :queue

-- name: load_jobs_for_update (json_rows)
select json_group_array(json_array(
    id, queue, state, priority, lifo, due_at, token, nonce, removed_from, custom_id, original_queue,
    ahead, traits, delay, deferred_failure
)) from bullite_jobs where id in (select value from json_each(:jobs))

-- name: write_progress
insert into bullite_results (job, progress)
select bullite_jobs.id, asked.value ->> 1
from json_each(:jobs) as asked join bullite_jobs on bullite_jobs.id = cast(asked.key as integer)
where bullite_jobs.state = 'active' and bullite_jobs.token = asked.value ->> 0
    and bullite_jobs.nonce = :nonce
on conflict (job) do update set progress = excluded.progress

-- name: set_progress
insert into bullite_results (job, progress) values (:job, :progress)
on conflict (job) do update set progress = excluded.progress

-- name: forget_results
update bullite_results set return_value = null, failed_reason = null, outcome = null
where job in (select value from json_each(:jobs))

-- name: delete_payloads
delete from bullite_payloads where job in (select value from json_each(:jobs))

-- name: delete_results
delete from bullite_results where job in (select value from json_each(:jobs))

-- name: delete_attempts
delete from bullite_attempts where job in (select value from json_each(:jobs))

-- name: delete_logs
delete from bullite_logs where job in (select value from json_each(:jobs))

-- expiring ----------------------------------------------------------------------------------------

-- name: expired (json_rows)
select json_group_array(json_array(id, state, priority, custom_id, opts, traits)) from (
    select id, state, priority, custom_id, opts, traits
    from bullite_jobs join bullite_payloads on job = id
    where queue = :queue and expires_at <= :now and (state = 'waiting' or state = 'delayed' or state = 'waiting-children')
        and attempts_started = 0
    order by expires_at limit :most
)

-- name: expired_queues (json_rows)
select json_group_array(json_array(id)) from bullite_queues where exists (
    select 1 from bullite_jobs where queue = bullite_queues.id and expires_at <= :now
        and (state = 'waiting' or state = 'delayed' or state = 'waiting-children') and attempts_started = 0
)

-- editing -----------------------------------------------------------------------------------------

-- name: mark_started
update bullite_jobs set attempts_started = attempts_started + 1, ahead = 0
where id = :job and state = 'active' and ahead = 1

-- name: set_data
update bullite_payloads set data = :data where job = :job

-- name: set_priority
update bullite_jobs set priority = :priority, rank = :rank, seq = :seq, updated_at = :now
where id = :job

-- name: set_lease
update bullite_jobs set lease_until = :lease_until
where id = :job and state = 'active' and token = :token and nonce = :nonce

-- name: last_logs (json_rows)
select json_group_array(json_array(asked.value,
    (select min(number) from bullite_logs where job = asked.value),
    (select max(number) from bullite_logs where job = asked.value)
)) from json_each(:jobs) as asked

-- name: insert_logs (multi_row)
insert into bullite_logs (job, number, at, level, message) values (?, ?, ?, ?, ?)

-- name: trim_logs
delete from bullite_logs where job = :job and number <= :last

-- workers -----------------------------------------------------------------------------------------

-- name: insert_worker
insert into bullite_workers (
    queue, name, names, nonce, pid, host, boot, lock_duration, lease_until, max_stalled_count,
    renews, number, concurrency, stalled_backoff, address, started_at
) values (
    :queue, :name, :names, :nonce, :pid, :host, :boot, :lock_duration, :lease_until,
    :max_stalled_count, :renews, :number, :concurrency, :stalled_backoff, :address, :now
) returning id

-- name: insert_worker_name
insert into bullite_worker_names (worker, name) values (:worker, :name)

-- name: delete_old_worker_names
delete from bullite_worker_names
where worker <= :oldest and worker not in (select id from bullite_workers)

-- name: set_concurrency
update bullite_workers set concurrency = :concurrency where id = :worker

-- name: set_worker_idle
update bullite_workers set hungry = :idle where id = :worker

-- name: renew_workers
update bullite_workers set lease_until = :lease_now + lock_duration, seen_at = :now
where nonce = :nonce and registered > 0 and renews = 1

-- name: workers_of_process (json_rows)
select json_group_array(json_array(id)) from bullite_workers
where nonce = :nonce and registered > 0

-- name: deregister_worker
update bullite_workers set registered = :registered, hungry = 0 where id = :worker

-- name: delete_idle_worker
delete from bullite_workers
where id = :worker and lease_until < :expired_before and (renews = 1 or registered <> 1 or :dead)
    and not exists (
    select 1 from bullite_jobs
    where queue = bullite_workers.queue and state = 'active' and worker = bullite_workers.id
)

-- name: workers (json_rows)
select json_group_array(json_array(
    id, queue, nonce, boot, registered, lease_until, max_stalled_count, renews, stalled_backoff, names
)) from bullite_workers

-- name: workers_of_queue
select id, name, names, nonce, pid, host, number, concurrency, started_at,
    seen_at, boot, case when renews = 1 then lock_duration end,
    (select count(*) from bullite_jobs
        where queue = :queue and state = 'active' and worker = bullite_workers.id)
from bullite_workers where queue = :queue and registered = 1 order by id

-- name: idle_worker_addresses (json_rows)
select json_group_array(json_array(address)) from (
    select distinct address from bullite_workers
    where queue = :queue and hungry = 1 and nonce <> :nonce and address is not null and (
        :names is null or names is null
        or exists (
            select 1 from json_each(names) as taken
            where taken.value in (select value from json_each(:names))
        )
    )
    limit :most
)

-- name: held_by_worker (json_rows)
select json_group_array(json_array(id, token, priority, ahead, custom_id, traits, leaving)) from (
    select id, token, priority, ahead, custom_id, traits,
        exists (select 1 from bullite_workers where id = :worker and registered = 2) as leaving
    from bullite_jobs
    where queue = :queue and state = 'active' and worker = :worker and lease_until < :expired_before
        and not exists (
            select 1 from bullite_workers where id = :worker and lease_until >= :expired_before
        )
    order by seq desc limit :most
)

-- Recovered jobs have no owner: the process that ran them must not treat its tokens as valid.
-- name: forget_tokens
update bullite_jobs set token = null, nonce = null where id in (select value from json_each(:jobs))

-- Return those of these jobs that this process claimed last, and their claim tokens.
-- name: tokens_here (json_rows)
select json_group_array(json_array(id, token)) from bullite_jobs
where id in (select value from json_each(:jobs)) and nonce = :nonce

-- name: backoffs (json_rows)
select json_group_array(json_array(id, stalled_count, opts))
from bullite_jobs join bullite_payloads on job = id
where id in (select value from json_each(:jobs)) and opts is not null

-- events ------------------------------------------------------------------------------------------

-- name: insert_events (multi_row)
insert into bullite_events (queue, kind, jobs, total, at) values (?, ?, ?, ?, ?)

-- SQLite has one writer at a time, so there is nothing to lock.
-- name: try_housekeeping
select true, :queue, :chore

-- name: lock_sweep
select :queue

-- The counts are in the queue's row, and each row of the log has the number of events up to it.
-- name: recount_log
select :queue

-- The newest row of a queue is emptied and not deleted, so that no id is assigned twice.
-- name: trim_events
delete from bullite_events where id in (
    select id from bullite_events
    where queue = :queue and total <= (select events from bullite_queues where id = :queue) - :keep
        and id < (select id from bullite_events where queue = :queue order by total desc, id desc limit 1)
    order by total limit :most
)

-- name: clear_newest_event
update bullite_events set jobs = '[]' where queue = :queue and :keep = 0
    and id = (select id from bullite_events where queue = :queue order by total desc, id desc limit 1)

-- Return the number of events of one queue, or of each: in all and up to a row.
-- name: log_position (durable_read)
select id, name, events, (select coalesce(max(id), 0) from bullite_events), (
    select total from bullite_events
    where queue = bullite_queues.id and id <= :after order by total desc limit 1
) from bullite_queues where :queue is null or id = :queue

-- name: events_after (durable_read)
select id, queue, kind, jobs, total, at from bullite_events
where id > :after and (:queue is null or queue = :queue) order by id limit :most

-- Return the outcomes of jobs that were deleted: of each its number and its queue. If a job has a custom
-- id, its number is further back in its entry.
-- name: ends_in_log (durable_read)
select number, kind, entry, id from (
    select e.id, queue, kind, entry.value as entry, case kind
        when 'complete' then case entry.type
            when 'array' then coalesce(entry.value ->> 3, entry.value ->> 0) else entry.value end
        when 'fail' then coalesce(entry.value -> 1 ->> 3, entry.value ->> 0)
        else coalesce(entry.value -> 1 ->> 2, entry.value ->> 0)
    end as number
    from bullite_events as e, json_each(jobs) as entry
    where queue in (select value from json_each(:queues))
        and kind in ('complete', 'fail', 'expire', 'cancel')
)
where (number, queue) in (select value ->> 0, value ->> 1 from json_each(:jobs))

-- links -------------------------------------------------------------------------------------------

-- name: insert_links (multi_row)
insert into bullite_links (
    downstream, upstream, kind, policy, state, key, value
) values (?, ?, ?, ?, ?, ?, ?)

-- Return the links of the jobs that wait for these jobs.
-- name: links_from (json_rows)
select json_group_array(json_array(upstream, downstream, kind, policy, key)) from bullite_links
where upstream in (select value from json_each(:jobs)) and state = 'pending'

-- name: dependents_of (json_rows)
select json_group_array(json_array(downstream, kind)) from bullite_links
where upstream in (select value from json_each(:jobs))

-- name: with_children_elsewhere (json_rows)
select json_group_array(json_array(asked.value))
from json_each(:jobs) as asked join bullite_jobs as down on down.id = asked.value
where exists (
    select 1 from bullite_links join bullite_jobs as up on up.id = upstream
    where downstream = down.id and kind = 'child' and bullite_links.state = 'pending'
        and up.queue <> down.queue
)

-- Delete the pending links of a job of one kind and policy.
-- name: resolve_links
update bullite_links set state = asked.value ->> 2, value = asked.value ->> 3
from json_each(:links) as asked
where upstream = asked.value ->> 0 and kind || ' ' || policy = asked.value ->> 1
    and state = 'pending'

-- name: delete_links
delete from bullite_links where state = 'pending' and (upstream, kind || ' ' || policy) in (
    select value ->> 0, value ->> 1 from json_each(:links)
)

-- Delete all links between these pairs of jobs: they have ended, or will be written again.
-- name: unlink_jobs
delete from bullite_links where (downstream, upstream) in (
    select value ->> 0, value ->> 1 from json_each(:links)
)

-- name: delete_links_up
delete from bullite_links where upstream = :job and kind = 'child'

-- name: delete_links_to
delete from bullite_links where downstream in (select value from json_each(:jobs))

-- A removed job has a link by which it can be restored. If the job is deleted, this link is deleted, too.
-- name: delete_links_of_removed
delete from bullite_links
where upstream in (select value from json_each(:jobs)) and state = 'removed'

-- Return those of these jobs that still wait for another job.
-- name: with_pending_links (json_rows)
select json_group_array(json_array(asked.value)) from json_each(:jobs) as asked where exists (
    select 1 from bullite_links where downstream = asked.value and state = 'pending'
)

-- Return the reasons why these jobs cannot complete: a failed child whose policy fails its parent; whether a
-- child is pending; whether a child failed whose policy ends the waiting for the remaining children.
-- name: completion_blockers (json_rows)
select json_group_array(json_array(asked.value,
    (select key from bullite_links where downstream = asked.value and kind = 'child'
        and state = 'failed' and policy = 'fail' limit 1),
    exists (select 1 from bullite_links
        where downstream = asked.value and kind = 'child' and state = 'pending'),
    exists (select 1 from bullite_links
        where downstream = asked.value and state = 'ignored' and policy = 'continue')
)) from json_each(:jobs) as asked

-- Return the parents of these jobs that still exist.
-- name: parents_of (json_rows)
select json_group_array(json_array(upstream, downstream, bullite_links.key))
from bullite_links join bullite_jobs on bullite_jobs.id = downstream
where upstream in (select value from json_each(:jobs)) and kind = 'child'
    and bullite_links.state <> 'removed' and bullite_jobs.state <> 'removed'

-- Return children, their children and so on, each with its parent, the state of the link and its own.
-- name: descendants (json_rows)
with recursive tree (job, parent, link) as (
    select upstream, downstream, state from bullite_links
    where downstream in (select value from json_each(:jobs)) and kind = 'child'
    union
    select upstream, downstream, bullite_links.state
    from tree join bullite_links on downstream = tree.job and kind = 'child'
)
select json_group_array(json_array(tree.job, tree.parent, tree.link, bullite_jobs.state))
from tree join bullite_jobs on bullite_jobs.id = tree.job

-- Return the jobs that these jobs wait for, the jobs that those wait for, and so on.
-- name: transitive_dependencies (json_rows)
with recursive chain (downstream, upstream) as (
    select downstream, upstream from bullite_links
    where downstream in (select value from json_each(:jobs)) and state = 'pending'
    union
    select bullite_links.downstream, bullite_links.upstream
    from chain join bullite_links on bullite_links.downstream = chain.upstream and state = 'pending'
)
select json_group_array(json_array(downstream, upstream)) from chain

-- Children run again whose parents have not finished: the parents wait for them again.
-- name: reopen_links
update bullite_links set state = 'pending', value = null
where upstream in (select value from json_each(:jobs)) and kind = 'child'
    and state in ('processed', 'ignored', 'failed') and exists (
        select 1 from bullite_jobs where id = downstream
            and state in ('waiting', 'delayed', 'active', 'waiting-children')
    )

-- Links that the removal of jobs suspended, and that count again now that the jobs are restored.
-- name: restore_links
update bullite_links set state = 'pending'
where upstream in (select value from json_each(:jobs)) and state = 'removed' and exists (
    select 1 from bullite_jobs
    where id = downstream and (state = 'waiting-children' or removed_from = 'waiting-children')
)

-- Parents run again although children have failed.
-- name: ignore_failed_links
update bullite_links set policy = 'ignore'
where downstream in (select value from json_each(:jobs)) and state = 'failed'

-- name: add_flags
update bullite_jobs set traits = traits | :traits where id in (select value from json_each(:jobs))

-- name: set_deferred_failures
update bullite_jobs set deferred_failure = coalesce(deferred_failure, asked.value)
from json_each(:reasons) as asked where bullite_jobs.id = cast(asked.key as integer)

-- name: job_options (json_rows)
select json_group_array(json_array(job, opts)) from bullite_payloads
where job in (select value from json_each(:jobs))

-- name: set_opts
update bullite_payloads set opts = :opts where job = :job

-- name: links_page
select upstream, key, value from bullite_links
where downstream = :job and kind = :kind and state = :state and upstream > :after
order by upstream limit :most

-- name: pending_links
select key from bullite_links where downstream = :job and state = 'pending'
order by upstream limit :most

-- name: link_with_key
select upstream from bullite_links where downstream = :job and state = 'pending' and key = :key

-- name: link_counts
select state, count(*) from bullite_links where downstream = :job and kind = 'child' group by state

-- Children of a job, with the queues they are in now.
-- name: children_page
select bullite_links.upstream, bullite_queues.name
from bullite_links
    join bullite_jobs on bullite_jobs.id = upstream and bullite_jobs.state <> 'removed'
    join bullite_queues on bullite_queues.id = queue
where downstream = :job and kind = 'child' and bullite_links.state = :state and upstream > :after
order by upstream limit :most

-- Return jobs that wait for jobs which will not complete without an operator.
-- name: blocked_forever
select bullite_links.downstream, bullite_links.key, up.state, failed_reason
from bullite_jobs as down
    join bullite_links on downstream = down.id and bullite_links.state = 'pending'
    left join bullite_jobs as up on up.id = upstream
    left join bullite_results on bullite_results.job = upstream
where down.queue = :queue and down.state = 'waiting-children' and (:job is null or down.id = :job)
    and (up.id is null or up.state = 'failed' or up.state = 'removed')
order by down.created_at, down.id, upstream limit :most

-- schedulers --------------------------------------------------------------------------------------

-- name: scheduler_named
select id, queue, key, recurrence, name, data, opts, next_at, job, iterations, last_at, last_job, enabled,
    created_at, updated_at
from bullite_schedulers where queue = :queue and key = :key

-- name: schedulers_of_jobs
select id, queue, key, recurrence, name, data, opts, next_at, job, iterations, last_at, last_job, enabled,
    created_at, updated_at
from bullite_schedulers where job in (select value from json_each(:jobs)) order by job

-- name: upsert_scheduler
insert into bullite_schedulers (
    queue, key, recurrence, missed, name, data, opts, next_at, job, iterations, created_at, updated_at
) values (
    :queue, :key, :recurrence, :missed, :name, :data, :opts, :next_at, :job, :iterations, :now, :now
)
on conflict (queue, key) do update set
    recurrence = excluded.recurrence, missed = excluded.missed, name = excluded.name,
    data = excluded.data, opts = excluded.opts, next_at = excluded.next_at, job = excluded.job,
    iterations = excluded.iterations, enabled = 1, updated_at = excluded.updated_at

-- name: update_schedulers
update bullite_schedulers set
    next_at = asked.value ->> 1, job = asked.value ->> 2, iterations = asked.value ->> 3,
    last_at = asked.value ->> 4, last_job = asked.value ->> 5, enabled = asked.value ->> 6,
    updated_at = :now
from json_each(:schedulers) as asked where bullite_schedulers.id = asked.value ->> 0

-- name: delete_scheduler
delete from bullite_schedulers where queue = :queue and key = :key

-- name: delete_schedulers
delete from bullite_schedulers where queue = :queue

-- Return the enabled schedulers that have one of these jobs as their pending job.
-- name: owning_schedulers
select job, key from bullite_schedulers
where job in (select value from json_each(:jobs)) and enabled = 1

-- name: existing_schedulers
select key from bullite_schedulers
where queue = :queue and key in (select value from json_each(:keys))

-- Return schedulers that have no pending job although it is due, and those whose pending job may be late.
-- name: late_schedulers
select queue, key from bullite_schedulers
where enabled = 1 and next_at <= :now and (
    missed <> 'once' and next_at < :late
    or not exists (
        select 1 from bullite_jobs
        where id = bullite_schedulers.job and state in ('waiting', 'delayed')
    )
)
order by next_at limit :most

-- name: scheduler
select id, queue, key, recurrence, name, data, opts, next_at, job, iterations, last_at, last_job, enabled,
    created_at, updated_at
from bullite_schedulers where queue = :queue and key = :key

-- name: schedulers_up
select id, queue, key, recurrence, name, data, opts, next_at, job, iterations, last_at, last_job, enabled,
    created_at, updated_at
from bullite_schedulers where queue = :queue
order by enabled desc, next_at, id limit :most offset :skip

-- name: schedulers_down
select id, queue, key, recurrence, name, data, opts, next_at, job, iterations, last_at, last_job, enabled,
    created_at, updated_at
from bullite_schedulers where queue = :queue
order by enabled desc, next_at desc, id desc limit :most offset :skip

-- name: count_schedulers
select count(*) from bullite_schedulers where queue = :queue

-- deduplication -----------------------------------------------------------------------------------

-- Insert a missing key. Its row need not be locked: the write lock of SQLite covers all rows.
-- name: lock_dedup_keys (multi_row)
insert into bullite_deduplication (queue, key) values (?, ?)
on conflict (queue, key) do nothing

-- name: key_holders
select key, job, bullite_deduplication.custom_id, until, next, state
from bullite_deduplication left join bullite_jobs on bullite_jobs.id = job
where bullite_deduplication.queue = :queue and key in (select value from json_each(:keys))

-- name: update_dedup_keys (multi_row)
insert into bullite_deduplication (queue, key, job, custom_id, until, next) values (?, ?, ?, ?, ?, ?)
on conflict (queue, key) do update set
    job = excluded.job, custom_id = excluded.custom_id, until = excluded.until, next = excluded.next

-- name: delete_keys
delete from bullite_deduplication
where queue = :queue and key in (select value from json_each(:keys)) returning next

-- name: free_keys
delete from bullite_deduplication
where job in (select value from json_each(:jobs)) and (until is null or :windows = 1)
returning queue, until, next

-- name: lock_delayed
select id from bullite_jobs where id in (select value from json_each(:jobs)) and state = 'delayed'

-- name: jobs_with_dedup_key
select id, queue, custom_id, state, created_at, opts
from bullite_jobs join bullite_payloads on job = id
where id in (select value from json_each(:jobs))

-- name: prune_dedup_keys
delete from bullite_deduplication where rowid in (
    select rowid from bullite_deduplication
    where queue = :queue and until <= :now order by until limit :most
)

-- name: forget_keys
delete from bullite_deduplication where queue = :queue

-- limits ------------------------------------------------------------------------------------------

-- Serialize the transactions that count under the limits of the queue. The write lock of SQLite already does
-- so, and the transaction reads its time after it holds that lock.
-- name: lock_queue_limits
select null from bullite_queues where id = :queue

-- name: count_active
select count(*) from bullite_jobs where queue = :queue and state = 'active'

-- name: limits
select concurrency, rate_max, rate_duration, rate_until, rate_used, by_key
from bullite_queues where id = :queue

-- Return the number of jobs before a job in its lane, at most :most.
-- name: count_ahead_in_lane
select count(*) from (
    select 1 from bullite_jobs as me cross join bullite_jobs as j
        on j.queue = me.queue and j.lane = me.lane and j.state = 'waiting'
            and (j.rank, j.seq) < (me.rank, me.seq)
    where me.id = :job limit :most
)

-- name: set_limits
update bullite_queues set concurrency = :concurrency, rate_max = :rate_max, rate_duration = :rate_duration
where id = :queue

-- name: set_window
update bullite_queues set rate_until = :until, rate_used = :used where id = :queue

-- name: key_windows (json_rows)
select json_group_array(json_array(key, max, duration, until, used, back_at)) from bullite_limits
where queue = :queue and (key = '' or key in (select value from json_each(:keys)))

-- name: keys_to_unpark (json_rows)
select json_group_array(json_array(key, max, duration, until, used, back_at)) from (
    select key, max, duration, until, used, back_at from bullite_limits
    where queue = :queue and back_at <= :now order by back_at limit :most
)

-- name: next_unpark
select min(back_at) from bullite_limits where queue = :queue and back_at is not null

-- name: jobs_with_limit_key (json_rows)
select json_group_array(json_array(id, limit_key)) from (
    select id, opts ->> 'limit_key' as limit_key
    from bullite_jobs join bullite_payloads on job = id
    where queue = :queue and state = 'waiting' and lane = :lane
    order by rank, seq limit :most
) where limit_key is not null

-- name: park_jobs
update bullite_jobs set lane = char(31) || asked.value || char(31) || lane
from json_each(:jobs) as asked where bullite_jobs.id = cast(asked.key as integer)

-- name: parked_lanes (json_rows)
with recursive lanes (lane) as (
    select min(lane) from bullite_jobs
    where queue = :queue and state = 'waiting' and lane >= :first_lane and lane < :last_lane
    union all
    select (
        select min(lane) from bullite_jobs
        where queue = :queue and state = 'waiting' and lane > lanes.lane and lane < :last_lane
    ) from lanes where lanes.lane is not null
)
select json_group_array(json_array(lane)) from lanes where lane is not null

-- name: unpark_jobs
update bullite_jobs set lane = :home where id in (
    select id from bullite_jobs
    where queue = :queue and state = 'waiting' and lane = :lane
    order by rank, seq limit :most
)

-- name: set_unpark_time
insert into bullite_limits (queue, key, back_at)
select :queue, asked.key, asked.value from json_each(:keys) as asked where true
on conflict (queue, key) do update set back_at = excluded.back_at

-- name: count_keys
insert into bullite_limits (queue, key, until, used)
select :queue, asked.key, asked.value ->> 0, asked.value ->> 1 from json_each(:keys) as asked where true
on conflict (queue, key) do update set until = excluded.until, used = excluded.used,
    back_at = case when back_at is not null then excluded.until end

-- name: key_limit
select max, duration from bullite_limits where queue = :queue and key = :key and max is not null

-- name: set_key_limit
insert into bullite_limits (queue, key, max, duration) values (:queue, :key, :max, :duration)
on conflict (queue, key) do update set max = excluded.max, duration = excluded.duration

-- name: remove_key_limit
update bullite_limits set max = null, duration = null
where queue = :queue and key = :key and max is not null

-- name: unpark_all
update bullite_limits set back_at = :now where queue = :queue and back_at is not null

-- name: set_by_key
update bullite_queues set by_key = exists (select 1 from bullite_limits where queue = :queue)
where id = :queue

-- name: delete_idle_limit_keys
delete from bullite_limits where (queue, key) in (
    select queue, key from bullite_limits
    where queue = :queue and max is null and back_at is null and until <= :now limit :most
)

-- name: forget_limits
delete from bullite_limits where queue = :queue

-- Return the quotas of a queue and their use.
-- name: quotas
select name, max_waiting, max_payload_bytes, max_rate_count, max_rate_duration, adds_until, adds_used
from bullite_queues where id = :queue

-- name: count_adds
update bullite_queues set adds_until = :until, adds_used = :used where id = :queue

-- steps -------------------------------------------------------------------------------------------

-- name: steps
select kind, name, number, value, due_at, at, ended_at from bullite_steps
where job = :job order by place

-- name: insert_steps (multi_row)
insert into bullite_steps (
    job, kind, name, number, place, value, at, ended_at
) values (?, ?, ?, ?, ?, ?, ?, ?)
on conflict (job, kind, name, number) do nothing

-- name: set_steps_flag
update bullite_jobs set traits = traits | :trait where id in (select value from json_each(:jobs))

-- name: find_suspension
select value, due_at, ended_at from bullite_steps
where job = :job and kind = :kind and name = :name and number = :number

-- A job that waits for an event is suspended already: the number of its run shows that it waits.
-- name: insert_suspension
insert into bullite_steps (job, kind, name, number, place, due_at, run, at)
select :job, :kind, :name, :number, :place, :due_at, attempts_started, :now
from bullite_jobs where id = :job
on conflict (job, kind, name, number) do update set run = excluded.run

-- name: finish_suspension
insert into bullite_steps (job, kind, name, number, place, value, due_at, at, ended_at)
values (:job, :kind, :name, :number, :place, :value, :due_at, :now, :now)
on conflict (job, kind, name, number) do update set
    value = excluded.value, ended_at = excluded.ended_at

-- name: is_waiting_for_event
select 1 from bullite_steps join bullite_jobs on bullite_jobs.id = bullite_steps.job
where job = :job and kind = 'event' and bullite_steps.name = :name and ended_at is null
    and run = attempts_started

-- name: insert_signal
insert into bullite_signals (job, name, number, payload, at)
values (:job, :name, :number, :payload, :now)

-- name: next_signal
select number, payload from bullite_signals
where job = :job and name = :name order by number limit 1

-- name: delete_signal
delete from bullite_signals where job = :job and name = :name and number = :number

-- name: delete_steps
delete from bullite_steps where job in (select value from json_each(:jobs))

-- name: delete_signals
delete from bullite_signals where job in (select value from json_each(:jobs))

-- cancelling --------------------------------------------------------------------------------------

-- Return the cancelled jobs that this process runs.
-- name: cancelled_running_jobs
select bullite_jobs.id, bullite_jobs.worker, token, deferred_failure
from bullite_workers cross join bullite_jobs
    on bullite_jobs.queue = bullite_workers.queue and bullite_jobs.worker = bullite_workers.id
where bullite_workers.nonce = :nonce and state = 'active' and traits & {cancelled} <> 0

-- name: address_of_process
select address from bullite_workers where nonce = :nonce and address is not null limit 1

-- locks -------------------------------------------------------------------------------------------

-- Take a lock that has no holder or whose lease has expired, or take it from a holder known to be dead.
-- name: take_lock
insert into bullite_locks (name, token, nonce, boot, ttl, lease_until)
values (:name, :token, :nonce, :boot, :ttl, :lease_now + :ttl)
on conflict (name) do update set
    token = excluded.token, nonce = excluded.nonce, boot = excluded.boot, ttl = excluded.ttl,
    lease_until = excluded.lease_until
where bullite_locks.lease_until < :lease_now or bullite_locks.boot <> excluded.boot
    or bullite_locks.token = :instead_of
returning token

-- name: renew_locks
update bullite_locks set lease_until = :lease_now + ttl
where name in (select value ->> 0 from json_each(:locks))
    and token in (select value ->> 1 from json_each(:locks)) and nonce = :nonce and lease_until >= :lease_now
returning token

-- name: extend_lock
update bullite_locks set ttl = :ttl, lease_until = :lease_now + :ttl
where name = :name and token = :token and nonce = :nonce and lease_until >= :lease_now
returning token

-- name: release_lock
delete from bullite_locks
where name = :name and token = :token and nonce = :nonce and lease_until >= :lease_now
returning token

-- name: lock_holder
select token, nonce, boot, lease_until, 0 from bullite_locks where name = :name

-- name: lock_holders (json_rows)
select json_group_array(json_array(nonce)) from bullite_locks

-- name: lapsed_locks
select count(*) from bullite_locks where lease_until < :lease_now or boot <> :boot

-- name: delete_lapsed_locks
delete from bullite_locks where lease_until < :lease_now or boot <> :boot

-- sweeping ----------------------------------------------------------------------------------------

-- name: queues_to_prune (json_rows)
select json_group_array(json_array(id)) from bullite_queues
where exists (
    select 1 from bullite_jobs where queue = bullite_queues.id and state = 'completed'
        and finished_at < :now - keep_completed_age
) or exists (
    select 1 from bullite_jobs where queue = bullite_queues.id and state = 'failed'
        and finished_at < :now - keep_failed_age
) or completed > keep_completed_count or failed > keep_failed_count
or exists (
    select 1 from bullite_jobs where queue = bullite_queues.id and state = 'removed'
        and removed_at < :now - trash_age
) or exists (
    select 1 from bullite_events where queue = bullite_queues.id
        and total <= bullite_queues.events - max_events
        and id < (
            select id from bullite_events
            where queue = bullite_queues.id order by total desc, id desc limit 1
        )
) or exists (
    select 1 from bullite_deduplication where queue = bullite_queues.id and until <= :now
) or by_key = 1 and (
    exists (
        select 1 from bullite_limits where queue = bullite_queues.id
            and max is null and back_at is null and until <= :now
    ) or not exists (select 1 from bullite_limits where queue = bullite_queues.id)
)

-- name: trash_to_delete (json_rows)
select json_group_array(json_array(id, traits)) from (
    select id, traits from bullite_jobs
    where queue = :queue and state = 'removed' and removed_at < :before
    order by removed_at limit :most
)

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
where bullite_jobs.queue = :queue and state <> 'removed' and bullite_jobs.id = :job

-- name: jobs
{job}
where bullite_jobs.id in (select value from json_each(:jobs)) and bullite_jobs.queue = :queue
    and state <> 'removed'

-- name: job_with_custom_id
select id from bullite_jobs
where queue = :queue and custom_id = :custom_id and state <> 'removed'

-- name: removed_job
select id, removed_from, removed_at from bullite_jobs
where queue = :queue and state = 'removed' and (id = :number or custom_id = :custom_id)
order by removed_at desc, id desc limit 1

-- Return the number of pending jobs by name, without these names.
-- name: unserved_names
select name, count(*) from (
    select name from bullite_jobs where queue = :queue and state = 'waiting'
    union all
    select name from bullite_jobs where queue = :queue and state = 'delayed'
) where name not in (select value from json_each(:names)) group by name order by name limit :most

-- Return the number of jobs by name that are due soon and have this line in their log.
-- name: postponed_names
select name, count(*) from bullite_jobs as jobs
where queue = :queue and state = 'delayed' and due_at <= :until
    and (select 1 from bullite_logs where job = jobs.id and message = :message limit 1) is not null
group by name order by name limit :most

-- name: counts_per_priority
select priority, count(*) from bullite_jobs
where queue = :queue and state = 'waiting' group by priority order by min(rank)

-- name: attempts
select number, started_at, ended_at, worker, outcome, error, stack
from bullite_attempts where job = :job order by number

-- name: logs
select at, level, message from bullite_logs where job = :job and number between :first and :last
order by number

-- name: log_range
select min(number), max(number) from bullite_logs where job = :job

-- name: finished_jobs (json_rows, durable_read)
select json_group_array(json_array(id, state, return_value, failed_reason)) from (
    select id, state, return_value, failed_reason
    from bullite_jobs left join bullite_results on bullite_results.job = bullite_jobs.id
    where id in (select value from json_each(:jobs)) and state in ('completed', 'failed')
)

-- name: existing_jobs (json_rows)
select json_group_array(json_array(id)) from bullite_jobs
where id in (select value from json_each(:jobs)) and state <> 'removed'

-- finding -----------------------------------------------------------------------------------------

-- name: insert_tags (multi_row)
insert into bullite_tags (queue, tag, created_at, job) values (?, ?, ?, ?)

-- name: delete_tags
delete from bullite_tags where job in (select value from json_each(:jobs))

-- name: move_tags
update bullite_tags set queue = :target where job in (select value from json_each(:jobs))

-- Jobs before a place, newest first. Removed jobs are skipped here: there may be very many, and a caller that
-- read each of them would be slow.
-- name: find_by_date
{job}
where bullite_jobs.id in (
    select id from bullite_jobs
    where queue + 0 = :queue and (created_at, id) < (:at, :before) and created_at >= :since
        and state <> 'removed'
    order by created_at desc, id desc limit :most
)
order by bullite_jobs.created_at desc, bullite_jobs.id desc

-- name: find_by_name
{job}
where bullite_jobs.id in (
    select id from bullite_jobs
    where queue - 0 = :queue and name = :name and (created_at, id) < (:at, :before)
        and created_at >= :since and state <> 'removed'
    order by created_at desc, id desc limit :most
)
order by bullite_jobs.created_at desc, bullite_jobs.id desc

-- name: find_by_tag
{job}
where bullite_jobs.id in (
    select job from bullite_tags
    where queue = :queue and tag = :tag and (created_at, job) < (:at, :before)
        and created_at >= :since
    order by created_at desc, job desc limit :most
)
order by bullite_jobs.created_at desc, bullite_jobs.id desc

-- Return the queues that have a job with this number or this custom id.
-- name: queues_with_job
select bullite_queues.name from bullite_jobs join bullite_queues on bullite_queues.id = queue
where bullite_jobs.id = :number and state <> 'removed'

-- name: queues_with_custom_id
select bullite_queues.name
from bullite_queues cross join bullite_jobs on queue = bullite_queues.id
where custom_id = :custom_id and state <> 'removed' order by bullite_queues.name

-- measuring ---------------------------------------------------------------------------------------

-- Lock the minutes of a queue until the transaction ends: the write lock of SQLite already does so.
-- name: lock_minute
select :queue, :minute

-- name: minute
select completed, failed, durations, waits from bullite_minutes
where queue = :queue and minute = :minute

-- name: write_minute
insert into bullite_minutes (queue, minute, completed, failed, durations, waits)
values (:queue, :minute, :completed, :failed, :durations, :waits)
on conflict (queue, minute) do update set
    completed = excluded.completed, failed = excluded.failed, durations = excluded.durations,
    waits = excluded.waits

-- name: minutes
select minute, completed, failed, durations, waits from bullite_minutes
where queue = :queue and minute >= :first and minute <= :last order by minute

-- name: forget_minutes
delete from bullite_minutes where queue = :queue and minute < :before

-- name: write_stats
update bullite_workers set stats = :stats, seen_at = :now where id = :worker

-- name: all_workers
select bullite_workers.id, bullite_queues.name, bullite_workers.name, names, nonce, pid, host, number,
    bullite_workers.concurrency, started_at, seen_at, boot,
    case when renews = 1 then lock_duration end, stats, (
        select json_group_array(coalesce(custom_id, cast(bullite_jobs.id as text))) from bullite_jobs
        where queue = bullite_workers.queue and state = 'active' and worker = bullite_workers.id
            and ahead = 0
    )
from bullite_workers join bullite_queues on bullite_queues.id = queue
where registered = 1 order by bullite_workers.id

-- name: stats_priorities
select priority, count(*) from bullite_jobs
where queue = :queue and state <> 'removed' group by priority

-- Timeouts in ms: the option of a job, or the value in the data of a command, which is in seconds.
-- name: stats_timeouts
select count(timeout), coalesce(sum(cast(min(timeout, 1e13) as integer)), 0) from (
    select coalesce(
        opts ->> 'timeout',
        case
            when name in ('shell', 'http-webhook', 'python-function')
                and json_type(data, '$.timeout') in ('integer', 'real')
            then 1000 * (data ->> 'timeout')
        end
    ) as timeout
    from bullite_jobs join bullite_payloads on job = id
    where queue = :queue and state <> 'removed'
)

-- A deferred failure that is not a cancellation ends a job that was claimed and did not run.
-- name: stats_slowest
select id, finished_at - processed_at from bullite_jobs
where queue = :queue and state in ('completed', 'failed') and processed_at is not null
    and (deferred_failure is null or traits & {cancelled} <> 0)
order by finished_at - processed_at desc, id limit :most

-- name: stats_durations
select finished_at - processed_at, count(*) from bullite_jobs
where queue = :queue and state in ('completed', 'failed') and processed_at is not null
    and (deferred_failure is null or traits & {cancelled} <> 0)
group by 1 order by 1

-- name: count_due
select count(*) from bullite_jobs where queue = :queue and state = 'delayed' and due_at <= :now

-- name: count_retrying
select count(*) from bullite_jobs
where queue = :queue and state = 'delayed' and attempts_made > 0

-- name: count_outcomes
select outcome, count(*) from bullite_jobs join bullite_results on job = id
where queue = :queue and state = 'failed' group by outcome

-- commands ----------------------------------------------------------------------------------------

-- name: end_runs (multi_row)
insert into bullite_runs (
    job, run, began_at, ended_at, how, exit_code, signal, stdout_head, stdout_tail, stdout_dropped,
    stderr_head, stderr_tail, stderr_dropped
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (job, run) do update set
    ended_at = excluded.ended_at, how = excluded.how, exit_code = excluded.exit_code,
    signal = excluded.signal, stdout_head = excluded.stdout_head,
    stdout_tail = excluded.stdout_tail, stdout_dropped = excluded.stdout_dropped,
    stderr_head = excluded.stderr_head, stderr_tail = excluded.stderr_tail,
    stderr_dropped = excluded.stderr_dropped

-- name: insert_output (multi_row)
insert into bullite_output (job, run, number, stream, data) values (?, ?, ?, ?, ?)
on conflict (job, run, number) do nothing

-- name: trim_output
delete from bullite_output where job = :job and run = :run and number >= :first and number <= :last

-- name: clear_output
delete from bullite_output where job = :job and run <= :run

-- name: runs
select run, began_at, ended_at, how, exit_code, signal, stdout_head, stdout_tail, stdout_dropped,
    stderr_head, stderr_tail, stderr_dropped
from bullite_runs where job = :job order by run

-- name: output_after
select run, number, stream, data from bullite_output
where job = :job and (run, number) > (:run, :number) order by run, number limit :most

-- name: delete_runs
delete from bullite_runs where job in (select value from json_each(:jobs))

-- name: delete_output
delete from bullite_output where job in (select value from json_each(:jobs))

-- kept by name ------------------------------------------------------------------------------------

-- name: lock_value
select :kind, :name

-- name: list_values
select name, value, updated_at from bullite_kept where kind = :kind order by name

-- name: get_value
select value from bullite_kept where kind = :kind and name = :name

-- name: put_value
insert into bullite_kept (kind, name, value, updated_at) values (:kind, :name, :value, :now)
on conflict (kind, name) do update set value = excluded.value, updated_at = excluded.updated_at

-- name: delete_value
delete from bullite_kept where kind = :kind and name = :name

-- dead letters ------------------------------------------------------------------------------------

-- Set the time of the automatic retry of failed jobs: of the given jobs, or of all jobs of a queue.
-- name: schedule_auto_retry
update bullite_jobs set due_at = case when exists (
        select 1 from bullite_results
        where job = bullite_jobs.id and revived < :times and outcome in ('error', 'timed-out', 'stalled')
    ) then finished_at + :after end
where +queue = :queue and +state = 'failed' and id in (select value from json_each(:jobs))

-- name: reschedule_auto_retries
update bullite_jobs set due_at = case when exists (
        select 1 from bullite_results
        where job = bullite_jobs.id and revived < :times and outcome in ('error', 'timed-out', 'stalled')
    ) then finished_at + :after end
where queue = :queue and state = 'failed' and original_queue is :origin

-- name: source_queues_of_failed
select distinct original_queue from bullite_jobs where queue = :queue and state = 'failed'

-- name: auto_retry_due (json_rows)
select json_group_array(json_array(id)) from (
    select id from bullite_jobs where queue = :queue and state = 'failed' and due_at <= :now
    order by due_at limit :most
)

-- name: auto_retry_queues (json_rows)
select json_group_array(json_array(id)) from bullite_queues where exists (
    select 1 from bullite_jobs where queue = bullite_queues.id and state = 'failed' and due_at <= :now
)

-- name: count_auto_retries
update bullite_results set revived = revived + 1 where job in (select value from json_each(:jobs))

-- verifying ---------------------------------------------------------------------------------------
-- Each statement returns one line per violated invariant.

-- name: verify_counts
select 'queue ' || name || ': ' || kept.state || ' is kept as ' || kept.kept || ' but counts ' || kept.counted
from bullite_queues join (
    select id as queue, 'waiting' as state, waiting as kept, (select count(*) from bullite_jobs
        where queue = bullite_queues.id and state = 'waiting' and priority = 0) as counted from bullite_queues
    union all
    select id, 'prioritized', prioritized, (select count(*) from bullite_jobs
        where queue = bullite_queues.id and state = 'waiting' and priority <> 0) from bullite_queues
    union all
    select id, 'delayed', delayed, (select count(*) from bullite_jobs
        where queue = bullite_queues.id and state = 'delayed') from bullite_queues
    union all
    select id, 'active', active, (select count(*) from bullite_jobs
        where queue = bullite_queues.id and state = 'active') from bullite_queues
    union all
    select id, 'waiting-children', waiting_children, (select count(*) from bullite_jobs
        where queue = bullite_queues.id and state = 'waiting-children') from bullite_queues
    union all
    select id, 'completed', completed, (select count(*) from bullite_jobs
        where queue = bullite_queues.id and state = 'completed') from bullite_queues
    union all
    select id, 'failed', failed, (select count(*) from bullite_jobs
        where queue = bullite_queues.id and state = 'failed') from bullite_queues
) as kept on kept.queue = id
where kept.kept <> kept.counted

-- name: verify_active
select 'job ' || bullite_jobs.id || ' is active without a worker' from bullite_jobs
where state = 'active' and not exists (select 1 from bullite_workers where id = bullite_jobs.worker)
union all
select 'job ' || id || ' is active without a lease' from bullite_jobs
where state = 'active' and lease_until is null

-- name: verify_tokens
select 'job ' || id || ' is active without a token' from bullite_jobs
where state = 'active' and (token is null or nonce is null)
union all
select 'job ' || bullite_jobs.id || ' is held with a token that is not its worker''s'
from bullite_jobs join bullite_workers on bullite_workers.id = bullite_jobs.worker
where state = 'active' and bullite_jobs.nonce <> bullite_workers.nonce

-- name: verify_payloads
select 'job ' || id || ' has no payload' from bullite_jobs
where not exists (select 1 from bullite_payloads where job = bullite_jobs.id)
union all
select 'payload of job ' || job || ', which does not exist' from bullite_payloads
where not exists (select 1 from bullite_jobs where id = bullite_payloads.job)
union all
select 'result of job ' || job || ', which does not exist' from bullite_results
where not exists (select 1 from bullite_jobs where id = bullite_results.job)
union all
select 'attempt of job ' || job || ', which does not exist' from bullite_attempts
where not exists (select 1 from bullite_jobs where id = bullite_attempts.job)
union all
select 'log of job ' || job || ', which does not exist' from bullite_logs
where not exists (select 1 from bullite_jobs where id = bullite_logs.job)

-- name: verify_belongings
select 'tag of job ' || job || ', which does not exist' from bullite_tags as t
where not exists (select 1 from bullite_jobs where id = t.job)
union all
select 'tag of job ' || job || ', which is in another queue' from bullite_tags as t
    join bullite_jobs on id = job
where t.queue <> bullite_jobs.queue
union all
select 'run of job ' || job || ', which does not exist' from bullite_runs as r
where not exists (select 1 from bullite_jobs where id = r.job)
union all
select 'output of job ' || job || ', which does not exist' from bullite_output as o
where not exists (select 1 from bullite_jobs where id = o.job)
union all
select 'job ' || id || ' has tags and does not know of it' from bullite_jobs as j
where traits & {tagged} = 0 and exists (select 1 from bullite_tags where job = j.id)
union all
select 'job ' || id || ' has run a command and does not know of it' from bullite_jobs as j
where traits & {command} = 0 and (
    exists (select 1 from bullite_runs where job = j.id)
    or exists (select 1 from bullite_output where job = j.id)
)

-- name: verify_times
select 'job ' || id || ' is delayed without a due time' from bullite_jobs
where state = 'delayed' and due_at is null
union all
select 'job ' || id || ' is ' || state || ' without a finish time' from bullite_jobs
where state in ('completed', 'failed') and finished_at is null
union all
select 'job ' || id || ' is removed without a trace of where from' from bullite_jobs
where state = 'removed' and (removed_at is null or removed_from is null)
union all
select 'job ' || id || ' is ' || state || ' and yet held ahead' from bullite_jobs
where state <> 'active' and ahead <> 0

-- name: verify_links
select 'job ' || id || ' waits for others and for none' from bullite_jobs
where state = 'waiting-children'
    and not exists (select 1 from bullite_links where downstream = id and bullite_links.state = 'pending')
union all
select 'job ' || downstream || ' waits for job ' || upstream || ', which is completed'
from bullite_links join bullite_jobs on id = upstream
where bullite_links.state = 'pending' and bullite_jobs.state = 'completed'
union all
select 'link of job ' || downstream || ', which does not exist' from bullite_links
where not exists (select 1 from bullite_jobs where id = downstream)
union all
select 'job ' || id || ' does not know that others wait for it' from bullite_jobs
where traits & {upstream} = 0 and exists (select 1 from bullite_links where upstream = id)
union all
select 'job ' || id || ' does not know that it waits for others' from bullite_jobs
where traits & {downstream} = 0 and exists (select 1 from bullite_links where downstream = id)

-- name: verify_queues
select 'job ' || id || ' belongs to queue ' || queue || ', which does not exist' from bullite_jobs
where not exists (select 1 from bullite_queues where id = bullite_jobs.queue)

-- name: verify_custom_ids
select 'custom id ' || custom_id || ' stands for ' || count(*) || ' jobs of one queue'
from bullite_jobs where custom_id is not null and state <> 'removed'
group by queue, custom_id having count(*) > 1

-- name: verify_deduplication
select 'deduplication key ' || key || ' is taken by job ' || d.job || ', which has ended'
from bullite_deduplication as d
where until is null and not exists (
    select 1 from bullite_jobs where id = d.job and queue = d.queue
        and state in ('waiting', 'delayed', 'active', 'waiting-children')
)
union all
select 'deduplication key ' || key || ' is taken by job ' || d.job || ', which has none'
from bullite_deduplication as d join bullite_jobs on id = d.job where traits & {deduplicated} = 0
union all
select 'deduplication key ' || key || ' keeps a job behind a window' from bullite_deduplication
where until is not null and next is not null
union all
select 'deduplication key ' || key || ' belongs to queue ' || queue || ', which does not exist'
from bullite_deduplication as d
where not exists (select 1 from bullite_queues where id = d.queue)

-- name: verify_schedulers
select 'scheduler ' || key || ' is enabled and waits for no job' from bullite_schedulers
where enabled = 1 and (next_at is null or job is null)
union all
select 'scheduler ' || key || ' is not enabled and waits for job ' || job from bullite_schedulers
where enabled = 0 and job is not null
union all
select 'scheduler ' || key || ' waits for job ' || job || ', which does not wait'
from bullite_schedulers as s
where not exists (
    select 1 from bullite_jobs as j
    where j.id = s.job and j.queue = s.queue and j.state in ('waiting', 'delayed') and j.traits & {scheduled} <> 0
) and job is not null
union all
select 'scheduler ' || key || ' belongs to queue ' || queue || ', which does not exist'
from bullite_schedulers as s
where not exists (select 1 from bullite_queues where id = s.queue)

-- name: verify_numbers
select 'job ' || max(id) || ' has a number that was not handed out yet' from bullite_jobs
having max(id) > (select last from bullite_sequence)

-- name: verify_steps
select 'step of job ' || job || ', which does not exist' from bullite_steps
where not exists (select 1 from bullite_jobs where id = bullite_steps.job)
union all
select 'event for job ' || job || ', which does not exist' from bullite_signals
where not exists (select 1 from bullite_jobs where id = bullite_signals.job)
union all
select 'job ' || id || ' has steps and does not know of it' from bullite_jobs
where traits & {stepped} = 0 and (
    exists (select 1 from bullite_steps where job = bullite_jobs.id)
    or exists (select 1 from bullite_signals where job = bullite_jobs.id)
)
union all
select 'job ' || bullite_jobs.id || ' waits for an event that was sent to it' from bullite_jobs
    join bullite_steps on bullite_steps.job = bullite_jobs.id
where state = 'delayed' and ended_at is null and run = attempts_started and kind = 'event'
    and exists (
        select 1 from bullite_signals
        where bullite_signals.job = bullite_jobs.id and bullite_signals.name = bullite_steps.name
    )

-- name: verify_limits
select 'job ' || id || ' is ' || state || ' and yet stands aside for its key' from bullite_jobs
where substr(lane, 1, 1) = char(31) and state <> 'waiting'
union all
select 'job ' || id || ' stands aside for its key, and nothing tells when it may come back'
from bullite_jobs
where substr(lane, 1, 1) = char(31) and state = 'waiting' and not exists (
    select 1 from bullite_limits
    where bullite_limits.queue = bullite_jobs.queue and back_at is not null
        and key = substr(lane, 2, instr(substr(lane, 2), char(31)) - 1)
)
union all
select 'queue ' || queue || ' has a limit for key ' || key || ' that its claims do not look at'
from bullite_limits
where queue not in (select id from bullite_queues where by_key = 1)

-- name: verify_file
select 'the file: ' || integrity_check from pragma_integrity_check where integrity_check <> 'ok'
