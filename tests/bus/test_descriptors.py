"""Secrets by descriptor, over a real bus: taken from pipes and memfds, and from nothing whose read could hang."""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.bus import descriptors
from aiosd.bus.connection import BusCallError, Variant
from aiosd.model.secrettext import MAX_SECRET_BYTES
from tests.bus.fake_core import TASK_ID, FakeCore, manager_call, served, task_call
from tests.bus.running import run_for

if TYPE_CHECKING:
    from aiosd.bus.connection import Call
    from tests.bus.conftest import PrivateBus

SECRET = b'{"type":"bearer","token":"webhook-secret-token"}'


class End:
    """A descriptor to close."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        os.close(self.fd)


def with_descriptor(fd: int, index: int = 0) -> Call:
    options = {"authentication": Variant("h", index)}
    call = manager_call("SubscribeWebhook", "ssasa{sv}", TASK_ID, "https://client.example.com/", [], options)
    return replace(call, fds=(fd,))


def memfd(content: bytes) -> int:
    fd = os.memfd_create("secret")
    os.write(fd, content)
    return fd


def test_a_memfd_is_read_from_its_beginning(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore()
        async with served(core) as (client, _):
            with closing(End(memfd(SECRET))) as end:
                await client.call(with_descriptor(end.fd))
        assert core.secrets == [SECRET]
        ((name, _, params),) = core.calls
        assert name == "task.subscribe_webhook"
        assert "authentication" not in params

    run_for(20, scenario())


def test_an_authentication_reaches_the_core_as_a_secret_and_as_nothing_else(private_bus: PrivateBus) -> None:
    given = b'{"type":"api_key","api_key":"k"}'

    async def scenario() -> None:
        core = FakeCore()
        async with served(core) as (client, _):
            with closing(End(memfd(given))) as end:
                await client.call(replace(task_call("Authenticate", "ha{sv}", 0, {}), fds=(end.fd,)))
            with pytest.raises(BusCallError, match="auth_response"):
                await client.call(task_call("Authenticate", "ha{sv}", 0, {}))
        assert core.secrets == [given]
        ((name, _, params),) = core.calls
        assert (name, params) == ("task.authenticate", {"task_id": TASK_ID})

    run_for(20, scenario())


def test_a_pipe_is_read_to_its_end_while_others_are_served(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore()
        async with served(core) as (client, _):
            reading, writing = os.pipe()
            with ExitStack() as stack:
                stack.enter_context(closing(End(reading)))
                with closing(End(writing)):
                    asked = asyncio.create_task(client.call(with_descriptor(reading)))
                    os.write(writing, SECRET[:10])
                    await client.call(manager_call("GetStatus"))
                    assert not asked.done()
                    os.write(writing, SECRET[10:])
                await asked
        assert core.secrets == [SECRET]

    run_for(20, scenario())


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "JSON object"), (b"[]", "JSON object"), (b"{" + b" " * MAX_SECRET_BYTES + b"}", "longer than")],
)
def test_what_is_no_secret_is_refused(private_bus: PrivateBus, content: bytes, said: str) -> None:
    async def scenario() -> None:
        core = FakeCore()
        async with served(core) as (client, _):
            with closing(End(memfd(content))) as end, pytest.raises(BusCallError, match=said) as refused:
                await client.call(with_descriptor(end.fd))
            assert "options.authentication" in refused.value.message
        assert core.calls == []

    run_for(20, scenario())


def test_a_file_or_no_descriptor_is_refused(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore()
        with tempfile.TemporaryFile(dir="/var/tmp") as file:  # on a disk
            file.write(SECRET)
            file.flush()
            async with served(core) as (client, _):
                with closing(End(os.open("/dev/null", os.O_RDONLY))) as end, pytest.raises(BusCallError, match="memfd"):
                    await client.call(with_descriptor(end.fd))
                with pytest.raises(BusCallError, match="memfd"):
                    await client.call(with_descriptor(file.fileno()))
                with pytest.raises(BusCallError, match="no descriptor of that index"):
                    await client.call(replace(with_descriptor(0), fds=()))

    run_for(20, scenario())


def test_a_writer_that_does_not_finish_is_not_waited_for(
    private_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        core = FakeCore()
        monkeypatch.setattr(descriptors.Received.secret, "__kwdefaults__", {"within": 0.1})
        async with served(core) as (client, _):
            reading, writing = os.pipe()
            with closing(End(reading)), closing(End(writing)), pytest.raises(BusCallError, match="did not close"):
                await client.call(with_descriptor(reading))

    run_for(20, scenario())
