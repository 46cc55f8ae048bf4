"""`aiosctl`: the administrator's command, one module a verb under `verb/`.

How to read it: the program begins in `start`; `main` has the list of verbs; `session` is what a verb is given; `client`
says what can be asked of the daemon and `wire` how that goes over D-Bus. Everything else is one idea a module:
`arguments` (key=value), `exit_status`, `failure`, `terminal` (hostile text), `follow` (a task as it runs). Heavy
imports (the D-Bus library, asyncio, rich) happen inside the functions that need them: so `--help` does without.
"""
