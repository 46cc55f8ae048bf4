"""Proves that the limits of a task bite: memory, processes, CPU time. On a kernel with every cgroup v2 controller."""
