"""Tests of the pure decisions about permission."""
