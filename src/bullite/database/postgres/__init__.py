"""The PostgreSQL store: SQL, connections and wake-ups; no rule about jobs."""
