"""Tests of manifests: keys, lines, levels, directories, schemas."""
