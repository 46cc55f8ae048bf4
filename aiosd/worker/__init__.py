"""What a capability's program imports to speak with the system: arguments, progress, artifacts, questions, the result.

    from aiosd.worker import Task

    with Task.connect() as task:
        for number, name in enumerate(names, start=1):
            task.checkpoint()
            task.progress(100 * number / len(names), f"reading {name}")
        task.complete({"files": len(names)})

Standard library only, and quick to import: it is paid for at every start of every program.
"""

from aiosd.worker.task import Canceled, Task, WorkerError

__all__ = ["Canceled", "Task", "WorkerError"]
