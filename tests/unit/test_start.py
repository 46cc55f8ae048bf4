"""What a start imports. Clients wait for it, so what only some call needs comes with that call, or once it is calm.

Of the processor time that the import of the daemon takes: `pydantic` with the models of the tasks' parameters would be
half as much again (it comes with the first parameters), `aiohttp` too (with the first HTTP client or webhook).
`jsonschema` comes with the first schema that is not plain, `click` and `rich` are the command line's.
"""

from __future__ import annotations

import subprocess
import sys

from tests.rig import host

LATER = (
    "aiohttp", "click", "email", "http", "importlib.metadata", "jsonschema", "multiprocessing", "pydantic",
    "pydantic_core", "rich", "unittest", "urllib.request", "xml.sax", "zipfile",
)  # fmt: skip
OURS_LATER = (
    "aiosd.cli", "aiosd.client", "aiosd.core.parameters", "aiosd.hooks.sending", "aiosd.model.wire", "aiosd.rpc.http",
    "aiosd.rpc.openrpc", "aiosd.worker",
)  # fmt: skip


def test_a_start_imports_nothing_that_can_wait() -> None:
    script = "import sys, aiosd.app; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(host.CHECKOUT)!r}); {script}"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    imported = set(done.stdout.split())
    assert "aiosd.core.supervision" in imported, "it is the daemon that was imported"
    assert [name for name in (*LATER, *OURS_LATER) if name in imported] == []
