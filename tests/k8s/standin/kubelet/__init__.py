"""Kubelets: simulated ones, and ones that start real Ray processes."""
