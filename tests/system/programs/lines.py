"""A bare JSON-RPC client: each line of standard input is a message, each line of the answer is written back."""

from __future__ import annotations

import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect("/run/aios/aios-lines.sock")
    answers = connection.makefile("rb")
    for line in sys.stdin.buffer:
        connection.sendall(line)
        sys.stdout.buffer.write(answers.readline())
        sys.stdout.buffer.flush()
