"""Tests of the standard pack: the real programs, with a shim played by the test."""
