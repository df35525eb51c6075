-- What else belongs to a job beside its own rows, as bits: see traits.py. Compared when a run ends, so
-- that a worker cannot miss what was tied to its job while it ran.
alter table bullite.bullite_jobs add column traits integer not null default 0;
