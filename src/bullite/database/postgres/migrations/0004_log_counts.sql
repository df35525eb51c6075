-- How many events a queue's log holds, without reading it.

-- The events that each process added to the log: with events_trimmed of the queue, the size of the log.
alter table bullite.bullite_counts add column events bigint not null default 0;

insert into bullite.bullite_counts (queue, nonce, events)
select id, 0, events_trimmed + coalesce((
    select sum(size) from bullite.bullite_events where queue = q.id
), 0) from bullite.bullite_queues as q
on conflict (queue, nonce) do update set events = excluded.events;
