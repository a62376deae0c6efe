"""Names that clients and the cluster agree on for the models that stay loaded."""

NAMESPACE = "llmops-engines"
"""Ray's namespace of their actors."""
NOTES = "llmops-engines"
"""Folder in Ray's log folder of a node; each engine there writes down what it has loaded."""
END = "exec python -m llmops_kernel.driver.engines"
"""Command of a Ray job that ends those without work; its last line is `Ended` as JSON."""
