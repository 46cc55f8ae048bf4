"""The D-Bus door: `org.aios.TaskManager` on the system bus."""
