"""Ray's worker processes forked from one that has already imported the training stack.

`launcher` stands where the raylet (or a job's `python`) expects an interpreter; it hands its
arguments, environment and descriptors to `server`, which forks a `child` that becomes that
interpreter. `keeper` keeps the server alive. Whatever goes wrong, the launcher starts a plain
interpreter instead and says why.

Below `clusters` and `train`, which both read this package's words; it knows nothing of either.
"""
