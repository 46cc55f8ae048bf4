#!/usr/bin/python3
"""Runs inside the user-mode-linux box as a service: does what it finds in the directory it shares with the host.

A request is a directory `q/ID` with `go` (JSON: argv) and `in`; the answer is `out`, `err` and, written last, `rc`. A
file `kill` holds the number of a signal for the command's process group. Polled, because hostfs tells nobody of a
change made on the host.
"""

import ctypes
import json
import os
import subprocess
import threading
import time
from pathlib import Path

SHARE = Path("/run/share")
TICK = 0.01
MS_RDONLY = 1


def mount_hostfs(where: Path, host: str, flags: int) -> None:
    """mount(2) itself: mount(8) spells this option differently in each version."""
    where.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", bytes(where), b"hostfs", flags, host.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"mount {where}")


def perform(request: Path) -> None:
    """Run one command to its end."""
    argv = json.loads((request / "go").read_text())
    with (request / "in").open("rb") as stdin, (request / "out").open("wb") as out, (request / "err").open("wb") as err:
        try:
            process = subprocess.Popen(argv, stdin=stdin, stdout=out, stderr=err, cwd="/", start_new_session=True)
        except OSError as error:
            err.write(str(error).encode())
            status = 127
        else:
            status = wait(process, request / "kill")
    (request / "rc.new").write_text(str(status))
    (request / "rc.new").rename(request / "rc")


def wait(process: "subprocess.Popen[bytes]", kill: Path) -> int:
    """The exit status, a signal as 128 + its number as a shell has it."""
    while process.poll() is None:
        time.sleep(TICK)
        if kill.exists() and (text := kill.read_text()):
            kill.unlink()
            os.killpg(process.pid, int(text))
    status = process.returncode
    return status if status >= 0 else 128 - status


def main() -> None:
    """Mount what the host shares, say that we are there, serve."""
    mount_hostfs(SHARE, "/share", 0)
    for number, where in enumerate(json.loads((SHARE / "binds").read_text())):
        mount_hostfs(Path(where), f"/share.{number}", MS_RDONLY)
    seen: set[str] = set()
    (SHARE / "ready").touch()
    while True:
        for request in (SHARE / "q").iterdir():
            if request.name not in seen and (request / "go").exists():
                seen.add(request.name)
                threading.Thread(target=perform, args=(request,)).start()
        time.sleep(TICK)


if __name__ == "__main__":
    main()
