"""Helpers of the Kubernetes tests."""
