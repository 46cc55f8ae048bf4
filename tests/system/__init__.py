"""Proves what an administrator sees: the product on real systemd, with the real bus, logind, polkit and journal."""
