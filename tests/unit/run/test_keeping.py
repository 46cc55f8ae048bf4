"""The control sockets outlive the launcher: each once, whatever it was doing when it died, and none of an ended run."""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.run import keeping, notify
from aiosd.run.keeping import BAG, Bag, Controls
from aiosd.run.notify import Passed

if TYPE_CHECKING:
    from collections.abc import Iterator


class Manager:
    """What a service manager does with FDSTORE=1 (sd_notify(3)), and what it passes to the next process."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, int]] = []

    def notify(self, message: str, fds: tuple[int, ...] = ()) -> None:
        lines = message.split("\n")
        name = next(line.removeprefix("FDNAME=") for line in lines if line.startswith("FDNAME="))
        if "FDSTORE=1" in lines:
            self.kept += [(name, os.dup(fd)) for fd in fds]
        else:
            assert "FDSTOREREMOVE=1" in lines
            for gone in [item for item in self.kept if item[0] == name]:
                os.close(gone[1])
                self.kept.remove(gone)

    def passed(self) -> list[Passed]:
        return [Passed(os.dup(fd), name) for name, fd in self.kept]

    def names(self) -> list[str]:
        return sorted(name for name, _ in self.kept if name != BAG)

    def close(self) -> None:
        for _, fd in self.kept:
            os.close(fd)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    made = Manager()
    monkeypatch.setattr(notify, "notify", made.notify)
    yield made
    made.close()


class Channel:
    """aiosd's end of a control socket, and the shim's, by which the first is known again."""

    def __init__(self, stack: ExitStack) -> None:
        self.ours, self.theirs = (stack.enter_context(end) for end in socket.socketpair())
        self.theirs.settimeout(30)

    def is_at(self, controls: Controls, run: str) -> bool:
        fd = controls.duplicate(run)
        if fd is None:
            return False
        with socket.socket(fileno=fd) as end:
            end.send(run.encode())
        return self.theirs.recv(100) == run.encode()


def die(controls: Controls) -> None:
    """As SIGKILL: nothing is said to anybody, the descriptors are closed by the kernel."""
    for fd in controls._fds.values():
        os.close(fd)
    controls._fds.clear()
    controls._bag.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count


@given(
    moves=st.lists(st.tuples(st.sampled_from(["start", "end", "die", "stop"]), st.integers(0, 5)), max_size=60),
)
def test_a_launcher_has_what_the_last_one_had(moves: list[tuple[str, int]]) -> None:
    before = open_files()
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        manager = Manager()
        stack.callback(manager.close)
        patch.setattr(notify, "notify", manager.notify)
        live: dict[str, Channel] = {}
        numbers = itertools.count()
        controls = Controls((), live.__contains__)
        for move, number in moves:
            chosen = sorted(live)[number % len(live)] if live else ""
            if move == "start":
                run = f"run-{next(numbers)}"
                live[run] = Channel(stack)
                controls.keep(run, live[run].ours.fileno())
            elif move == "end":
                controls.forget(chosen)
                live.pop(chosen, None)
            else:
                die(controls) if move == "die" else controls.close()
                live.pop(chosen, None)  # while nobody looked
                controls = Controls(manager.passed(), live.__contains__)
            assert all(channel.is_at(controls, name) for name, channel in live.items())
            assert controls.duplicate("run-x") is None
            assert manager.names() == []
        die(controls)
    assert open_files() == before


def test_what_is_over_does_not_stay_in_the_bag(manager: Manager) -> None:
    with ExitStack() as stack:
        controls = Controls((), lambda _: True)
        lasting = Channel(stack)
        controls.keep("run-long", lasting.ours.fileno())
        for number in range(1000):
            with socket.socket() as short:
                controls.keep(f"run-{number}", short.fileno())
            controls.forget(f"run-{number}")
            assert controls._bag.count <= 2 + 16 + 1
        assert lasting.is_at(controls, "run-long")
        die(controls)


def test_a_full_bag_is_no_loss(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_SPACE", 1)
    with ExitStack() as stack:
        channels = {f"run-{number}": Channel(stack) for number in range(50)}
        controls = Controls((), channels.__contains__)
        for run, channel in channels.items():
            controls.keep(run, channel.ours.fileno())
        assert 0 < len(manager.names()) < len(channels), "some are in the bag, the others with the manager"
        die(controls)
        following = Controls(manager.passed(), channels.__contains__)
        assert all(channel.is_at(following, run) for run, channel in channels.items())
        for run in channels:
            following.forget(run)
        assert manager.names() == []
        die(following)


def test_a_death_while_the_bag_is_put_in_order_leaves_each_once(manager: Manager) -> None:
    with ExitStack() as stack:
        channels = {f"run-{number}": Channel(stack) for number in range(5)}
        controls = Controls((), channels.__contains__)
        for run, channel in channels.items():
            controls.keep(run, channel.ours.fileno())
        # sent again and not taken out yet, behind a mark that stays
        controls._bag._sender.send(b"a mark")
        controls._bag.put("run-0", channels["run-0"].ours.fileno())
        die(controls)
        following = Controls(manager.passed(), channels.__contains__)
        assert following._bag.count == len(channels)
        assert all(channel.is_at(following, run) for run, channel in channels.items())
        die(following)


def test_what_a_launcher_of_before_has_stored_is_taken_over(manager: Manager) -> None:
    with ExitStack() as stack:
        channel = Channel(stack)
        manager.notify("FDSTORE=1\nFDNAME=run-old", (channel.ours.fileno(),))
        manager.notify("FDSTORE=1\nFDNAME=run-over", (channel.ours.fileno(),))
        controls = Controls(manager.passed(), {"run-old"}.__contains__)
        assert channel.is_at(controls, "run-old")
        assert controls.duplicate("run-over") is None
        assert manager.names() == []
        die(controls)


def test_an_orderly_end_leaves_them_where_a_launcher_of_before_looks(manager: Manager) -> None:
    with ExitStack() as stack:
        channel = Channel(stack)
        controls = Controls((), lambda _: True)
        controls.keep("run-live", channel.ours.fileno())
        assert manager.names() == []
        controls.close()
        assert manager.names() == ["run-live"]
        assert {name for name, _ in manager.kept} == {BAG, "run-live"}


@pytest.mark.parametrize("ends", [1, 2, 3])
def test_ends_that_are_no_pair_are_let_go_of(manager: Manager, ends: int) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(ends)]
        manager.notify(f"FDSTORE=1\nFDNAME={BAG}", tuple(stranger.fileno() for stranger in strangers))
        controls = Controls(manager.passed(), lambda _: True)
        channel = Channel(stack)
        controls.keep("run-live", channel.ours.fileno())
        assert len(manager.kept) == 2, "the ends of a new one"
        die(controls)
        following = Controls(manager.passed(), lambda _: True)
        assert channel.is_at(following, "run-live")
        die(following)


def test_a_bag_is_found_with_its_ends_in_any_order(manager: Manager) -> None:
    with ExitStack() as stack:
        channel = Channel(stack)
        controls = Controls((), lambda _: True)
        controls.keep("run-live", channel.ours.fileno())
        die(controls)
        for order in (1, -1):
            following = Controls(manager.passed()[::order], lambda _: True)
            assert channel.is_at(following, "run-live")
            die(following)


def test_a_bag_says_when_it_is_full(monkeypatch: pytest.MonkeyPatch, manager: Manager) -> None:
    monkeypatch.setattr(keeping, "_SPACE", 1)
    bag = Bag.new()
    with socket.socket() as some:
        assert not all(bag.put("run", some.fileno()) for _ in range(1000))
    bag.close()
