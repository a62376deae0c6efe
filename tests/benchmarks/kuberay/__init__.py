"""Benchmarks of clusters on Kubernetes, against the stand-ins of `tests/k8s`."""
