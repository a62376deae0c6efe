"""Benchmarks of looking at data."""
