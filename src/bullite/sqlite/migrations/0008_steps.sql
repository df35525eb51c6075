-- What a run of a job need not do again: its steps with what they gave, its sleeps, and the events it
-- waited for. The kind is one of those; number counts the sleeps and waits of one name, in the order in
-- which a run comes to them; place is the order in which all of them were begun.
create table bullite_steps (
    job integer not null,
    kind text not null,
    name text not null,
    number integer not null,
    place integer not null,
    -- What a step gave or an event brought, as JSON; null where there is nothing.
    value text,
    -- When a sleep, or the patience of a wait, ends.
    due_at integer,
    -- Which run of the job waits: it does while it has begun no other.
    run integer,
    at integer not null,
    ended_at integer,
    primary key (job, kind, name, number)
) strict, without rowid;

-- Events that were sent to a job and that it has not asked for yet.
create table bullite_signals (
    job integer not null,
    name text not null,
    number integer not null,
    payload text not null,
    at integer not null,
    primary key (job, name, number)
) strict, without rowid;

-- Named locks that somebody holds. The token is one of the numbers that job ids are made of: it only
-- grows. The lease counts by the clock of one boot, as a worker's does.
create table bullite_locks (
    name text primary key,
    token integer not null,
    nonce integer not null,
    boot text not null,
    ttl integer not null,
    lease_until integer not null
) strict, without rowid;
