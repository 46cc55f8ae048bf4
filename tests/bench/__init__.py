"""Figures: `python3 -m tests.bench` boots a box, measures the product in it and prints a table; needs root.

Every figure of speed stands beside its floor, measured in the same rounds, one right after the other: a shared machine
changes both alike, so the ratio holds where milliseconds do not. Floors are what nobody can go below who answers over
D-Bus, commits to the disk and lets systemd hold the process: raw calls, without a line of the product's on their path.

Read in this order: `figures` (what a figure is) → `floor` → `product` → `inside` (the rounds, in the box) → `box` (what
is around them) → `__main__`. It is a command and no test: nothing here fails because a machine is slow.
"""
