-- What a run of a job need not do again: its steps with what they gave, its sleeps, and the events it
-- waited for. The kind is one of those; number counts the sleeps and waits of one name, in the order in
-- which a run comes to them; place is the order in which all of them were begun.
create table bullite.bullite_steps (
    job bigint not null,
    kind text collate "C" not null,
    name text collate "C" not null,
    number bigint not null,
    place bigint not null,
    -- What a step gave or an event brought, as JSON; null where there is nothing.
    value text,
    -- When a sleep, or the patience of a wait, ends.
    due_at bigint,
    -- Which run of the job waits: it does while it has begun no other.
    run bigint,
    at bigint not null,
    ended_at bigint,
    primary key (job, kind, name, number)
);

-- Events that were sent to a job and that it has not asked for yet.
create table bullite.bullite_signals (
    job bigint not null,
    name text collate "C" not null,
    number bigint not null,
    payload text not null,
    at bigint not null,
    primary key (job, name, number)
);

-- Named locks that somebody holds. The token is one of the numbers that job ids are made of: it only
-- grows. The lease counts by the server's clock.
create table bullite.bullite_locks (
    name text collate "C" primary key,
    token bigint not null,
    nonce bigint not null,
    boot text not null,
    ttl bigint not null,
    lease_until bigint not null
) with (fillfactor = 50);
