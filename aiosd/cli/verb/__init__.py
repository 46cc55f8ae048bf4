"""The verbs of `aiosctl`, one module each; each has a `command` that `aiosd.cli.main` loads when it is asked for."""
