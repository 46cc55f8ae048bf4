"""An administrator's polkit rules, for as long as a test wants them.

polkit reads them anew by itself, soon after they change, so it is not started anew for them: systemd refuses that after
a few times, and agents would be lost by it. When it has read them is asked of it (pkcheck(1)): each text has a rule
more, which says yes to a question that nobody else asks.
"""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rig.container import Container

DIRECTORY = "/etc/polkit-1/rules.d"
ACTION = "org.aios.TaskManager.view-others"
PATIENCE = 60.0
RUN_ALL = """
polkit.addRule(function(action, subject) {
    if (action.id.indexOf("org.aios.TaskManager.run-") == 0) return polkit.Result.YES;
});
"""
"""Whoever asks may run what a level above their own asks an administrator for."""
MARK = """
polkit.addRule(function(action, subject) {
    if (action.lookup("mark") == "%s") return polkit.Result.YES;
});
"""
ASK = """
setpriv --reuid=nobody --regid=nogroup --clear-groups sleep 60 & subject=$!
pkcheck --action-id "$0" --process $subject --detail mark "$1"; status=$?
kill $subject
exit $status
"""
"""Asked by root, who may give details, of a process of somebody who may do nothing."""

_numbers = itertools.count(1)


@contextmanager
def polkit_rules(box: Container, name: str, text: str) -> Iterator[None]:
    """Those rules, from when polkit has read them until it has read that they are gone. `name`: the file's."""
    path, mark = f"{DIRECTORY}/{name}.rules", f"{name}-{next(_numbers)}"
    box.write(path, text + MARK % mark)
    try:
        _until(box, mark, known=True)
        yield
    finally:
        box.run("rm", path)
        _until(box, mark, known=False)


def _until(box: Container, mark: str, *, known: bool) -> None:
    deadline = time.monotonic() + PATIENCE
    while (box.run("sh", "-c", ASK, ACTION, mark, check=False).returncode == 0) is not known:
        assert time.monotonic() < deadline, f"polkit does not read its rules anew: {mark}"
        time.sleep(0.05)
