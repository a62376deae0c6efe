"""Tests of our own package against the whole stand-in."""
