"""The nodes of a cluster that a run uses."""
