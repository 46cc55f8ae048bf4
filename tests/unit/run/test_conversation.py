"""The chunk protocol against real programs, kind and hostile."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.run.artifacts import ArtifactError, BlobFile
from aiosd.run.chunks import CHUNK_MAX, ChunkError, LineReader, parse_chunk

if TYPE_CHECKING:
    from tests.unit.run.shimrig import Rig, Run

PREAMBLE = "import os,socket,json,time\ns = socket.socket(fileno=3)\n"
SAY = (
    "def say(kind, payload, **more):\n"
    "  s.sendall(json.dumps({'type': kind, 'payload': payload, **more}).encode() + b'\\n')\n"
)


def program(rig: Rig, code: str, **changes: object) -> Run:
    return rig.start(rig.python(PREAMBLE + SAY + code, **changes))


def kinds(run: Run) -> list[str]:
    return [str(event.type) for event in run.events()]


def complaints(run: Run) -> list[str]:
    return [str(event.payload["message"]) for event in run.events() if event.type == "protocol_error"]


def test_chunks_become_events_in_order(rig: Rig) -> None:
    run = program(
        rig,
        "say('processing', {'progress': {'percent': 50}}, index=1)\n"
        "say('log', {'level': 'info', 'message': 'Grüße'}, index=2)\n"
        "say('task_completion', {'result': {'n': 1}}, index=3, last_chunk=True)\n",
    ).go()
    run.wait()
    events = run.events()
    assert [event.n for event in events] == [1, 2, 3, 4]
    assert kinds(run) == ["started", "processing", "log", "task_completion"]
    assert [event.index for event in events] == [0, 1, 2, 3]
    assert [event.last_chunk for event in events] == [False, False, False, True]
    assert events[2].payload == {"level": "info", "message": "Grüße"}
    assert events[3].payload == {"result": {"n": 1}}


def test_the_program_is_told_what_to_do_first(rig: Rig) -> None:
    run = program(rig, "print(s.makefile().readline(), end='')\n").go({"depth": 3})
    run.wait()
    assert json.loads(run.stdout()) == {
        "type": "start",
        "arguments": {"depth": 3},
        "task_id": run.spec.task,
        "attempt": 2,
        "metadata": {"colour": "blue"},
    }


def test_an_answer_reaches_the_program_once(rig: Rig) -> None:
    run = program(
        rig,
        "f = s.makefile()\nf.readline()\nsay('task_interaction', {'interaction': 1, 'prompt': '?'})\n"
        "print(f.readline(), end='')\ns.settimeout(0.3)\n"
        "try: print(s.recv(100))\nexcept TimeoutError: print('no more')\n",
    ).go()
    run.wait_for("task_interaction")
    message = json.dumps({"type": "input", "id": "x-1", "interaction": 1, "input": {"name": "Ada"}}).encode()
    run.control.send(message)
    run.control.send(message)
    run.wait()
    first, second = run.stdout().splitlines()
    assert json.loads(first) == {"type": "input", "id": "x-1", "interaction": 1, "input": {"name": "Ada"}}
    assert second == b"no more"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "not JSON"),
        (b"[]", "a chunk must be a JSON object"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"payload": {}}', "type: not one of the chunk types"),
        (b'{"type": "started", "payload": {}}', "type: not one of the chunk types"),
        (b'{"type": "protocol_error"}', "type: not one of the chunk types"),
        (b'{"type": ["log"]}', "type: not one of the chunk types"),
        (b'{"type": "log", "payload": []}', "payload: must be an object"),
        (b'{"type": "log", "index": -1}', "index: must be a whole number, 0 or more"),
        (b'{"type": "log", "index": true}', "index: must be a whole number, 0 or more"),
        (b'{"type": "log", "index": 1.5}', "index: must be a whole number, 0 or more"),
        (b'{"type": "log", "last_chunk": 1}', "last_chunk: must be true or false"),
        (b'{"type": "log", "payload": {"x": NaN}}', "NaN is not a JSON number"),
        (b'{"type": "log", "type": "log"}', "an object has the same key twice"),
        (b'{"type": "log", "payload": {"x": "\\ud800"}}', "a string holds half of a surrogate pair"),
        (b'{"type": "log", "payload": ' + b"[" * 2000 + b"}", "nested deeper than 32 levels"),
        (b'{"type": "log", "payload": {"x": ' + b"[" * 40 + b"]" * 40 + b"}}", "nested deeper than 32 levels"),
    ],
)
def test_a_line_that_is_no_chunk_is_refused_with_the_reason(line: bytes, reason: str) -> None:
    with pytest.raises(ChunkError) as caught:
        parse_chunk(line)
    assert str(caught.value).startswith(reason)


def test_garbage_is_told_and_the_rest_goes_on(rig: Rig) -> None:
    run = program(rig, "s.sendall(b'garbage\\n\\xff\\xff\\n{}\\n')\nsay('log', {'message': 'still here'})\n").go()
    run.wait()
    assert kinds(run) == ["started", *["protocol_error"] * 3, "log"]


def test_a_line_without_end_costs_no_memory_and_no_more_than_itself(rig: Rig) -> None:
    run = program(
        rig,
        "for _ in range(40): s.sendall(b'x' * 1000000)\ns.sendall(b'\\n')\nsay('log', {'message': 'after'})\n",
    ).go()
    record = run.wait()
    assert record.exit_status == 0
    assert complaints(run) == [f"a line is longer than {CHUNK_MAX} bytes"]
    assert kinds(run)[-1] == "log"


def test_a_socket_closed_in_the_middle_of_a_line_is_told(rig: Rig) -> None:
    run = program(rig, 's.sendall(b\'{"type": "log"\')\ns.close()\ntime.sleep(0.1)\n').go()
    assert run.wait().exit_status == 0
    assert complaints(run) == ["the last line has no end"]


def test_protocol_errors_are_not_recorded_without_end(rig: Rig) -> None:
    run = program(rig, "s.sendall(b'?\\n' * 5000)\nsay('task_completion', {'result': {}})\n").go()
    run.wait()
    assert len(complaints(run)) == 101
    assert complaints(run)[-1] == "more protocol errors are not recorded"
    assert kinds(run)[-1] == "task_completion"


def test_nothing_is_heard_after_the_final_chunk(rig: Rig) -> None:
    run = program(rig, "say('task_completion', {'result': {}})\nsay('task_failed', {'message': 'no, wait'})\n").go()
    run.wait()
    assert kinds(run) == ["started", "task_completion", "protocol_error"]
    assert complaints(run) == ["task_failed after the final chunk"]


def test_a_program_that_is_finished_and_stays_is_ended(rig: Rig) -> None:
    run = program(rig, "say('task_completion', {'result': {}})\ntime.sleep(60)\n", grace_ms=200).go()
    begun = time.monotonic()
    record = run.wait()
    assert (record.signal, record.stopped_by) == ("SIGTERM", "completion")
    assert time.monotonic() - begun < 30


def test_a_program_that_listens_is_told_of_the_cancel_before_any_signal(rig: Rig) -> None:
    run = program(
        rig,
        "f = s.makefile()\nf.readline()\nsay('processing', {'progress': {'percent': 1}})\n"
        "print(json.loads(f.readline())['reason'])\nsay('task_failed', {'message': 'canceled'})\n",
    ).go()
    run.wait_for("processing")
    run.say("cancel", reason="user_request", grace_ms=10_000)
    record = run.wait()
    assert (record.exit_status, record.stopped_by) == (0, "cancel")
    assert run.stdout() == b"user_request\n"


# -- artifacts ---------------------------------------------------------------------------------------------------


def test_a_file_is_copied_and_named_by_its_digest(rig: Rig) -> None:
    run = program(
        rig,
        "os.mkdir('out')\nopen('out/a.bin', 'wb').write(bytes(range(256)) * 9000)\nopen('b', 'w').write('b')\n"
        "for path in ('out/a.bin', 'b', os.path.abspath('b')):\n"
        "  say('artifact', {'key': path, 'parts': [{'text': 't'}, {'file': {'path': path, 'mime_type': 'x/y'}}]})\n"
        "say('task_completion', {'result': {}})\n",
    ).go()
    run.wait()
    content = bytes(range(256)) * 9000
    first, second, third = (event.payload["parts"] for event in run.events() if event.type == "artifact")
    blob = {"offset": 0, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert first == [{"text": "t"}, {"file": {"mime_type": "x/y", "name": "a.bin", "blob": blob}}]
    blob = {"offset": len(content), "size": 1, "sha256": hashlib.sha256(b"b").hexdigest()}
    assert second == [{"text": "t"}, {"file": {"mime_type": "x/y", "name": "b", "blob": blob}}]
    assert third == [{"text": "t"}, {"file": {"mime_type": "x/y", "name": "b", "blob": {**blob, "offset": 2304001}}}]
    assert run.paths.blobs.read_bytes() == content + b"bb"
    assert kinds(run)[-1] == "task_completion"


@pytest.mark.parametrize(
    ("make", "path", "reason"),
    [
        ("os.symlink('/etc/passwd', 'x')", "x", "the file cannot be opened"),
        ("os.mkfifo('x')", "x", "not a regular file"),
        ("os.mkdir('x')", "x", "not a regular file"),
        ("pass", "missing", "the file cannot be opened: No such file or directory"),
        ("pass", "/etc/shadow", "the file cannot be opened: Permission denied"),
        ("pass", "../../../../../../etc/passwd", "the file cannot be opened"),
        ("os.symlink('/etc', 'd')", "d/passwd", "the file cannot be opened"),
        ("pass", "/proc/self/fd/0", "the file cannot be opened"),
        ("pass", "/proc/self/maps", "not a regular file"),  # it would be the shim's
        ("pass", "/proc/thread-self/limits", "not a regular file"),
        ("pass", "/dev/zero", "not a regular file"),
        ("open('x', 'wb').truncate(5 * 1024 * 1024)", "x", "the artifacts of this run are larger than 4194304 bytes"),
        ("pass", "a\\0b", "a string holds a NUL"),
    ],
)
def test_what_is_not_the_programs_own_plain_file_is_refused(rig: Rig, make: str, path: str, reason: str) -> None:
    payload = f"{{'key': 'k', 'parts': [{{'file': {{'path': '{path}'}}}}]}}"
    run = program(rig, f"{make}\nsay('artifact', {payload})\n").go()
    run.wait()
    assert kinds(run) == ["started", "protocol_error"]
    assert complaints(run)[0].removeprefix("artifact: ").startswith(reason)
    assert run.paths.blobs.read_bytes() == b""


def test_another_users_file_is_refused_even_in_the_scratch_directory(rig: Rig) -> None:
    run = program(rig, "s.makefile().readline()\nsay('artifact', {'parts': [{'file': {'path': 'theirs'}}]})\n")
    theirs = Path(run.spec.view.scratch) / "theirs"
    theirs.write_text("secret")
    theirs.chmod(0o600)
    os.chown(theirs, 0, 0)
    run.go().wait()
    assert complaints(run) == ["artifact: the file cannot be opened: Permission denied"]


def test_of_a_file_that_changes_while_it_is_read_what_was_read_is_what_is_named(rig: Rig) -> None:
    """Shrunk, written over and shrunk again all the time: the digest is that of the bytes that were taken."""
    code = """
import os, threading
done = threading.Event()
with open('x', 'wb') as f:
    f.write(b'A' * 3_500_000)
def change():
    n = 0
    while not done.is_set():
        n += 1
        with open('x', 'r+b') as f:
            f.write(bytes([66 + n % 20]) * 3_000_000)
            f.truncate(3_000_000 + n % 7 * 50_000)
one = threading.Thread(target=change)
one.start()
say('artifact', {'key': 'k', 'parts': [{'file': {'path': 'x'}}]})
import time
time.sleep(0.5)
done.set()
one.join()
say('task_completion', {'result': {}})
"""
    run = program(rig, code).go()
    run.wait()
    assert kinds(run) == ["started", "artifact", "task_completion"]
    (parts,) = (event.payload["parts"] for event in run.events() if event.type == "artifact")
    assert isinstance(parts, list)
    blob = parts[0]["file"]["blob"]  # type: ignore[index,call-overload]
    content = run.paths.blobs.read_bytes()
    assert (blob["offset"], blob["size"]) == (0, len(content))  # type: ignore[index,call-overload]
    assert blob["sha256"] == hashlib.sha256(content).hexdigest()  # type: ignore[index,call-overload]
    assert 3_000_000 <= len(content) <= 3_500_000


def test_of_what_is_too_large_nothing_is_copied(tmp_path: Path) -> None:
    """A program can ask for it a thousand times before it ends, and would keep its shim at it for hours."""
    with (tmp_path / "x").open("wb") as file:
        file.truncate(5 << 20)
    scratch = os.open(tmp_path, os.O_DIRECTORY)
    with (tmp_path / "blobs").open("ab") as blobs:
        taking = BlobFile(blobs.fileno(), scratch, 4 << 20).take({"parts": [{"file": {"path": "x"}}]})
        with pytest.raises(ArtifactError, match="larger than 4194304 bytes"):
            next(taking)
    os.close(scratch)


def test_a_file_that_grows_while_it_is_read_ends_at_the_limit(rig: Rig) -> None:
    code = """
import threading
done = threading.Event()
f = open('x', 'wb', buffering=0)
f.write(b'A' * 4_000_000)
def grow():
    while not done.is_set() and f.tell() < 64 << 20:
        f.write(b'B' * 500_000)
one = threading.Thread(target=grow)
one.start()
while f.tell() < 4_400_000:
    pass
say('artifact', {'key': 'k', 'parts': [{'file': {'path': 'x'}}]})
one.join()
say('task_completion', {'result': {}})
"""
    run = program(rig, code).go()
    run.wait()
    assert kinds(run) == ["started", "protocol_error", "task_completion"]
    assert complaints(run) == ["artifact: the artifacts of this run are larger than 4194304 bytes"]
    assert run.paths.blobs.read_bytes() == b"", "nothing of it is kept"


@pytest.mark.parametrize(("pieces", "lines"), [([b"a\nb", b"c\n"], [b"a", b"bc"]), ([b"\n\n"], [b"", b""])])
def test_lines_are_put_together_across_reads(pieces: list[bytes], lines: list[bytes]) -> None:
    reader = LineReader()
    assert [line for piece in pieces for line in reader.feed(piece)] == lines
    assert not reader.unfinished()


def test_a_line_of_exactly_the_limit_passes_and_one_more_does_not() -> None:
    reader = LineReader(limit=4)
    assert reader.feed(b"abcd\nabcde\nx\n") == [b"abcd", None, b"x"]
    assert reader.feed(b"abcdefgh") == []
    assert reader.feed(b"ij\nok\n") == [None, b"ok"]
