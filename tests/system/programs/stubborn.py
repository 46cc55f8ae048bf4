"""Ignores SIGTERM, as does its child, which has a session of its own; prints both pids."""

from __future__ import annotations

import os
import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setsid()
else:
    print(os.getpid(), child, flush=True)
while True:
    time.sleep(60)
