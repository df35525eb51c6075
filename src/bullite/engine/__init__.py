"""The writer: one thread per process and database that commits everything asked for in groups."""
