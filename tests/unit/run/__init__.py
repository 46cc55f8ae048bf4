"""The launcher, its fork server and the shim, with real processes and without systemd."""
