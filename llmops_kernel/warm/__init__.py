"""Forks Ray's worker processes from one that has already imported the training stack.

`launcher` runs in place of the interpreter that the raylet (or a job's `python`) expects. It sends
its arguments, environment and descriptors to `server`, which forks a `child` that becomes that
interpreter. `keeper` keeps the server alive. Whatever goes wrong, the launcher starts a plain
interpreter instead and says why.

This package is a layer below `providers` and `train`: both use its names, and it knows neither.
"""
