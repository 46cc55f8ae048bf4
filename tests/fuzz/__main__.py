"""`python3 -m tests.fuzz TARGET… [--seconds N] [--corpus DIRECTORY]`: fuzz each; an input that breaks one is kept.

Each target has a process of its own, forked once everything that is watched has been imported. The exit status is
libFuzzer's of the first that failed: 0 when the time is over and nothing was found. A kept input is tried again with
`--again FILE`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

WATCHED = ["aiosd.model", "aiosd.rpc", "aiosd.run.chunks", "aiohttp.web_protocol", "aiohttp.web_request", "json"]
"""Whose branches guide the search. aiohttp's parser is C and is fuzzed without."""
BEGIN, END = "== fuzzing ", "== exit status "
"""Begin the lines on standard error before and after what a target's search says."""


def search(make: Callable[[], Callable[[bytes], None]], corpus: Path, seconds: int) -> NoReturn:
    """Fuzz one target in this process, which ends with it."""
    try:
        limits = [f"-max_total_time={seconds}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=1024"]
        shown = ["-print_final_stats=1", "-verbosity=1", f"-artifact_prefix={tempfile.gettempdir()}/aiosd-fuzz-"]
        atheris.Setup([sys.argv[0], *limits, *shown, str(corpus)], make())
        atheris.Fuzz()
    finally:
        os._exit(1)


def main() -> int:
    """Fuzz."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="+")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: %(default)s)")
    parser.add_argument("--corpus", type=Path, help="where interesting inputs are kept from run to run")
    parser.add_argument("--again", type=Path, help="try this one input and nothing else")
    options = parser.parse_args()
    with atheris.instrument_imports(include=WATCHED):
        targets = importlib.import_module("tests.fuzz.targets").TARGETS
        importlib.import_module("aiosd.rpc.http")
    failed = 0
    for name in options.target:
        make, first = targets[name]
        if options.again is not None:
            make()(options.again.read_bytes())
            continue
        with tempfile.TemporaryDirectory(prefix="aiosd-corpus-") as place:
            corpus = options.corpus or Path(place)
            corpus.mkdir(parents=True, exist_ok=True)
            for number, data in enumerate(first):
                (corpus / f"first-{number}").write_bytes(data)
            print(f"{BEGIN}{name}", file=sys.stderr, flush=True)
            child = os.fork()
            if child == 0:
                search(make, corpus, options.seconds)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f"{END}{status}", file=sys.stderr, flush=True)
        failed = failed or status
    return failed if failed >= 0 else 128 - failed


if __name__ == "__main__":
    sys.exit(main())
