"""Real systemd for the tests and the demo, on a machine whose own PID 1 may be anything.

Two kinds of box boot the same Debian 13 root file system:

- `container.Container`: a throw-away systemd-nspawn container. Up in about a second; real system bus, logind, polkit,
  journal, scopes, freezer. Where the host keeps its resource controllers on cgroup v1, limits are **not enforced**.
- `uml.Machine`: a user-mode-linux kernel of its own, with every cgroup v2 controller: limits are truly enforced.
  Slower, one CPU.

Both are `commands.Box`, so a test says `box.run("systemctl", "status", "aiosd")` whichever it got. `product.deploy`
puts the product in. From a shell: `python3 -m tests.rig --help`.

Standard library only, so that the demo runs on a machine with nothing installed. Needs root, and leaves the host as
it was: its own cgroups go with the box, nothing is mounted in the host's namespace; what stays is the cache
(`host.cache_directory`) and the Debian packages of `host.TOOLS`.

Read in this order: `host` (prerequisites) → `rootfs` → `commands` (how things are run) → `container`, `uml` →
`product`.
"""
