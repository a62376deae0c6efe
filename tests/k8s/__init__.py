"""Kubernetes: the stand-in, what was recorded from a real one, and tests against both."""
