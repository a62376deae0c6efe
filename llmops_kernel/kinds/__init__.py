"""Kinds of run: what a run of each kind is made of, shows and can do."""
