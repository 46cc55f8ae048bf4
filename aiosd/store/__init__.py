"""The durable state: one SQLite file, one writer thread, queries by subject."""
