"""The PostgreSQL store: SQL, connections and notifications. It holds no rule about jobs."""
