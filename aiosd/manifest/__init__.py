"""Capability manifests: the table of keys, the parser, the directories and how they override each other."""
