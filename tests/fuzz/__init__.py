"""Coverage-guided fuzzing (atheris, libFuzzer) of what strangers' bytes meet first; `python3 -m tests.fuzz TARGET`."""
