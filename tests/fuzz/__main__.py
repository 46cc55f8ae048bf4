"""`python3 -m tests.fuzz TARGET [--seconds N] [--corpus DIRECTORY]`: fuzz one target; an input that breaks it is kept.

The exit status is libFuzzer's: 0 when the time is over and nothing was found. A kept input is tried again with
`--again FILE`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

import atheris

WATCHED = ["aiosd.model", "aiosd.rpc", "aiosd.run.chunks", "aiohttp.web_protocol", "aiohttp.web_request", "json"]
"""Whose branches guide the search. aiohttp's parser is C and is fuzzed without."""


def main() -> None:
    """Fuzz."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="where interesting inputs are kept from run to run")
    parser.add_argument("--again", type=Path, help="try this one input and nothing else")
    options = parser.parse_args()
    with atheris.instrument_imports(include=WATCHED):
        targets = importlib.import_module("tests.fuzz.targets").TARGETS
        importlib.import_module("aiosd.rpc.http")
    make, first = targets[options.target]
    target = make()
    if options.again is not None:
        target(options.again.read_bytes())
        return
    with tempfile.TemporaryDirectory(prefix="aiosd-corpus-") as place:
        corpus = options.corpus or Path(place)
        corpus.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(first):
            (corpus / f"first-{number}").write_bytes(data)
        limits = [f"-max_total_time={options.seconds}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=1024"]
        shown = ["-print_final_stats=1", "-verbosity=1", f"-artifact_prefix={tempfile.gettempdir()}/aiosd-fuzz-"]
        atheris.Setup([sys.argv[0], *limits, *shown, str(corpus)], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
