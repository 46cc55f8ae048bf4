"""`aiosctl`: the administrator's command, one module a verb."""
