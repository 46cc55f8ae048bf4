"""Webhooks: addresses, sending and the loop, against real HTTP servers on this machine."""
