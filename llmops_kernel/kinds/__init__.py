"""Kinds of run: the parts of a run of each kind, its figures and its actions."""
