"""aiosd: the task manager of an AI-native operating system (`org.aios.TaskManager`).

Read `docs/architecture.md` first. Packages, from the outside in: `bus`, `rpc` and `cli` are doors; `core` decides;
`store`, `auth`, `run` and `manifest` are what it stands on; `model` is values only and imports nothing of ours.
"""

__version__ = "0.1.0"
