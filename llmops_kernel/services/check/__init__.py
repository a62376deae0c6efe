"""Checks of a config that use what it names, before a run exists."""
