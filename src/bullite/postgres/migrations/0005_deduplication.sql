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
