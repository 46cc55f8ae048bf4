"""`system.info.read`: which system this is and how it is doing, from os-release(5), uname(2) and proc(5)."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.capabilities.program import serve

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from aiosd.worker import Task

_OS_KEYS = ("ID", "NAME", "PRETTY_NAME", "VERSION_ID", "VERSION_CODENAME", "VARIANT_ID", "IMAGE_ID", "IMAGE_VERSION")
_MEMORY_KEYS = {
    "MemTotal": "total_bytes",
    "MemAvailable": "available_bytes",
    "SwapTotal": "swap_total_bytes",
    "SwapFree": "swap_free_bytes",
}


def work(_task: Task) -> JsonObject:
    """Read everything once; nothing here takes long enough for progress."""
    kernel = os.uname()
    return {
        "os": operating_system(),
        "kernel": {"name": kernel.sysname, "release": kernel.release, "machine": kernel.machine},
        "hostname": kernel.nodename,
        "uptime_seconds": float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]),
        "cpu": {"count": os.sysconf("SC_NPROCESSORS_ONLN"), "model": cpu_model()},
        "memory": memory(Path("/proc/meminfo").read_text(encoding="ascii")),
        "load": dict(zip(("one_minute", "five_minutes", "fifteen_minutes"), os.getloadavg(), strict=True)),
    }


def operating_system() -> dict[str, str]:
    """The fields of os-release(5) that identify a system; empty where there is no such file."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return {}
    return {key.lower(): release[key] for key in _OS_KEYS if key in release}


def cpu_model() -> str:
    """The processor's name; the key differs between architectures, and some have none."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model", "cpu"):
            return value.strip()
    return ""


def memory(meminfo: str) -> dict[str, int]:
    """The four figures people ask for, in bytes (proc(5) has them in KiB)."""
    figures = {}
    for line in meminfo.splitlines():
        key, _, value = line.partition(":")
        if key in _MEMORY_KEYS:
            figures[_MEMORY_KEYS[key]] = int(value.split()[0]) * 1024
    return figures


def main() -> None:
    """Run as a task."""
    serve(work)


if __name__ == "__main__":
    main()
