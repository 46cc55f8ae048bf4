"""Values and pure functions: what a task, a run, an event is, and which changes are legal. Imports nothing of ours."""
