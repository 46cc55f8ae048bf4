"""The application core: every operation, the scheduler, supervision of runs, recovery, events."""
