"""A private system bus for each test that asks for one: the real dbus-daemon; everybody may talk to everybody."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
  </policy>
  <limit name="max_incoming_bytes">1000000000</limit>
  <limit name="max_outgoing_bytes">1000000000</limit>
  <limit name="max_replies_per_connection">50000</limit>
</busconfig>
"""


@dataclass(frozen=True)
class PrivateBus:
    """A running dbus-daemon: where it listens and its process, to be stopped and continued at will."""

    address: str
    process: subprocess.Popen[bytes]

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The bus does not read while this lasts."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """The bus dies."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def private_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateBus]:
    """A bus of its own, also named by $DBUS_SYSTEM_BUS_ADDRESS. Other users may reach it."""
    folder = Path(tempfile.mkdtemp(prefix="aiosd-bus-"))
    folder.chmod(0o755)
    socket = folder / "bus"
    config = tmp_path / "bus.conf"
    config.write_text(_CONFIG.format(socket=socket))
    read, write = os.pipe()
    process = subprocess.Popen(
        ["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile", f"--print-address={write}"],
        pass_fds=(write,),
        stderr=sys.stderr,
    )
    os.close(write)
    with os.fdopen(read) as ready:
        ready.readline()
    bus = PrivateBus(f"unix:path={socket}", process)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
    try:
        yield bus
    finally:
        bus.kill()
        shutil.rmtree(folder)
