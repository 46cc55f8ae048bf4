"""A webhook's receiver that answers when the file HOLD is gone, and notes each delivery: its id, the event, the task.

`slow_receiver.py PORT HOLD NOTES`. A note is made before the answer, so a delivery in flight is in the notes.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, HOLD, NOTES = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with NOTES.open("a", encoding="utf-8") as notes:
            notes.write(f"{self.headers['X-AIOS-Event-Id']} {body['event']} {body['task_id']}\n")
        while HOLD.exists():
            time.sleep(0.05)
        try:
            self.send_response(204)
            self.end_headers()
        except OSError:  # who sent it is gone
            return

    def log_message(self, *_: object) -> None:
        """Nothing."""


ThreadingHTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
