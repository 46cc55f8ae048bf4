"""Proves the D-Bus door with a private bus daemon and real clients: no systemd, no polkit, no root."""
