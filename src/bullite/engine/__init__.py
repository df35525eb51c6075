"""The engine: one writer thread per process and database, which commits requests in groups."""
