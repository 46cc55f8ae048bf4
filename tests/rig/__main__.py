"""The rig from a shell: `python3 -m tests.rig VERB …`.

    boot [NAME] [--product] [--bus dbus-broker] [--bind HOSTDIR:DIR]… [--host-network]
    exec [NAME] [-u USER] [-l | -S SEAT] -- COMMAND …
    deploy [NAME]          install this checkout into it (again)
    stop [NAME] | stop --all
    list
    root                   build the root file system when needed, print where it is
    machine …              the same verbs (boot, exec, deploy, stop) for the user-mode-linux box, where limits are
    enforced

NAME is "box" unless said.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.rig import container, host, product, rootfs, uml
from tests.rig.commands import Box, CommandFailed, encode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tests.rig",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s VERB …",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_verbs(verbs)
    machine = verbs.add_parser("machine")
    _add_verbs(machine.add_subparsers(dest="machine_verb", required=True, metavar="VERB"))
    verbs.add_parser("list")
    verbs.add_parser("root")
    return parser


def _add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    boot = verbs.add_parser("boot")
    boot.add_argument("name", nargs="?", default="box")
    boot.add_argument("--product", action="store_true", help="install this checkout and start the daemon")
    boot.add_argument("--bus", type=container.Bus, choices=list(container.Bus), default=container.Bus.DAEMON)
    boot.add_argument("--bind", action="append", default=[], metavar="HOSTDIR:DIR", help="read-only")
    boot.add_argument("--host-network", action="store_true")
    run = verbs.add_parser("exec")
    run.add_argument("name", nargs="?", default="box")
    run.add_argument("-u", "--user", default="root")
    run.add_argument("-l", "--login", action="store_true", help="in a session of logind, not local")
    run.add_argument("-S", "--seat", help='with "seat0": in a local, active session')
    for verb in ("deploy", "stop"):
        other = verbs.add_parser(verb)
        other.add_argument("name", nargs="?", default="box")
        if verb == "stop":
            other.add_argument("--all", action="store_true")


def _boot(options: argparse.Namespace) -> Box:
    bind = {Path(source): target for source, _, target in (text.partition(":") for text in options.bind)}
    if options.verb == "machine":
        return uml.Machine.boot(options.name, bind=bind)
    return container.Container.boot(options.name, bind=bind, bus=options.bus, host_network=options.host_network)


def _attach(options: argparse.Namespace) -> Box:
    if options.verb == "machine":
        return uml.Machine.attach(options.name)
    return container.Container.attach(options.name)


def _exec(options: argparse.Namespace, command: list[str]) -> int:
    box = _attach(options)
    if isinstance(box, container.Container):
        box.become(command, user=options.user, login=options.login, seat=options.seat)
    done = box.run(*command, user=options.user, login=options.login, seat=options.seat, check=False, timeout=3600)
    sys.stdout.buffer.write(encode(done.stdout))
    sys.stderr.buffer.write(encode(done.stderr))
    return done.returncode


def _stop(options: argparse.Namespace) -> None:
    remove = uml.remove if options.verb == "machine" else container.remove
    every = uml.names if options.verb == "machine" else container.names
    for name in every() if options.all else [options.name]:
        remove(name)


def _perform(options: argparse.Namespace, command: list[str]) -> int:
    verb = options.machine_verb if options.verb == "machine" else options.verb
    if verb == "exec":
        return _exec(options, command or ["bash"])
    if verb == "boot":
        box = _boot(options)
        if options.product:
            product.deploy(box)
    elif verb == "deploy":
        product.deploy(_attach(options))
    elif verb == "stop":
        _stop(options)
    elif verb == "list":
        print("\n".join([*container.names(), *(f"machine {name}" for name in uml.names())]))
    else:
        print(rootfs.root_directory())
    return 0


def main() -> int:
    """Run one verb; exit status 69 (EX_UNAVAILABLE) when this machine cannot do it."""
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    options = _parser().parse_args(words[:split])
    try:
        return _perform(options, words[split + 1 :])
    except (host.Unavailable, CommandFailed, subprocess.CalledProcessError) as error:
        print(f"rig: {error}", file=sys.stderr)
        return 69


if __name__ == "__main__":
    sys.exit(main())
