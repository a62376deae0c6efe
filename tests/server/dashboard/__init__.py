"""Tests of the proxy to the Ray dashboard and of its token."""
