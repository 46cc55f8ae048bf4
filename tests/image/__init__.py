"""Proves that the Debian package installs, upgrades and removes cleanly, and that an image with it boots and works."""
