"""Proves aiosctl: its verbs against a daemon in memory, then the whole program against one on a real bus."""
