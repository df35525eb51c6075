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
